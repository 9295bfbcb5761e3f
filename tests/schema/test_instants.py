"""Texts as instants: Python and each engine's SQL read the same ones, and read them alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.db import connection
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.lib import instants

NOON = datetime(2026, 2, 23, 12, tzinfo=UTC)
READABLE = {
    "2026-02-23T12:00:00Z": NOON,
    "2026-02-23 12:00:00": NOON,
    "2026-02-23T12:00:00": NOON,
    "2026-02-23T12:00:00+00:00": NOON,
    "2026-02-23T14:30:00+02:30": NOON,
    "2026-02-23T14:30:00+0230": NOON,
    "2026-02-22T22:00:00-14:00": NOON,
    "2026-02-24 02:59:00+14:59": NOON,
    "2026-02-23T12:00:00-00:00": NOON,
    "2026-02-23T12:00:00.5Z": NOON + timedelta(milliseconds=500),
    "2026-02-23T12:00:00.000001+00:00": NOON + timedelta(microseconds=1),
    "2026-02-23T12:00:00.123456789Z": NOON + timedelta(microseconds=123456),
    "2024-02-29T00:00:00Z": datetime(2024, 2, 29, tzinfo=UTC),
    "1969-12-31T23:59:59.999999Z": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "0001-01-01T00:00:00Z": datetime(1, 1, 1, tzinfo=UTC),
    "9999-12-31T23:59:59Z": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
}
UNREADABLE = [
    "",
    "banana",
    "now",
    "t",
    "1771848000",
    "2026-02-23",
    "2026-02-23T12:00Z",
    "2026-02-30T12:00:00Z",
    "2025-02-29T12:00:00Z",
    "2026-13-01T12:00:00Z",
    "2026-00-01T12:00:00Z",
    "2026-02-00T12:00:00Z",
    "2026-02-23T24:00:00Z",
    "2026-02-23T12:60:00Z",
    "2026-02-23T12:00:60Z",
    "0000-01-01T00:00:00Z",
    "2026-02-23T12:00:00.Z",
    "2026-02-23T12:00:00.1234567890Z",
    "2026-02-23T12:00:00..5Z",
    "2026-02-23T12:00:00.5.5Z",
    "2026-02-23T12:00:005Z",
    "2026-02-23T12:00:00+15:00",
    "2026-02-23T12:00:00+02:60",
    "2026-02-23T12:00:00+02",
    "2026-02-23T12:00:00+2:00",
    "2026-02-23T12:00:00 Z",
    "2026-02-23T12:00:00z",
    "2026-02-23t12:00:00Z",
    "2026-02-23T12:00:00Z ",
    "2026-02-23T12:00:00Z\n",
    " 2026-02-23T12:00:00Z",
    "2026-02-23T12:00:00ZZ",
    "2026-02-23T12:00:00UTC",
    "٢٠٢٦-02-23T12:00:00Z",
    "Feb 23 2026",
]


def in_sql(text: str) -> int | None:
    reader = (
        "sbx_instant_us(t)"
        if connection.vendor == "postgresql"
        else instants.sqlite_text_to_microseconds_sql("t")
    )
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {reader.replace('%', '%%')} FROM (SELECT CAST(%s AS TEXT) AS t) AS one", [text]
        )
        return cursor.fetchone()[0]


def in_python(text: str) -> int | None:
    found = instants.parse_instant_or_none(text)
    return None if found is None else instants.instant_to_microseconds(found)


@pytest.mark.parametrize(("text", "instant"), READABLE.items())
def test_readable_texts_name_their_instant(text: str, instant: datetime) -> None:
    assert instants.parse_instant_or_none(text) == instant


@pytest.mark.parametrize("text", UNREADABLE)
def test_other_texts_name_none(text: str) -> None:
    assert instants.parse_instant_or_none(text) is None


@pytest.mark.django_db
@pytest.mark.parametrize("text", [*READABLE, *UNREADABLE])
def test_sql_reads_as_python_does(text: str) -> None:
    assert in_sql(text) == in_python(text)


@pytest.mark.django_db
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.from_regex(
        r"[0-9]{4}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{0,10})?"
        r"(Z|[+-][01][0-9]:?[0-6][0-9])?",
        fullmatch=True,
    )
)
def test_sql_reads_as_python_does_whatever_the_digits(text: str) -> None:
    expected = in_python(text)
    if expected is not None or not near_the_ends_of_time(text):
        assert in_sql(text) == expected


def near_the_ends_of_time(text: str) -> bool:
    """Python has no year 0 and no year 10000, into which an offset can carry an instant."""
    return text[:4] in {"0001", "9999", "0000"}


def test_what_is_written_is_canonical_and_read_back() -> None:
    east = datetime(2026, 2, 23, 14, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    assert instants.format_canonical_instant(east) == "2026-02-23T12:00:00.000005+00:00"
    assert instants.parse_instant_or_none(instants.format_canonical_instant(east)) == east


def test_a_naive_datetime_is_not_written() -> None:
    with pytest.raises(ValueError, match="needs a time zone"):
        instants.format_canonical_instant(datetime(2026, 2, 23, 12))


@given(st.datetimes(timezones=st.just(UTC)), st.datetimes(timezones=st.just(UTC)))
def test_text_order_is_time_order(one: datetime, other: datetime) -> None:
    assert (instants.format_canonical_instant(one) < instants.format_canonical_instant(other)) == (
        one < other
    )


@given(st.datetimes(timezones=st.just(UTC)))
def test_microseconds_go_there_and_back(instant: datetime) -> None:
    assert instants.instant_from_microseconds(instants.instant_to_microseconds(instant)) == instant
