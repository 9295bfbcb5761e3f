"""What a person needs beside the call itself: the task, the last steps, what was answered before, marks of danger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.db.models import Count, Max

from coordinator.models import Event, PermissionContext, PermissionRequest
from coordinator.policy import approvals, marks
from coordinator.sessions import recent
from coordinator.sessions.recent import Recent
from dashboard.looks.parts import Part, Spans

ANSWERS = (("approved", "approved"), ("denied", "denied"), ("expired", "not answered"))


@dataclass(frozen=True, slots=True)
class Glance:
    """`before` says in words how often the same call was asked for and how it was answered, `ruled` what rules said."""

    recent: Recent
    before: str
    reasons: Sequence[str]
    ruled: str = ""
    tool: str = ""
    kept: Sequence[marks.Mark] = ()

    @property
    def dangers(self) -> frozenset[str]:
        """Return those of the reasons that say more than to look twice."""
        return marks.find_dangers(self.kept, self.reasons)

    def with_spans(self, part: Part) -> Part:
        """Return a part of the call with the pieces that bear a mark."""
        if not self.reasons:
            return part
        bearing = [mark for mark in self.kept if mark.reason in self.reasons]
        if isinstance(part.value, str):
            return replace(part, spans=tuple(marks.spans(bearing, self.tool, part.value)))
        lines = [line for _, line in part.value]
        return replace(part, line_spans=_in_lines(lines, marks.spans(bearing, self.tool, "\n".join(lines))))


def _in_lines(lines: Sequence[str], spans: Sequence[tuple[int, int]]) -> dict[str, Spans]:
    """Return, by its text, what these pieces of the lines put together are in each line that has any of them."""
    found: dict[str, Spans] = {}
    start = 0
    for line in lines:
        end = start + len(line)
        here = [(max(a, start) - start, min(b, end) - start) for a, b in spans if a < end and b > start]
        if here:
            found[line] = tuple(here)
        start = end + 1
    return found


def glances(groups: Sequence[Sequence[PermissionRequest]]) -> list[Glance]:
    """Return a glance for each group of requests that ask for the same call: of its first, which is drawn."""
    firsts = [group[0] for group in groups]
    shown = {row.request_id for group in groups for row in group}
    answered = _answered({approvals.call_of(row) for row in firsts}, shown)
    kept = marks.saved()
    return [
        Glance(
            found,
            answered.get(approvals.call_of(row), ""),
            tuple(marks.reasons_of(row, kept)),
            _ruled(row),
            approvals.subject_of(row).tool_name or "",
            kept,
        )
        for row, found in zip(firsts, _recent(firsts), strict=True)
    ]


def _ruled(row: PermissionRequest) -> str:
    """Return what the rules said of the call when it was asked about; nothing where they were not asked."""
    told = row.metadata if isinstance(row.metadata, dict) else {}
    rule = told.get("rule")
    if isinstance(rule, str) and rule:
        return f"{rule[:1].upper()}{rule[1:]} requires a person's decision."
    return "No rule matches this call. The agent itself asks for permission." if "hook" in told else ""


def _recent(rows: Sequence[PermissionRequest]) -> list[Recent]:
    """Return what each request's session did before; nothing where it names none."""
    contexts = [approvals.context_of(row) for row in rows]
    known = [one for one in contexts if one is not None and one.session_id]
    newest = 0 if all(one.event_id for one in known) else _newest()
    told = recent.before([(str(one.session_id), one.event_id or newest) for one in known])
    found = {one.pk: _without_asked(one, said) for one, said in zip(known, told, strict=True)}
    return [found.get(one.pk, Recent()) if one is not None else Recent() for one in contexts]


def _newest() -> int:
    """Return an id above all events."""
    return (Event.objects.aggregate(last=Max("id"))["last"] or 0) + 1


def _without_asked(context: PermissionContext, found: Recent) -> Recent:
    """Leave out the call that is asked for, where the request does not say which event it is."""
    asked_last = not context.event_id and found.steps and found.steps[-1].tool == context.tool_name
    return replace(found, steps=found.steps[:-1]) if asked_last else found


def _answered(calls: set[str], shown: set[str]) -> dict[str, str]:
    """Return, by the digest of a call, how it was answered before, in words; those that are shown do not count."""
    counted: dict[str, Counter[str]] = {}
    rows = PermissionContext.objects.filter(
        subject_key__in=calls, closed_at__isnull=False, request__status__in=[one for one, _ in ANSWERS]
    )
    rows = rows.exclude(request__request_id__in=shown)
    for call, status, count in rows.values_list("subject_key", "request__status").annotate(n=Count("pk")):
        counted.setdefault(call, Counter())[status] += count
    return {call: _in_words(counts) for call, counts in counted.items()}


def _in_words(counts: Counter[str]) -> str:
    told = ", ".join(f"{counts[status]} {word}" for status, word in ANSWERS if counts[status])
    total = counts.total()
    return f"Asked {'once' if total == 1 else f'{total} times'} before: {told}."
