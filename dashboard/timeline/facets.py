"""The filters above a timeline, each with how much there is of it."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.sessions.timeline import SessionEventCounts
from dashboard.timeline.query import TimelineQuery

LABELS = {"messages": "Messages", "calls": "Calls", "lifecycle": "Milestones", "other": "Other"}


@dataclass(frozen=True, slots=True)
class TimelineFacet:
    """One filter: what it is called, how much it lets through, whether it is on, and the query that switches it.

    It is hidden until there is something of it.
    """

    key: str
    label: str
    count: int
    on: bool
    query: str
    is_hidden: bool = False


def build_timeline_facets(counts: SessionEventCounts, query: TimelineQuery) -> list[TimelineFacet]:
    """Return the categories, and errors, which are never hidden: that there are none is worth knowing."""
    numbers = counts.categories | {"calls": counts.call_count}
    categories = [
        TimelineFacet(
            key,
            label,
            numbers[key],
            key in query.categories,
            query.query_with_category(key),
            is_hidden=not counts.categories[key] and key not in query.categories,
        )
        for key, label in LABELS.items()
    ]
    return [
        *categories,
        TimelineFacet("errors", "Errors", counts.errors, query.errors, query.query_with_errors_toggled),
    ]


def build_tool_facets(counts: SessionEventCounts, query: TimelineQuery) -> list[TimelineFacet]:
    return [
        TimelineFacet(tool, tool, number, tool == query.tool, query.query_with_tool(tool))
        for tool, number in counts.tools
    ]
