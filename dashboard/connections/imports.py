"""Which machines have sent transcripts, what came of them, and what could not be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from coordinator.models import AuditLog
from coordinator.sessions.agent_programs import AGENT_TITLES

LOOKED_AT = 1_000  # of the newest imports
MOST_SHOWN = 50


@dataclass(slots=True)
class MachineImports:
    """One agent's imports from one machine."""

    hostname: str
    program: str
    at: datetime | None  # of the newest; None where its time cannot be read
    files: int = 0
    events: int = 0
    sessions: int = 0
    unread: int = 0
    unread_kinds: str = ""


def list_machine_imports() -> list[MachineImports]:
    """Return the imports of the newest LOOKED_AT rows of the audit log that say of which machine they are."""
    rows = AuditLog.objects.filter(event_type="TRANSCRIPTS_IMPORTED").order_by("-id")
    machines: dict[tuple[str, str], MachineImports] = {}
    kinds: dict[tuple[str, str], set[str]] = {}
    for timestamp, facts in rows.values_list("timestamp", "metadata")[:LOOKED_AT]:
        if not isinstance(facts, dict) or not facts.get("profile"):
            continue
        key = (str(facts.get("hostname") or "unknown"), str(facts["profile"]))
        if key not in machines:
            if len(machines) == MOST_SHOWN:
                continue
            machines[key] = MachineImports(key[0], AGENT_TITLES.get(key[1], key[1]), timestamp)
        imports, unread = machines[key], facts.get("not_understood")
        unread = unread if isinstance(unread, dict) else {}
        imports.files += count_or_zero(facts.get("files"))
        imports.events += count_or_zero(facts.get("events_added"))
        imports.sessions += count_or_zero(facts.get("sessions_made"))
        imports.unread += sum(map(count_or_zero, unread.values())) + count_or_zero(facts.get("refused"))
        kinds.setdefault(key, set()).update(map(str, unread))
        imports.unread_kinds = ", ".join(sorted(kinds[key]))[:300]
    return list(machines.values())


def count_or_zero(value: object) -> int:
    return value if isinstance(value, int) else 0
