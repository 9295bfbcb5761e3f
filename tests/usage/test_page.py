"""The Usage page: one click away, a chart in the reader's zone, the same figures as a table and as CSV."""

from __future__ import annotations

import csv
import re
from datetime import UTC, date, datetime, time, timedelta
from html import unescape

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions.sessions.events import record_events
from coordinator.lib import instants
from coordinator.models import Session, UsageFill
from coordinator.sessions.events import NewEvent
from dashboard.usage.query import UsageQuery, load_usage_by_slot_and_name
from tests.people import signed_in

pytestmark = pytest.mark.django_db


def spend(
    at: datetime, output: int, model: str = "claude-haiku-4-5", session: str = "ses_1", host: str = "one"
) -> None:
    Session.objects.get_or_create(
        session_id=session,
        defaults={
            "status": "running",
            "created_at": at,
            "agent_name": "ann",
            "hostname": host,
            "project_dir": "/shop",
        },
    )
    event = NewEvent(
        event_type="model_request",
        session_id=session,
        timestamp=instants.format_canonical_instant(at),
        model=model,
        output_tokens=output,
    )
    record_events([event], at)


def text_of(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.fixture
def viewer() -> Client:
    return signed_in("viewer")


def test_yesterday_is_one_click_and_says_what_cost_most(viewer: Client) -> None:
    now = timezone.now()
    yesterday = (now - timedelta(days=1)).astimezone(UTC).date()
    spend(datetime.combine(yesterday, time(23, 30), UTC), 1_000_000, session="ses_late")
    spend(datetime.combine(yesterday, time(0, 0), UTC), 200_000, session="ses_early")
    spend(datetime.combine(yesterday - timedelta(days=1), time(23, 59), UTC), 3_000_000, session="ses_before")
    spend(datetime.combine(yesterday + timedelta(days=1), time(0, 0), UTC), 5_000_000, session="ses_after")
    week = viewer.get("/ui/costs/").content.decode()
    link = re.search(r'href="(\?[^"]*)"[^>]*>Yesterday<', week)
    assert link
    assert f"day={yesterday}" in link[1]
    shown = viewer.get("/ui/costs/" + unescape(link[1])).content.decode()
    assert f"$6.00 on {yesterday:%A}, {yesterday.day} {yesterday:%B %Y}" in text_of(shown)
    assert re.findall(r"ses_\w+", text_of(shown)) == ["ses_late", "ses_early"]
    assert f"{yesterday} 23:00, claude-haiku-4-5: $5.00" in shown
    assert f'day={yesterday}">{yesterday}</a>' in week  # the table of days leads there, too


@pytest.mark.parametrize("day", ["2026-02-30", "0001-01-01", "9999-12-31", "yesterday"])
def test_a_day_that_is_none_is_as_if_left_out(viewer: Client, day: str) -> None:
    assert UsageQuery.from_query({"day": day}).day is None
    assert viewer.get("/ui/costs/", {"day": day}).status_code == 200


def test_a_day_of_the_readers_zone_has_as_many_hours_as_its_clocks(viewer: Client) -> None:
    query = UsageQuery(zone="Europe/Berlin", day=date(2026, 10, 25))  # the clocks go back at three
    now = timezone.now()
    assert query.end_instant is not None
    assert query.end_instant - query.start_instant(now) == timedelta(hours=25)
    assert len(query.list_time_slot_labels(now)) == 24


def test_it_is_one_click_from_every_page(viewer: Client) -> None:
    rail = viewer.get("/ui/").content.decode().partition("<main")[0]
    assert 'href="/ui/costs/"' in rail


def test_the_chart_has_a_piece_for_each_day_and_model_and_a_table_says_the_same(viewer: Client) -> None:
    now = timezone.now()
    spend(now, 1_000_000)
    spend(now, 100_000, "claude-opus-4-6", "ses_2", "two")
    spend(now - timedelta(days=2), 200_000)
    page = viewer.get("/ui/costs/?days=7").content.decode()
    titles = re.findall(r"<title>(\d{4}-[^<]+)</title>", page)
    day, before = now.astimezone(UTC).date(), (now - timedelta(days=2)).astimezone(UTC).date()
    assert titles == [
        f"{before}, claude-haiku-4-5: $1.00", f"{day}, claude-haiku-4-5: $5.00", f"{day}, claude-opus-4-6: $2.50",
    ]  # fmt: skip
    assert f"{day} 2 0 0 0 1,100,000 $7.50" in text_of(page)
    by_host = text_of(viewer.get("/ui/costs/?days=7&by=host").content.decode())
    assert "one 2 0 0 0 1,200,000 $6.00 two 1 0 0 0 100,000 $2.50" in by_host
    assert "/shop 3 0 0 0 1,300,000 $8.50" in text_of(viewer.get("/ui/costs/?by=folder").content.decode())


def test_models_without_a_price_are_listed(viewer: Client) -> None:
    spend(timezone.now(), 40, "nobody-knows")
    page = text_of(viewer.get("/ui/costs/").content.decode())
    assert "nobody-knows: 40 tokens in 1 request" in page
    assert "no price" in page


def test_months_ago_are_in_the_sums(viewer: Client) -> None:
    spend(timezone.now() - timedelta(days=200), 1_000_000)
    assert "$5.00" in text_of(viewer.get("/ui/costs/?days=365").content.decode())
    assert "$5.00" not in text_of(viewer.get("/ui/costs/?days=90").content.decode())


def test_csv_has_a_row_for_each_day_and_name(viewer: Client) -> None:
    now = timezone.now()
    spend(now, 10)
    spend(now - timedelta(days=1), 30)
    body = b"".join(viewer.get("/ui/costs/csv/?days=7&by=agent").streaming_content).decode()
    rows = list(csv.DictReader(body.splitlines()))
    assert [(row["name"], row["requests"], row["output"]) for row in rows] == [
        ("ann", "1", "30"),
        ("ann", "1", "10"),
    ]


@pytest.mark.parametrize(
    ("zone", "day"),
    [
        ("UTC", "2026-11-20"),
        ("Europe/Berlin", "2026-11-21"),
        ("Asia/Kolkata", "2026-11-21"),
        ("America/New_York", "2026-11-20"),
    ],
)
def test_days_are_those_of_the_reader(zone: str, day: str) -> None:
    at = datetime(2026, 11, 20, 23, 40, tzinfo=UTC)
    spend(at, 7)
    query = UsageQuery.from_query({"zone": zone, "days": "7", "by": "model"})
    assert list(load_usage_by_slot_and_name(query, at + timedelta(hours=3))) == [(day, "claude-haiku-4-5")]


def test_hours_of_a_zone_with_half_hours() -> None:
    at = datetime(2026, 11, 20, 23, 40, tzinfo=UTC)  # 05:10 in India
    spend(at, 7)
    query = UsageQuery(days=1, zone="Asia/Kolkata")
    ((slot, _),) = load_usage_by_slot_and_name(query, at)
    assert slot == "2026-11-21 05:00" == query.list_time_slot_labels(at)[-1]


@pytest.mark.parametrize(
    "query", ["days=x&by=y&measure=z&zone=Nowhere", "days=-1", "by=%27", "zone=../../etc/passwd"]
)
def test_choices_that_cannot_be_read_are_as_if_left_out(viewer: Client, query: str) -> None:
    spend(timezone.now(), 10)
    assert viewer.get(f"/ui/costs/?{query}").status_code == 200
    assert viewer.get(f"/ui/costs/csv/?{query}").status_code == 200


def test_it_says_that_earlier_requests_are_still_being_counted(viewer: Client) -> None:
    words = "Requests of before the upgrade are still being counted."
    assert words not in viewer.get("/ui/costs/").content.decode()
    UsageFill.objects.create(next_id=5, first_id=10)
    assert words in viewer.get("/ui/costs/").content.decode()
