"""Pairing of tool calls with their results.

Calls that carry a tool_use_id are paired by it. Others are paired as brackets are: an end belongs to the nearest
open beginning of the same tool with the same input. Brackets can be matched within any stretch of the timeline
that holds both, so two windows never disagree about a pair. A beginning whose id is ours (MADE_CALL) is open for an end
without one, too, unless an end carries that id: that we denied the call, say.

Of a call through the MCP gateway both its agent and the gateway report the end, under the agent's id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from coordinator.models.fields import dump_compact_json
from coordinator.sessions.reports import IN_BACKGROUND, MADE_CALL
from coordinator.sessions.timeline.positions import EventPosition
from coordinator.sessions.timeline.reading import (
    CALL_ENDS,
    CALL_STARTS,
    EventWindow,
    SessionTimeline,
    TimelineEvent,
)

# How far beyond a window the other half of a call without an id is looked for, in events.
REACH = 300


@dataclass(slots=True)
class CallPairs:
    """Which event ends which: `end_of` by the id of the beginning, `start_of` by the id of the end.

    `passed` are the ends that the MCP gateway reported, by the id of the beginning.
    """

    end_of: dict[int, TimelineEvent] = field(default_factory=dict)
    start_of: dict[int, TimelineEvent] = field(default_factory=dict)
    passed: dict[int, TimelineEvent] = field(default_factory=dict)

    def add_call_pair(self, start: TimelineEvent, end: TimelineEvent) -> None:
        """Note a pair. Of two ends of one call that which says what came of it is shown, the agent's own first."""
        before = self.end_of.get(start.id)
        goes_on = end.reason == IN_BACKGROUND and before is not None and not before.is_reported_by_gateway
        if before is None or (
            not goes_on
            and call_end_has_outcome(end)
            and (
                before.is_reported_by_gateway
                or not (call_end_has_outcome(before) and end.is_reported_by_gateway)
            )
        ):
            self.end_of[start.id] = end
        if end.is_reported_by_gateway:
            self.passed[start.id] = end
        self.start_of[end.id] = start


def call_end_has_outcome(end: TimelineEvent) -> bool:
    """Say whether an end says what came of its call."""
    return end.error is not None or end.tool_output is not None


def pair_call_events(events: Iterable[TimelineEvent]) -> CallPairs:
    """Return the pairs within `events`, which are in timeline order."""
    pairs = CallPairs()
    calls_by_name: dict[Hashable, TimelineEvent] = {}
    open_calls: dict[Hashable, list[TimelineEvent]] = defaultdict(list)
    events = list(events)
    ended = {
        event.tool_use_id
        for event in events
        if event.event_type == CALL_ENDS and not event.is_reported_by_gateway
    }
    for event in events:
        if event.event_type == CALL_STARTS and event.tool_use_id:
            calls_by_name.setdefault(event.tool_use_id, event)
    for event in events:
        if (
            event.event_type == CALL_STARTS
            and lacks_agent_call_id(event)
            and event.tool_use_id not in ended - {None}
        ):
            open_calls[call_pairing_key(event)].append(event)
        elif event.event_type == CALL_ENDS:
            # A clock that runs behind may date an end before its beginning: an id is believed all the same.
            start = calls_by_name.get(event.tool_use_id) if event.tool_use_id else None
            if not event.tool_use_id and open_calls[call_pairing_key(event)]:
                start = open_calls[call_pairing_key(event)].pop()
            if start:
                pairs.add_call_pair(start, event)
    return pairs


def lacks_agent_call_id(event: TimelineEvent) -> bool:
    """Say whether the call has no id of its agent's."""
    return not event.tool_use_id or event.tool_use_id.startswith(MADE_CALL)


def call_pairing_key(event: TimelineEvent) -> Hashable:
    """Return what a beginning and an end without an id must share."""
    if event.tool_input is None:
        return (event.subagent, event.tool_name, None)
    return (event.subagent, event.tool_name, event.tool_input.size, dump_compact_json(event.tool_input.value))


def load_call_pairs_around_window(timeline: SessionTimeline, window: EventWindow) -> CallPairs:
    """Return the pairs that have at least one half in `window`; other halves are looked for around it."""
    pairs = pair_call_events(window.events)
    lonely = [event for event in window.events if is_call_start_or_end_unpaired(event, pairs)]
    ids = {event.tool_use_id for event in lonely if event.tool_use_id}
    nameless = [event for event in lonely if lacks_agent_call_id(event)]
    around = timeline.read_tool_use_events(ids) if ids else []
    around += find_candidate_call_halves_near_window(timeline, window, nameless)
    if not around:
        return pairs
    everything = {event.id: event for event in (*window.events, *around)}
    return pair_call_events(sorted(everything.values(), key=lambda event: event.event_position))


def find_timeline_row_position(timeline: SessionTimeline, event_id: int) -> EventPosition | None:
    """Return the position of an event's row: a result's row is its call's. None for an event of elsewhere."""
    plain = timeline.with_filters()
    position = plain.find_event_position(event_id)
    event = next(iter(plain.read_events_with_ids([event_id])), None) if position else None
    if event is None or event.event_type != CALL_ENDS:
        return position
    start = load_call_pairs_around_window(plain, EventWindow([event], older=True, newer=True)).start_of.get(
        event_id
    )
    return start.event_position if start else position


def is_call_start_or_end_unpaired(event: TimelineEvent, pairs: CallPairs) -> bool:
    if event.event_type == CALL_STARTS:
        end = pairs.end_of.get(event.id)
        if end is not None and end.reason == IN_BACKGROUND:
            return True  # what came of it may follow
        return end is None or (
            end.is_reported_by_gateway and not event.is_reported_by_gateway
        )  # its agent's may follow
    return event.event_type == CALL_ENDS and event.id not in pairs.start_of


def find_candidate_call_halves_near_window(
    timeline: SessionTimeline, window: EventWindow, lonely: list[TimelineEvent]
) -> list[TimelineEvent]:
    """Return calls near the window that could be the other halves of calls without an id."""
    tool_names = {event.tool_name for event in lonely}
    plain = timeline.with_filters()
    neighbours: list[TimelineEvent] = []
    if any(event.event_type == CALL_STARTS for event in lonely):
        neighbours += plain.read_window_after_position(window.events[-1].event_position, REACH).events
    if any(event.event_type == CALL_ENDS for event in lonely):
        neighbours += plain.read_window_before_position(window.events[0].event_position, REACH).events
    if timeline.filters and lonely:
        # A filter leaves gaps within the window too.
        first, last = window.events[0].event_position, window.events[-1].event_position
        neighbours += [
            event
            for event in plain.read_window_around_position(first, REACH).events
            if first <= event.event_position <= last
        ]
    return [
        event
        for event in neighbours
        if event.tool_name in tool_names and event.event_type in (CALL_STARTS, CALL_ENDS)
    ]
