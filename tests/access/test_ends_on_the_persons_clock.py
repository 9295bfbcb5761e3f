"""A time without an offset is one of the person's own clock, also with seconds and in the hour that comes twice."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from coordinator.policy.grants.end_parsing import parse_optional_grant_end

ZURICH = ZoneInfo("Europe/Zurich")
NOW = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-24 18:00",
        "2026-12-24T18:00",
        "2026-12-24 18:00:00",
        "2026-12-24T18:00:00",
        "2026-12-24T17:00:00Z",
        "2026-12-24 19:00:00+02:00",
    ],
)
def test_a_time_with_seconds_is_that_of_the_persons_clock(text: str) -> None:
    assert parse_optional_grant_end(text, NOW, ZURICH) == datetime(2026, 12, 24, 18, tzinfo=ZURICH)


@pytest.mark.parametrize(("minute", "hour_utc"), [(10, 0), (40, 1)])
def test_the_next_half_past_two_may_be_the_second(minute: int, hour_utc: int) -> None:
    now = datetime(2026, 10, 25, 0, minute, tzinfo=UTC)  # 02:10, or 02:40 for the first time
    assert parse_optional_grant_end("02:30", now, ZURICH) == datetime(2026, 10, 25, hour_utc, 30, tzinfo=UTC)


def test_a_time_that_clocks_leave_out_is_one_instant() -> None:
    now = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)
    assert parse_optional_grant_end("02:30", now, ZURICH) == datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
