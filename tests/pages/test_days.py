"""Days in filters are days of a zone that stands in the URL, on every list that has them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from coordinator.models import AuditLog, PermissionRequest, Run
from dashboard.frame.days import DayRange
from tests.people import signed_in
from tests.search.indexing import index_new
from tests.timelines import add_events, make_session, said

# The evening of the 20th in London is the 21st in Kolkata.
EVENING = datetime(2026, 11, 20, 20, 0, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.mark.parametrize(
    ("day", "zone", "start", "hours"),
    [
        ("2026-11-20", "", "2026-11-20T00:00Z", 24),
        ("2026-11-20", "Asia/Kolkata", "2026-11-19T18:30Z", 24),
        ("2026-03-29", "Europe/Berlin", "2026-03-28T23:00Z", 23),
        ("2026-10-25", "Europe/Berlin", "2026-10-24T22:00Z", 25),
        ("2018-11-04", "America/Sao_Paulo", "2018-11-04T03:00Z", 23),  # its clocks skipped midnight
        ("2026-11-20", "Nowhere/Town", "2026-11-20T00:00Z", 24),
        ("2026-11-20", "../../etc/passwd", "2026-11-20T00:00Z", 24),
        ("2026-11-20", "America", "2026-11-20T00:00Z", 24),
    ],
)
def test_a_day_is_as_long_as_it_is_in_its_zone(day, zone, start, hours):
    days = DayRange.from_query({"since": day, "until": day, "zone": zone})
    assert days.start_instant == datetime.fromisoformat(start)
    assert days.end_instant - days.start_instant == timedelta(hours=hours)


def test_days_that_cannot_be_reckoned_with_leave_nothing_out_or_everything():
    far = DayRange.from_query({"since": "0001-01-01", "until": "9999-12-31", "zone": "Asia/Tokyo"})
    assert (far.start_instant, far.end_instant) == (None, None)
    assert DayRange.from_query({"until": "0001-01-01", "zone": "Asia/Tokyo"}).end_instant.year == 1970
    assert DayRange.from_query({"since": "when", "until": ""}) == DayRange()


@pytest.fixture
def evening(db):
    """One row in every list, all of the same evening."""
    session = make_session(created_at=EVENING)
    add_events(session, [said("user", "needle", at=EVENING)])
    index_new()
    Run.objects.create(
        run_id="run_0000000000aa", session=session, type="start_session", prompt="x", created_at=EVENING
    )
    PermissionRequest.objects.create(
        request_id="req",
        created_at=EVENING,
        plugin_id="p",
        permission_type="t",
        justification="j",
        status="x",
    )
    AuditLog.objects.all()._raw_delete("default")
    AuditLog.objects.create(timestamp=EVENING, event_type="EVENING", result="success")


@pytest.mark.parametrize(
    ("path", "shows"),
    [
        ("/ui/sessions/?", "ses_000000000001"),
        ("/ui/runs/?", "run_0000000000aa"),
        ("/ui/approvals/history/?", "/ui/approvals/req/"),
        ("/ui/approvals/history.csv?", "req,"),
        ("/ui/audit/?", "/ui/audit/"),
        ("/ui/audit/export.csv?", "EVENING"),
        ("/ui/search/?q=needle&", "ses_000000000001"),
    ],
)
def test_every_list_means_the_same_day(evening, path, shows):
    client = signed_in("viewer")
    rows = "row" if "csv" not in path else ""

    def shown(day, zone):
        answer = client.get(f"{path}since={day}&until={day}&zone={zone}")
        assert answer.status_code == 200
        body = answer.getvalue().decode()
        return shows in body if not rows else "data-row" in body and shows in body

    assert shown(date(2026, 11, 20), "")
    assert shown(date(2026, 11, 20), "Europe/London")
    assert not shown(date(2026, 11, 21), "Europe/London")
    assert shown(date(2026, 11, 21), "Asia/Kolkata")
    assert not shown(date(2026, 11, 20), "Asia/Kolkata")


def test_the_page_says_whose_days_they_are(db):
    client = signed_in("viewer")
    assert "<span data-zone-name>UTC</span>" in client.get("/ui/audit/?since=2026-11-20").content.decode()
    body = client.get("/ui/audit/?since=2026-11-20&zone=Asia/Tokyo").content.decode()
    assert 'name="zone" value="Asia/Tokyo"' in body
    assert "<span data-zone-name>Asia/Tokyo</span>" in body
