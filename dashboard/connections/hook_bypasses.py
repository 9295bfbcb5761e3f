"""What each agent can run without calling our hook, and what helps against that.

The table in .docs/agents.md and on the agents' pages is generated from this;
`python -m dashboard.connections.hook_bypasses` prints it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from coordinator.client.connecting.connectable_agents import CONNECTABLE_AGENTS


@dataclass(frozen=True, slots=True)
class HookBypass:
    """A way around the hook: what runs, how we know that (tried or read), and what helps against it."""

    what: str
    how: str
    helps: str = ""


_OWN_SETTINGS = "Keep agents from projects that you do not trust"
_NO_YOLO = f"{_OWN_SETTINGS}; do not use YOLO"

UNHELD: dict[str, tuple[HookBypass, ...]] = {
    "claude-code": (
        HookBypass(
            "Shell lines in skills and slash commands",
            "tried, 2.1.197 and 2.1.332",
            "Held: from 2.1.332 by their own hook, before it by reading the files. A file that is exchanged while the"
            " skill waits is not seen",
        ),
        HookBypass(
            "Commands in a project's settings, such as its hooks. Headless, Claude Code does not ask about them",
            "tried, 2.1.197 and 2.1.332",
            _OWN_SETTINGS,
        ),
        HookBypass(
            "A sub-agent in the background, which goes on after the call that started it has ended",
            "tried, 2.1.332",
            "Held: each of its own calls has the hook",
        ),
    ),
    "codex": (
        HookBypass(
            "What it types into a running program (`write_stdin`). A shell that was let run takes any command",
            "tried, 0.169.0; `unified_exec = false` does not change it",
            "A rule that denies shells and interpreters without a command: for Bash, the pattern `^ *(ba)?sh *$`",
        ),
    ),
    "gemini": (
        HookBypass(
            "`!{…}` in a command of `.gemini/commands` that a person typed. In YOLO mode nobody is asked",
            "tried, 0.61.0",
            _NO_YOLO,
        ),
        HookBypass(
            "At its start: hooks, MCP servers and `tools.discoveryCommand` of a project's `.gemini/settings.json`",
            "tried, 0.61.0, with `security.folderTrust` off",
            f"{_OWN_SETTINGS}; leave `security.folderTrust` on",
        ),
    ),
    "opencode": (
        HookBypass(
            "``!`…` `` in a command of `.opencode/command` that a person typed",
            "tried, 1.18.33",
            _OWN_SETTINGS,
        ),
        HookBypass(
            "At its start: MCP servers of a project's `opencode.json`, and code in `.opencode/plugins` and"
            " `.opencode/tool`",
            "tried, 1.18.33",
            _OWN_SETTINGS,
        ),
        HookBypass(
            "After it writes a file: formatters and language servers of a project's `opencode.json`",
            "tried, 1.18.33",
            _OWN_SETTINGS,
        ),
    ),
    "copilot": (
        HookBypass(
            "At its start, in a trusted project: hooks in `.github/hooks` and MCP servers of `.mcp.json`",
            "tried, 1.0.102",
            "Do not trust the project; headless, leave out `--trust-folder` and `COPILOT_ALLOW_ALL=true`",
        ),
        HookBypass(
            "In a trusted project, language servers of `.github/lsp.json`. The hook is told of the call alone",
            "tried, 1.0.102",
            "A rule that denies the tool `lsp`",
        ),
        HookBypass(
            "A call whose hook is not done when its time is over",
            "read in the changelog, 1.0.67",
            "Held: our hook answers before that",
        ),
        HookBypass(
            "Before 1.0.62, what it types into a running shell (`write_bash`)",
            "read in the changelog; 1.0.102 has no such tool",
            "Use 1.0.62 or later",
        ),
        HookBypass(
            "Extensions, which are programs that Copilot CLI starts",
            "read in the changelog of 1.0.102; in one headless run, none started",
            _OWN_SETTINGS,
        ),
        HookBypass(
            "The command of `statusLine` in its settings",
            "read in the help of 1.0.102",
            "Look at its settings",
        ),
    ),
    "qwen-code": (
        HookBypass(
            "`!{…}` in a command of `.qwen/commands` that a person typed. In YOLO mode nobody is asked",
            "tried, 0.24.4",
            _NO_YOLO,
        ),
        HookBypass(
            "At its start: hooks and MCP servers of a project's `.qwen/settings.json`. Headless, nobody is asked",
            "tried, 0.24.4",
            _OWN_SETTINGS,
        ),
    ),
    "kilo": (
        HookBypass(
            "``!`…` `` in a command of `.kilo/command` that a person typed",
            "tried, 7.7.9",
            _OWN_SETTINGS,
        ),
        HookBypass(
            "At its start: MCP servers of a project's `kilo.json`, and code in `.kilo/plugins` and `.kilo/tool`",
            "tried, 7.7.9",
            _OWN_SETTINGS,
        ),
        HookBypass(
            "After it writes a file: formatters and language servers of a project's `kilo.json`",
            "tried, 7.7.9",
            _OWN_SETTINGS,
        ),
        HookBypass(
            "`.kilo/setup-script`, in each worktree that its Agent Manager makes",
            "read in 7.7.9",
            _OWN_SETTINGS,
        ),
    ),
}
EVERY_AGENT = (
    "Of every agent, tried only where this list says so: commands that a person types for a shell (`!`), MCP servers"
    " and language servers that it starts, and what a call that was let run starts in turn. Hooks are told of calls,"
    " not of processes."
)


def list_hook_bypasses(name: str) -> tuple[HookBypass, ...]:
    """Return the known bypasses of an agent; empty if nobody has checked it."""
    return UNHELD.get(name, ())


def list_agents_without_bypass_check() -> list[str]:
    """Return the titles of the agents that nobody has checked for bypasses."""
    return [agent.title for name, agent in CONNECTABLE_AGENTS.items() if name not in UNHELD]


def format_bypasses_as_markdown() -> str:
    """Return the table of .docs/agents.md in Markdown."""
    lines = ["| Agent | runs without our hook | how we know | what helps |", "|---|---|---|---|"]
    for name, ways in UNHELD.items():
        title = CONNECTABLE_AGENTS[name].title
        lines += [f"| {title} | {way.what} | {way.how} | {way.helps or 'nothing known'} |" for way in ways]
    return "\n".join(
        [*lines, "", f"{EVERY_AGENT} Not looked into: {', '.join(list_agents_without_bypass_check())}."]
    )


if __name__ == "__main__":
    sys.stdout.write(format_bypasses_as_markdown() + "\n")
