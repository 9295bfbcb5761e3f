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
    title: str = ""


def build_timeline_facets(counts: SessionEventCounts, query: TimelineQuery) -> list[TimelineFacet]:
    """Return everything, the categories that add up to it, and errors.

    Errors are never hidden: that there are none is worth knowing. A call counts once, also where two events report it.
    """
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
    total = sum(numbers.values())
    explanation = f"{total:,} of {counts.total:,} events: the beginning and the end of a call count once"
    return [
        TimelineFacet(
            "all",
            "All",
            total,
            not query.has_timeline_filters,
            query.query_for_everything,
            title=explanation if total != counts.total else "",
        ),
        *categories,
        TimelineFacet(
            "errors",
            "Errors",
            counts.errors,
            query.errors,
            query.query_with_errors_toggled,
            title="Events with an error, of all kinds",
        ),
    ]


def build_tool_facets(counts: SessionEventCounts, query: TimelineQuery) -> list[TimelineFacet]:
    return [
        TimelineFacet(tool, tool, number, tool == query.tool, query.query_with_tool(tool))
        for tool, number in counts.tools
    ]
