"""The filters above a timeline, each with how much there is of it."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.sessions.timeline import Counts
from dashboard.timeline.query import Query

LABELS = {"messages": "Messages", "calls": "Calls", "lifecycle": "Milestones", "other": "Other"}


@dataclass(frozen=True, slots=True)
class Facet:
    """One filter: what it is called, how much it lets through, whether it is on, and the query that switches it.

    It is hidden until there is something of it.
    """

    key: str
    label: str
    count: int
    on: bool
    query: str
    is_hidden: bool = False


def facets_of(counts: Counts, query: Query) -> list[Facet]:
    """Return the categories, and errors, which are never hidden: that there are none is worth knowing."""
    numbers = counts.categories | {"calls": counts.calls}
    categories = [
        Facet(
            key,
            label,
            numbers[key],
            key in query.categories,
            query.with_category(key),
            is_hidden=not counts.categories[key] and key not in query.categories,
        )
        for key, label in LABELS.items()
    ]
    return [*categories, Facet("errors", "Errors", counts.errors, query.errors, query.with_errors)]


def tools_of(counts: Counts, query: Query) -> list[Facet]:
    return [
        Facet(tool, tool, number, tool == query.tool, query.with_tool(tool)) for tool, number in counts.tools
    ]
