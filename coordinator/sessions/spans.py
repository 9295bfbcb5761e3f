"""Telling PostgreSQL in which of the events table's parts a session's events lie, so that it looks into no others."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, TypeVar

from django.db.models import QuerySet

from coordinator.engine import event_spans
from coordinator.lib import instants

Span = tuple[int, int]  # from the first id until before the other
Rows = TypeVar("Rows", bound=QuerySet[Any, Any])


def bound_rows_to_sessions(rows: Rows, session_ids: Collection[str], *ids: str) -> Rows:
    """Return `rows`, which are of these sessions, with bounds for their columns `ids` of events' ids.

    What the sessions have is all within the bounds; they only help.
    """
    return bound_rows_to_span(rows, session_event_span(*session_ids), *ids)


def session_event_span(*session_ids: str) -> Span | None:
    """Return the range of ids in which all events of these sessions lie, as far as that is known.

    An event that comes later may lie beyond it: ask again for each page.
    """
    return event_spans.session_id_range(session_ids)


def bound_rows_to_span(rows: Rows, span: Span | None, *ids: str) -> Rows:
    """Return `rows` with the bounds of a span for their columns `ids`."""
    for name in ids if span else ():
        rows = rows.filter(**dict(zip((f"{name}__gte", f"{name}__lt"), span or (), strict=True)))
    return rows


def span_condition_sql(span: Span | None, column: str) -> str:
    """Return the bounds as a condition to append to others in SQL."""
    return f" AND {column} >= {int(span[0])} AND {column} < {int(span[1])}" if span else ""


def bound_rows_since(rows: Rows, moment: datetime, *ids: str) -> Rows:
    """Return `rows`, which were received since `moment`, with a lower bound for their columns `ids`."""
    first = event_spans.first_id_since(instants.to_milliseconds(moment))
    for name in ids if first is not None else ():
        rows = rows.filter(**{f"{name}__gte": first})
    return rows
