"""The ends of grants as people write them: what is read, in whose zone, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from coordinator.errors import UnprocessableRequest
from coordinator.policy.grants.end_parsing import (
    QUICK_LENGTHS,
    SUGGESTED_ENDS,
    parse_approval_end,
    parse_optional_grant_end,
    serialize_shown_end,
)

ZURICH = ZoneInfo("Europe/Zurich")
NOW = datetime(2026, 11, 27, 16, 30, tzinfo=UTC)  # a Friday, half past five in the afternoon in Zurich


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("2 hours", timedelta(hours=2)),
        ("for 2 Hours", timedelta(hours=2)),
        ("2h", timedelta(hours=2)),
        ("an hour", timedelta(hours=1)),
        ("90 min", timedelta(minutes=90)),
        ("1.5 hours", timedelta(minutes=90)),
        ("1 h 30 min", timedelta(minutes=90)),
        ("1 day and 2 hours", timedelta(hours=26)),
        ("1 day, 2 hours", timedelta(hours=26)),
        ("3 weeks", timedelta(weeks=3)),
        ("30d", timedelta(days=30)),
    ],
)
def test_a_length_ends_that_much_later(text: str, length: timedelta) -> None:
    assert parse_optional_grant_end(text, NOW, ZURICH) == NOW + length


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("18:00", (2026, 11, 27, 18, 0)),
        ("until 17:00", (2026, 11, 28, 17, 0)),  # five o'clock has passed
        ("6pm", (2026, 11, 27, 18, 0)),
        ("12:15 am", (2026, 11, 28, 0, 15)),
        ("today 23:59", (2026, 11, 27, 23, 59)),
        ("tomorrow at 9:00", (2026, 11, 28, 9, 0)),
        ("until Friday 18:00", (2026, 11, 27, 18, 0)),
        ("Fri 17:00", (2026, 12, 4, 17, 0)),  # today's has passed
        ("Monday, 8.30", (2026, 11, 30, 8, 30)),
        ("2026-12-24 18:00", (2026, 12, 24, 18, 0)),
        ("2026-12-24T18:00", (2026, 12, 24, 18, 0)),
        ("24 Dec 18:00", (2026, 12, 24, 18, 0)),
        ("December 24th 6 pm", (2026, 12, 24, 18, 0)),
        ("1 jan 0:00", (2027, 1, 1, 0, 0)),
        ("3 March 2028 12:00", (2028, 3, 3, 12, 0)),
    ],
)
def test_a_day_and_a_time_are_those_of_the_writers_zone(
    text: str, local: tuple[int, int, int, int, int]
) -> None:
    assert parse_optional_grant_end(text, NOW, ZURICH) == datetime(*local, tzinfo=ZURICH)


@pytest.mark.parametrize("text", ["", "no end", "No End", "never", "until revoked"])
def test_no_end_is_said_in_words_or_left_empty(text: str) -> None:
    assert parse_optional_grant_end(text, NOW) is None


@pytest.mark.parametrize(
    "text",
    [
        *("whenever", "2", "2 fortnights", "Friday", "until tomorrow", "next friday 18:00", "3/4 18:00"),
        *("25:00", "13pm", "0 am", "30 Feb 18:00", "18:60", "2026-02-30 18:00", "1 Smarch 18:00", "-2 hours"),
        *("2 hours" + " " * 60, "9" * 400 + " hours", "until", "0001-01-01 00:00", "9999-12-31 23:59"),
    ],
)
def test_what_is_unclear_or_out_of_reach_is_refused(text: str) -> None:
    with pytest.raises(UnprocessableRequest):
        parse_optional_grant_end(text, NOW, ZURICH)


@pytest.mark.parametrize("text", ["0 hours", "today 17:00", "2026-11-27 17:29", "2026-11-27T16:29:00Z"])
def test_an_end_that_has_passed_is_refused(text: str) -> None:
    with pytest.raises(UnprocessableRequest, match="has passed"):
        parse_optional_grant_end(text, NOW, ZURICH)


def test_an_end_of_more_than_ten_years_is_refused() -> None:
    with pytest.raises(UnprocessableRequest, match="ten years"):
        parse_optional_grant_end("9999 weeks", NOW)


def test_a_day_whose_clocks_change_keeps_its_length_in_hours() -> None:
    before = datetime(2026, 10, 24, 12, 0, tzinfo=UTC)  # the night after, Zurich's clocks go back
    assert parse_optional_grant_end("1 day", before, ZURICH) == before + timedelta(hours=24)
    assert parse_optional_grant_end("tomorrow 14:00", before, ZURICH) == before + timedelta(hours=25)


@pytest.mark.parametrize("text", [*SUGGESTED_ENDS, *QUICK_LENGTHS])
def test_what_forms_suggest_can_be_read(text: str) -> None:
    parse_optional_grant_end(text, NOW, ZURICH)


@pytest.mark.parametrize("text", ["18:00", "Friday 18:00", "tomorrow 9:00", "27 Nov 18:00"])
@pytest.mark.parametrize("parse_end", [parse_approval_end, parse_optional_grant_end])
def test_words_that_mean_another_end_than_the_form_showed_are_refused(parse_end, text: str) -> None:
    end = parse_end(text, NOW, ZURICH)
    assert end is not None
    shown = serialize_shown_end(text, end)
    assert parse_end(text, NOW + timedelta(minutes=5), ZURICH, shown) == end
    later = NOW + timedelta(hours=24)
    assert parse_end(text, later, ZURICH) > end
    with pytest.raises(UnprocessableRequest, match=f"“{text}” does not mean the end any more that the form"):
        parse_end(text, later, ZURICH, shown)


@pytest.mark.parametrize("text", ["2 hours", "for 1 day and 2 hours", "30d"])
def test_a_length_begins_when_it_is_sent_whatever_the_form_showed(text: str) -> None:
    length = parse_approval_end(text, NOW) - NOW
    shown = serialize_shown_end(text, NOW + length)
    assert (
        parse_approval_end(text, NOW + timedelta(hours=3), shown_end=shown)
        == NOW + timedelta(hours=3) + length
    )


@pytest.mark.parametrize(
    "shown", ["", "nonsense 18:00", "0001-01-01T00:00:00+00:00", "2026-11-27T17:00:00Z 19:00"]
)
def test_an_end_that_was_shown_for_other_words_does_not_count(shown: str) -> None:
    later = NOW + timedelta(hours=1)
    assert parse_approval_end("18:00", later, ZURICH, shown) == datetime(2026, 11, 28, 18, tzinfo=ZURICH)
