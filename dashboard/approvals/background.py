"""What a card shows besides the call: the last steps, earlier answers, danger marks, the rules' ruling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.db.models import Count, Max

from coordinator.models import Event, PermissionContext, PermissionRequest
from coordinator.policy.requests import approvals
from coordinator.policy.rules import marks
from coordinator.sessions import recent
from coordinator.sessions.recent import RecentActivity
from dashboard.looks.parts import DisplayPart, Spans

ANSWERS = (("approved", "approved"), ("denied", "denied"), ("expired", "not answered"))


@dataclass(frozen=True, slots=True)
class RequestBackground:
    """What a person should know about a request before they decide.

    `recent` is what the session did before. `before` says how often the same call was requested and how that
    was answered. `reasons` are those of the danger marks that match. `ruled` is what the rules decided.
    `tool` is the call's tool and `configured_marks` are all configured danger marks.
    """

    recent: RecentActivity
    before: str
    reasons: Sequence[str]
    ruled: str = ""
    tool: str = ""
    configured_marks: Sequence[marks.CallMark] = ()

    @property
    def danger_marks(self) -> frozenset[str]:
        """Return those of `reasons` whose danger mark has the grade danger."""
        return marks.select_danger_grade_reasons(self.configured_marks, self.reasons)

    def part_with_danger_spans(self, part: DisplayPart) -> DisplayPart:
        """Return the part with the spans that match a danger mark."""
        if not self.reasons:
            return part
        bearing = [mark for mark in self.configured_marks if mark.reason in self.reasons]
        if isinstance(part.value, str):
            return replace(part, spans=tuple(marks.find_merged_mark_spans(bearing, self.tool, part.value)))
        lines = [line for _, line in part.value]
        return replace(
            part,
            line_spans=map_line_texts_to_spans(
                lines, marks.find_merged_mark_spans(bearing, self.tool, "\n".join(lines))
            ),
        )


def map_line_texts_to_spans(lines: Sequence[str], spans: Sequence[tuple[int, int]]) -> dict[str, Spans]:
    """Return the spans of each line, by the line's text.

    `spans` are positions in the lines joined by line feeds.
    """
    spans_by_line: dict[str, Spans] = {}
    start = 0
    for line in lines:
        end = start + len(line)
        line_spans = [(max(a, start) - start, min(b, end) - start) for a, b in spans if a < end and b > start]
        if line_spans:
            spans_by_line[line] = tuple(line_spans)
        start = end + 1
    return spans_by_line


def load_backgrounds_of_request_groups(
    groups: Sequence[Sequence[PermissionRequest]],
) -> list[RequestBackground]:
    """Return the background of each group of requests for the same call, from the group's first request."""
    firsts = [group[0] for group in groups]
    request_ids = {row.request_id for group in groups for row in group}
    previous_answers = load_previous_answers_by_call(
        {approvals.request_call_digest(row) for row in firsts}, request_ids
    )
    danger_marks = marks.load_danger_marks()
    return [
        RequestBackground(
            steps,
            previous_answers.get(approvals.request_call_digest(row), ""),
            tuple(marks.find_request_review_reasons(row, danger_marks)),
            describe_rule_ruling_of_request(row),
            approvals.request_subject(row).tool_name or "",
            danger_marks,
        )
        for row, steps in zip(firsts, list_session_steps_before_requests(firsts), strict=True)
    ]


def describe_rule_ruling_of_request(row: PermissionRequest) -> str:
    """Return what the rules decided about the call, in words; empty if they were not evaluated."""
    metadata = row.metadata if isinstance(row.metadata, dict) else {}
    rule = metadata.get("rule")
    if isinstance(rule, str) and rule:
        return f"{rule[:1].upper()}{rule[1:]} requires a person's decision."
    return "No rule matches this call. The agent itself asks for permission." if "hook" in metadata else ""


def list_session_steps_before_requests(rows: Sequence[PermissionRequest]) -> list[RecentActivity]:
    """Return what the session of each request did before it.

    The activity is empty for a request that names no session.
    """
    contexts = [approvals.request_context(row) for row in rows]
    known_contexts = [context for context in contexts if context is not None and context.session_id]
    newest = 0 if all(one.event_id for one in known_contexts) else id_above_all_events()
    activity = recent.load_recent_activity_before_events(
        [(str(one.session_id), one.event_id or newest) for one in known_contexts]
    )
    steps_by_context = {
        one.pk: drop_requested_call_from_activity(one, steps_before)
        for one, steps_before in zip(known_contexts, activity, strict=True)
    }
    return [
        steps_by_context.get(context.pk, RecentActivity()) if context is not None else RecentActivity()
        for context in contexts
    ]


def id_above_all_events() -> int:
    """Return an id that is larger than those of all events."""
    return (Event.objects.aggregate(last=Max("id"))["last"] or 0) + 1


def drop_requested_call_from_activity(context: PermissionContext, activity: RecentActivity) -> RecentActivity:
    """Remove the requested call from the activity's end if the request does not say which event it is."""
    ends_with_requested_call = (
        not context.event_id and activity.steps and activity.steps[-1].tool == context.tool_name
    )
    return replace(activity, steps=activity.steps[:-1]) if ends_with_requested_call else activity


def load_previous_answers_by_call(calls: set[str], shown_ids: set[str]) -> dict[str, str]:
    """Return how each call was answered before, in words, by its digest.

    Requests in `shown_ids` do not count.
    """
    counted: dict[str, Counter[str]] = {}
    rows = PermissionContext.objects.filter(
        subject_key__in=calls,
        closed_at__isnull=False,
        request__status__in=[status_name for status_name, _ in ANSWERS],
    )
    rows = rows.exclude(request__request_id__in=shown_ids)
    for call, status, count in rows.values_list("subject_key", "request__status").annotate(n=Count("pk")):
        counted.setdefault(call, Counter())[status] += count
    return {call: describe_answer_counts(counts) for call, counts in counted.items()}


def describe_answer_counts(counts: Counter[str]) -> str:
    counts_text = ", ".join(f"{counts[status]} {word}" for status, word in ANSWERS if counts[status])
    total = counts.total()
    return f"Asked {'once' if total == 1 else f'{total} times'} before: {counts_text}."
