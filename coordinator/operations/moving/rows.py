"""Rows as PostgreSQL accepts them, and their digests. Values are changed only with --mend, and each change is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from coordinator.importing import values
from coordinator.importing.values import Column, Unfit
from coordinator.operations.moving.tables import EXACT, Table, TargetColumn

Row = tuple[Any, ...]
MOST_NAMED = 20
_MODULUS = 2**128
_AS_IS = {"text": str, "integer": int, "bytes": bytes, "number": float}


class OddValue(Exception):
    """A row holds a value that PostgreSQL would not accept. The text names table, key and column, and says why."""


class OddValues:
    """The odd values that were found: how many of each kind, and the first ones by name."""

    def __init__(self, *, mend: bool) -> None:
        self.mend = mend
        self.refused: list[str] = []
        self.mended: list[str] = []
        self._noted: set[str] = set()
        self.counts: Counter[str] = Counter()

    def refuse(self, said: str) -> None:
        self.counts["refused"] += 1
        if len(self.refused) < MOST_NAMED:
            self.refused.append(said)

    def note(self, said: str) -> None:
        if said not in self._noted:
            self._noted.add(said)
            self.mended.append(said)

    @property
    def number(self) -> int:
        return self.counts["refused"]


def read_text(stored: bytes) -> str:
    """Return a text of SQLite's; one that is no UTF-8 remembers its bytes."""
    try:
        return stored.decode()
    except UnicodeDecodeError:
        text = values.Mended(stored.decode(errors="replace"))
        text.raw = stored
        return text


def fitted(table: Table, raw: Row, odds: OddValues) -> Row | None:
    """Return SQLite's row as PostgreSQL accepts it; None where it would not: `odds` then counts it."""
    row = []
    for place, value in zip(table.places, raw, strict=True):
        try:
            row.append(_fitted(table, place, value, odds, raw))
        except OddValue as odd:
            odds.refuse(str(odd))
            return None
    return tuple(row)


def _fitted(table: Table, place: TargetColumn, value: Any, odds: OddValues, raw: Row) -> Any:
    column = place.column
    if value is not None and (
        type(value) is not _AS_IS.get(column.kind) or (type(value) is str and "\0" in value)
    ):
        value = _converted(table, column, value, odds, raw)
    if value is None:
        if column.null:
            return None
        raise OddValue(_said(table, raw, f"{column.name} is empty and must not be"))
    if place.length is not None and len(value) > place.length:
        raise OddValue(_said(table, raw, f"{column.name} is longer than {place.length} characters"))
    if place.largest is not None and abs(value) > place.largest:
        raise OddValue(_said(table, raw, f"{column.name} is larger than {place.largest}"))
    return value


def _converted(table: Table, column: Column, value: Any, odds: OddValues, raw: Row) -> Any:
    """Return the value as one of the column's kind. Raises OddValue where it is not the same, unless that is wanted."""
    try:
        value, told = values.fitted(value, column)
    except Unfit as problem:
        raise OddValue(_said(table, raw, str(problem))) from None
    if told:
        said = _said(table, raw, f"{column.name} {told}")
        if not odds.mend or table.name in EXACT or (value is None and not column.null):
            raise OddValue(said)
        odds.note(said)
    if column.kind == "moment" and value is not None:
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    return value


def keys(table: Table, raw: Sequence[Row]) -> list[Row]:
    """Return keys as SQLite noted them, as PostgreSQL has them; none that is empty, which no row there has."""
    places = [table.places[place].column for place in table.key_places]
    found = [
        tuple(values.fitted(value, column)[0] for value, column in zip(key, places, strict=False))
        for key in raw
    ]
    return [key for key in found if None not in key]


def _said(table: Table, raw: Row, what: str) -> str:
    key = ", ".join(repr(one)[:100] for one in table.key_of(raw))
    return f"{table.name} {key}: {what}"


def digest(row: Row) -> int:
    """Return a number that stands for a row of either database."""
    plain = [one.astimezone(UTC).isoformat() if isinstance(one, datetime) else one for one in row]
    return int.from_bytes(blake2b(repr(plain).encode("utf-8", "surrogatepass"), digest_size=16).digest())


class Sum:
    """Count and digest of many rows, in whatever order they come."""

    def __init__(self) -> None:
        self.count = 0
        self._total = 0

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.count += 1
            self._total = (self._total + digest(row)) % _MODULUS

    @property
    def digest(self) -> str:
        return f"{self._total:032x}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and (self.count, self._total) == (other.count, other._total)

    __hash__ = None  # type: ignore[assignment]
