"""The summary of a session: what was asked, how it ended, what it changed, what went wrong.

It is computed from stored sums, from ends of indexes or from few rows, so its cost does not depend on the
length of the session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from coordinator.lib.times import format_duration
from coordinator.models import Event, PermissionRequest, Run, Session, SessionChange
from coordinator.models.permissions import RequestStatus
from coordinator.policy.rules.tool_kinds import KINDS
from coordinator.search.files import list_session_touched_file_counts
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.results import load_session_result
from coordinator.sessions.timeline import SessionEventCounts
from coordinator.sessions.title_words import preview_markdown
from coordinator.sessions.titles import load_first_prompt_id_and_text
from dashboard.sessions.changes import list_file_reports, read_line_count_or_zero

LONGEST_TEXT = 400  # characters of the prompt, the answer and errors
MOST_PATHS = 3
MOST_REQUESTS = 500


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """How many files a session changed."""

    files: int
    paths: list[str]
    added: int = 0
    removed: int = 0
    is_complete: bool = False  # whether a runner compared the directory; else calls were counted

    @property
    def named_paths(self) -> list[tuple[str, str]]:
        """The paths, each with the file's name."""
        return [(path, path.rstrip("/").rpartition("/")[2] or path) for path in self.paths]


@dataclass(frozen=True, slots=True)
class WaitSummary:
    """The permission requests of a session: their number, their verdicts, and how long they waited."""

    requests: int
    waiting: int  # requests that still wait
    waiting_since: datetime | None  # when the oldest of them was made
    denied: int
    total: timedelta  # in which one of the closed requests waited
    longest: timedelta
    is_cut: bool  # whether there are more than MOST_REQUESTS

    @property
    def total_label(self) -> str:
        return format_duration(self.total)

    @property
    def longest_label(self) -> str:
        return format_duration(self.longest)


@dataclass(frozen=True, slots=True)
class FirstError:
    event_id: int
    text: str


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """The summary in the header of a session's page."""

    first_prompt_text: str  # the beginning of the first prompt
    first_prompt_event: int  # the id of the event of that prompt, or 0
    answer: str
    end_reason: str
    run_error: str
    changes: ChangeSummary | None
    first_error: FirstError | None
    waits: WaitSummary


def load_session_summary(session: Session, counts: SessionEventCounts) -> SessionSummary:
    first_prompt_event, first_prompt = load_first_prompt_id_and_text(session.pk)
    result = load_session_result(session.pk)
    run = Run.objects.filter(session=session).order_by("-created_at", "-run_id").only("error").first()
    return SessionSummary(
        first_prompt_text=preview_markdown(first_prompt, LONGEST_TEXT),
        first_prompt_event=first_prompt_event,
        answer=preview_markdown(result.session_result_text_or_json, LONGEST_TEXT) if result else "",
        end_reason=load_end_reason_or_empty(session.pk),
        run_error=str(mask_secrets_in_value(run.error or ""))[:LONGEST_TEXT] if run else "",
        changes=load_change_summary(session.pk, [tool for tool, _ in counts.tools]),
        first_error=load_first_error(session.pk) if counts.errors else None,
        waits=load_wait_summary(session.pk),
    )


def load_end_reason_or_empty(session_id: str) -> str:
    """Return the reason in the latest event that ended the session, or ""."""
    ends = Event.objects.filter(session_id=session_id, event_type="session_stop", tool_name__isnull=True)
    reason = ends.order_by("-tool_name", "-id").values_list("reason", flat=True).first()
    return str(reason or "")[:100]


def load_change_summary(session_id: str, tools: Sequence[str]) -> ChangeSummary | None:
    """Return the changes that a runner found in the directory, else the files that the session's calls wrote.

    None if neither is known.
    """
    comparisons = SessionChange.objects.filter(session_id=session_id, run_id="", problem__isnull=True)
    row = comparisons.only("files").first()
    if row is not None:
        files = list_file_reports(row)
        return ChangeSummary(
            len(files),
            [str(file["path"]) for file in files[:MOST_PATHS]],
            sum(read_line_count_or_zero(file, "added") for file in files),
            sum(read_line_count_or_zero(file, "removed") for file in files),
            is_complete=True,
        )
    writers = sorted(set(tools) & set(KINDS["write"].tools))
    counts = list_session_touched_file_counts(session_id, writers)
    return ChangeSummary(len(counts), [path for path, _ in counts[:MOST_PATHS]]) if counts else None


def load_first_error(session_id: str) -> FirstError | None:
    errors = Event.objects.filter(session_id=session_id, error__isnull=False).order_by("id")
    error = errors.only("id", "error").first()
    if error is None:
        return None
    lines = [line.strip() for line in str(error.error or "")[: 4 * LONGEST_TEXT].splitlines() if line.strip()]
    return FirstError(error.pk, str(mask_secrets_in_value(" · ".join(lines[:2])))[:LONGEST_TEXT])


def load_wait_summary(session_id: str) -> WaitSummary:
    requests = PermissionRequest.objects.filter(context__session_id=session_id).order_by("-id")
    columns = ("created_at", "approved_at", "context__closed_at", "status")
    rows = list(requests.values_list(*columns)[: MOST_REQUESTS + 1])
    waits: list[tuple[datetime, datetime]] = []
    waiting_since = None
    for created_at, approved_at, closed_at, status in rows[:MOST_REQUESTS]:
        ended_at = next((moment for moment in (closed_at, approved_at) if isinstance(moment, datetime)), None)
        if isinstance(created_at, datetime) and ended_at is not None:
            waits.append((created_at, max(ended_at, created_at)))
        elif isinstance(created_at, datetime) and status == RequestStatus.PENDING:
            waiting_since = created_at  # the newest come first
    statuses = [status for *_, status in rows[:MOST_REQUESTS]]
    return WaitSummary(
        requests=len(statuses),
        waiting=statuses.count(RequestStatus.PENDING),
        waiting_since=waiting_since,
        denied=statuses.count(RequestStatus.DENIED),
        total=sum_time_covered_by_waits(waits),
        longest=max((end - start for start, end in waits), default=timedelta()),
        is_cut=len(rows) > MOST_REQUESTS,
    )


def sum_time_covered_by_waits(waits: Sequence[tuple[datetime, datetime]]) -> timedelta:
    """Return how long at least one request waited: what waits at the same time counts once."""
    total, covered_until = timedelta(), None
    for start, end in sorted(waits):
        begin = start if covered_until is None else max(start, covered_until)
        if end > begin:
            total += end - begin
        covered_until = end if covered_until is None else max(end, covered_until)
    return total
