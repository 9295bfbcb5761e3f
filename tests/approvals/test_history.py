from __future__ import annotations

import csv
import io
import re
from datetime import timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

import pytest
from django.test import Client

from coordinator.actions import approvals
from dashboard.approvals.statistics import compute_approval_statistics
from tests.approvals.factories import MINUTE, NOW, asked, person, stored

pytestmark = pytest.mark.django_db
URL = "/ui/approvals/history/"


def shown(browser: Client, query: str = "") -> list[str]:
    html = browser.get(f"{URL}{query}").content.decode()
    return re.findall(r'id="row-([^"]+)"', html)


@pytest.fixture
def decided():
    rows = [asked(target_resource=name) for name in ("first", "second", "third")]
    approvals.decide_request(
        rows[0].request_id, person=person("alice"), verdict="approved", reason="since you ask", now=NOW
    )
    approvals.decide_request(rows[1].request_id, person=person("bob"), verdict="denied", now=NOW + MINUTE)
    return rows


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("", [2, 1, 0]),
        ("?person=bob", [1]),
        ("?status=denied", [1]),
        ("?status=waiting", [2]),
        ("?plugin=mind.x&type=ProcessExecution", [2, 1, 0]),
        ("?plugin=mind.y", []),
        ("?q=since+ask", [0]),
        ("?q=make+deploy", [2, 1, 0]),
        ("?q=%25", []),
        ("?status=nonsense", [2, 1, 0]),
        (f"?since={(NOW + timedelta(days=1)):%Y-%m-%d}", []),
        (f"?since={NOW:%Y-%m-%d}&until={NOW:%Y-%m-%d}", [2, 1, 0]),
        (f"?until={(NOW - timedelta(days=1)):%Y-%m-%d}", []),
        ("?since=nonsense", [2, 1, 0]),
    ],
)
def test_filters(signed_in, decided, query: str, kept: list[int]) -> None:
    browser = signed_in("carol", "viewer")
    assert shown(browser, query) == [decided[index].request_id for index in kept]


def test_pages_neither_skip_nor_repeat_while_requests_arrive(signed_in) -> None:
    for number in range(120):
        stored(request_id=f"r{number}")
    browser, seen, query = signed_in(), [], ""
    while True:
        html = browser.get(f"{URL}{query}").content.decode()
        seen += re.findall(r'id="row-([^"]+)"', html)
        stored(request_id=f"late{len(seen)}")
        older = re.search(r'rel="next" href="([^"]+)"', html)
        if older is None:
            break
        query = older[1]
    assert seen == [f"r{number}" for number in reversed(range(120))]


@pytest.mark.parametrize(
    "place", ["before=x", "after=-1", "before=99999999999999999999", "after=9223372036854775807"]
)
def test_a_place_that_is_none_is_no_error(signed_in, decided, place: str) -> None:
    assert signed_in("carol").get(f"{URL}?{place}").status_code == 200


def test_the_csv_holds_what_the_filters_show_and_no_formulas(signed_in, decided) -> None:
    asked(target_resource="=cmd|' /C calc'!A0", justification="-2+3")
    answer = signed_in("carol", "viewer").get("/ui/approvals/history.csv")
    table = list(csv.DictReader(io.StringIO(answer.getvalue().decode())))
    assert len(table) == 4
    assert table[0]["target_resource"].startswith("'=cmd")
    assert table[0]["justification"] == "'-2+3"
    bobs = table[2]
    assert (bobs["status"], bobs["approved_by"], bobs["waited_seconds"]) == ("denied", "bob", "60.0")
    filtered = signed_in("dora", "viewer").get("/ui/approvals/history.csv?person=bob")
    assert len(filtered.getvalue().decode().splitlines()) == 2


def test_figures_are_counted_from_the_requests(settings) -> None:
    rows = [asked(agent_id=str(number), now=NOW) for number in range(5)]
    alice = person()
    for number, row in enumerate(rows[:3]):
        verdict = "denied" if number == 2 else "approved"
        approvals.decide_request(
            row.request_id, person=alice, verdict=verdict, now=NOW + (number + 1) * MINUTE
        )
    unseen = asked(agent_id="u", deadline=NOW + MINUTE)
    seen = asked(agent_id="s", deadline=NOW + MINUTE)
    approvals.record_requests_seen([seen.request_id], person=alice, now=NOW)
    figures = compute_approval_statistics(NOW + 10 * MINUTE, 7)
    assert (figures.requested, figures.decided, figures.approved) == (7, 3, 2)
    assert figures.median == 2 * MINUTE
    assert (figures.expired, figures.expired_unseen) == (2, 1)
    assert {bar.label: bar.number for bar in figures.ages}["5 to 30 min"] == 2
    [plugin] = figures.plugins
    outcomes = {part.outcome: part.number for part in plugin.parts}
    assert outcomes == {"approved": 2, "denied": 1, "expired": 2, "pending": 2}
    assert round(sum(part.width for part in plugin.parts)) == 100
    assert figures.columns[-1].words == "2m 00s, 3 decisions"
    assert unseen.pk


@pytest.mark.parametrize("query", ["", "?days=7", "?days=90", "?days=0", "?days=1000000", "?days=x"])
def test_the_figures_have_a_page(signed_in, query: str) -> None:
    asked()
    assert signed_in().get(f"/ui/approvals/statistics/{query}").status_code == 200


def test_a_decision_counts_on_the_installation_s_own_day(settings) -> None:
    settings.LOCAL_ZONE = ZoneInfo("Pacific/Kiritimati")  # 14 hours ahead
    decided = asked(now=NOW)
    approvals.decide_request(decided.request_id, person=person(), verdict="approved", now=NOW + MINUTE)
    columns = compute_approval_statistics(NOW + MINUTE, 7).columns
    tomorrow = NOW.date() + timedelta(days=1)  # it is noon in UTC
    assert [one.day for one in columns if one.words] == [tomorrow]
    assert columns[-1].day == tomorrow


def test_the_time_to_decision_is_told_by_the_reader_s_hour_of_the_request() -> None:
    alice = person()
    for number in range(10):
        row = asked(agent_id=str(number), now=NOW)
        at = NOW + (MINUTE if number < 6 else 30 * MINUTE)
        approvals.decide_request(row.request_id, person=alice, verdict="approved", now=at)
    later = NOW + timedelta(hours=1)
    hours = compute_approval_statistics(later, 7, ZoneInfo("Asia/Tokyo")).hours
    assert hours is not None
    [row] = hours.rows
    assert (row.hour, row.decisions) == (NOW.astimezone(ZoneInfo("Asia/Tokyo")).hour, 10)
    assert (row.median, row.slowest_tenth) == (MINUTE, 30 * MINUTE)
    assert [tick.label for tick in hours.ticks] == ["30m 00s", "15m 00s", "0"]
    [column] = [column for column in hours.columns if column.pieces]
    assert column.label == f"{row.hour}:00"
    assert [piece.words for piece in column.pieces] == [
        "Half decided within: 1m 00s",
        "Nine of ten within: 30m 00s",
    ]
    assert round(sum(piece.height for piece in column.pieces)) == 100


def test_figures_of_nothing_are_no_error(signed_in) -> None:
    assert "No decisions in this period" in signed_in().get("/ui/approvals/statistics/").content.decode()


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ann", ["ann", "ann, joe", "joe, ann", "joe, ann, bob", "Ann"]),
        ("JOE", ["ann, joe", "joe, ann", "joe, ann, bob"]),
        ("ann, joe", ["ann, joe"]),
        ("rule 3", ["rule 3"]),
        ("joanna", ["joanna", "joanna, bob"]),
        ("_nn", []),
    ],
)
def test_decided_by_names_one_decider_whole(signed_in, name: str, found: list[str]) -> None:
    deciders = [
        "ann",
        "ann, joe",
        "joe, ann",
        "joe, ann, bob",
        "Ann",
        "joanna",
        "joanna, bob",
        "rule 3",
        "rule 30",
    ]
    for decider in deciders:
        stored("denied", request_id=decider.replace(", ", "+"), approved_by=decider)
    expected = [decider.replace(", ", "+") for decider in reversed(found)]
    assert shown(signed_in("carol", "viewer"), f"?{urlencode({'person': name})}") == expected
