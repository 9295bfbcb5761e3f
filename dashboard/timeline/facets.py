"""The filters above a timeline, each with the number of its events."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.sessions.timeline import SessionEventCounts
from dashboard.timeline.query import TimelineQuery

LABELS = {"messages": "Messages", "calls": "Calls", "lifecycle": "Milestones", "other": "Other"}


@dataclass(frozen=True, slots=True)
class TimelineFacet:
    """A filter of the timeline."""

    key: str
    label: str
    count: int  # how many rows or events match it
    on: bool
    query: str  # the query string that switches it
    is_hidden: bool = False  # until something matches it
    title: str = ""


def build_timeline_facets(counts: SessionEventCounts, query: TimelineQuery) -> list[TimelineFacet]:
    """Return the filters for everything, for each category, and for errors.

    The counts of the categories add up to that of everything. A call counts once, even if two events report
    it. The filter for errors is never hidden, because a count of 0 is also of interest.
    """
    numbers = counts.categories | {"calls": counts.call_count}
    categories = [
        TimelineFacet(
            key,
            label,
            numbers[key],
            key in query.categories,
            query.query_with_category_toggled(key),
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
        TimelineFacet(tool, tool, number, tool == query.tool, query.query_with_tool_toggled(tool))
        for tool, number in counts.tools
    ]
