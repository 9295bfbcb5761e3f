"""Hunt c: what a deleted session used, when its transcript is imported again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator.models import Session, UsageDay
from tests.usage.test_transcripts import DATA, bring, days, figures, total

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("program", sorted({"codex"}))
def test_tokens_count_once(program: str) -> None:
    bring(program, DATA / "codex_replay")
    before = figures(total()), days()
    Session.objects.all().delete()
    bring(program, DATA / "codex_replay")
    assert (figures(total()), days()) == before


def test_tokens_of_claude_count_once(tmp_path: Path) -> None:
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
    print(bring("claude-code", place))
    before = figures(total()), days(), sum(UsageDay.objects.values_list("calls", flat=True))
    Session.objects.all().delete()
    print(bring("claude-code", place))
    assert (figures(total()), days(), sum(UsageDay.objects.values_list("calls", flat=True))) == before
