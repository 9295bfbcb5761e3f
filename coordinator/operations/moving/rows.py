"""Rows as PostgreSQL accepts them, and their digests. Values are changed only with --mend, and each change is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from coordinator.importing import column_conversion
from coordinator.importing.column_conversion import ModelColumn, UnfitValue
from coordinator.operations.moving.tables import EXACT, MovedTable, TargetColumn

Row = tuple[Any, ...]
MOST_NAMED = 20
_MODULUS = 2**128
_AS_IS = {"text": str, "integer": int, "bytes": bytes, "number": float}


class UnsupportedValue(Exception):
    """A row holds a value that PostgreSQL would not accept. The text names table, key and column, and says why."""


class UnsupportedValueReport:
    """The odd values that were found: how many of each kind, and the first ones by name."""

    def __init__(self, *, mend: bool) -> None:
        self.mend = mend
        self.refused: list[str] = []
        self.mended: list[str] = []
        self._noted: set[str] = set()
        self.counts: Counter[str] = Counter()

    def add_refused_value(self, message: str) -> None:
        self.counts["refused"] += 1
        if len(self.refused) < MOST_NAMED:
            self.refused.append(message)

    def add_mended_value(self, message: str) -> None:
        if message not in self._noted:
            self._noted.add(message)
            self.mended.append(message)

    @property
    def refused_count(self) -> int:
        return self.counts["refused"]


def decode_sqlite_text(stored: bytes) -> str:
    """Return a text of SQLite's; one that is no UTF-8 remembers its bytes."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        text = column_conversion.RepairedText(stored.decode(errors="replace"))
        text.raw = stored
        return text


def convert_row_or_count_refusal(table: MovedTable, raw: Row, odds: UnsupportedValueReport) -> Row | None:
    """Return SQLite's row as PostgreSQL accepts it; None where it would not: `odds` then counts it."""
    row = []
    for target_column, value in zip(table.target_columns, raw, strict=True):
        try:
            row.append(convert_value_for_target_column(table, target_column, value, odds, raw))
        except UnsupportedValue as odd:
            odds.add_refused_value(str(odd))
            return None
    return tuple(row)


def convert_value_for_target_column(
    table: MovedTable, target_column: TargetColumn, value: Any, odds: UnsupportedValueReport, raw: Row
) -> Any:
    column = target_column.column
    if value is not None and (
        type(value) is not _AS_IS.get(column.kind) or (type(value) is str and "\0" in value)
    ):
        value = convert_value_to_column_type(table, column, value, odds, raw)
    if value is None:
        if column.null:
            return None
        raise UnsupportedValue(describe_row_problem(table, raw, f"{column.name} is empty and must not be"))
    if target_column.length is not None and len(value) > target_column.length:
        raise UnsupportedValue(
            describe_row_problem(
                table, raw, f"{column.name} is longer than {target_column.length} characters"
            )
        )
    if target_column.largest is not None and abs(value) > target_column.largest:
        raise UnsupportedValue(
            describe_row_problem(table, raw, f"{column.name} is larger than {target_column.largest}")
        )
    return value


def convert_value_to_column_type(
    table: MovedTable, column: ModelColumn, value: Any, odds: UnsupportedValueReport, raw: Row
) -> Any:
    """Return the value as one of the column's kind.

    Raises UnsupportedValue where it is not the same, unless that is wanted.
    """
    try:
        value, conversion = column_conversion.convert_column_value_with_note(value, column)
    except UnfitValue as problem:
        raise UnsupportedValue(describe_row_problem(table, raw, str(problem))) from None
    if conversion:
        row_problem_text = describe_row_problem(table, raw, f"{column.name} {conversion}")
        if not odds.mend or table.name in EXACT or (value is None and not column.null):
            raise UnsupportedValue(row_problem_text)
        odds.add_mended_value(row_problem_text)
    if column.kind == "moment" and value is not None:
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return value


def describe_row_problem(table: MovedTable, raw: Row, problem: str) -> str:
    key = ", ".join(repr(key_value)[:100] for key_value in table.extract_row_key(raw))
    return f"{table.name} {key}: {problem}"


def row_digest_number(row: Row) -> int:
    """Return a number that identifies a row of either database."""
    plain = [
        column_value.astimezone(UTC).isoformat() if isinstance(column_value, datetime) else column_value
        for column_value in row
    ]
    return int.from_bytes(blake2b(repr(plain).encode("utf-8", "surrogatepass"), digest_size=16).digest())


class RowsDigest:
    """Count and digest of many rows, in whatever order they come."""

    def __init__(self) -> None:
        self.count = 0
        self._total = 0

    def yield_and_digest_rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows, and take each into account."""
        for row in rows:
            self.count += 1
            self._total = (self._total + row_digest_number(row)) % _MODULUS
            yield row

    def add_rows(self, rows: Iterable[Row]) -> None:
        for _ in self.yield_and_digest_rows(rows):
            pass

    @property
    def hex_digest(self) -> str:
        return f"{self._total:032x}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowsDigest) and (self.count, self._total) == (other.count, other._total)

    __hash__ = None  # type: ignore[assignment]
