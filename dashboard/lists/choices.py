"""What a filter offers of a column: never by reading all of a table that grows with what agents do."""

from __future__ import annotations

from django.db.models import Model, QuerySet

RECENT_ROWS = 2_000
MOST_CHOICES = 200


def list_recent_column_values(rows: QuerySet[Model], column: str, *, chosen: str | None = None) -> list[str]:
    """Return the values of a column among the newest rows, and what is chosen; for columns without an index."""
    values = set(rows.order_by("-pk").values_list(column, flat=True)[:RECENT_ROWS]) | {chosen}
    return sorted(str(value) for value in values if value not in (None, ""))[:MOST_CHOICES]
