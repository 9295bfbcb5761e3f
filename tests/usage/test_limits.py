"""Limits of subscriptions: how full they are, as agents report it, and who is told at which level."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from coordinator.actions import notifications
from coordinator.actions.notifications import delivering
from coordinator.actions.sessions.events import record_events
from coordinator.actions.usage.limits import MAX_LIMITS, record_subscription_limit_readings
from coordinator.client import status_line
from coordinator.client.transcript_lines import FIELD
from coordinator.errors import UnprocessableRequest
from coordinator.lib import instants
from coordinator.models import DrivenSession, Notification, NotificationTarget, Session, SubscriptionLimit
from coordinator.notifications.messages import build_message_text
from coordinator.sessions.events import NewEvent
from coordinator.usage.limit_readings import LimitReading, parse_codex_rate_limits
from coordinator.usage.limits import load_recent_limit_states
from tests.people import person, signed_in
from tests.served import Served
from tests.usage.test_page import spend

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
# As Claude Code 2.1.197 describes its status line's input in its own prompt; the values are made up.
DOCUMENT: dict[str, Any] = {
    "session_id": "c0000000-0000-4000-8000-000000000001",
    "model": {"id": "claude-opus-4-6", "display_name": "Opus 4.6"},
    "context_window": {"context_window_size": 200000, "used_percentage": 42},
    "rate_limits": {
        "five_hour": {"used_percentage": 23.5, "resets_at": 1795618800},
        "seven_day": {"used_percentage": 81, "resets_at": 1795910400},
    },
}
# As Codex 0.58 wrote it into a rollout; `resets_in_seconds` is from 0.40.
CODEX = {
    "limit_id": "codex",
    "limit_name": None,
    "primary": {"used_percent": 7.0, "window_minutes": 300, "resets_at": 1795618800},
    "secondary": {"used_percent": 77.0, "window_minutes": 10080, "resets_at": 1795910400},
    "credits": None,
    "plan_type": "plus",
}


def reading(used: float, minutes: int = 300, hours: float = 2) -> LimitReading:
    return LimitReading("", minutes, used, instants.instant_to_microseconds(NOW + timedelta(hours=hours)))


def record(*readings: LimitReading, at: datetime = NOW, now: datetime = NOW, host: str = "build") -> None:
    record_subscription_limit_readings("claude-code", host, readings, reported_at=at, now=now)


def test_codex_s_windows_are_read() -> None:
    assert [
        (one.window_minutes, one.used_percent, one.resets_at_us)
        for one in parse_codex_rate_limits(CODEX, NOW)
    ] == [
        (300, 7.0, 1795618800_000_000),
        (10080, 77.0, 1795910400_000_000),
    ]
    former = {"primary": {"used_percent": 3, "window_minutes": 299, "resets_in_seconds": 60}}
    (one,) = parse_codex_rate_limits(former, NOW)
    assert one.resets_at_us == instants.instant_to_microseconds(NOW + timedelta(seconds=60))


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        "x",
        {"primary": None, "secondary": []},
        {"primary": {"used_percent": None, "window_minutes": 300, "resets_at": 1}},
        {"primary": {"used_percent": float("nan"), "window_minutes": 300, "resets_at": 1}},
        {"primary": {"used_percent": -1, "window_minutes": 300, "resets_at": 1}},
        {"primary": {"used_percent": 5, "window_minutes": 0, "resets_at": 1}},
        {"primary": {"used_percent": 5, "window_minutes": True, "resets_at": 1}},
        {"primary": {"used_percent": 5, "window_minutes": 300, "resets_at": 10**30}},
        {"primary": {"used_percent": 5, "window_minutes": 300, "resets_at": "soon"}},
    ],
)
def test_what_cannot_be_read_is_left_out(wrong: Any) -> None:
    assert parse_codex_rate_limits(wrong, NOW) == []
    assert status_line.extract_subscription_limits({"rate_limits": wrong}) == []


def test_claude_s_status_line_has_both_windows_and_shows_them() -> None:
    limits = status_line.extract_subscription_limits(DOCUMENT)
    assert limits == [
        {"window_minutes": 300, "used_percent": 23.5, "resets_at": 1795618800},
        {"window_minutes": 10080, "used_percent": 81.0, "resets_at": 1795910400},
    ]
    assert (
        status_line.format_status_line(DOCUMENT, limits) == "Opus 4.6 · context 42 % · 5 h 24 % · week 81 %"
    )
    hostile = {"model": {"display_name": "\x1b]0;x\x07Opus\n\u202e"}}
    assert status_line.format_status_line(hostile, []) == "]0;xOpus"


@pytest.mark.django_db
def test_the_newest_reading_of_each_window_counts() -> None:
    record(reading(10), reading(50, 10080, 90))
    record(reading(5), at=NOW - timedelta(hours=1))
    record(reading(30), at=NOW + timedelta(days=300))  # a clock that runs ahead
    record(reading(40), now=NOW + timedelta(minutes=1), at=NOW + timedelta(minutes=1))
    rows = SubscriptionLimit.objects.order_by("window_minutes").values_list("window_minutes", "used_percent")
    assert list(rows) == [(300, 40.0), (10080, 50.0)]


@pytest.mark.django_db
def test_hosts_that_are_made_up_fill_no_table() -> None:
    SubscriptionLimit.objects.bulk_create(
        SubscriptionLimit(
            program="x",
            host=str(number),
            name="",
            window_minutes=300,
            used_percent=1,
            resets_at_us=1,
            reported_at_us=number,
        )
        for number in range(MAX_LIMITS)
    )
    record(reading(10))
    assert SubscriptionLimit.objects.count() == MAX_LIMITS
    assert not SubscriptionLimit.objects.filter(host="0").exists()


@pytest.mark.django_db
def test_the_page_has_each_limit_with_the_sessions_that_used_it(monkeypatch: Any) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    spend(NOW - timedelta(hours=1), 1_000, session="ses_now", host="build")
    spend(NOW - timedelta(hours=4), 9_000, session="ses_before", host="build")
    spend(NOW - timedelta(hours=1), 9_000, session="ses_elsewhere", host="laptop")
    record_subscription_limit_readings(
        "ann", "build", [reading(81.9), reading(12, 10080, 100)], reported_at=NOW, now=NOW
    )
    record_subscription_limit_readings("codex", "", [reading(99, hours=-1)], reported_at=NOW, now=NOW)
    states = {(state.row.program, state.row.window_minutes): state for state in load_recent_limit_states(NOW)}
    assert list(states["ann", 300].sessions) == ["ses_now"]
    assert set(states["ann", 10080].sessions) == {"ses_now", "ses_before"}
    assert (states["codex", 300].is_over, states["codex", 300].used_percent) == (True, 0)
    page = " ".join(signed_in("viewer").get("/ui/costs/").content.decode().split())
    assert "81 % used. Resets in" in page
    assert "Nothing was reported since." in page
    assert load_recent_limit_states(NOW + timedelta(days=30)) == []


@pytest.mark.django_db
def test_a_person_is_told_once_a_window_at_the_level_that_they_set() -> None:
    anna = person("approver", "anna")
    target = NotificationTarget.objects.create(
        person="anna",
        kind="email",
        address="anna@example.org",
        created_at=NOW,
        about="tools",
        patterns="Bash",
    )
    record(reading(99))
    assert not Notification.objects.exists()
    notifications.set_notification_filter(target.pk, user=anna, about="everything", limit_percent=80, now=NOW)
    record(reading(79.9))
    assert not Notification.objects.exists()
    record(reading(80))
    record(reading(95))
    (message,) = Notification.objects.all()
    text = build_message_text(message, None, NOW)
    assert text.title == "Signalbox: claude-code has used 95 % of its limit for 5 hours"
    assert text.text == "It resets on Wednesday, 14:00 (UTC). Reported by build."
    assert delivering.find_notification_drop_reason(message, None, NOW) is None
    later = NOW + timedelta(hours=6)
    assert (
        delivering.find_notification_drop_reason(message, None, later) == "the window of the limit has ended"
    )
    record(reading(85, hours=7), at=later, now=later)
    assert Notification.objects.count() == 2


@pytest.mark.django_db
def test_nobody_is_told_who_set_no_level_or_may_not_decide() -> None:
    person("viewer", "viewer-vera")
    for name, level in (("viewer-vera", 1), ("nobody", 1)):
        NotificationTarget.objects.create(
            person=name, kind="email", address="x@example.org", created_at=NOW, limit_percent=level
        )
    record(reading(100))
    assert not Notification.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize("level", [0, -5, 101])
def test_a_level_that_is_none_is_refused(level: int) -> None:
    anna = person("approver", "anna")
    target = NotificationTarget.objects.create(
        person="anna", kind="email", address="anna@example.org", created_at=NOW
    )
    with pytest.raises(UnprocessableRequest, match="from 1 to 100"):
        notifications.set_notification_filter(target.pk, user=anna, about="everything", limit_percent=level)


@pytest.mark.django_db
def test_an_import_of_codex_brings_its_limits(tmp_path: Path) -> None:
    lines = [
        {"type": "session_meta", "timestamp": "2026-11-25T11:00:00.000Z", "payload": {"id": "x", "cwd": "/srv"}},
        {"type": "event_msg", "timestamp": "2026-11-25T11:00:01.000Z", "payload": {
            "type": "token_count", "info": None, "rate_limits": {**CODEX, "primary": None}}},
        {"type": "event_msg", "timestamp": "2026-11-25T11:00:04.000Z", "payload": {
            "type": "token_count", "info": {"total_token_usage": {"input_tokens": 70, "output_tokens": 5}},
            "rate_limits": CODEX}},
    ]  # fmt: skip
    path = tmp_path / "rollout-2026-11-25T11-00-00-01970000-0000-7000-8000-000000000009.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    for _ in range(2):
        call_command("import_transcripts", "codex", str(tmp_path), "--host", "laptop", stdout=StringIO())
    rows = SubscriptionLimit.objects.order_by("window_minutes")
    assert [(row.program, row.host, row.window_minutes, row.used_percent) for row in rows] == [
        ("codex", "laptop", 300, 7.0),
        ("codex", "laptop", 10080, 77.0),
    ]


def test_the_end_of_a_turn_of_codex_brings_its_limits(served: Served) -> None:
    served.emptied("subscription_limits")
    at = timezone.now()
    limits = {
        "primary": {"used_percent": 64.0, "window_minutes": 300, "resets_at": int(at.timestamp()) + 3600}
    }
    line = {
        "type": "event_msg",
        "timestamp": instants.format_canonical_instant(at),
        "payload": {"type": "token_count", "info": None, "rate_limits": limits},
    }
    hook = {"session_id": "01970000-0000-7000-8000-00000000000c", "cwd": "/srv", "hook_event_name": "Stop"}
    client = served.client("agent")
    for broken in ([], ["{", 7, "{}"], "none"):
        assert client.post("/hooks/codex", json=hook | {FIELD: broken}).status_code == 200
    assert not served.sql("SELECT 1 FROM subscription_limits")
    headers = {"X-Signalbox-Host": "laptop"}
    for _ in range(2):
        answer = client.post("/hooks/codex", json=hook | {FIELD: [json.dumps(line)]}, headers=headers)
        assert answer.status_code == 200
    rows = served.sql("SELECT program, host, window_minutes, used_percent FROM subscription_limits")
    assert rows == [("codex", "laptop", 300, 64.0)]


LIMIT = {"window_minutes": 300, "used_percent": 5, "resets_at": 1795618800}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"program": "", "limits": [LIMIT]},
        {"program": "x", "limits": []},
        {"program": "x", "limits": [LIMIT] * 21},
        {"program": "x", "limits": [{**LIMIT, "used_percent": -1}]},
        {"program": "x", "limits": [{**LIMIT, "window_minutes": 0}]},
        {"program": "x", "limits": [{**LIMIT, "resets_at": 10**18}]},
        {"program": "x\u0000", "limits": [LIMIT]},
        {"program": "x" * 201, "limits": [LIMIT]},
    ],
)
def test_the_api_refuses_what_cannot_be(served: Served, wrong: dict[str, Any]) -> None:
    with served.client() as client:
        assert client.post("/api/subscription-limits", json=wrong).status_code == 422


def test_the_status_line_command_reports_and_prints_whatever_happens(served: Served, tmp_path: Path) -> None:
    environment = {
        "SIGNALBOX_URL": served.url,
        "SIGNALBOX_KEY": "sbx_served-test-key-agent",
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
    }

    def run(*arguments: str, text: bytes = json.dumps(DOCUMENT).encode(), **more: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, "-m", "coordinator.client.main", "status-line", *arguments],
            input=text,
            capture_output=True,
            env=environment | more,
            check=False,
            timeout=60,
        )
        return done.returncode, done.stdout.decode()

    assert run() == (0, "Opus 4.6 · context 42 % · 5 h 24 % · week 81 %")
    with served.client("read") as client:
        limits = client.get("/api/subscription-limits").json()["limits"]
    ours = [limit for limit in limits if limit["program"] == "claude-code"]
    assert [(limit["window_minutes"], limit["used_percent"]) for limit in ours] == [
        (300, 23.5),
        (10080, 81.0),
    ]
    assert ours[0]["resets_at"].startswith("2026-11-25T")
    assert run("--", "printf mine; exit 3") == (3, "mine")
    assert run("cat", text=b"{") == (0, "{")
    assert run(SIGNALBOX_URL="http://127.0.0.1:9") == (0, "Opus 4.6 · context 42 % · 5 h 24 % · week 81 %")
    assert run(text=b"") == (0, "")


def test_the_status_line_posts_once_a_minute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    posted: list[bytes] = []
    monkeypatch.setenv("SIGNALBOX_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(
        status_line.SingleRequestConnection, "post", lambda *args, **_: posted.append(args[3])
    )
    clock = [1_000_000.0]
    monkeypatch.setattr(status_line.time, "time", lambda: clock[0])
    limits = status_line.extract_subscription_limits(DOCUMENT)
    changed = [{**limits[0], "used_percent": 50.0}]
    numbers = []
    for seconds, reported in (
        (0, limits),
        (30, changed),
        (40, limits),
        (0, changed),
        (60, changed),
        (600, changed),
    ):
        clock[0] += seconds
        status_line.post_subscription_limits_if_due(reported)
        numbers.append(len(posted))
    # Nothing within a minute, the same again only after ten minutes.
    assert numbers == [1, 1, 1, 2, 2, 3]


def test_the_input_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"[" * (2 << 20)))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert status_line.run([]) == 0


def test_sessions_that_a_runner_drives_are_among_those_that_used_most(db: None) -> None:
    def use(name: str, agent: str, at: datetime, host: str = "build") -> None:
        columns = {"status": "running", "created_at": NOW, "hostname": host}
        one = Session.objects.create(
            session_id=name, agent_name="ann", executor_profile="signalbox", **columns
        )
        DrivenSession.objects.create(session=one, runner_id="lnch_1", agent=agent)
        request = NewEvent(
            event_type="model_request",
            session_id=name,
            timestamp=instants.format_canonical_instant(at),
            model="claude-haiku-4-5",
            output_tokens=10,
        )
        record_events([request], at)

    use("ses_1", "claude", NOW)
    use("ses_2", "codex", NOW)
    use("ses_3", "claude", NOW, host="laptop")
    use("ses_4", "claude", NOW - timedelta(hours=4))  # before the window
    record(reading(80))
    (state,) = load_recent_limit_states(NOW)
    assert list(state.sessions) == ["ses_1"]


def test_the_form_keeps_the_level(client: Client, db: None) -> None:
    approver = signed_in("approver")
    target = NotificationTarget.objects.create(
        person="approver", kind="email", address="a@example.org", created_at=NOW
    )
    address = f"/ui/approvals/notifications/{target.pk}/about/"
    approver.post(address, {"about": "everything", "limit_percent": "85"})
    target.refresh_from_db()
    assert target.limit_percent == 85
    approver.post(address, {"about": "everything", "limit_percent": "1e9"})
    target.refresh_from_db()
    assert target.limit_percent == 85
    approver.post(address, {"about": "everything", "limit_percent": ""})
    target.refresh_from_db()
    assert target.limit_percent is None
