"""A hook's body that is no JSON: it is read as far as it is certain, and denied only where a rule may ask or deny."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from coordinator.client.broken_hooks import extract_unambiguous_fields
from coordinator.dialects.dialect_base import COULD_NOT_READ
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.errors import UnprocessableRequest
from tests.claude_code.test_deciding import rules
from tests.dialects.payloads import PAYLOADS
from tests.served import Served

AT = "2026-11-22T01:09:22.000000+00:00"
every_agent = pytest.mark.parametrize("name", sorted(DIALECTS))
BREAKS = {
    "cut": lambda body: body[:-3],
    "a comma too many": lambda body: body[:-1] + b",}",
    "raw backslashes": lambda body: body[:-1] + rb',"where":"C:\Users\dev"}',
    "a NUL": lambda body: body[:-1] + b',"x":"\x00"}',
    "a number beyond all": lambda body: body[:-1] + b',"rate":1e400}',
    "infinity": lambda body: body[:-1] + b',"rate":-Infinity}',
    "too deep": lambda body: body[:-1] + b',"x":' + b"[" * 200 + b"]" * 200 + b"}",
}
MARKS = {
    "utf-8": b"\xef\xbb\xbf%s",
    "utf-8 twice": b"\xef\xbb\xbf\xef\xbb\xbf%s",
}


def body_of(payload: dict[str, Any]) -> bytes:
    return json.dumps(payload).encode()


def call_of(name: str, session: str, tool: str = "Bash", **more: Any) -> dict[str, Any]:
    """Return the hook of a call as the agent posts it."""
    dialect = DIALECTS[name]
    event = dialect.guess_call_hook_name(None)
    about = {"tool_name": tool, "tool_use_id": uuid.uuid4().hex, "tool_input": {"command": "ls", **more}}
    return {
        "session_id": session,
        "conversation_id": session,
        "hook_event_name": event,
        "event": event,
        **about,
    }


@every_agent
@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_a_byte_order_mark_is_no_part_of_a_hook(name: str, mark: bytes) -> None:
    for payload in PAYLOADS[name]:
        body = body_of(payload)
        assert DIALECTS[name].read_hook(mark % body, AT) == DIALECTS[name].read_hook(body, AT)
        marked = b"\xff\xfe" + body.decode().encode("utf-16-le")
        assert DIALECTS[name].read_hook(marked, AT) == DIALECTS[name].read_hook(body, AT)


@every_agent
@pytest.mark.parametrize("how", BREAKS)
def test_what_is_certain_of_a_broken_hook_is_known(name: str, how: str) -> None:
    payload = call_of(name, "ses-1")
    hook = DIALECTS[name].read_hook(BREAKS[how](body_of(payload)), AT)
    assert hook.unread
    assert (hook.session, hook.name, hook.tool_name) == ("ses-1", payload["event"], "Bash")
    assert hook.tool_input is None or name == "cursor"
    assert DIALECTS[name].is_call_hook(hook)


@every_agent
def test_a_number_that_nobody_can_keep_is_refused_by_name(name: str) -> None:
    body = body_of(call_of(name, "ses-1", rate=0.5)).replace(b"0.5", b"-1e400")
    assert "-1e400" in (DIALECTS[name].read_hook(body, AT).unread or "")
    exact = body.replace(b"-1e400", b"123456789012345678901234567890")
    assert DIALECTS[name].read_hook(exact, AT).unread is None


@every_agent
def test_a_field_that_stands_twice_is_refused_by_name(name: str) -> None:
    body = body_of(call_of(name, "ses-1")).replace(
        b'"command": "ls"', b'"command": "ls", "command": "rm -rf /"'
    )
    assert "'command' stands twice" in (DIALECTS[name].read_hook(body, AT).unread or "")


SPACINGS = {"compact": (",", ":"), "as written": (", ", ": "), "a space before the colon": (" , ", " : ")}


@every_agent
@pytest.mark.parametrize("spacing", SPACINGS.values(), ids=SPACINGS)
def test_a_field_that_stands_twice_in_a_call_as_its_agent_posts_it_is_refused(
    name: str, spacing: tuple[str, str]
) -> None:
    dialect, doubled = DIALECTS[name], 0
    for payload in PAYLOADS[name]:
        hook = dialect.read_hook(body_of(payload), AT)
        if not dialect.is_call_hook(hook) or not isinstance(hook.tool_input, dict):
            continue
        body = json.dumps(payload, separators=spacing)
        for field, value in hook.tool_input.items():
            whole = json.dumps(field) + spacing[1] + json.dumps(value, separators=spacing)
            if body.count(whole) != 1:  # it comes as a text
                continue
            twice = body.replace(whole, json.dumps(field) + spacing[1] + '"x"' + spacing[0] + whole).encode()
            for posted in (twice, b"\xff\xfe" + twice.decode().encode("utf-16-le")):
                assert f"{field!r} stands twice" in (dialect.read_hook(posted, AT).unread or ""), field
            doubled += 1
    assert doubled or name in {"opencode", "kilo"}


def test_an_input_that_comes_as_a_text_and_names_a_field_twice_is_shown_as_that_text() -> None:
    payload = next(one for one in PAYLOADS["cursor"] if one["hook_event_name"] == "beforeMCPExecution")
    for text in (
        '{"path": "a", "path": "b"}',
        '{"path" : "a", "path" : "b"}',
        '\ufeff{"path": "a", "path": "b"}',
    ):
        hook = DIALECTS["cursor"].read_hook(body_of(payload | {"tool_input": text}), AT)
        assert hook.tool_input == text


def test_a_field_within_the_input_does_not_pass_for_the_hook_s_own() -> None:
    names = ("tool_name", "session_id")
    assert extract_unambiguous_fields(
        b'{"session_id": "s", "tool_name": "Bash", "tool_input": {"a', names
    ) == {
        "session_id": "s",
        "tool_name": "Bash",
    }
    assert "tool_name" not in extract_unambiguous_fields(
        b'{"session_id":"s","tool_input":{"tool_name":"Read"},"to', names
    )
    assert "tool_name" not in extract_unambiguous_fields(
        b'{"tool_name":"Bash","tool_input":{"tool_name":"Read"}', names
    )
    assert "tool_name" not in extract_unambiguous_fields(b'{"tool_name":"a\\"b","tool_input":{"x":1', names)


@pytest.mark.parametrize("body", [b"", b" ", b"\xef\xbb\xbf", b"{", b"a=b&c=d", b"[1,2]"])
def test_a_body_that_does_not_say_whose_it_is_is_refused(body: bytes) -> None:
    for dialect in DIALECTS.values():
        with pytest.raises(UnprocessableRequest):
            dialect.read_hook(body, AT)


def post(served: Served, name: str, body: bytes) -> tuple[int, Any]:
    """Post a hook with a content type that is not JSON's; return the status and the answer."""
    client = served.client("agent")
    response = client.post(f"/hooks/{name}", content=body, headers={"Content-Type": "text/plain"})
    return response.status_code, response.json() if response.content else None


def events_of(served: Served, session: str) -> list[tuple[Any, ...]]:
    return served.sql(
        "SELECT e.event_type, e.tool_input FROM events e"
        " JOIN sessions s ON s.session_id = e.session_id WHERE s.executor_session_id = ? ORDER BY e.id",
        (session,),
    )


@pytest.mark.served
@every_agent
def test_a_broken_call_is_denied_only_where_a_rule_may_speak_of_it(one_server: Served, name: str) -> None:
    rules(one_server, {"tool": "Write", "verdict": "deny", "reason": "Nobody writes here."})
    session = str(uuid.uuid4())
    assert post(one_server, name, body_of(call_of(name, session))[:-2]) == (200, None)
    kinds = [kind for kind, _ in events_of(one_server, session)]
    assert "unreadable_hook" in kinds
    rules(one_server, {"tool": "Bash", "pattern": "push", "verdict": "ask", "reason": "Ask about pushes."})
    status, answer = post(one_server, name, body_of(call_of(name, session))[:-2])
    words = json.dumps(answer)
    assert (status, COULD_NOT_READ in words, "This is not JSON." in words) == (200, True, True)
    assert "Ask about pushes." not in words
    status, answer = post(one_server, name, b"{")
    words = json.dumps(answer)
    assert (status, COULD_NOT_READ in words, "Ask about pushes." in words) == (200, True, False)


@pytest.mark.served
def test_a_turn_s_end_that_is_no_json_ends_the_turn(one_server: Served) -> None:
    rules(one_server, {"tool": "*", "verdict": "deny"})
    session = str(uuid.uuid4())
    body = f'{{"session_id":"{session}","hook_event_name":"Stop","last_assistant_message":"geprüft „fertig}}'
    assert post(one_server, "codex", body.encode()) == (200, None)
    (unread, shown), (end, _) = events_of(one_server, session)
    assert (unread, end) == ("unreadable_hook", "turn_end")
    assert "This is not JSON." in shown
