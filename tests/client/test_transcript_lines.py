"""Which lines of a transcript go along with a hook, and that nothing odd in its place stops the hook."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from coordinator.client import transcript_lines
from coordinator.client.hook_agents import HOOK_AGENTS
from coordinator.client.transcript_lines import (
    FIELD,
    LARGEST_LINES,
    LARGEST_TAIL,
    build_hook_body_with_transcript,
)
from tests.client.lines import listening
from tests.client.programs import Home
from tests.client.test_away import ours
from tests.patience import PATIENCE

CODEX, GEMINI = HOOK_AGENTS["codex"].words, HOOK_AGENTS["gemini"].words
assert CODEX is not None
assert GEMINI is not None


def codex_line(text: str, role: str = "assistant") -> str:
    payload = {"type": "message", "role": role, "content": [{"type": "output_text", "text": text}]}
    return json.dumps({"type": "response_item", "payload": payload}, separators=(",", ":"))


def gemini_line(kind: str, text: str, **more: Any) -> str:
    content = [{"text": text}] if kind == "user" else text
    return json.dumps({"id": text, "type": kind, "content": content} | more, separators=(",", ":"))


def lines_along(path: Path, words: Any) -> list[str] | None:
    payload = {"session_id": "s", "transcript_path": str(path)}
    body = build_hook_body_with_transcript(json.dumps(payload).encode() + b"\n", payload, words)
    value = json.loads(body)
    assert value.items() >= payload.items()
    found: list[str] | None = value.get(FIELD)
    return found


def test_only_what_the_agent_said_goes_along(tmp_path: Path) -> None:
    path = tmp_path / "rollout.jsonl"
    output = '{"type":"response_item","payload":{"type":"function_call_output","output":"secret"}}'
    path.write_text(
        "\n".join([codex_line("One."), codex_line("Typed.", "user"), output, codex_line("Two."), "{"])
    )
    assert lines_along(path, CODEX) == [codex_line("One."), codex_line("Two.")]


def test_of_lines_with_limits_the_newest_goes_along(tmp_path: Path) -> None:
    def limits_line(used: float | None) -> str:
        limits = None if used is None else {"primary": {"used_percent": used}}
        payload = {"type": "token_count", "info": None, "rate_limits": limits}
        return json.dumps({"type": "event_msg", "payload": payload}, separators=(",", ":"))

    path = tmp_path / "rollout.jsonl"
    lines = [
        limits_line(7.0),
        codex_line("One."),
        limits_line(9.0),
        limits_line(None),
        codex_line("Two."),
        "",
    ]
    path.write_text("\n".join(lines))
    assert lines_along(path, CODEX) == [codex_line("One."), limits_line(9.0), codex_line("Two.")]


def test_of_a_chat_neither_calls_nor_their_results_go_along(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    answers = '{"id":"r","type":"user","content":[{"functionResponse":{"response":{"output":"secret"}}}]}'
    said = gemini_line("gemini", "One.", toolCalls=[{"result": "secret"}])
    path.write_text("\n".join([gemini_line("user", "Go."), said, answers, gemini_line("gemini", "Two."), ""]))
    found = lines_along(path, GEMINI)
    assert found is not None
    assert [json.loads(line)["content"] for line in found] == [[{"text": "Go."}], "One.", "Two."]
    assert "secret" not in json.dumps(found)


def test_a_long_transcript_gives_its_newest_lines_and_a_turn_that_does_not_fit_none(tmp_path: Path) -> None:
    path, long = tmp_path / "rollout.jsonl", "x" * 100_000
    path.write_text("".join(f"{codex_line(f'{number} {long}')}\n" for number in range(60)))
    assert path.stat().st_size > LARGEST_TAIL
    found = lines_along(path, CODEX)
    assert found is not None
    assert sum(map(len, found)) <= LARGEST_LINES
    assert [line[line.index('text":"') + 7 :].split()[0] for line in found] == ["57", "58", "59"]
    chat = [gemini_line("user", "Go."), *(gemini_line("gemini", f"{number} {long}") for number in range(5))]
    path.write_text("\n".join([*chat, ""]))
    assert lines_along(path, GEMINI) is None


@pytest.mark.parametrize("what", ["folder", "pipe", "absent", "odd", "binary", "deep"])
def test_what_is_no_transcript_leaves_the_hook_as_it_is(tmp_path: Path, what: str) -> None:
    path = tmp_path / "session.jsonl"
    deep = '{"type":"user","content":[{"text":' + "[" * 100_000 + "\n"
    content = {"odd": '{"type":"gemini"\n', "binary": '"type":"gemini"\ud800\n', "deep": deep}
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what in content:
        path.write_bytes(content[what].encode("utf-8", "surrogatepass"))
    assert lines_along(path, GEMINI) is None


@pytest.mark.parametrize(
    "payload", [{}, {"transcript_path": 7}, {"transcript_path": "relative"}, {FIELD: []}]
)
def test_a_hook_that_names_no_transcript_goes_as_it_came(payload: dict[str, Any]) -> None:
    body = json.dumps(payload).encode()
    assert build_hook_body_with_transcript(body, payload, CODEX) == body


def test_the_hook_command_sends_them_with_the_end_of_a_turn_alone(tmp_path: Path) -> None:
    path = tmp_path / "rollout.jsonl"
    path.write_text(f"{codex_line('One.')}\n")
    with listening(ours(200)) as lines:
        home = Home(tmp_path, lines.url)
        for event in ("UserPromptSubmit", "Stop"):
            home.hook("codex", {"session_id": "s", "hook_event_name": event, "transcript_path": str(path)})
    bodies = [request.partition(b"\r\n\r\n")[2] for request in lines.requests]
    assert [FIELD in json.loads(body) for body in bodies] == [False, True]


def test_a_transcript_that_is_written_behind_its_hook_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copilot = HOOK_AGENTS["copilot"].words
    assert copilot is not None
    path, body = tmp_path / "events.jsonl", b'{"hook_event_name": "Stop"}'
    told = {"transcript_path": str(path)}
    said = '{"type":"assistant.message","data":{"content":"Done."}}'
    monkeypatch.setattr(transcript_lines, "WRITTEN_WITHIN_SECONDS", PATIENCE)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(build_hook_body_with_transcript, body, told, copilot)
        whole = f'{said}\n{{"type":"hook.start","data":{{"hookType":"agentStop"}}}}\n'
        path.with_suffix(".new").write_text(whole)
        path.with_suffix(".new").rename(path)
        assert json.loads(waiting.result(PATIENCE))[FIELD] == [said]
    monkeypatch.setattr(transcript_lines, "WRITTEN_WITHIN_SECONDS", 0)
    path.unlink()
    assert build_hook_body_with_transcript(body, told, copilot) == body
