"""The choices of a filter, without a query that reads all of a large table."""

from __future__ import annotations

from django.db.models import Model, QuerySet

RECENT_ROWS = 2_000
MOST_CHOICES = 200


def list_recent_column_values(rows: QuerySet[Model], column: str, *, chosen: str | None = None) -> list[str]:
    """Return the values of `column` in the newest rows, and `chosen`. For columns without an index."""
    values = set(rows.order_by("-pk").values_list(column, flat=True)[:RECENT_ROWS]) | {chosen}
    return sorted(str(value) for value in values if value not in (None, ""))[:MOST_CHOICES]
