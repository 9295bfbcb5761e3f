"""States of stdio servers' processes, as their host reports them for the server's page. Nothing depends on them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from coordinator.models import McpProcess
from coordinator.secrets.masking import mask_secrets_in_value

LONGEST_WORDS = 4_000


@dataclass(frozen=True, slots=True)
class ProcessReport:
    """One process's state: `caller` is "" where all callers share it, else a digest of its caller."""

    server_id: str
    caller: str
    state: str
    pid: int | None
    words: str
    starts: int
    failures: int


def save_process_report(report: ProcessReport, now: datetime) -> None:
    """Write down how a process is."""
    McpProcess.objects.update_or_create(
        server_id=report.server_id,
        caller=report.caller,
        defaults={
            "state": report.state,
            "pid": report.pid,
            "last_words": mask_secrets_in_value(report.words[-LONGEST_WORDS:]),
            "starts": report.starts,
            "failures": report.failures,
            "since": now,
        },
    )


def reset_process_reports() -> None:
    """Reset the reports when a new host begins: its predecessor's processes have ended. Failures stay listed."""
    McpProcess.objects.exclude(state="failed").delete()
    McpProcess.objects.update(pid=None)
