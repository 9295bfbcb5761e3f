"""Shell lines in skills and slash commands of the real Claude Code run only where a person approved them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.agents import programs
from tests.agents.connected import connect, paste
from tests.agents.real_agents import PROMPT, Home, Run
from tests.agents.scripted_models import Use
from tests.agents.test_real_claude_code import asked, decide
from tests.claude_code.test_deciding import rules
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
NEWEST = "claude-code-newest"
OLDER = "claude-code"  # what npm serves to Node 20; it has no hook for these lines
TEXT = """---
description: Look around
allowed-tools: Bash(touch:*)
---
The result: !`touch marker`
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Start Claude Code in a project with a slash command and a skill whose texts hold a shell line."""
    runs: list[Run] = []

    def begin(served: Served, way: str, *, program: str = NEWEST, connected: bool = True) -> Run:
        programs.needed(program)
        home = Home("claude-code", tmp_path / f"run{len(runs)}", program)
        for name in (".claude/commands/look.md", ".claude/skills/around/SKILL.md"):
            file = home.work / name
            file.parent.mkdir(parents=True)
            file.write_text(TEXT)
        (connect if connected else paste)(home, served)
        if way == "typed":
            runs.append(home.starts(prompt="/look"))
        else:
            runs.append(home.starts(Use("Skill", {"skill": "around"}), prompt=PROMPT))
        return runs[-1]

    yield begin
    for run in runs:
        run.close()
        run.home.close()


@pytest.mark.parametrize(
    ("program", "way"), [(NEWEST, "typed"), (NEWEST, "called"), (OLDER, "typed"), (OLDER, "called")]
)
@pytest.mark.parametrize(("verdict", "runs"), [("approved", True), ("denied", False)])
def test_a_person_decides_whether_the_shell_line_runs(
    served: Served, start: Callable[..., Run], *, program: str, way: str, verdict: str, runs: bool
) -> None:
    # Held for certain: a busy machine's second does not count.
    held = {"tool": "Bash", "verdict": "ask", "deny_at_deadline": True}
    rules(served, {"tool": "Skill", "verdict": "allow"}, held)
    claude = start(served, way, program=program)
    asked(served)
    assert not claude.home.ran("marker")
    decide(served, verdict)
    claude.ended()
    assert claude.home.ran("marker") is runs


def test_a_rule_denies_the_shell_line(served: Served, start: Callable[..., Run]) -> None:
    rules(served, {"tool": "Bash", "pattern": "touch", "verdict": "deny", "reason": "No marks here."})
    claude = start(served, "typed")
    claude.ended()
    assert not claude.home.ran("marker")
    ((error,),) = served.sql("SELECT error FROM events WHERE event_type = 'post_tool'")
    assert "No marks here." in error


def test_silence_runs_no_shell_line(served: Served, start: Callable[..., Run]) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask", "wait_seconds": 1})
    claude = start(served, "typed")
    claude.ended()
    assert not claude.home.ran("marker")
