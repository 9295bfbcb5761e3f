"""A machine of its own for a test: a home with the settings of agents as somebody wrote them, odd as they are."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.client.connecting import connect, connection_test, disconnect, http_requests
from coordinator.client.connecting.connectable_agents import CONNECTABLE_AGENTS
from coordinator.client.connecting.connection_test import TrialStep
from tests.served import ROOT

URL, KEY = "http://127.0.0.1:9", "sbx_a-key-for-tests"
PROGRAM = "/opt/sign box/bin/signalbox"  # a blank in it: commands must be quoted

# By agent what its settings are, below the home. Every one must survive a connect and a disconnect byte for byte.
CLAUDE, CODEX, GEMINI, CURSOR = (
    ".claude/settings.json", ".codex/hooks.json", ".gemini/settings.json", ".cursor/hooks.json",
)  # fmt: skip
FOREIGN = '{"hooks": [{"type": "command", "command": "/usr/local/bin/lint --hook codex"}]}'
ODD: dict[str, tuple[str, str]] = {
    "comments": (
        CLAUDE,
        '{\n  // how I like it\n  "model": "opus", /* the big one */\n  "env": {"A": "1"}\n}\n',
    ),
    "trailing commas": (CLAUDE, '{\n    "permissions": {\n        "allow": ["Bash(ls)",],\n    },\n}'),
    "crlf and a byte order mark": (GEMINI, '\ufeff{\r\n\t"ui": {\r\n\t\t"theme": "x"\r\n\t}\r\n}\r\n'),
    "foreign hooks": (CODEX, f'{{\n  "hooks": {{\n    "PreToolUse": [\n      {FOREIGN}\n    ]\n  }}\n}}\n'),
    "one line": (CURSOR, '{"version":1,"hooks":{"stop":[{"command":"./stop.sh"}]}}'),
    "empty": (CODEX, ""),
    "an empty object": (CURSOR, "{}"),
    "a comment alone": (GEMINI, "// nothing yet\n{\n  // to come\n}\n"),
    "empty hooks": (CLAUDE, '{"hooks": {}, "env": {}}\n'),
    "an empty list": (CODEX, '{\n  "hooks": {"Stop": [] }\n}\n'),
    "hooks of an older page": (
        CLAUDE,
        '{"hooks": {"Stop": [{"hooks": [{"type": "http", "url": "http://127.0.0.1:8765/hooks/claude-code"}]}]}}\n',
    ),
    "telemetry that goes elsewhere": (
        CLAUDE,
        '{"env": {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://otel:4318"}}\n',
    ),
    "no settings": (CLAUDE, "\0"),
}
ABSENT = "\0"
PLUGIN = (ROOT / "static/plugins/opencode.js").read_bytes()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and a server that takes KEY and CODE-OF-ONE without being asked over the network."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in list(os.environ):
        if name.startswith(("XDG_", "SIGNALBOX_")) or name in {
            "CLAUDE_CONFIG_DIR",
            "CODEX_HOME",
            "COPILOT_HOME",
        }:
            monkeypatch.delenv(name)

    def opens(url: str, key: str) -> None:
        if key != KEY:
            raise http_requests.ServerRequestFailed("HTTP 401: This API key is unknown or was revoked.", 401)

    def exchange(url: str, code: str) -> str:
        if code != "CODE-OF-ONE":
            raise http_requests.ServerRequestFailed("HTTP 403: This connect code is not valid.", 403)
        return KEY

    monkeypatch.setattr(http_requests, "require_working_key", opens)
    monkeypatch.setattr(http_requests, "require_mcp_gateway_access", lambda _url, _key: None)
    monkeypatch.setattr(http_requests, "exchange_connect_code_for_key", exchange)
    monkeypatch.setattr(http_requests, "send_server_request", lambda *_: PLUGIN)
    monkeypatch.setattr(
        connection_test,
        "iterate_connection_test_steps",
        lambda *_: iter([TrialStep("Reach it", True, "", 1.0)]),
    )
    monkeypatch.setattr(connect, "build_client_command", lambda: (PROGRAM,))
    monkeypatch.setattr(connect.hook_agents, "HOOK_AGENTS", dict.fromkeys(CONNECTABLE_AGENTS))
    return tmp_path


def written(home: Path, path: str, text: str, mode: int = 0o644) -> Path:
    """Write a file of settings below the home and return it; ABSENT leaves it away, but makes its folder."""
    file = home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    if text != ABSENT:
        file.write_bytes(text.encode())
        file.chmod(mode)
    return file


def everything(home: Path) -> dict[str, tuple[bytes, int]]:
    """Return every file below the home but our own, with its mode; folders too."""
    ours = (home / ".config", home / ".local")
    found = {}
    for path in sorted(home.rglob("*")):
        if not path.is_relative_to(ours[0]) and not path.is_relative_to(ours[1]):
            content = path.read_bytes() if path.is_file() else b"folder"
            found[str(path.relative_to(home))] = (content, path.lstat().st_mode)
    return found


Run = Callable[..., int]


def connected(*words: str) -> int:
    """Run `signalbox connect` there, with the key in a file."""
    key = Path.home() / ".config" / "key-of-the-test"
    key.parent.mkdir(parents=True, exist_ok=True)
    key.write_text("CODE-OF-ONE\n")
    return connect.run([*words, "--url", URL, "--yes", "--key-file", str(key)])


def disconnected(*words: str) -> int:
    """Run `signalbox disconnect` there."""
    return disconnect.run(list(words))
