"""The command alone: where Signalbox is away, silent or something else, no held call is let run, and no other waits."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from coordinator.client import offline_block_list as held
from coordinator.client.hook import BLOCKED_BY_RULE, WHAT_TO_DO
from coordinator.client.hook_agents import HOOK_AGENTS
from coordinator.client.settings import ClientSettings
from tests.certificates import write_certificate
from tests.client.lines import Script, http, listening, of_the_hook, saying
from tests.client.programs import Home, until
from tests.served import KEYS

NOWHERE = "http://127.0.0.1:9"  # the port of a service that nobody has
QUICK = 20.0  # seconds, on a slow machine, for what takes one


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, NOWHERE)


def call(agent: str = "codex", tool: str = "Bash") -> dict[str, Any]:
    event = "BeforeTool" if agent == "gemini" else "PreToolUse"
    return {"session_id": "s", "hook_event_name": event, "tool_name": tool, "tool_input": {"command": "ls"}}


def prompt(text: str = "Go.") -> dict[str, Any]:
    return {"session_id": "s", "hook_event_name": "UserPromptSubmit", "prompt": text}


def remember(home: Home, *lines: tuple[str, str], url: str = NOWHERE, agent: str = "codex") -> None:
    """Have the command know which calls are held, as after an answer of its server."""
    known_as = os.path.basename(ClientSettings(url, KEYS["agent"]).server_state_folder)
    held.save_offline_block_list(
        str(home.folder / ".local/state/signalbox" / known_as), agent, json.dumps(lines)
    )


def ours(status: int, body: bytes = b"", **headers: str) -> Script:
    """Answer as Signalbox does, about the hook that came."""
    return lambda line, request: line.sendall(
        http(status, body, X_Signalbox_Hook_Id=of_the_hook(request), **headers)
    )


def silent(line: socket.socket, _request: bytes) -> None:
    """Never answer."""
    line.recv(1)


def chunked(request: bytes, holds: str, *chunks: bytes) -> bytes:
    head = http(200, X_Signalbox_Hook_Id=of_the_hook(request), X_Signalbox_Holds_This=holds)
    head = head.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
    return head + b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in chunks)


# --- held -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", HOOK_AGENTS)
def test_a_held_call_is_denied_before_the_deadline_where_nobody_is_there(home: Home, agent: str) -> None:
    remember(home, ("hold", "Ba*"), agent=agent)
    event = HOOK_AGENTS[agent].strictest_hook_event
    said = home.hook(agent, call() | {HOOK_AGENTS[agent].named_in[0]: event}, "--timeout", "3")
    why = said.err.removesuffix("\n")
    assert "cannot be reached" in why
    words = f"{why} {BLOCKED_BY_RULE} {WHAT_TO_DO}"
    assert (said.code, json.loads(said.out)) == (0, HOOK_AGENTS[agent].build_call_denial_answer(event, words))
    assert said.took < QUICK


BROKEN = {
    "no HTTP": saying(b"SSH-2.0-OpenSSH\r\n\r\n"),
    "an empty page of something else": saying(http(200)),
    "a page of something else": saying(http(200, b"<html>Sign in to the hotel</html>")),
    "no length": saying(b"HTTP/1.1 200 OK\r\nX-Signalbox-Hook-Id: x\r\n\r\n{}"),
    "garbled chunks": lambda line, request: line.sendall(chunked(request, "yes") + b"zz\r\n"),
    "text for an answer": ours(200, b'"allow"'),
    "half an answer": ours(200, b'{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDec'),
    "an endless head": saying(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 40_000),
}
REFUSED = {
    "an error": ours(500, b'{"detail": "no"}'),
    "a proxy's error": saying(http(502)),
    "another place": saying(http(302, Location="http://127.0.0.1:1/")),
    "a key that is over": ours(401, b'{"detail": "This API key has been revoked."}'),
    "an error behind signs of life": lambda line, request: line.sendall(
        chunked(request, "yes", b" ", b'{"signalbox": {"status": 401, "detail": "revoked"}}', b"")
    ),
}
GONE: dict[str, Script] = {
    "silence": silent,
    "a line that breaks": lambda _line, _request: None,
    "a line that breaks in its head": saying(b"HTTP/1.1 200 OK\r\nX-Sig"),
    "a line that breaks in its answer": saying(http(200, b"{}").replace(b": 2", b": 200")),
    "signs of life and then nothing": lambda line, request: line.sendall(chunked(request, "yes", b" ")),
}


@pytest.mark.parametrize("script", [*BROKEN, *REFUSED, *GONE])
def test_a_held_call_is_denied_whatever_answers(home: Home, script: str) -> None:
    with listening({**BROKEN, **REFUSED, **GONE}[script]) as lines:
        home.connect(lines.url)
        said = home.hook("codex", call(), "--timeout", "3")
    assert (said.code, said.decision) == (0, "deny")
    assert lines.requests


def test_until_the_server_has_spoken_calls_are_held_unless_connect_wrote_otherwise(home: Home) -> None:
    said = home.hook("codex", call(), "--timeout", "2")
    assert said.decision == "deny"
    assert "has not said yet" in said.why
    home.connect(NOWHERE, codex={"hold": False})
    said = home.hook("codex", call(), "--timeout", "600")
    assert (said.code, said.out) == (0, "")


def test_what_was_kept_and_is_broken_holds_everything(home: Home) -> None:
    remember(home, ("free", "Bash"))
    (file,) = (home.folder / ".local/state/signalbox").glob("*/held-codex.json")
    file.write_text("{")
    assert home.hook("codex", call(), "--timeout", "2").decision == "deny"


def test_a_settings_file_that_others_can_read_denies_and_says_why(home: Home) -> None:
    (home.folder / ".config/signalbox/client.json").chmod(0o644)
    said = home.hook("codex", call())
    assert said.decision == "deny"
    assert "chmod 600" in said.why
    assert "sbx_" not in said.out + said.err
    told = home.hook("codex", prompt())
    assert (told.code, told.out) == (0, "")
    assert "chmod 600" in told.err


@pytest.mark.parametrize("body", [b"", b"no JSON", b'{"hook_event_name": "PreToolUse", ', b"[" * 100_000])
def test_a_hook_that_cannot_be_understood_counts_as_a_call(home: Home, body: bytes) -> None:
    remember(home, ("hold", "Bash"))
    assert home.hook("codex", body, "--timeout", "2").decision == "deny"


def test_what_cannot_be_understood_and_says_that_it_is_no_call_is_none(home: Home) -> None:
    assert home.hook("codex", b'{"hook_event_name": "PostToolUse", ').out == ""


def test_a_call_that_is_too_large_is_denied(home: Home) -> None:
    said = home.hook("codex", json.dumps(call() | {"x": "x" * (20 << 20)}).encode())
    assert said.decision == "deny"
    assert "20 MB" in said.why


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_held_call_is_denied_where_the_command_is_stopped(home: Home, number: signal.Signals) -> None:
    with listening(silent) as lines:
        home.connect(lines.url)
        process = home.start("codex", call())
        with until() as pause:
            while not lines.requests:
                pause()
        process.send_signal(number)
        assert home.end(process).decision == "deny"


def test_an_answer_that_cannot_be_handed_over_is_a_code_that_blocks(home: Home) -> None:
    process = home.start("codex", call(), "--timeout", "2")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.wait(60) == 2


@pytest.mark.parametrize(
    "how", ["time.sleep(1e6)", "raise MemoryError", "import no_such_module", "sys.exit(0)"]
)
def test_a_command_that_hangs_or_breaks_inside_denies_all_the_same(home: Home, how: str) -> None:
    """The second thread answers where the first one hangs, in a name server or on a disk."""
    source = (
        "import sys, time\nfrom coordinator.client import main, settings\n"
        f"def broken(*_):\n    {how}\nsettings.resolve_client_settings = broken\nsys.exit(main.main(sys.argv[1:]))"
    )
    command = (sys.executable, "-c", source, "hook", "codex", "--timeout", "2")
    said = home.end(home.start("codex", call(), command=command))
    assert (said.code, said.decision) == (0, "deny")


def test_a_pipe_that_is_left_open_behind_the_hook_keeps_nobody_waiting(home: Home) -> None:
    remember(home, ("free", "Bash"))
    process = subprocess.Popen(
        [sys.executable, "-m", "coordinator.client.main", "hook", "codex"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=home.env,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(call()).encode())
    process.stdin.flush()
    assert process.wait(60) == 0


@pytest.mark.parametrize("words", [["nobody"], ["codex", "--timeout", "soon"], ["codex", "--timeout"], []])
def test_a_wrong_call_of_the_command_blocks_too(home: Home, words: list[str]) -> None:
    command = (sys.executable, "-m", "coordinator.client.main", "hook")
    said = home.end(home.start("", call(), *words, command=command))
    assert (said.code, said.out) == (2, "")
    assert "usage" in said.err


# --- not held ---------------------------------------------------------------------------------------------


SAYS_HELD = {"signs of life and then nothing", "garbled chunks"}


@pytest.mark.parametrize("script", sorted({*BROKEN, *GONE} - SAYS_HELD))
def test_any_other_call_is_left_to_the_agent_and_told_later(home: Home, script: str) -> None:
    with listening({**BROKEN, **GONE}[script]) as lines:
        home.connect(lines.url)
        remember(home, ("hold", "Write"), url=lines.url)
        said = home.hook("codex", call(), "--timeout", "600")
    assert (said.code, said.out) == (0, "")
    assert said.took < QUICK
    assert len(home.kept) == 1


def test_a_call_that_a_rule_asks_is_asked_in_the_terminal_where_the_line_breaks(home: Home) -> None:
    with listening(lambda line, request: line.sendall(chunked(request, "ask", b" "))) as lines:
        home.connect(lines.url, **{"claude-code": {"hold": False}})
        said = home.hook("claude-code", call("claude-code"))
    assert said.decision == "ask"


@pytest.mark.parametrize("script", ["silence", "a proxy's error", "an empty page of something else"])
def test_what_only_reports_is_kept_and_nobody_waits(home: Home, script: str) -> None:
    with listening({**BROKEN, **REFUSED, **GONE}[script]) as lines:
        home.connect(lines.url)
        said = home.hook("codex", prompt(), "--timeout", "600")
        assert (said.code, said.out) == (0, "")
        assert said.took < QUICK
        assert len(home.kept) == 1


def test_a_key_that_is_no_good_is_told_and_what_it_reports_is_kept(home: Home) -> None:
    with listening(ours(401, b'{"detail": "This API key has been revoked."}')) as lines:
        home.connect(lines.url)
        said = home.hook("codex", prompt())
    assert (said.code, said.out, len(home.kept)) == (1, "", 1)
    assert "revoked" in said.err


def test_what_the_server_will_never_take_is_not_kept(home: Home) -> None:
    with listening(ours(422, b'{"detail": "A hook names its session_id."}')) as lines:
        home.connect(lines.url)
        assert home.hook("codex", prompt()).code == 1
    assert home.kept == []


# --- the line ---------------------------------------------------------------------------------------------


def test_the_key_goes_to_its_server_and_not_through_a_proxy_on_the_way_here(home: Home) -> None:
    with listening(ours(200)) as lines, listening(silent) as proxy:
        home.connect(lines.url)
        said = home.hook("codex", prompt(), http_proxy=proxy.url, HTTP_PROXY=proxy.url, all_proxy=proxy.url)
    assert (said.code, home.kept, proxy.requests) == (0, [], [])
    assert f"Authorization: Bearer {KEYS['agent']}".encode() in lines.requests[0]


def test_a_proxy_is_used_for_a_server_elsewhere(home: Home) -> None:
    with listening(ours(200)) as proxy:
        home.connect("http://signalbox.example:8765")
        assert home.hook("codex", prompt(), http_proxy=proxy.url).code == 0
        assert proxy.requests[0].startswith(b"POST http://signalbox.example:8765/hooks/codex?")
        home.hook("codex", prompt(), http_proxy=proxy.url, no_proxy=".example", timeout="9")
    assert len(proxy.requests) == 1


def test_a_certificate_that_does_not_fit_is_a_server_that_cannot_be_reached(
    home: Home, tmp_path: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(write_certificate(tmp_path))
    with listening(ours(200), tls) as lines:
        url = f"https://localhost:{lines.port}"
        home.connect(url)
        said = home.hook("codex", call(), "--timeout", "2")
        assert said.decision == "deny"
        assert "certificate" in said.why
        assert lines.requests == []
        trusted = home.hook("codex", call(), "--timeout", "5", SSL_CERT_FILE=str(tmp_path / "own.pem"))
        assert (trusted.code, trusted.out) == (0, "")


def test_two_at_once_are_both_kept(home: Home) -> None:
    started = [home.start("codex", prompt(f"Go {number}.")) for number in range(3)]
    assert [home.end(one).code for one in started] == [0, 0, 0]
    assert len(home.kept) == 3


def test_the_key_stands_in_no_argument_and_no_file_of_the_state(home: Home) -> None:
    home.hook("codex", prompt())
    for path in (home.folder / ".local").rglob("*"):
        assert KEYS["agent"] not in str(path)
        assert path.is_dir() or KEYS["agent"].encode() not in path.read_bytes()
