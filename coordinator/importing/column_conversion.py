"""Conversion of a foreign value to one of our columns: alike on both engines, with a note where it changes.

SQLite keeps any type in any column; ours hold what their models say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from django.apps import apps
from django.db import models

from coordinator.lib import instants
from coordinator.models.fields import IsoTextField, JsonTextField, MsField, SqlDateTimeField, TimeField

LARGEST = 2**63 - 1
TRUE, FALSE = (
    frozenset({"1", "true", "t", "yes", "y", "on"}),
    frozenset({"0", "false", "f", "no", "n", "off"}),
)
# Columns that hold an instant though their field is plain text: events keep it byte for byte.
INSTANTS = frozenset({("events", "timestamp")})


class RepairedText(str):
    """A text that was not UTF-8, with marks in place of what could not be read; `raw` is the original."""

    __slots__ = ("raw",)
    raw: bytes


class UnfitValue(Exception):
    """A value that cannot become one of the column's; the text says why."""


@dataclass(frozen=True, slots=True)
class ModelColumn:
    """A column of ours: its type and its default."""

    name: str
    kind: str  # text, integer, number, boolean, bytes, or moment: a column of SQL's own date and time
    null: bool
    default: Any
    instant: bool  # its values name instants, and are equal if those are
    units: int  # of an integer that counts time: microseconds in one, else 0


@lru_cache(maxsize=64)
def model_columns_by_name(table: str) -> Mapping[str, ModelColumn]:
    (model,) = (
        model_class
        for model_class in apps.get_app_config("coordinator").get_models()
        if model_class._meta.db_table == table
    )
    return {
        field.column: build_model_column(table, field)
        for field in model._meta.concrete_fields
        if field.column
    }


def model_name_of_table(table: str) -> str:
    (model,) = (
        model_class
        for model_class in apps.get_app_config("coordinator").get_models()
        if model_class._meta.db_table == table
    )
    return model.__name__


def build_model_column(table: str, field: Any) -> ModelColumn:
    default = field.get_default() if field.has_default() else None
    if isinstance(field, TimeField | JsonTextField) and default is not None:
        default = field.get_prep_value(default)
    instant = isinstance(field, IsoTextField | SqlDateTimeField) or (table, field.column) in INSTANTS
    units = field.unit_us if isinstance(field, MsField) else 0
    return ModelColumn(field.column, column_type_of_model_field(field), field.null, default, instant, units)


def column_type_of_model_field(field: Any) -> str:
    if isinstance(field, SqlDateTimeField):
        return "moment"
    if isinstance(field, models.BinaryField):
        return "bytes"
    if isinstance(field, models.BooleanField):
        return "boolean"
    if isinstance(field, models.FloatField):
        return "number"
    if isinstance(field, models.ForeignKey):
        return column_type_of_model_field(field.target_field)
    return "integer" if isinstance(field, models.IntegerField | MsField) else "text"


def convert_column_value_with_note(value: Any, column: ModelColumn) -> tuple[Any, str]:
    """Return the value as the column takes it, and in words what was changed ("" for nothing). Raises UnfitValue."""
    if value is None:
        return None, ""
    return _FITTED[column.kind](value, column)


def convert_text_value_with_note(value: Any, column: ModelColumn) -> tuple[Any, str]:  # one shape for all  # noqa: ARG001
    fitted = ""
    if isinstance(value, RepairedText):
        fitted = "was not UTF-8; its unreadable characters are marked"
    elif isinstance(value, bytes):
        value, fitted = value.decode(errors="replace"), "was a BLOB and became text"
    elif not isinstance(value, str):
        value, fitted = str(value), "was a number and became text"
    if "\0" in value:
        value, fitted = value.replace("\0", "\ufffd"), fitted or "held NUL characters, which are marked"
    return str(value), fitted


def convert_integer_value_with_note(value: Any, column: ModelColumn) -> tuple[Any, str]:
    if isinstance(value, int):
        return value, ""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, str) and column.units and (at := instants.parse_instant_or_none(value.strip())):
        return instants.instant_to_microseconds(at) // column.units, "was a date and became a count"
    number = value if isinstance(value, float) else parse_column_number_or_none(value)
    if number is None or not math.isfinite(number) or abs(number) > LARGEST:
        return number_substitute_with_note(column)
    rounded = number if isinstance(number, int) else round(number)
    return rounded, "" if rounded == number else "was rounded to a whole number"


def number_substitute_with_note(column: ModelColumn) -> tuple[Any, str]:
    if column.default is not None:
        return column.default, "was not a number and became the column's default"
    if column.null:
        return None, "was not a number and is empty now"
    if column.units:
        return 0, "was not a time and became 1970"
    raise UnfitValue(f"{column.name} is not a number")


def convert_float_value_with_note(value: Any, column: ModelColumn) -> tuple[Any, str]:
    if isinstance(value, int | float):
        return float(value), "" if float(value) == value else "was rounded"
    number = parse_column_number_or_none(
        value.decode(errors="replace") if isinstance(value, bytes) else value
    )
    if number is None:
        return number_substitute_with_note(column)
    return float(number), "was text and became a number"


def parse_column_number_or_none(text: str) -> float | int | None:
    text = text.strip()
    try:
        number = int(text) if len(text) < 20 else float(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return None
    return number


def convert_boolean_value_with_note(value: Any, column: ModelColumn) -> tuple[Any, str]:
    if isinstance(value, int | float) and value in {0, 1}:
        return bool(value), ""
    if isinstance(value, int | float):
        return True, "was a number other than 0 and 1 and became true"
    word = (value.decode(errors="replace") if isinstance(value, bytes) else value).strip().lower()
    if word in TRUE | FALSE:
        return word in TRUE, "" if word in {"0", "1"} else "was a word and became true or false"
    return False, f"was neither true nor false and became false ({column.name})"


def convert_bytes_value_with_note(value: Any, column: ModelColumn) -> tuple[Any, str]:  # one shape for all  # noqa: ARG001
    if isinstance(value, bytes):
        return value, ""
    raw = value.raw if isinstance(value, RepairedText) else str(value).encode()
    return raw, "was not a BLOB and became one"


def convert_datetime_value_with_note(value: Any, column: ModelColumn) -> tuple[Any, str]:  # one shape for all  # noqa: ARG001
    at = instants.parse_instant_or_none(value.strip()) if isinstance(value, str) else None
    if at is None:
        return None, "was not a date and time and is empty now"
    text = at.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ")
    return text, ""


_FITTED = {
    "text": convert_text_value_with_note,
    "integer": convert_integer_value_with_note,
    "number": convert_float_value_with_note,
    "boolean": convert_boolean_value_with_note,
    "bytes": convert_bytes_value_with_note,
    "moment": convert_datetime_value_with_note,
}


def normalize_value_for_comparison(value: Any, column: ModelColumn) -> Any:
    """Return a form of the value that is equal for the same instant or number, whichever engine stored it."""
    if value is None:
        return None
    if column.instant:
        if isinstance(value, datetime):
            return instants.instant_to_microseconds(value if value.tzinfo else value.replace(tzinfo=UTC))
        at = instants.parse_instant_or_none(value) if isinstance(value, str) else None
        return value if at is None else instants.instant_to_microseconds(at)
    if isinstance(value, bool):
        return int(value)
    return bytes(value) if isinstance(value, memoryview) else value
