"""The changed columns of an edited row, with old and new values, for all actions that edit plain columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.db.models import Model

from coordinator.errors import UnprocessableRequest
from coordinator.lib.row_versions import to_stored_value

LONGEST_ID = 200


def require_valid_id(text: str, label: str) -> None:
    """Raise UnprocessableRequest unless `text` can name something: not blank, no blanks around it, not endless."""
    if not text.strip():
        raise UnprocessableRequest(f"{label} needs a name.")
    if text != text.strip() or len(text) > LONGEST_ID:
        raise UnprocessableRequest(
            f"{label}'s name may have at most {LONGEST_ID} characters, without spaces around it."
        )


def read_column_values(row: Model, fields: Iterable[str]) -> dict[str, Any]:
    """Return the row's values by column, as an audit row's metadata can hold them."""
    return {name: row.serializable_value(name) for name in fields}


def assign_columns_and_diff(
    row: Model, changes: Mapping[str, Any], allowed: Iterable[str]
) -> dict[str, Any] | None:
    """Set the columns that differ on `row` and return `before` and `after` of those, or None if none does.

    Raises UnprocessableRequest for a column that is not among `allowed`. Values are compared as the columns hold them.
    """
    if unknown := set(changes) - set(allowed):
        raise UnprocessableRequest(f"These cannot be changed here: {', '.join(sorted(unknown))}.")
    before = read_column_values(row, changes)
    differing = [
        name
        for name, value in changes.items()
        if to_stored_value(row, name, before[name]) != to_stored_value(row, name, value)
    ]
    for name in differing:
        setattr(row, name, changes[name])
    if not differing:
        return None
    return {
        "before": {name: before[name] for name in differing},
        "after": {name: changes[name] for name in differing},
    }
