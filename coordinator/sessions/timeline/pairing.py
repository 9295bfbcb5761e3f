"""Finds for each tool call its result.

Calls that carry a tool_use_id are paired by it. Others are paired as brackets are: an end belongs to the nearest
open beginning of the same tool with the same input. Brackets can be told within any stretch of the timeline that
holds both, so two windows never disagree about a pair. A beginning whose id is ours (MADE_CALL) is open for an end
without one, too, unless an end carries that id: that we denied the call, say.

Of a call through the MCP gateway both its agent and the gateway tell the end, under the agent's id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from coordinator.models.fields import dump
from coordinator.sessions.reports import IN_BACKGROUND, MADE_CALL
from coordinator.sessions.timeline.places import EventPlace
from coordinator.sessions.timeline.reading import CALL_ENDS, CALL_STARTS, Timeline, TimelineEvent, Window

# How far beyond a window the other half of a call without an id is looked for, in events.
REACH = 300


@dataclass(slots=True)
class Pairs:
    """Which event ends which: `end_of` by the id of the beginning, `start_of` by the id of the end.

    `passed` are the ends that the MCP gateway told, by the id of the beginning.
    """

    end_of: dict[int, TimelineEvent] = field(default_factory=dict)
    start_of: dict[int, TimelineEvent] = field(default_factory=dict)
    passed: dict[int, TimelineEvent] = field(default_factory=dict)

    def add(self, start: TimelineEvent, end: TimelineEvent) -> None:
        """Note a pair. Of two ends of one call that which says what came of it is shown, the agent's own first."""
        before = self.end_of.get(start.id)
        goes_on = end.reason == IN_BACKGROUND and before is not None and not before.by_gateway
        if before is None or (
            not goes_on and _says(end) and (before.by_gateway or not (_says(before) and end.by_gateway))
        ):
            self.end_of[start.id] = end
        if end.by_gateway:
            self.passed[start.id] = end
        self.start_of[end.id] = start


def _says(end: TimelineEvent) -> bool:
    """Say whether an end says what came of its call."""
    return end.error is not None or end.tool_output is not None


def pair(events: Iterable[TimelineEvent]) -> Pairs:
    """Return the pairs within `events`, which are in timeline order."""
    pairs = Pairs()
    named: dict[Hashable, TimelineEvent] = {}
    open_calls: dict[Hashable, list[TimelineEvent]] = defaultdict(list)
    events = list(events)
    ended = {event.tool_use_id for event in events if event.event_type == CALL_ENDS and not event.by_gateway}
    for event in events:
        if event.event_type == CALL_STARTS and event.tool_use_id:
            named.setdefault(event.tool_use_id, event)
    for event in events:
        if (
            event.event_type == CALL_STARTS
            and _is_nameless(event)
            and event.tool_use_id not in ended - {None}
        ):
            open_calls[pairing_key(event)].append(event)
        elif event.event_type == CALL_ENDS:
            # A clock that runs behind may date an end before its beginning: an id is believed all the same.
            start = named.get(event.tool_use_id) if event.tool_use_id else None
            if not event.tool_use_id and open_calls[pairing_key(event)]:
                start = open_calls[pairing_key(event)].pop()
            if start:
                pairs.add(start, event)
    return pairs


def _is_nameless(event: TimelineEvent) -> bool:
    """Say whether the call has no id of its agent's."""
    return not event.tool_use_id or event.tool_use_id.startswith(MADE_CALL)


def pairing_key(event: TimelineEvent) -> Hashable:
    """Return what a beginning and an end without an id must share."""
    if event.tool_input is None:
        return (event.subagent, event.tool_name, None)
    return (event.subagent, event.tool_name, event.tool_input.size, dump(event.tool_input.value))


def pair_window(timeline: Timeline, window: Window) -> Pairs:
    """Return the pairs that have at least one half in `window`; other halves are looked for around it."""
    pairs = pair(window.events)
    lonely = [event for event in window.events if _is_lonely(event, pairs)]
    ids = {event.tool_use_id for event in lonely if event.tool_use_id}
    nameless = [event for event in lonely if _is_nameless(event)]
    around = timeline.by_tool_use(ids) if ids else []
    around += _neighbours(timeline, window, nameless)
    if not around:
        return pairs
    everything = {event.id: event for event in (*window.events, *around)}
    return pair(sorted(everything.values(), key=lambda event: event.place))


def row_place(timeline: Timeline, event_id: int) -> EventPlace | None:
    """Return where the row of an event stands: a result's row is its call's. None for an event of elsewhere."""
    plain = timeline.seen_through()
    place = plain.place_of(event_id)
    event = next(iter(plain.events([event_id])), None) if place else None
    if event is None or event.event_type != CALL_ENDS:
        return place
    start = pair_window(plain, Window([event], older=True, newer=True)).start_of.get(event_id)
    return start.place if start else place


def _is_lonely(event: TimelineEvent, pairs: Pairs) -> bool:
    if event.event_type == CALL_STARTS:
        end = pairs.end_of.get(event.id)
        if end is not None and end.reason == IN_BACKGROUND:
            return True  # what came of it may follow
        return end is None or (end.by_gateway and not event.by_gateway)  # its agent's may follow
    return event.event_type == CALL_ENDS and event.id not in pairs.start_of


def _neighbours(timeline: Timeline, window: Window, lonely: list[TimelineEvent]) -> list[TimelineEvent]:
    """Return calls near the window that could be the other halves of calls without an id."""
    wanted = {event.tool_name for event in lonely}
    plain = timeline.seen_through()
    found: list[TimelineEvent] = []
    if any(event.event_type == CALL_STARTS for event in lonely):
        found += plain.after(window.events[-1].place, REACH).events
    if any(event.event_type == CALL_ENDS for event in lonely):
        found += plain.before(window.events[0].place, REACH).events
    if timeline.filters and lonely:
        # A filter leaves gaps within the window too.
        first, last = window.events[0].place, window.events[-1].place
        found += [event for event in plain.around(first, REACH).events if first <= event.place <= last]
    return [
        event for event in found if event.tool_name in wanted and event.event_type in (CALL_STARTS, CALL_ENDS)
    ]
