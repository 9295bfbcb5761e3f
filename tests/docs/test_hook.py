"""What the help page Hooks says of `signalbox hook` is what the command does."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.client import hook, settings, spool
from coordinator.client.hook_agents import HOOK_AGENTS
from coordinator.client.main import COMMANDS
from tests.served import ROOT

SECTION = " ".join(Path(ROOT, ".docs/hooks.md").read_text().split())


@pytest.mark.parametrize(
    "said",
    [
        f"at most {spool.MOST_HOOKS:,} hooks, {spool.MOST_BYTES >> 20} MB and a week",
        f"{HOOK_AGENTS['claude-code'].timeout} s for Claude Code, Codex and OpenCode",
        f"{HOOK_AGENTS['gemini'].timeout} s for Gemini CLI, {HOOK_AGENTS['goose'].timeout} s for the others",
        "`signalbox hook AGENT`",
        "`--timeout SECONDS`",
        f"`{settings.URL_VARIABLE}` and `{settings.KEY_VARIABLE}`",
        "tried for a minute",
        "within a second",
    ],
)
def test_the_numbers_and_names_are_those_of_the_code(said: str) -> None:
    assert said in SECTION


def test_words_stand_for_the_numbers_that_they_name() -> None:
    assert (spool.HOOK_RETENTION_SECONDS, hook.UNREACHED_FOR) == (7 * 86_400, 60)
    assert hook.QUICK_END < 1
    assert {HOOK_AGENTS[name].timeout for name in ("claude-code", "codex", "opencode")} == {600}
    assert {HOOK_AGENTS[name].timeout for name in ("copilot", "cursor", "goose")} == {30}
    assert "hook" in COMMANDS


def test_a_denial_s_advice_names_a_command_that_there_is() -> None:
    assert "`signalbox connect --check`" in hook.WHAT_TO_DO
    assert "connect" in COMMANDS
