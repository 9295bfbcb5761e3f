"""Reading of every value that SQLite can hold in a column of any type.

A column's type binds nobody in SQLite: a text column may hold a BLOB, an integer column a text or infinity, and
a text bytes that are no UTF-8. Django hands such values on, or fails on them. Here each becomes, once for all
models, what the rest of the program can work with and show:

- in a text column everything is text; bytes that are no UTF-8 (a lone surrogate, a cut character) become
  `\\xed`, and it is an `UnreadableText`, as a BLOB is: nothing that is asked of the database equals it;
- in an integer column everything else than a whole number is an `UnreadableText`;
- in a boolean column everything is true or false, as SQLite itself takes it where a condition asks.

What is read by SQL of our own, without models, is read by `engine.values.cast_to_text_sql`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.db.backends.sqlite3 import base, operations
from django.db.models.expressions import Col
from django.db.utils import DatabaseErrorWrapper
from django.utils.functional import cached_property

from coordinator.engine.sqlite.write_order import WriteOrder
from coordinator.lib.unfit_values import UnreadableText

# Looks for the write lock, and seconds between them, of a connection that `looks_often`. Another process' group of
# events takes some tenths of a millisecond.
LOOKS, LOOK_EVERY = 40, 0.0002
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE | re.ASCII)


def decode_text_bytes(stored: bytes) -> str:
    """Return a text's bytes as text. Called for every text of every row."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return UnreadableText(stored.decode("utf-8", "backslashreplace"))


def normalize_stored_text(value: Any, *_: object) -> Any:
    """Return a text column's value as text."""
    if value is None or isinstance(value, str):
        return value
    return UnreadableText(decode_text_bytes(value) if isinstance(value, bytes) else value)


def normalize_stored_integer(value: Any, expression: Any = None, *_: object) -> Any:
    """Return an integer column's value: an int or, where it is no whole number, its text.

    What was computed of such values, as a sum, is the nearest integer that a column holds; None where there is none.
    """
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(expression, Col):
        return UnreadableText(normalize_stored_text(value))
    return round(max(min(value, _LARGEST), -_LARGEST)) if isinstance(value, float) else None


def normalize_stored_bytes(value: Any, *_: object) -> Any:
    """Return a BLOB column's value as bytes."""
    if value is None or isinstance(value, bytes):
        return value
    return str(value).encode()


def normalize_stored_boolean(value: Any, *_: object) -> bool | None:
    """Return what SQLite takes the value for in a condition: a text counts as the number that it begins with."""
    if value is None or isinstance(value, int | float):
        return None if value is None else bool(value)
    number = _NUMBER.match(normalize_stored_text(value))
    return bool(number and float(number[0]))


_LARGEST = 2**63 - 1
_INTEGERS = (
    "AutoField", "BigAutoField", "SmallAutoField", "IntegerField", "BigIntegerField", "SmallIntegerField",
    "PositiveIntegerField", "PositiveBigIntegerField", "PositiveSmallIntegerField",
)  # fmt: skip
READERS: dict[str, Callable[..., Any]] = {
    "TextField": normalize_stored_text,
    "CharField": normalize_stored_text,
    "BinaryField": normalize_stored_bytes,
    "BooleanField": normalize_stored_boolean,
    **dict.fromkeys(_INTEGERS, normalize_stored_integer),
}


class DatabaseOperations(operations.DatabaseOperations):
    """Django's, with a reader for each type of column, before the fields' own."""

    def get_db_converters(self, expression: Any) -> list[Any]:
        reader = READERS.get(expression.output_field.get_internal_type())
        return [reader] if reader else super().get_db_converters(expression)


class CircleBreakingErrorWrapper(DatabaseErrorWrapper):
    """Django's, without the reference from the error to the cursor."""

    def __exit__(self, kind: Any, problem: Any, traceback: Any) -> None:
        try:
            super().__exit__(kind, problem, traceback)
        except Exception as wrapped:
            # Django's frame holds the error that it raises, and the error its frame. The cursor is in this circle, and
            # the garbage collector, in whatever thread, waits until the cursor's connection does nothing.
            raise wrapped.with_traceback(traceback) from problem


class DatabaseWrapper(base.DatabaseWrapper):
    """Django's, with connections that read any bytes as text."""

    ops_class = DatabaseOperations
    looks_often = False  # for the write lock as a transaction begins, instead of waiting in SQLite's library

    def _start_transaction_under_autocommit(self) -> None:
        raw = self.connection
        with self.wrap_database_errors:
            if self.looks_often:
                self.write_order.begin_write(
                    self.execute_begin, seconds=LOOKS * LOOK_EVERY, try_every=LOOK_EVERY
                )
                return
            (milliseconds,) = raw.execute("PRAGMA busy_timeout").fetchone()
            raw.execute("PRAGMA busy_timeout = 0")
            try:
                self.write_order.begin_write(self.execute_begin, seconds=milliseconds / 1000)
            finally:
                raw.execute(f"PRAGMA busy_timeout = {milliseconds}")

    def execute_begin(self) -> None:
        self.connection.execute(f"BEGIN {self.transaction_mode or ''}")  # type: ignore[attr-defined] # stubs leave it out

    @cached_property
    def write_order(self) -> WriteOrder:
        return WriteOrder(str(self.settings_dict["NAME"]))

    def _close(self) -> None:
        self.write_order.close()
        super()._close()  # type: ignore[misc]

    @cached_property
    def wrap_database_errors(self) -> CircleBreakingErrorWrapper:
        return CircleBreakingErrorWrapper(self)

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        connection = super().get_new_connection(conn_params)
        connection.text_factory = decode_text_bytes
        return connection
