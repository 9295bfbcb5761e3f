"""The real programs say which hooks they know; none is unknown to us, and older ones skip what they do not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.client.connecting.connectable_agents import LEFT_OUT, READABLE_HOOKS
from coordinator.client.connecting.hook_names import extract_hook_names_from_program
from tests.agents import programs

pytestmark = pytest.mark.real_agent


@pytest.mark.parametrize(
    ("name", "program"),
    [
        ("claude-code", "claude-code"),
        ("claude-code", "claude-code-newest"),
        ("gemini", "gemini"),
        ("qwen-code", "qwen-code"),
    ],
)
def test_every_hook_of_the_program_is_used_or_left_out_knowingly(name: str, program: str) -> None:
    programs.needed(program)
    known = extract_hook_names_from_program(str(Path(programs.command(program)[-1]).resolve()))
    assert known is not None
    assert known <= READABLE_HOOKS[name] | LEFT_OUT[name]
    assert ("PreSkillShellCommand" in known) is (program == "claude-code-newest")
