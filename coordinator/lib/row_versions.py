"""Versions of rows as editors have seen them, so that two editors never overwrite each other unknowingly.

The schema documents' tables have no version column, so a version is a keyed digest of the values themselves: keyed,
because it appears in pages, where a plain hash of a short secret could be guessed back.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable
from typing import Any

from django.db.models import BooleanField, Model
from django.utils.crypto import salted_hmac

from coordinator.errors import Conflict

SALT = "signalbox.version"


def hash_column_values_as_version(values: Iterable[Any]) -> str:
    """Return the version of plain column values (str, int, bool, None)."""
    return salted_hmac(SALT, json.dumps(list(values), default=str), algorithm="sha256").hexdigest()[:32]


def hash_row_fields_as_version(row: Model, fields: Iterable[str]) -> str:
    """Return the version of a row's `fields`, as its columns hold them."""
    return hash_column_values_as_version(
        to_stored_value(row, name, row.serializable_value(name)) for name in fields
    )


def to_stored_value(row: Model, name: str, value: Any) -> Any:
    """Return what the row's column `name` would hold for `value`; a boolean of another program is taken as one."""
    field = row._meta.get_field(name)
    return bool(value) if isinstance(field, BooleanField) else field.get_prep_value(value)  # type: ignore[union-attr]


def require_current_version(current: str, seen_version: str | None, label: str) -> None:
    """Raise Conflict unless `seen_version`, if given, is the current version. Call it with the row locked."""
    if seen_version is not None and not hmac.compare_digest(
        current.encode(), seen_version.encode(errors="replace")
    ):
        raise Conflict(
            f"{label} was changed by somebody else since you loaded the page. Nothing was saved. "
            "Reload the page, then make your change again."
        )
