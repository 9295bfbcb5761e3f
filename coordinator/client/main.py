"""`signalbox`: the program that runs on agents' machines. It uses the standard library alone, and nothing else of ours.

Agents start it before each of their calls, so it loads no module but its subcommand's. Where the server is installed,
the server's commands are subcommands, too.
"""

from __future__ import annotations

import os
import select
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
    "import": (
        "coordinator.client.send_transcripts",
        "send what the agents on this machine have written, earlier sessions too",
    ),
    "mcp": (
        "coordinator.client.mcp",
        "MCP servers under Signalbox's grants: those of the gateway, or one started here",
    ),
    "mcp-ask": (
        "coordinator.client.mcp_ask",
        "an MCP tool that asks a person: claude -p --permission-prompt-tool",
    ),
    "status-line": (
        "coordinator.client.status_line",
        "Claude Code's status line; it reports how full the limits of the subscription are",
    ),
    "runner": ("coordinator.runner.main", "carry out runs on this machine, with the agents that it has"),
}
# Those of the server, which the program for agents' machines lacks. Each is a management command of that name.
SERVER_MODULE = "coordinator.operations.command_line"
SERVER_COMMANDS = {
    "serve": "run the server",
    "demo": "fill an empty database with a week of history; --live keeps agents working",
    "doctor": "check the installation, and say how to fix what does not work",
    "manage": "run any command of the server: `manage help` lists them",
}
UNREAD = 141  # the exit code of a program that SIGPIPE ended, as a shell has it
USAGE_ERROR = 2  # which agents also take as "block this call"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand and return its exit code; 2 where there is none of that name.

    This is the one place that handles a standard output whose reader has gone, as `| head` makes it. Some versions of
    `argparse` keep silent about it when they print their help.
    """
    try:
        try:
            code = run_subcommand(list(sys.argv[1:] if arguments is None else arguments))
        except SystemExit as end:
            sys.stdout.flush()
            if not end.code and is_stdout_reader_gone():
                return UNREAD
            raise
        sys.stdout.flush()
    except BrokenPipeError:
        if not is_stdout_reader_gone():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still buffered is written as Python ends
        return UNREAD
    return code


def run_subcommand(argv: list[str]) -> int:
    """Run the subcommand that the arguments name, and return its exit code."""
    if len(argv) > 1 and argv[0] == "--settings":
        from coordinator.client import settings  # noqa: PLC0415 - loads what other subcommands do not need

        settings.use_settings_file_and_its_environment(argv[1])
        argv = argv[2:]
    name = argv[0] if argv else ""
    if name in {"-h", "--help", "help"}:
        sys.stdout.write(format_usage_of_all_subcommands())
        return 0
    if name not in COMMANDS and name not in SERVER_COMMANDS:
        sys.stderr.write(
            f"There is no subcommand {name!r}.\n\n{format_usage_of_all_subcommands()}"
            if name
            else format_usage_of_all_subcommands()
        )
        return USAGE_ERROR
    module = SERVER_MODULE if name in SERVER_COMMANDS else COMMANDS[name][0]
    try:
        __import__(module)
    except ImportError as problem:
        hint = " It belongs to the server, which is not installed here." if name in SERVER_COMMANDS else ""
        sys.stderr.write(f"signalbox {name} cannot be loaded: {problem}.{hint}\n")
        return USAGE_ERROR
    if name in SERVER_COMMANDS:
        program, words = ("signalbox manage", argv[1:]) if name == "manage" else ("signalbox", argv)
        sys.modules[module].run_management_command_or_exit(words, program)
        return 0
    return int(sys.modules[module].run(argv[1:]))


def is_stdout_reader_gone() -> bool:
    """Say whether the reader of the standard output has gone, as `head` does."""
    poller = select.poll()
    poller.register(1, 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))


def format_usage_of_all_subcommands() -> str:
    """Return the list of subcommands, as people read it."""
    summaries = SERVER_COMMANDS | {name: summary for name, (_, summary) in COMMANDS.items()}
    return "\n".join(
        [
            "usage: signalbox [--settings FILE] SUBCOMMAND …",
            "",
            *(f"  signalbox {name:<12}{summary}" for name, summary in summaries.items()),
            "",
            "  --settings FILE: the connection in this file alone, whatever the environment says",
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
