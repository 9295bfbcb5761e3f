"""What SQLite holds and PostgreSQL would not take is named, and changed only where somebody asked for that."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Any

import pytest

from coordinator.importing.column_conversion import ModelColumn
from coordinator.operations.moving import rows
from coordinator.operations.moving.rows import UnsupportedValueReport
from coordinator.operations.moving.tables import MovedTable, TargetColumn

KINDS = {
    "id": ("text", "text"),
    "number": ("integer", "integer"),
    "flag": ("boolean", "boolean"),
    "amount": ("number", "double precision"),
    "at": ("moment", "timestamp with time zone"),
    "raw": ("bytes", "bytea"),
}


def table(name: str = "things") -> MovedTable:
    places = [
        TargetColumn(
            ModelColumn(column, kind, null=column != "flag", default=None, instant=False, units=0),
            largest=2**31 - 1 if type_ == "integer" else None,
        )
        for column, (kind, type_) in KINDS.items()
    ]
    return MovedTable(name, tuple(places), ("id",))


def stored(*values: str) -> tuple[Any, ...]:
    """Return a row as it is read from SQLite, of values as SQL says them."""
    db = sqlite3.connect(":memory:")
    db.text_factory = rows.decode_sqlite_text
    return tuple(db.execute(f"SELECT {', '.join(values)}").fetchone())


GOOD = ("'a'", "1", "1", "0.5", "'2026-02-23 12:00:00.5'", "x'00ff'")


def test_a_plain_row_arrives_as_it_is() -> None:
    at = datetime(2026, 2, 23, 12, 0, 0, 500_000, tzinfo=UTC)
    odds = UnsupportedValueReport(mend=False)
    row = rows.convert_row_or_count_refusal(table(), stored(*GOOD), odds)
    assert row == ("a", 1, True, 0.5, at, b"\0\xff")
    assert rows.row_digest_number(row) == rows.row_digest_number(("a", 1, True, 0.5, at, b"\0\xff"))
    assert rows.row_digest_number(row) != rows.row_digest_number(("a", 1, True, 0.5, at, b"\0\xfe"))


@pytest.mark.parametrize(
    ("place", "value", "said", "mended"),
    [
        (0, "'a' || char(0)", "id held NUL characters, which are marked", "a\ufffd"),
        (0, "CAST(x'61ff' AS TEXT)", "id was not UTF-8; its unreadable characters are marked", "a\ufffd"),
        (0, "x'61'", "id was a BLOB and became text", "a"),
        (1, "'many'", "number was not a number and is empty now", None),
        (1, "1.5", "number was rounded to a whole number", 2),
        (1, "3000000000", "number is larger than 2147483647", ...),
        (2, "NULL", "flag is empty and must not be", ...),
        (2, "7", "flag was a number other than 0 and 1 and became true", True),
        (3, "'0.5'", "amount was text and became a number", 0.5),
        (4, "'yesterday'", "at was not a date and time and is empty now", None),
    ],
)
def test_an_odd_value_is_named_and_mended_on_demand(place: int, value: str, said: str, mended: Any) -> None:
    raw = stored(*GOOD[:place], value, *GOOD[place + 1 :])
    odds = UnsupportedValueReport(mend=False)
    assert rows.convert_row_or_count_refusal(table(), raw, odds) is None
    assert odds.refused == [f"things {raw[0]!r}: {said}"]
    odds = UnsupportedValueReport(mend=True)
    row = rows.convert_row_or_count_refusal(table(), raw, odds)
    if mended is ...:
        assert (row, odds.refused_count) == (None, 1)
    else:
        assert row is not None
        assert row[place] == mended
        assert odds.mended == [f"things {raw[0]!r}: {said}"]
        assert rows.convert_row_or_count_refusal(table("audit_logs"), raw, odds) is None, (
            "the audit log arrives as it is, or not at all"
        )
