"""`signalbox`: the program that runs beside agents, on any machine. Standard library alone, and nothing else of ours.

Agents start it before each of their calls, so it loads no module but its subcommand's.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Sequence

# Each subcommand, its module (`run(arguments) -> exit code`), and what it does in a line.
COMMANDS: dict[str, tuple[str, str]] = {
    "connect": ("coordinator.client.connecting.connect", "make the agents on this machine report and ask"),
    "disconnect": ("coordinator.client.connecting.disconnect", "put their settings back as they were"),
    "headers": ("coordinator.client.connecting.headers", "print the headers of Claude Code's telemetry"),
    "hook": (
        "coordinator.client.hook",
        "what agents' settings call: report to Signalbox, wait, answer the agent",
    ),
    "mcp": (
        "coordinator.client.mcp",
        "MCP servers under Signalbox's grants: those of the gateway, or one started here",
    ),
    "mcp-ask": (
        "coordinator.client.mcp_ask",
        "an MCP tool that asks a person: claude -p --permission-prompt-tool",
    ),
    "runner": ("coordinator.runner.main", "carry out runs on this machine, with the agents that it has"),
}
USAGE_ERROR = 2  # which agents also take as "block this call"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit code; 2 where there is none of that name."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if len(argv) > 1 and argv[0] == "--settings":
        from coordinator.client import settings  # noqa: PLC0415 - loads what other subcommands do not need

        settings.use_settings_file(argv[1])
        argv = argv[2:]
    name = argv[0] if argv else ""
    if name in {"-h", "--help", "help"}:
        sys.stdout.write(format_usage())
        return 0
    if name not in COMMANDS:
        sys.stderr.write(f"There is no subcommand {name!r}.\n\n{format_usage()}" if name else format_usage())
        return USAGE_ERROR
    module = COMMANDS[name][0]
    try:
        __import__(module)
    except ImportError as problem:
        sys.stderr.write(f"signalbox {name} cannot be loaded: {problem}\n")
        return USAGE_ERROR
    code: int = sys.modules[module].run(argv[1:])
    return code


def format_usage() -> str:
    """Return the list of subcommands, as people read it."""
    lines = (f"  signalbox {name:<12}{summary}" for name, (_, summary) in COMMANDS.items())
    return "\n".join(
        [
            "usage: signalbox [--settings FILE] SUBCOMMAND …",
            "",
            *lines,
            "",
            "  --settings FILE: the connection in this file alone, whatever the environment says",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
