from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest
from django.core.paginator import Paginator
from django.template import Context, Template
from django.test import RequestFactory

from coordinator.lib.times import format_duration, format_relative_time
from coordinator.models.fields import UnreadableText
from dashboard.text.states import find_status_style

NOW = datetime(2026, 2, 23, 12, tzinfo=UTC)


def draw(source: str, **context: object) -> str:
    return Template("{% load signalbox %}" + source).render(Context(context))


@pytest.mark.parametrize(
    ("before", "text"),
    [
        (timedelta(seconds=3), "just now"),
        (timedelta(seconds=42), "42s ago"),
        (timedelta(minutes=5, seconds=59), "5m ago"),
        (timedelta(hours=23, minutes=59), "23h ago"),
        (timedelta(days=6, hours=23), "6d ago"),
        (timedelta(days=8), "15 Feb"),
        (timedelta(days=400), "19 Jan 2025"),
        (-timedelta(hours=2), "in 2h"),
        (-timedelta(hours=1, minutes=59), "in 2h"),
        (-timedelta(hours=1, minutes=40), "in 1h"),
        (-timedelta(days=2, hours=23, minutes=58), "in 3d"),
        (-timedelta(seconds=42), "in 42s"),
    ],
)
def test_a_time_is_told_from_here(before: timedelta, text: str) -> None:
    assert format_relative_time(NOW - before, NOW) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.34, "340 ms"),
        (2.44, "2.4 s"),
        (42, "42 s"),
        (252, "4m 12s"),
        (7380, "2h 03m"),
        (273_600, "3d 4h"),
        (-90, "0 ms"),
    ],
)
def test_a_length_is_told_in_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_a_time_carries_its_machine_form_and_the_exact_one() -> None:
    html = draw("{% time moment %}", moment=NOW)
    assert 'datetime="2026-02-23T12:00:00+00:00"' in html
    assert 'title="2026-02-23 12:00:00 UTC"' in html


def test_text_that_is_no_time_is_shown_as_it_stands_and_escaped() -> None:
    assert "&lt;b&gt;soon" in draw("{% time moment %}", moment=UnreadableText("<b>soon"))


def test_a_missing_time_can_say_never() -> None:
    assert "never" in draw('{% time moment "never" %}', moment=None)


def test_a_state_has_a_shape_and_a_word_beside_its_colour() -> None:
    html = draw('{% status "denied" %}')
    assert 'class="chip bad"' in html
    assert "#st-ban" in html
    assert "Denied" in html


def test_a_word_of_another_program_is_shown_as_it_stands() -> None:
    assert find_status_style("Zzz").label == "Zzz"
    assert "&lt;i&gt;" in draw("{% status word %}", word="<i>")


def test_states_of_one_tone_differ_in_shape_from_other_tones() -> None:
    tones: dict[str, set[str]] = {}
    for word in ("pending", "running", "finished", "error", "stopped", "denied", "expired", "withdrawn"):
        tones.setdefault(find_status_style(word).icon, set()).add(find_status_style(word).tone)
    assert all(len(tone) == 1 for tone in tones.values())


def test_short_json_stands_in_the_line_and_long_json_is_folded() -> None:
    assert "<details" not in draw("{% fold value %}", value={"a": 1})
    assert "<details" in draw("{% fold value %}", value={"a": "x" * 200})


def test_folded_json_is_escaped() -> None:
    assert "<script>" not in draw("{% fold value %}", value={"a": "<script>" * 40})


def test_broken_json_is_shown_as_text() -> None:
    assert "{oops" in draw("{% fold value %}", value=UnreadableText("{oops"))


def test_sizes_and_counts_read_well() -> None:
    assert draw("{{ 640|filesize }} {{ 12800|filesize }} {{ 26214400|filesize }}") == "640 B 12.5 KB 25.0 MB"
    assert draw('{{ 1|count_of:"run,runs" }} {{ 1200|count_of:"run,runs" }}') == "1 run 1,200 runs"


def test_a_changed_query_keeps_the_rest_of_the_address() -> None:
    request = RequestFactory().get("/ui/", {"q": "a b", "page": "3"})
    assert draw("{% with_query page=4 %}", request=request) == "?q=a+b&amp;page=4"
    assert draw("{% with_query page=None %}", request=request) == "?q=a+b"


def test_heads_of_numbers_are_told_from_others_and_escaped() -> None:
    html = draw('{% column_heads "Agent" "#Grants" name %}', name="<b>")
    assert html.split("\n") == [
        '<th scope="col">Agent</th>',
        '<th scope="col" class="num">Grants</th>',
        '<th scope="col">&lt;b&gt;</th>',
    ]


def test_a_filters_choice_takes_texts_or_pairs() -> None:
    drawn = draw(
        '{% choice "server" "Server" "Any server" choices chosen %}', choices=["a", "<b>"], chosen="a"
    )
    pairs = draw('{% choice "use" "Use" "" choices chosen %}', choices=[("7", "For 7 days")], chosen="7")
    assert re.findall(
        r"<option (?:value=\"([^\"]*)\")? ?(selected)?>", " ".join(drawn.split()).replace(" >", ">")
    ) == [
        ("", ""),
        ("a", "selected"),
        ("&lt;b&gt;", ""),
    ]
    assert "For 7 days" in pairs
    assert "selected" in pairs
    assert 'value=""' not in pairs


@pytest.mark.parametrize(("number", "step", "query"), [(1, 1, "?q=a&amp;page=2"), (1, -1, ""), (3, 1, "")])
def test_there_is_no_link_beyond_the_first_and_last_page(number: int, step: int, query: str) -> None:
    page = Paginator(range(30), 10).page(number)
    request = RequestFactory().get("/ui/", {"q": "a"})
    assert draw("{% page_query page step %}", request=request, page=page, step=step) == query
