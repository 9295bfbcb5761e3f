"""A task in the background is one row, from its start to its result: from hooks, a transcript, and both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.sessions import reported_sessions
from coordinator.actions.sessions.events import record_events
from coordinator.dialects import claude_code as hooks
from coordinator.dialects.claude_code import TaskNotice, parse_task_notices
from coordinator.models import Event
from coordinator.sessions.reports import SessionLocation
from coordinator.sessions.timeline import CallRow
from coordinator.sessions.timeline.walking import walk_session_rows
from tests.claude_code.test_transcripts import brought, calls, said, session

pytestmark = pytest.mark.django_db

DATA = Path(__file__).parents[1] / "data" / "claude_code" / "hooks"
RECORDED = [json.loads(line) for line in (DATA / "background-2.1.332.jsonl").read_text().splitlines()]
CLAUDE_ID = RECORDED[0]["session_id"]


def tell(*bodies: dict[str, Any]) -> None:
    made = reported_sessions.find_or_create_reported_session(
        CLAUDE_ID, SessionLocation("/home/dev/shop"), timezone.now()
    )
    for number, body in enumerate(bodies):
        at = f"2026-11-26T18:13:{30 + number:02}.000000+00:00"
        hook = hooks.DIALECT.read_hook(json.dumps(body).encode(), at)
        record_events(
            [*hooks.DIALECT.build_hook_and_transcript_events(hook, made.session_id)], timezone.now()
        )


def transcript(place: Path) -> Path:
    folder = place / "projects" / "-home-dev-shop"
    folder.mkdir(parents=True)
    text = (DATA / "background-2.1.332-transcript.jsonl").read_text()
    (folder / f"{CLAUDE_ID}.jsonl").write_text(text)
    return folder.parent


def only_call() -> CallRow:
    (row,) = calls(CLAUDE_ID).values()
    (shown,) = [row for row in walk_session_rows(session(CLAUDE_ID)) if isinstance(row, CallRow)]
    assert shown.place == row.place
    return shown


def test_live_it_runs_until_its_turn_ends_and_then_has_its_result() -> None:
    begun, ended = RECORDED[:4], RECORDED[4:6]
    tell(*begun)
    assert only_call().call_state == "running"
    tell(*begun, *ended)
    call = only_call()
    assert (call.call_state, call.event_with_tool_name_and_input.tool_name) == ("done", "Agent")
    assert call.end is not None
    assert call.end.tool_output is not None
    assert (call.end.tool_output.value, call.duration_ms) == ("Done.", 5459)
    assert said(CLAUDE_ID, "user") == ["Do as the script says."]


def test_a_transcript_tells_the_same(tmp_path: Path) -> None:
    brought(transcript(tmp_path))
    call = only_call()
    assert call.end is not None
    assert call.end.tool_output is not None
    assert (call.call_state, call.end.tool_output.value) == ("done", "Done.")
    assert said(CLAUDE_ID, "user") == ["Do as the script says."]


def test_what_hooks_told_comes_in_once(tmp_path: Path) -> None:
    tell(*RECORDED)
    before = Event.objects.filter(event_type="post_tool").count()
    brought(transcript(tmp_path))
    assert Event.objects.filter(event_type="post_tool").count() == before == 2
    assert only_call().call_state == "done"


def test_a_task_that_failed_or_names_no_call_is_told_too() -> None:
    text = RECORDED[5]["prompt"]
    tell(*RECORDED[:5], RECORDED[5] | {"prompt": text.replace("completed", "failed")})
    call = only_call()
    assert call.end is not None
    assert (call.call_state, call.end.error) == ("failed", "Done.")
    lonely = text.replace("<tool-use-id>toolu_0</tool-use-id>\n", "").replace("<result>Done.</result>\n", "")
    tell(RECORDED[5] | {"prompt": lonely})
    assert said(CLAUDE_ID, "system") == ['Agent "Look around" finished']


def test_only_a_text_that_consists_of_notices_is_no_persons() -> None:
    notice = RECORDED[5]["prompt"]
    assert len(parse_task_notices(f"{notice}\n{notice}")) == 2
    assert not parse_task_notices(f"What does this mean? {notice}")
    assert not parse_task_notices(f"{notice} What does this mean?")
    assert not parse_task_notices("<task-notification>never closed")
    result = "<result>a</result> <task-id>b</task-id></result>"
    tagged = f"<task-notification><task-id>a</task-id>{result}</task-notification>"
    assert parse_task_notices(tagged) == [TaskNotice("a", None, "", "a</result> <task-id>b</task-id>", None)]
