"""The shell lines of a skill or slash command are found before Claude Code runs them, or it is said why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coordinator.client import hook, skill_files
from coordinator.client.hook_agents import HOOK_AGENTS
from coordinator.client.skill_files import (
    collect_skill_shell_report,
    extract_shell_lines,
    is_skill_hook_registered,
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(skill_files, "account_home_folder", lambda: str(home))
    for name in ("CLAUDE_CONFIG_DIR", "CLAUDE_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return home


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def skill(work: Path, name: str, args: str = "") -> dict[str, Any]:
    return collect_skill_shell_report(
        {
            "hook_event_name": "PreToolUse",
            "tool_name": "Skill",
            "tool_input": {"skill": name, "args": args},
            "cwd": str(work),
        }
    )


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Look: !`git status`", ["git status"]),
        ("!`a`\n!`b` and !`a`", ["a", "b"]),
        ("```!\nmake\nmake test\n```", ["make\nmake test"]),
        ("```! make ```", ["make"]),
        ("```!!`a`\n```", ["!`a`", "a"]),
        ("a!` !`rm`", ["!", "rm"]),  # whichever of the marks counts
        ("\ufeff!`a`", ["a"]),
        ("```sh\nmake\n```\n`!x` and `y`", []),
        ("!`never closed", []),
    ],
)
def test_every_mark_counts_as_the_beginning_of_a_line(text: str, lines: list[str]) -> None:
    assert extract_shell_lines(text) == lines


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("work/.claude/commands/look.md", "look"),
        ("work/.claude/commands/look.md", "/LOOK"),
        ("work/.claude/commands/sub/look.md", "sub:look"),
        ("work/.claude/skills/look/SKILL.md", "look"),
        (".claude/skills/look/SKILL.md", "look"),  # of a folder above
        ("home/.claude/commands/look.md", "look"),
        ("home/.claude/plugins/cache/shop/tools/1.0/commands/look.md", "tools:look"),
        ("home/.claude/plugins/cache/shop/tools/1.0/skills/look/SKILL.md", "tools:look"),
    ],
)
def test_a_file_is_found_where_claude_code_keeps_it(tmp_path: Path, place: str, name: str) -> None:
    (tmp_path / "work").mkdir()
    write(tmp_path / place, "!`touch marker`")
    found = skill(tmp_path / "work", name)
    assert (found["lines"], "problem" in found) == (["touch marker"], False)


def test_all_files_that_may_be_meant_count(tmp_path: Path, home: Path) -> None:
    write(tmp_path / ".claude/skills/look/SKILL.md", "Nothing runs.")
    write(tmp_path / ".claude/skills/other/SKILL.md", "---\nname: 'Look'\n---\n!`one`")
    write(home / ".claude/commands/look.md", "!`two`")
    assert skill(tmp_path, "look")["lines"] == ["one", "two"]


def test_what_was_typed_behind_it_stands_in_its_lines(tmp_path: Path) -> None:
    write(tmp_path / ".claude/commands/look.md", "!`git log $ARGUMENTS`")
    assert skill(tmp_path, "look", "-3; rm x")["lines"] == ["git log -3; rm x"]
    assert "backtick" in skill(tmp_path, "look", "`x`")["problem"]
    write(tmp_path / ".claude/commands/look.md", "!`git log $1`")
    assert "one by one" in skill(tmp_path, "look", "x")["problem"]
    assert "problem" not in skill(tmp_path, "look")


def test_a_file_that_is_missing_or_too_large_is_said(tmp_path: Path) -> None:
    assert skill(tmp_path, "look")["problem"] == "No file of look was found."
    write(tmp_path / ".claude/commands/look.md", "x" * (skill_files.MAX_FILE_BYTES + 1))
    assert "cannot be read" in skill(tmp_path, "look")["problem"]
    write(tmp_path / ".claude/commands/look.md", " ".join(f"!`{n}`" for n in range(60)))
    found = skill(tmp_path, "look")
    assert (len(found["lines"]), "more lines" in found["problem"]) == (skill_files.MAX_LINES, True)


def test_a_search_ends_where_there_are_too_many_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skill_files, "MAX_ENTRIES", 3)
    for number in range(5):
        write(tmp_path / f".claude/commands/c{number}.md", "x")
    assert "more files" in skill(tmp_path, "c1")["problem"]


def test_a_file_holds_words_wherever_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skill_files, "CHUNK", 7)
    (tmp_path / "program").write_bytes(b"x" * 12 + skill_files.OWN_HOOK + b"x" * 9)
    assert skill_files.file_contains_bytes(skill_files.OWN_HOOK, str(tmp_path / "program"))
    assert not skill_files.file_contains_bytes(b"PreSkillShellCommandS", str(tmp_path / "program"))
    assert not skill_files.file_contains_bytes(skill_files.OWN_HOOK, str(tmp_path / "none"))


def test_the_time_that_the_look_takes_is_not_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a call that a rule asks about would go on as if Signalbox were away."""
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def slow(_payload: dict[str, Any], **_options: bool) -> dict[str, Any]:
        clock[0] += 5.0
        return {"lines": ["touch marker"], "files": []}

    monkeypatch.setattr(skill_files, "collect_skill_shell_report", slow)
    command = hook.HookCommand(HOOK_AGENTS["claude-code"], 590)
    limit = command._until
    command._event = "UserPromptExpansion"
    command._add_skill_shell_lines({"hook_event_name": "UserPromptExpansion", "command_name": "look"})
    assert (command._began, command._until) == (105.0, limit)


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_hook_of_the_program_holds_lines_only_where_ours_is_registered_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_registered: bool
) -> None:
    """The program may have been updated since it was connected, or have dropped a hook that it did not know."""
    monkeypatch.setattr(skill_files, "parent_executable_contains_bytes", lambda *_: True)
    write(tmp_path / "home/.claude/skills/release/SKILL.md", "!`make release`")
    settings = tmp_path / "settings.json"
    settings.write_text('{"hooks": {"PreSkillShellCommand": []}}' if is_registered else '{"hooks": {}}')
    payload = {
        "hook_event_name": "PreToolUse",
        "tool_name": "Skill",
        "tool_input": {"skill": "release"},
        "cwd": str(tmp_path),
    }
    found = collect_skill_shell_report(payload, is_registered=is_skill_hook_registered(str(settings)))
    assert (found == {"held": True}) is is_registered
    assert is_registered or found["lines"] == ["make release"]


def test_settings_that_are_gone_register_nothing_and_older_ones_always_did(tmp_path: Path) -> None:
    assert not is_skill_hook_registered(str(tmp_path / "gone.json"))
    assert is_skill_hook_registered(None)
