"""`signalbox mcp`: MCP servers on stdin and stdout under Signalbox's grants and rules.

signalbox mcp                       every server that Signalbox lets this agent use, through its gateway
signalbox mcp SERVER                one of them
signalbox mcp SERVER -- COMMAND …   a server that has to run here: started on the agent's machine, each request judged
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

USAGE = (
    "usage: signalbox mcp [SERVER] [-- COMMAND …]\n"
    "  Without a command: Signalbox's gateway, to every server that this agent may use, or to SERVER alone.\n"
    "  With one: starts it, an MCP server on stdin and stdout. Policy decides about each call of a tool, which may\n"
    "  wait for a person, and about each read, prompt, completion and request of the server to the agent's own\n"
    "  program (sampling, elicitation, folders). Of these, what policy denies or asks about is refused; a form or\n"
    "  address of the server for its person passes where policy asks. Not judged: the beginning, pings, progress,\n"
    "  logs, and what asks about, answers or cancels a task that was begun.\n"
)


def run(arguments: Sequence[str]) -> int:
    """Serve until stdin ends. Returns 2 where it was called wrongly, else the command's exit code."""
    argument_list = list(arguments)
    command: list[str] | None = None
    if "--" in argument_list:
        at = argument_list.index("--")
        argument_list, command = argument_list[:at], argument_list[at + 1 :]
    if argument_list and argument_list[0] in {"-h", "--help"}:
        sys.stdout.write(USAGE)
        return 0
    if (
        len(argument_list) > 1
        or any(word.startswith("-") for word in argument_list)
        or command == []
        or (command and not argument_list)
    ):
        sys.stderr.write(USAGE)
        return 2
    if command:
        from coordinator.client import mcp_guard  # noqa: PLC0415 - one of the two

        return mcp_guard.McpGuard(argument_list[0], command).serve_guarded_server_and_exit()
    from coordinator.client import mcp_bridge  # noqa: PLC0415

    return mcp_bridge.GatewayBridge(
        argument_list[0] if argument_list else None
    ).relay_until_stdin_closes_and_exit()
