"""What a deleted session used counts once, also when its transcript is imported again."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.test import override_settings

from coordinator.actions.sessions.events import record_events
from coordinator.lib import instants
from coordinator.models import Session, UsageDay
from coordinator.sessions.events import DedupedEvent
from tests.usage.test_periods_and_sessions import NOON
from tests.usage.test_transcripts import DATA, bring, days, figures, total

pytestmark = pytest.mark.django_db


def test_tokens_and_calls_of_codex_count_once() -> None:
    bring("codex", DATA / "codex_replay")
    before = figures(total()), days(), calls_by_day()
    Session.objects.all().delete()
    bring("codex", DATA / "codex_replay")
    assert (figures(total()), days(), calls_by_day()) == before


def test_tokens_and_calls_of_claude_count_once(tmp_path: Path) -> None:
    lines = [
        {
            "type": "user",
            "uuid": "u1",
            "sessionId": "s1",
            "timestamp": "2026-05-01T10:00:00.000Z",
            "cwd": "/w",
            "message": {"role": "user", "content": "hi"},
        },
        {
            "type": "assistant",
            "uuid": "u2",
            "sessionId": "s1",
            "timestamp": "2026-05-01T10:00:05.000Z",
            "cwd": "/w",
            "requestId": "req_1",
            "message": {
                "id": "msg_1",
                "role": "assistant",
                "model": "claude-haiku-4-5",
                "content": [
                    {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
                ],
                "stop_reason": "tool_use",
                "usage": {"input_tokens": 10, "output_tokens": 5},
            },
        },
    ]
    place = tmp_path / "s1.jsonl"
    place.write_text("".join(json.dumps(line) + "\n" for line in lines))
    bring("claude-code", place)
    before = figures(total()), days(), calls_by_day()
    assert before[2] == [("2026-05-01", 1)]
    Session.objects.all().delete()
    bring("claude-code", place)
    assert (figures(total()), days(), calls_by_day()) == before


def calls_by_day() -> list[tuple[str, int]]:
    return list(UsageDay.objects.filter(model="").order_by("day", "session_id").values_list("day", "calls"))


def report_call(origin: str, at: datetime, *, late: bool = True) -> None:
    Session.objects.get_or_create(session_id="ses_1", defaults={"status": "running", "created_at": NOON})
    call = DedupedEvent(
        event_type="pre_tool",
        session_id="ses_1",
        timestamp=instants.format_canonical_instant(at),
        tool_name="Bash",
        origin=origin,
        late=late,
    )
    record_events([call], NOON)


def test_calls_that_come_late_count_once_beside_those_that_came_at_once() -> None:
    for _ in range(2):
        report_call("c1", NOON - timedelta(days=1))
        report_call("c2", NOON - timedelta(minutes=1))
        report_call("c3", NOON - timedelta(minutes=1))
        assert calls_by_day() == [("2026-11-19", 1), ("2026-11-20", 2)]
        Session.objects.all().delete()
    report_call("c4", NOON, late=False)
    report_call("c2", NOON - timedelta(minutes=1))
    assert calls_by_day() == [("2026-11-19", 1), ("2026-11-20", 3)]


def test_days_of_calls_that_come_late_are_those_of_the_installation() -> None:
    with override_settings(LOCAL_ZONE=ZoneInfo("Europe/Berlin")):
        for number, hour in enumerate((22, 23)):
            report_call(f"c{number}", datetime(2026, 11, 19, hour, 30, tzinfo=UTC))
    assert calls_by_day() == [("2026-11-19", 1), ("2026-11-20", 1)]
