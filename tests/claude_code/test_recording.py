"""Every hook of Claude Code becomes events of one session, in whatever order and however often it comes."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.claude_code.double import Claude
from tests.served import KEYS, Served

pytestmark = pytest.mark.served

# Every event name that Claude Code has (its hooks reference), with fields of its own where they matter.
HOOKS: dict[str, dict[str, Any]] = {
    "SessionStart": {"source": "startup", "model": "claude-opus-4-8"},
    "Setup": {"trigger": "init"},
    "SessionEnd": {"reason": "logout"},
    "UserPromptSubmit": {"prompt": "Run the tests."},
    "UserPromptExpansion": {"expansion_type": "slash_command", "command_name": "review", "prompt": "Review."},
    "PreToolUse": {"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_use_id": "toolu_1"},
    "PermissionRequest": {"tool_name": "Bash", "tool_input": {"command": "ls"}},
    "PermissionDenied": {
        "tool_name": "Bash",
        "tool_input": {},
        "tool_use_id": "toolu_2",
        "reason": "too bold",
    },
    "PostToolUse": {
        "tool_name": "Bash",
        "tool_input": {},
        "tool_response": {"stdout": "x"},
        "tool_use_id": "toolu_1",
    },
    "PostToolUseFailure": {
        "tool_name": "Bash",
        "tool_input": {},
        "error": "exit 1",
        "tool_use_id": "toolu_3",
    },
    "PostToolBatch": {
        "tool_calls": [{"tool_name": "Read", "tool_use_id": "toolu_9", "tool_response": "text"}]
    },
    "Notification": {"message": "Claude is waiting for your input", "notification_type": "idle_prompt"},
    "MessageDisplay": {"message_id": "m1", "index": 0, "final": True, "delta": "I will look."},
    "SubagentStart": {"agent_id": "a1", "agent_type": "Explore"},
    "SubagentStop": {"agent_id": "a1", "agent_type": "Explore", "last_assistant_message": "Found it."},
    "Stop": {"stop_hook_active": False, "last_assistant_message": "Done."},
    "StopFailure": {"error": "rate_limit"},
    "TaskCreated": {"task_id": "t1", "task_subject": "Fix it"},
    "TaskCompleted": {"task_id": "t1", "task_subject": "Fix it"},
    "TeammateIdle": {"teammate_name": "ann"},
    "PreCompact": {"trigger": "auto", "custom_instructions": ""},
    "PostCompact": {"trigger": "auto", "compact_summary": "…"},
    "Elicitation": {"mcp_server_name": "s", "message": "Which one?"},
    "ElicitationResult": {"mcp_server_name": "s", "action": "accept"},
    "InstructionsLoaded": {"file": "CLAUDE.md"},
    "ConfigChange": {"source": "user_settings"},
    "CwdChanged": {"new_cwd": "/tmp"},
    "DirectoryAdded": {"directory": "/tmp"},
    "FileChanged": {"path": "/tmp/x"},
    "WorktreeCreate": {"name": "w"},
    "WorktreeRemove": {"name": "w"},
    "SomethingNewIn2027": {"brand_new": {"deep": [1]}},
}


@pytest.fixture(scope="module")
def served(served_template: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tests.served import running

    with running(served_template, tmp_path_factory.mktemp("hooks") / "server") as server:
        yield server


def events(served: Served, claude: Claude) -> list[dict[str, Any]]:
    """Return the session's events in the order of its timeline."""
    rows = served.sql(
        "SELECT e.event_type, e.tool_name, e.tool_input, e.tool_output, e.error, e.role, e.content, e.reason,"
        " c.tool_use_id, c.subagent, c.extra, c.duration_ms, c.source, c.model FROM events e"
        " JOIN event_context c ON c.event_id = e.id JOIN sessions s ON s.session_id = e.session_id"
        " WHERE s.executor_session_id = ? ORDER BY c.instant_us, e.id",
        (claude.session,),
    )
    names = (
        "type tool input output error role content reason tool_use_id subagent extra duration_ms source model"
    )
    found = [dict(zip(names.split(), row, strict=True)) for row in rows]
    for event in found:
        for name in ("input", "output", "content", "extra"):
            event[name] = json.loads(event[name]) if event[name] else None
    return found


def session(served: Served, claude: Claude, column: str) -> list[Any]:
    statement = f"SELECT {column} FROM sessions WHERE executor_session_id = ?"
    return [row[0] for row in served.sql(statement, (claude.session,))]


@pytest.mark.parametrize("name", HOOKS)
def test_any_hook_may_come_first_and_is_kept_whole(served: Served, name: str) -> None:
    claude = Claude(served, wait="0")  # nobody answers a question
    assert claude.hook(name, **HOOKS[name], from_the_future={"x": 1}) == {}
    assert session(served, claude, "project_dir") == [claude.cwd]
    found = events(served, claude)
    assert found
    assert {event["source"] for event in found} == {"claude-code"}
    assert all(event["extra"]["hook"] == name for event in found)
    kept = json.dumps(found)
    for value in HOOKS[name].values():
        assert not isinstance(value, str) or json.dumps(value)[1:-1] in kept
    assert "from_the_future" in kept


def test_a_session_tells_where_it_runs(served: Served) -> None:
    claude = Claude(served, host="studio")
    claude.start()
    (row,) = served.sql(
        "SELECT session_id, status, hostname, executor_profile, agent_name FROM sessions"
        " WHERE executor_session_id = ?",
        (claude.session,),
    )
    assert row[0].startswith("ses_")
    assert len(row[0]) == 16
    assert row[1:] == ("running", "studio", "claude-code", "claude-code")


def test_a_call_and_its_result_are_paired_whichever_comes_first(served: Served) -> None:
    claude = Claude(served)
    call = claude.new_call("Bash", {"command": "make"})
    claude.ran(call, {"stdout": "ok"}, took=7)
    claude.before(call)
    ends, starts = events(served, claude)
    assert (ends["type"], starts["type"]) == ("post_tool", "pre_tool")
    assert ends["tool_use_id"] == starts["tool_use_id"] == call.id
    assert (ends["output"], ends["duration_ms"]) == ({"stdout": "ok"}, 7)


def test_a_hook_posted_twice_is_written_once(served: Served) -> None:
    claude = Claude(served)
    for name in ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStart", "Notification"):
        body = claude.fields(name, **HOOKS[name])
        claude.post(body)
        before = len(events(served, claude))
        claude.post(body)
        assert len(events(served, claude)) == before, name


def test_twins_posted_at_once_make_one_session_and_one_event(served: Served) -> None:
    from concurrent.futures import ThreadPoolExecutor

    claude = Claude(served)
    body = claude.fields("PreToolUse", **HOOKS["PreToolUse"])
    with ThreadPoolExecutor(8) as pool:
        answers = list(
            pool.map(
                lambda _: httpx.post(claude.url, json=body, headers=claude.headers, verify=False).status_code,
                range(16),
            )
        )
    assert set(answers) == {200}
    assert len(session(served, claude, "session_id")) == 1
    assert [event["type"] for event in events(served, claude)] == ["pre_tool"]


def test_failures_and_denials_are_results(served: Served) -> None:
    claude = Claude(served)
    claude.hook("PostToolUseFailure", **HOOKS["PostToolUseFailure"])
    claude.hook("PermissionDenied", **HOOKS["PermissionDenied"])
    assert [event["error"] for event in events(served, claude)] == [
        "exit 1",
        "Denied by Claude Code: too bold",
    ]


def test_a_batch_gives_results_only_to_calls_without_one(served: Served) -> None:
    claude = Claude(served)
    call = claude.ran(claude.new_call("Bash", {"command": "ls"}))
    calls = [
        {"tool_name": "Bash", "tool_use_id": call.id, "tool_response": "as the model saw it"},
        {"tool_name": "Read", "tool_use_id": "toolu_lost", "tool_response": "late"},
    ]
    claude.hook("PostToolBatch", tool_calls=calls)
    assert [(event["tool_use_id"], event["output"]) for event in events(served, claude)] == [
        (call.id, {"stdout": "done", "stderr": "", "interrupted": False}),
        ("toolu_lost", "late"),
    ]


def test_the_last_words_are_told_once(served: Served) -> None:
    claude = Claude(served)
    claude.prompt("Fix it.")
    claude.say("All  done,\nI think.")
    claude.stop("All done, I think.")
    spoken = [event["content"][0]["text"] for event in events(served, claude) if event["type"] == "message"]
    assert spoken == ["Fix it.", "All  done,\nI think."]
    claude.prompt("Once more.")
    claude.stop("All done, I think.")
    assert [event["role"] for event in events(served, claude)] == [
        "user", "assistant", None, "user", "assistant", None,
    ]  # fmt: skip


def test_a_message_in_pieces_becomes_one(served: Served) -> None:
    claude = Claude(served)
    for place, text in enumerate(["I will ", "look ", "now."]):
        claude.hook("MessageDisplay", message_id="m7", index=place, final=place == 2, delta=text)
    claude.hook("MessageDisplay", message_id="m8", index=0, final=False, delta="Interrup")
    claude.prompt("Stop that.")
    spoken = [(event["role"], event["content"][0]["text"]) for event in events(served, claude)]
    assert spoken == [("assistant", "I will look now."), ("assistant", "Interrup"), ("user", "Stop that.")]


def test_a_stop_ends_the_turn_and_only_session_end_the_session(served: Served) -> None:
    claude = Claude(served)
    claude.prompt("Go.")
    claude.stop("Gone.")
    assert session(served, claude, "status") == ["running"]
    claude.end()
    assert session(served, claude, "status") == ["finished"]
    claude.hook("PostToolUse", **HOOKS["PostToolUse"])  # overtaken by the end
    assert session(served, claude, "status") == ["finished"]
    claude.prompt("One more thing.")  # resumed; HTTP hooks alone never hear of a SessionStart
    assert session(served, claude, "status") == ["running"]


def test_a_subagent_is_nested_and_an_agent_type_alone_is_not(served: Served) -> None:
    claude = Claude(served)
    claude.before(claude.new_call("Grep", {"pattern": "x"}), agent_id="a7", agent_type="Explore")
    claude.before(claude.new_call("Grep", {"pattern": "x"}), agent_type="reviewer")
    assert [event["subagent"] for event in events(served, claude)] == ["Explore a7", None]


def test_what_no_database_can_hold_is_kept_as_well_as_can_be(served: Served) -> None:
    claude = Claude(served)
    body = json.dumps(claude.fields("PostToolUseFailure", **HOOKS["PostToolUseFailure"]))
    body = body.replace('"exit 1"', '"bad \\u0000 and \\ud83d half"')
    answer = httpx.post(claude.url, content=body, headers=claude.headers)
    assert (answer.status_code, answer.text) == (200, "")
    assert events(served, claude)[0]["error"] == "bad ␀ and \ufffd half"


def test_a_deleted_session_comes_back_with_what_its_agent_does_next(served: Served) -> None:
    claude = Claude(served)
    claude.prompt("Begin.")
    (session_id,) = session(served, claude, "session_id")
    assert served.client("operator").delete(f"/sessions/{session_id}").status_code == 200
    claude.before(claude.new_call("Bash", {"command": "ls"}))
    assert [event["type"] for event in events(served, claude)] == ["pre_tool"]


def test_a_session_that_an_executor_has_bound_is_joined(served: Served) -> None:
    claude = Claude(served)
    served.sql(
        "INSERT INTO sessions (session_id, status, created_at, executor_session_id)"
        " VALUES ('ses_0123456789ab', 'running', '2026-11-21T00:00:00.000000+00:00', ?)",
        (claude.session,),
    )
    claude.prompt("Hello.")
    assert session(served, claude, "session_id") == ["ses_0123456789ab"]


@pytest.mark.parametrize(
    "body", [b"", b"not json", b"[1]", b'{"hook_event_name": "Stop"}', b'{"session_id": 3}']
)
def test_what_is_no_hook_is_refused_in_words(served: Served, body: bytes) -> None:
    claude = Claude(served)
    answer = httpx.post(claude.url, content=body, headers=claude.headers)
    assert answer.status_code == 422
    assert answer.json()["detail"]


@pytest.mark.parametrize("scope", ["read", "runner", "operator", None])
def test_only_keys_of_agents_may_tell(served: Served, scope: str | None) -> None:
    claude = Claude(served)
    headers = {"Authorization": f"Bearer {KEYS[scope]}"} if scope else {}
    answer = httpx.post(claude.url, json=claude.fields("Stop"), headers=headers)
    assert answer.status_code == (403 if scope else 401)
    assert session(served, claude, "session_id") == []
