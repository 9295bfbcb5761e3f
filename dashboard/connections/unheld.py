"""What each agent can run without the hook by which we hold its calls, and what holds against that.

The table in .docs/agents.md and the agents' pages are made of this. `python -m dashboard.connections.unheld` prints
the table.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from coordinator.client.connecting.programs import CONNECTABLE_AGENTS


@dataclass(frozen=True, slots=True)
class HookBypass:
    """One way: `what` runs; `how` we know, by trying a version or by reading; and what `helps` against it."""

    what: str
    how: str
    helps: str = ""


_OWN_SETTINGS = "Keep agents from projects that you do not trust"

UNHELD: dict[str, tuple[HookBypass, ...]] = {
    "claude-code": (
        HookBypass(
            "Shell lines of skills and slash commands",
            "tried, 2.1.197 and 2.1.332",
            "Held: by a hook of their own from 2.1.332, before it by reading the files; one that is exchanged while"
            " the skill waits is not seen",
        ),
        HookBypass(
            "Commands in a project's own settings: its hooks, for one, without any question where it runs headless",
            "tried, 2.1.197 and 2.1.332",
            _OWN_SETTINGS,
        ),
        HookBypass(
            "A sub-agent in the background goes on when the call that started it has ended",
            "tried, 2.1.332",
            "Held: each call of its own has the hook",
        ),
    ),
    "codex": (
        HookBypass(
            "What it types into a program that runs already (`write_stdin`): a shell or an interpreter that was let run"
            " takes any command",
            "tried, 0.169.0; `unified_exec = false` does not change it",
            "A rule that denies such programs without a command, for one Bash with the pattern `^ *(ba)?sh *$`",
        ),
    ),
    "gemini": (
        HookBypass(
            "`!{…}` in a command of `.gemini/commands`, which a person typed; without a question in the mode YOLO",
            "tried, 0.61.0",
            f"{_OWN_SETTINGS}; no YOLO",
        ),
    ),
    "opencode": (
        HookBypass(
            "``!`…` `` in a command of `.opencode/command`, which a person typed",
            "tried, 1.18.33",
            _OWN_SETTINGS,
        ),
    ),
    "qwen-code": (
        HookBypass(
            "`!{…}` in a command of `.qwen/commands`, which a person typed; without a question in the mode YOLO",
            "tried, 0.24.4",
            f"{_OWN_SETTINGS}; no YOLO",
        ),
    ),
}
EVERY_AGENT = (
    "Of every agent, not tried: commands that its person types for a shell (`!`), MCP servers and language servers that"
    " it starts, and what a call that was let run starts in turn. Hooks are told of calls, not of processes."
)


def list_hook_bypasses(name: str) -> tuple[HookBypass, ...]:
    """Return the known ways of an agent; none where nobody has looked."""
    return UNHELD.get(name, ())


def list_agents_not_examined() -> list[str]:
    """Return the titles of the agents of which nobody has looked."""
    return [agent.title for name, agent in CONNECTABLE_AGENTS.items() if name not in UNHELD]


def format_bypasses_as_markdown() -> str:
    """Return the table as it stands in .docs/agents.md."""
    lines = ["| Agent | runs without our hook | how we know | what helps |", "|---|---|---|---|"]
    for name, ways in UNHELD.items():
        title = CONNECTABLE_AGENTS[name].title
        lines += [f"| {title} | {way.what} | {way.how} | {way.helps or 'nothing known'} |" for way in ways]
    return "\n".join([*lines, "", f"{EVERY_AGENT} Not looked into: {', '.join(list_agents_not_examined())}."])


if __name__ == "__main__":
    sys.stdout.write(format_bypasses_as_markdown() + "\n")
