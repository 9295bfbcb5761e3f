"""A check says which hooks an installed agent knows beyond those that we use, and when that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator.client import settings
from coordinator.client.connecting import connect, hook_names
from coordinator.client.connecting.connectable_agents import (
    CLAUDE_CODE_EVENTS,
    CONNECTABLE_AGENTS,
    LEFT_OUT,
    READABLE_HOOKS,
)
from coordinator.client.connecting.hook_names import (
    describe_hook_differences_to_program,
    extract_hook_names_from_program,
)
from tests.connecting.homes import connected, disconnected, machine

__all__ = ["machine"]
CLAUDE = CONNECTABLE_AGENTS["claude-code"]
KNOWN = ["PreToolUse", *(name for name in CLAUDE_CODE_EVENTS if name != "PreToolUse")]


def installed(folder: Path, names: list[str], *, before: int = 0) -> dict[str, str]:
    """Install a program that lists these hooks; return the environment in which it is found."""
    program = folder / "claude"
    listed = json.dumps(names, separators=(",", ":")).encode()
    program.write_bytes(b"x" * before + b"var a=" + listed + b";" + b"x" * 100)
    program.chmod(0o755)
    return {"PATH": str(folder)}


def test_hooks_that_are_new_are_named(tmp_path: Path) -> None:
    assert describe_hook_differences_to_program(CLAUDE, installed(tmp_path, KNOWN)) == []
    assert (
        describe_hook_differences_to_program(CLAUDE, installed(tmp_path, [*KNOWN, *LEFT_OUT["claude-code"]]))
        == []
    )
    (note,) = describe_hook_differences_to_program(
        CLAUDE, installed(tmp_path, [*KNOWN, "PreTeleport", "Setup"])
    )
    assert note.endswith("knows hooks that Signalbox does not know: PreTeleport.")


def test_a_version_that_tells_no_shell_lines_is_named_with_what_follows(tmp_path: Path) -> None:
    names = [name for name in KNOWN if name != "PreSkillShellCommand"]
    (note,) = describe_hook_differences_to_program(CLAUDE, installed(tmp_path, names))
    assert "has no hook for the shell lines" in note


def test_what_cannot_be_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (note,) = describe_hook_differences_to_program(CLAUDE, installed(tmp_path, ["PreToolUse", "Stop"]))
    assert "cannot be read" in note
    assert describe_hook_differences_to_program(CLAUDE, {"PATH": str(tmp_path / "nothing")}) == []
    environment = installed(tmp_path, KNOWN)
    monkeypatch.setattr(hook_names, "MAX_BYTES", 10)
    assert "cannot be read" in describe_hook_differences_to_program(CLAUDE, environment)[0]


def test_a_list_is_found_wherever_the_file_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook_names, "CHUNK", 100)
    installed(tmp_path, KNOWN, before=777)
    assert extract_hook_names_from_program(str(tmp_path / "claude")) == set(KNOWN)


def test_an_enumeration_in_the_scripts_beside_it_is_found(tmp_path: Path) -> None:
    (tmp_path / "chunks").mkdir()
    (tmp_path / "gemini.js").write_text("import './chunks/a.js'")
    (tmp_path / "chunks" / "a.js").write_text('HookEventName2["BeforeTool"] = "BeforeTool";')
    assert extract_hook_names_from_program(str(tmp_path / "gemini.js")) == {"BeforeTool"}


@pytest.mark.parametrize("name", READABLE_HOOKS)
def test_what_is_left_out_is_not_used(name: str) -> None:
    assert not LEFT_OUT[name] & READABLE_HOOKS[name]


def test_a_hook_that_the_installed_program_does_not_know_is_not_registered_until_it_does(
    machine: Path,
) -> None:
    """Claude Code 2.1.197 opens a dialog about such a hook each time it starts in a terminal."""
    (machine / "bin").mkdir()
    file = machine / ".claude" / "settings.json"
    older = [name for name in KNOWN if name != "PreSkillShellCommand"]
    installed(machine / "bin", older)
    assert connected("claude-code") == 0
    assert set(json.loads(file.read_text())["hooks"]) == set(older)
    assert connect.run(["--check"]) == 0
    assert settings.resolve_client_settings().agents["claude-code"]["file"] == str(file)
    installed(machine / "bin", KNOWN)
    assert connect.run(["--check"]) == 1
    assert connected("claude-code") == 0
    assert set(json.loads(file.read_text())["hooks"]) == set(KNOWN)
    installed(machine / "bin", older)
    assert connected("claude-code") == 0
    assert set(json.loads(file.read_text())["hooks"]) == set(older)
    assert disconnected() == 0
    assert not file.exists()
