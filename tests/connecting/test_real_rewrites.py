"""Real agents write their settings anew between a connect and a disconnect: nothing but ours is gone afterwards.

Each is given the same commands in a second home that was never connected. What it leaves there is what it must leave
where it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from coordinator.client.connecting import connect, jsonc
from tests.agents import programs
from tests.connecting.homes import connected, disconnected, machine, written

__all__ = ["machine"]
pytestmark = [pytest.mark.real_agent, pytest.mark.one_engine]


class Trial(NamedTuple):
    """An agent's settings as a person has them, and the commands by which its program writes them anew."""

    agent: str
    before: dict[str, str]
    commands: tuple[tuple[str, ...], ...]


CODEX = Trial(
    "codex",
    {
        ".codex/config.toml": (
            '# how I like it\nmodel = "gpt-5" # the model\n\n# my servers\n[mcp_servers.mine]\ncommand = "x"\n'
            'args = [ "a",\n  "b" ]\n\n[projects."/home/dev"]\ntrust_level = "trusted"\n\n# last words\n'
        ),
    },
    (
        ("features", "enable", "undo"),
        ("mcp", "add", "other", "--", "npx", "foo"),
        ("features", "disable", "goals"),
    ),
)
CLAUDE = Trial(
    "claude-code",
    {
        ".claude/settings.json": '{\n  "model": "opus",\n  "hooks": {"Stop": [{"hooks": []}]}\n}\n',
        ".claude.json": '{\n  "mcpServers": {"mine": {"type": "stdio", "command": "x", "args": [], "env": {}}}\n}\n',
    },
    (
        ("mcp", "add", "--scope", "user", "other", "--", "npx", "foo"),
        ("plugin", "marketplace", "add", "./market"),
        ("plugin", "install", "mine@market"),
    ),
)
TRIALS = {
    "codex": CODEX,
    "codex-newest": CODEX,
    "claude-code": CLAUDE,
    "claude-code-newest": CLAUDE,
    "gemini": Trial(
        "gemini",
        {".gemini/settings.json": '{\n  // mine\n  "model": {"name": "x"}, /* here */\n  "ui": {}\n}\n'},
        (("mcp", "add", "-s", "user", "other", "npx", "foo"),),
    ),
    "opencode": Trial(
        "opencode",
        {".config/opencode/opencode.json": '{\n  // mine\n  "model": "x/y",\n  "mcp": {}\n}\n'},
        (("debug", "config"),),
    ),
    "qwen-code": Trial(
        "qwen-code",
        {".qwen/settings.json": '{\n  // mine\n  "model": {"name": "x"}, /* here */\n  "ui": {}\n}\n'},
        (("mcp", "add", "-s", "user", "other", "npx", "foo"),),
    ),
    "kilo": Trial(
        "kilo",
        {".config/kilo/kilo.json": '{\n  // mine\n  "model": "x/y",\n  "mcp": {}\n}\n'},
        (("debug", "config"),),
    ),
}
OWN = {  # what Claude Code notes of itself and of a machine
    "firstStartTime", "firstStartVersion", "machineID", "userID", "installMethod", "numStartups",
}  # fmt: skip


def run(program: str, home: Path, words: tuple[str, ...]) -> None:
    command = programs.command(program)
    folders = {str(Path(one).parent) for one in (sys.executable, *command[:-1])}
    environment = {
        "HOME": str(home),
        "PATH": os.pathsep.join([*sorted(folders), os.defpath]),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "GEMINI_CLI_NO_RELAUNCH": "true",
    }
    done = subprocess.run(
        [*command, *words], env=environment, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def settings_of(home: Path, path: str) -> tuple[Any, list[str]]:
    """Return what a file of settings says, and the comments in it."""
    text = (home / path).read_text().replace(str(home), "HOME")
    comments = [line.strip() for line in text.splitlines() if line.lstrip().startswith(("#", "//"))]
    value = tomllib.loads(text) if path.endswith(".toml") else jsonc.load_jsonc_value(text)
    return {key: one for key, one in value.items() if key not in OWN}, comments


def market(home: Path) -> None:
    """Put a marketplace with a plugin there, for Claude Code to install."""
    plugin = {"name": "mine", "source": "./mine", "description": "A plugin"}
    about = {"name": "market", "owner": {"name": "me"}, "plugins": [plugin]}
    written(home, "market/.claude-plugin/marketplace.json", json.dumps(about))
    written(home, "market/mine/.claude-plugin/plugin.json", json.dumps({"name": "mine", "version": "1.0.0"}))


@pytest.fixture(params=TRIALS)
def program(request: pytest.FixtureRequest) -> str:
    """A program, found before the test's machine has a home of its own."""
    programs.needed(request.param)
    return str(request.param)


def test_what_a_real_agent_writes_meanwhile_is_left_as_it_leaves_it(
    program: str, machine: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trial, control = TRIALS[program], tmp_path_factory.mktemp("control")
    for home in (machine, control):
        market(home)
        for path, text in trial.before.items():
            written(home, path, text)
    assert connected(trial.agent) == 0
    for words in trial.commands:
        run(program, machine, words)
        run(program, control, words)
    for path, text in trial.before.items():
        assert (machine / path).read_text() != text
    drops_unknown_hooks = program == "claude-code"  # 2.1.197 knows no PreSkillShellCommand
    assert connect.run(["--check"]) == int(drops_unknown_hooks)
    assert connected(trial.agent) == 0
    assert connect.run(["--check"]) == 0
    assert disconnected() == 0
    for path in trial.before:
        assert settings_of(machine, path) == settings_of(control, path)
