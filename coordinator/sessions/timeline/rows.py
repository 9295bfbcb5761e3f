"""The rows that a person reads, built from a window of events: one a message, one a call, one a milestone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal

from coordinator.lib import instants
from coordinator.models import Event, PermissionRequest, Session
from coordinator.models.fields import dump_compact_json
from coordinator.models.permissions import RequestStatus
from coordinator.sessions import titles
from coordinator.sessions.agent_programs import REPORTS_ALL_RESULTS
from coordinator.sessions.list_facts import annotate_sessions_with_last_event
from coordinator.sessions.reports import IN_BACKGROUND, REWIND, TURN_END
from coordinator.sessions.statuses import AT_WORK, LIVE
from coordinator.sessions.timeline.pairing import CallPairs, load_call_pairs_around_window
from coordinator.sessions.timeline.positions import EventPosition
from coordinator.sessions.timeline.reading import (
    CALL_ENDS,
    CALL_STARTS,
    CATEGORIES,
    EventWindow,
    SessionTimeline,
    TimelineEvent,
    TimelineFilters,
)
from coordinator.sessions.timeline.rewinds import is_in_rewound_span, load_rewound_spans
from coordinator.usage.prices import normalize_model_name

# Later than every event.
FAR = EventPosition(2**63 - 1, 2**63 - 1)
STARTS_SESSION = "start_agent_session"  # how the tools are called that start a child session
MAX_RELATED_ROWS = 100  # approvals, and children, of one window

MOST_LEFT_BEHIND = 300  # events that a rewind left behind, whose rows open pages replace

# Calls more than this many events before the end of their turn are updated when the page is read again.
REACH = 300

CallState = Literal["done", "failed", "running", "refused", "no result"]


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """One row. `event_id` is the anchor that permalinks name; `place` is the row's position.

    `is_rewound`: a person left it behind by rewinding.
    """

    place: EventPosition
    is_rewound: bool = field(default=False, kw_only=True)

    row_type = "row"

    @property
    def event_id(self) -> int:
        return self.place.event_id

    @property
    def happened_at(self) -> datetime | None:
        """When it happened, or None where that is unknown."""
        return self.place.position_datetime

    @property
    def row_end_us(self) -> int:
        """When it was over, in microseconds; for most rows the moment itself."""
        return self.place.at_us


@dataclass(frozen=True, slots=True)
class MessageRow(TimelineRow):
    """What a person or an agent said; `model_before` is the model of the answer before, where it was another one."""

    event: TimelineEvent
    model_before: str = ""

    row_type = "message"


@dataclass(frozen=True, slots=True)
class MilestoneRow(TimelineRow):
    """A milestone (start, end) or an event of a type that we do not know."""

    event: TimelineEvent

    row_type = "milestone"


@dataclass(frozen=True, slots=True)
class CallRow(TimelineRow):
    """A tool call: its beginning, its end, or both. Without an end it runs, or got no result (`may_run`).

    An end that says that the call goes on in the background is none until its turn ends.

    `refused`: its agent ended the turn in good order and reported no result, so it did not let the call run.
    `passed` is the end as reported by the MCP gateway, through which the call went. `child` is the row of the session
    that the call started.
    """

    start: TimelineEvent | None
    end: TimelineEvent | None
    may_run: bool
    refused: bool = False
    passed: TimelineEvent | None = None
    child: ChildRow | None = None

    row_type = "call"

    @property
    def event_with_tool_name_and_input(self) -> TimelineEvent:
        """The half that names the tool and its input; the beginning where there is one."""
        half = self.start or self.end
        assert half is not None
        return half

    @property
    def gateway_tool_name_suffix(self) -> str:
        """Return as which tool the gateway knows the call, where its agent's settings give the server another name."""
        if self.passed is None or self.passed.tool_name in {
            None,
            self.event_with_tool_name_and_input.tool_name,
        }:
            return ""
        return f" as {self.passed.tool_name}"

    @property
    def call_state(self) -> CallState:
        if self.end is None and self.refused:
            return "refused"
        if self.end is None:
            return "running" if self.may_run else "no result"
        if self.end.reason == IN_BACKGROUND and self.may_run:
            return "running"
        return "failed" if self.end.error is not None else "done"

    @property
    def duration_ms(self) -> int | None:
        """How long it took, as the executor says, else between its two events."""
        if self.end is None:
            return None
        if self.end.duration_ms is not None:
            return self.end.duration_ms
        return None if self.start is None else max(0, self.end.at_us - self.start.at_us) // 1000

    @property
    def row_end_us(self) -> int:
        if self.end is None:
            return self.place.at_us
        if self.start is None:
            return self.place.at_us
        # Not part of what the gateway says it took.
        waited = self.end.gateway.waited_ms if self.end.gateway else 0.0
        return max(self.place.at_us + int((self.duration_ms or 0) + waited) * 1000, self.place.at_us)


@dataclass(frozen=True, slots=True)
class ApprovalRow(TimelineRow):
    """A question that the agent put to people: from when it was asked until somebody, or the clock, ended it."""

    request: PermissionRequest

    row_type = "approval"

    @property
    def event_id(self) -> int:
        return 0

    @property
    def ended_at(self) -> datetime | None:
        """When it was decided, withdrawn or expired; None while it waits."""
        context = self.request.context
        for moment in (context.closed_at, self.request.approved_at):
            if isinstance(moment, datetime):
                return moment
        return None

    @property
    def is_waiting_for_person(self) -> bool:
        return self.request.status == RequestStatus.PENDING

    @property
    def row_end_us(self) -> int:
        """When the agent knew; for one that waits, when it asked."""
        return (
            max(self.place.at_us, instants.instant_to_microseconds(self.ended_at))
            if self.ended_at
            else self.place.at_us
        )


@dataclass(frozen=True, slots=True)
class ChildRow(TimelineRow):
    """A session that this one started; `last_us` is when its latest event happened."""

    child: Session
    last_us: int | None
    title: str = ""

    row_type = "child"

    @property
    def is_child_running(self) -> bool:
        return self.child.status in LIVE and self.child.status != Session.Status.IDLE

    @property
    def row_end_us(self) -> int:
        return max(self.place.at_us, self.last_us or 0)

    @property
    def event_id(self) -> int:
        return 0


def load_window_rows(timeline: SessionTimeline, window: EventWindow, session: Session) -> list[TimelineRow]:
    """Return the rows of a window in order. A result whose call is in an earlier window is shown there."""
    rows: list[TimelineRow] = []
    if window.events:
        pairs = load_call_pairs_around_window(timeline, window)
        over = position_before_which_calls_ended(timeline, window.events, pairs, session)
        ended = find_prompt_ids_of_ended_turns(calls_without_result(window.events, pairs), session)
        rows += iterate_event_rows(window.events, pairs, over, ended, strays=bool(timeline.filters))
        rows = rows_with_model_changes_flagged(timeline, rows)
    if not timeline.filters:
        span = window_time_query_lookups(window)
        rows += load_approval_rows(session, **span)
        rows = join_child_sessions_to_rows(rows, list(load_child_rows(session, **span)))
    return sorted(rows_with_rewound_flags(timeline, rows), key=lambda row: row.place)


def rows_with_rewound_flags(timeline: SessionTimeline, rows: list[TimelineRow]) -> list[TimelineRow]:
    """Return the rows, of which those say so that a person left behind by rewinding."""
    if not timeline.rewound_spans:
        return rows
    return [
        replace(row, is_rewound=True)
        if is_in_rewound_span(timeline.rewound_spans, row.place.at_us) and not is_rewind_row(row)
        else row
        for row in rows
    ]


def is_rewind_row(row: TimelineRow) -> bool:
    return isinstance(row, MilestoneRow) and row.event.event_type == REWIND


def join_child_sessions_to_rows(rows: list[TimelineRow], children: Sequence[ChildRow]) -> list[TimelineRow]:
    """Return the rows with one for each child: that of the call that started it, else one of its own."""
    started = {
        row.place: child
        for child in children
        for row in rows
        if isinstance(row, CallRow) and call_started_child_session(row, child)
    }
    joined = {child.child.pk for child in started.values()}
    return [
        *(replace(row, child=started.get(row.place)) if isinstance(row, CallRow) else row for row in rows),
        *(child for child in children if child.child.pk not in joined),
    ]


def call_started_child_session(call: CallRow, child: ChildRow) -> bool:
    """Say whether a call started a child session: its answer names it, or it still runs and starts sessions."""
    if call.place.at_us > child.place.at_us:
        return False
    if call.end is None or call.end.tool_output is None:
        tool_name = call.event_with_tool_name_and_input.tool_name or ""
        return call.call_state == "running" and tool_name.endswith(STARTS_SESSION)
    return child.place.at_us <= call.row_end_us and child.child.pk in dump_compact_json(
        call.end.tool_output.value
    )


@dataclass(frozen=True, slots=True)
class ArrivedRows:
    """What newly arrived events make: new rows, older calls that are complete now, and rows of errors alone.

    Who looks at errors alone sees a failed call where it ended, and not where it began.
    """

    new: list[TimelineRow]
    completed: list[TimelineRow]
    failed: list[TimelineRow]


def load_arrived_rows_of_events(
    timeline: SessionTimeline, events: list[TimelineEvent], session: Session
) -> ArrivedRows:
    """Return what newly arrived `events`, in timeline order, make of a session's timeline."""
    if not events:
        return ArrivedRows([], [], [])
    pairs = load_call_pairs_around_window(timeline, EventWindow(events, older=True, newer=False))
    over = position_before_which_calls_ended(timeline, events, pairs, session)
    loaded_ids = {event.id for event in events}
    completed: list[TimelineRow] = []
    for event in events:
        start = pairs.start_of.get(event.id)
        if start and start.id not in loaded_ids:
            end, passed = pairs.end_of[start.id], pairs.passed.get(start.id)
            completed.append(CallRow(start.event_position, start, end, may_run=False, passed=passed))
    completed += iterate_calls_ended_without_result(events, timeline, loaded_ids)
    ended = find_prompt_ids_of_ended_turns(calls_without_result(events, pairs), session)
    errors = [event for event in events if event.error is not None]
    new = rows_with_model_changes_flagged(
        timeline, list(iterate_event_rows(events, pairs, over, ended, strays=False))
    )
    arrived = ArrivedRows(
        new=join_children_to_arrived_calls(new, session),
        completed=join_children_to_arrived_calls(completed, session),
        failed=list(iterate_event_rows(errors, pairs, over, ended, strays=True)),
    )
    rewind_ids = [event.id for event in events if event.event_type == REWIND]
    return (
        arrived_rows_with_rewound(arrived, timeline, rewind_ids, loaded_ids, session)
        if rewind_ids
        else arrived
    )


def arrived_rows_with_rewound(
    arrived: ArrivedRows,
    timeline: SessionTimeline,
    rewind_ids: list[int],
    loaded_ids: set[int],
    session: Session,
) -> ArrivedRows:
    """Return what arrived with the rows that its rewinds left behind, the newest MOST_LEFT_BEHIND, which say so now."""
    spans = load_rewound_spans(timeline.session_id, rewind_ids)
    older = timeline.read_events_in_spans(spans, MOST_LEFT_BEHIND)
    events = [event for event in older if event.id not in loaded_ids]
    pairs = load_call_pairs_around_window(timeline, EventWindow(events, older=True, newer=True))
    over = position_before_which_calls_ended(timeline, events, pairs, session) if events else None
    ended = find_prompt_ids_of_ended_turns(calls_without_result(events, pairs), session)
    left_behind = join_children_to_arrived_calls(
        list(iterate_event_rows(events, pairs, over, ended, strays=False)), session
    )
    return ArrivedRows(
        new=rows_with_rewound_flags(timeline, arrived.new),
        completed=rows_with_rewound_flags(timeline, [*left_behind, *arrived.completed]),
        failed=rows_with_rewound_flags(timeline, arrived.failed),
    )


def join_children_to_arrived_calls(rows: list[TimelineRow], session: Session) -> list[TimelineRow]:
    """Return arrived rows, of which those of calls that started a child session have the child's."""
    starts = [
        row
        for row in rows
        if isinstance(row, CallRow)
        and (row.event_with_tool_name_and_input.tool_name or "").endswith(STARTS_SESSION)
    ]
    since = min(row.place for row in starts).position_datetime if starts else None
    if since is None:
        return rows
    children = list(load_child_rows(session, created_at__gte=since))
    return [row for row in join_child_sessions_to_rows(rows, children) if not isinstance(row, ChildRow)]


def iterate_event_rows(
    events: list[TimelineEvent],
    pairs: CallPairs,
    over: EventPosition | None,
    ended: set[str],
    *,
    strays: bool,
) -> Iterable[TimelineRow]:
    loaded_ids = {event.id for event in events}
    for event in events:
        if event.event_type == CALL_STARTS:
            may_run = over is None or event.event_position > over
            refused = can_missing_result_mean_refusal(event) and event.prompt_id in ended
            end, passed = pairs.end_of.get(event.id), pairs.passed.get(event.id)
            yield CallRow(event.event_position, event, end, may_run, refused, passed)
        elif event.event_type == CALL_ENDS:
            start = pairs.start_of.get(event.id)
            if start is None or (strays and start.id not in loaded_ids):
                passed = event if event.is_reported_by_gateway else None
                yield CallRow(event.event_position, start, event, may_run=False, passed=passed)
        elif event.event_type in CATEGORIES["messages"]:
            yield MessageRow(event.event_position, event)
        else:
            yield MilestoneRow(event.event_position, event)


def rows_with_model_changes_flagged(timeline: SessionTimeline, rows: list[TimelineRow]) -> list[TimelineRow]:
    """Return the rows in which answers of the session's own agent by another model than the one before say so.

    Nothing is marked of a filtered timeline: the answer before may not be in it.
    """
    model = None
    marked_rows: list[TimelineRow] = []
    for row in rows:
        if (
            isinstance(row, MessageRow)
            and is_main_agent_answer_with_model(row.event)
            and not timeline.filters
        ):
            model = timeline.answering_model_before_or_empty(row.place) if model is None else model
            if model and normalize_model_name(model) != normalize_model_name(row.event.model or ""):
                row = replace(row, model_before=model)  # noqa: PLW2901
            model = row.event.model or ""
        marked_rows.append(row)
    return marked_rows


def is_main_agent_answer_with_model(event: TimelineEvent) -> bool:
    """Say whether the session's own agent gives an answer of which the model is known."""
    return event.role == "assistant" and event.subagent is None and bool(event.model)


def calls_without_result(events: Iterable[TimelineEvent], pairs: CallPairs) -> list[TimelineEvent]:
    """Return the calls of which no result was reported."""
    return [event for event in events if event.event_type == CALL_STARTS and event.id not in pairs.end_of]


def can_missing_result_mean_refusal(call: TimelineEvent) -> bool:
    """Say whether its agent reports each call that has run: then one without a result was not let run.

    Not that of a sub-agent, which may go on when the turn has ended.
    """
    return call.source in REPORTS_ALL_RESULTS and call.subagent is None and call.prompt_id is not None


def find_prompt_ids_of_ended_turns(calls: Iterable[TimelineEvent], session: Session) -> set[str]:
    """Return which of these calls' turns the agent has ended in good order, by their prompts' ids."""
    prompts = {call.prompt_id for call in calls if can_missing_result_mean_refusal(call)}
    if not prompts:
        return set()
    ends = Event.objects.filter(session_id=session.pk, event_type=TURN_END, error__isnull=True)
    ended = ends.filter(context__prompt_id__in=prompts).values_list("context__prompt_id", flat=True)
    return {prompt_id for prompt_id in ended if prompt_id}


def iterate_calls_ended_without_result(
    events: list[TimelineEvent], timeline: SessionTimeline, loaded_ids: set[int]
) -> Iterable[CallRow]:
    """Yield earlier calls that get no result any more, as the ends of turns among `events` show: some were refused."""
    ends = [event for event in events if event_ends_earlier_calls(event)]
    if not ends:
        return
    well = {end.prompt_id for end in ends if end.event_type == TURN_END and end.error is None}
    plain = timeline.with_filters()
    window = plain.read_window_before_position(ends[-1].event_position, REACH)
    for call in (
        calls_without_result(window.events, load_call_pairs_around_window(plain, window))
        if window.events
        else []
    ):
        if call.id not in loaded_ids:
            refused = can_missing_result_mean_refusal(call) and call.prompt_id in well
            yield CallRow(call.event_position, call, None, may_run=False, refused=refused)


def event_ends_earlier_calls(event: TimelineEvent) -> bool:
    """Say whether no earlier call is reported as ended after the event (`position_before_which_calls_ended`)."""
    return event.event_type in CATEGORIES["lifecycle"] or (event.role == "user" and event.subagent is None)


def position_before_which_calls_ended(
    timeline: SessionTimeline, events: list[TimelineEvent], pairs: CallPairs, session: Session
) -> EventPosition | None:
    """Return the place before which a call without a result will get none; None while all may still run."""
    if session.status not in AT_WORK:
        return FAR
    if not any(event.event_type == CALL_STARTS and event.id not in pairs.end_of for event in events):
        return None
    # A person speaks when the agent's turn is over; a denied or interrupted call is never reported as ended.
    turn_positions = [
        event.event_position for event in events if event.role == "user" and event.subagent is None
    ]
    ends = timeline.with_filters(TimelineFilters(categories=("lifecycle",))).read_last_window(1).events
    return max([*turn_positions, *(event.event_position for event in ends)], default=None)


def window_time_query_lookups(window: EventWindow) -> dict[str, datetime]:
    """Return the lookups that keep what happened within a window; open ends reach as far as the session."""
    span: dict[str, datetime] = {}
    if window.events and window.older and (first := window.events[0].event_datetime):
        span["created_at__gte"] = first
    if window.events and window.newer and (last := window.events[-1].event_datetime):
        span["created_at__lt"] = last
    return span


def load_approval_rows(session: Session, **span: datetime) -> Iterable[ApprovalRow]:
    permission_requests = PermissionRequest.objects.filter(context__session_id=session.pk, **span)
    return build_approval_rows(
        permission_requests.annotate_short_listed_inputs().order_by("created_at", "id")[:MAX_RELATED_ROWS]
    )


def build_approval_rows(requests: Iterable[PermissionRequest]) -> list[ApprovalRow]:
    """Return the rows of permission requests, loaded with their contexts; one without a time has no place."""
    return [
        ApprovalRow(EventPosition.position_before_moment(request.created_at), request)
        for request in requests
        if isinstance(request.created_at, datetime)
    ]


def load_child_rows(session: Session, **span: datetime) -> Iterable[ChildRow]:
    children = list(
        annotate_sessions_with_last_event(session.children.filter(**span)).order_by(
            "created_at", "session_id"
        )[:MAX_RELATED_ROWS]
    )
    session_titles = titles.load_session_titles(child.pk for child in children)
    return [
        ChildRow(
            EventPosition.position_before_moment(child.created_at),
            child,
            child.last_us,
            session_titles.get(child.pk, ""),
        )
        for child in children
        if isinstance(child.created_at, datetime)
    ]
