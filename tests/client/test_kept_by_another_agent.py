"""Hooks of one agent that another agent's command sends, and hooks whose transcript came late."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

from tests.client.lines import http, listening, of_the_hook
from tests.client.programs import Home, until
from tests.client.test_away import NOWHERE, call, ours, prompt, remember

HELD = {"codex": [["hold", "Bash"]], "claude-code": []}


def answer_by_agent(line: socket.socket, request: bytes) -> None:
    """Say of each agent what is held for it, as the server does: `/hooks/AGENT`."""
    agent = request.split(b"/hooks/", 1)[1].split(b"?", 1)[0].decode()
    head = {"X_Signalbox_Hook_Id": of_the_hook(request), "X_Signalbox_Held": json.dumps(HELD[agent])}
    line.sendall(http(200, **head))


def test_a_kept_hook_of_another_agent_changes_nothing_of_what_is_held(tmp_path: Path) -> None:
    home = Home(tmp_path, NOWHERE)
    with listening(answer_by_agent) as lines:
        home.connect(lines.url)
        remember(home, ("hold", "Bash"), url=lines.url)
        (held,) = (home.folder / ".local/state/signalbox").glob("*/held-codex.json")
        spool = held.parent / "spool"
        # A hook of Claude Code's was kept while the server was away.
        home.connect(NOWHERE)
        home.hook("claude-code", prompt())
        (kept,) = home.kept
        spool.mkdir(exist_ok=True)
        kept.rename(spool / kept.name)
        home.connect(lines.url)
        home.hook("codex", call())  # once it is answered, what was kept is sent
        with until() as pause:
            while home.kept:
                pause()
        assert len(lines.requests) == 2
    assert json.loads(held.read_text()) == HELD["codex"]


def test_the_end_of_a_turn_is_told_at_once_though_its_transcript_was_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    said = '{"type":"assistant.message","data":{"content":"Done."}}'
    whole = f'{said}\n{{"type":"hook.start","data":{{"hookType":"agentStop"}}}}\n'

    def write_later() -> None:
        time.sleep(2)
        path.write_text(whole)

    with listening(ours(200)) as lines:
        home = Home(tmp_path, lines.url)
        threading.Thread(target=write_later).start()
        hook = {"session_id": "s", "hook_event_name": "Stop", "transcript_path": str(path)}
        told = home.hook("copilot", hook)
        assert (told.code, told.err, home.kept) == (0, "", [])
        assert len(lines.requests) == 1
