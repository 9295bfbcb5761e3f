"""Discovery of a stdio MCP server's tools: it is started for this alone, limited, and ended with all its children.

`coordinator.mcp.servers.stdio` does the talking, with the official SDK; what may be started, for how long and
how much of it is read is decided here. The program runs isolated as it does behind the gateway
(`coordinator.mcp.isolation.process_isolation`), and gets none of our environment: no secret, no database
address.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from pathlib import Path

from django.conf import settings

from coordinator.errors import ServiceBusy, UnprocessableRequest
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.isolation.process_isolation import Isolation
from coordinator.mcp.servers.tools import ToolListing

# Seconds from the start to the last answer; npx and uvx may have to fetch the server first.
ANSWER_WITHIN = 20.0
MOST_BYTES = 4_000_000

_one_at_a_time = threading.Lock()


def start_server_and_list_tools(command: str, args: list[str], isolation: Isolation) -> ToolListing:
    """Start the server, isolated as `wanted`, return the tools it lists and end it.

    Raises UnprocessableRequest for a command that is not allowed, one that cannot be started, or one that
    answers wrongly or too late (with what it said on stderr); NotIsolated where nothing isolates it;
    ServiceBusy while another is being asked.
    """
    allowed = settings.DISCOVERY_COMMANDS
    if command not in allowed:
        raise UnprocessableRequest(
            f"{command} may not be started here. Allowed: {', '.join(allowed) or 'nothing'} "
            "(SIGNALBOX_DISCOVERY_COMMANDS). Paste its tools/list instead."
        )
    if not _one_at_a_time.acquire(blocking=False):
        raise ServiceBusy(
            "Another server is being asked for its tools. Try again in a moment.", retry_after=5
        )
    try:
        with tempfile.TemporaryDirectory(prefix="signalbox-discovery-") as folder:
            return discover_server_tools_in_folder(Path(folder), command, args, isolation)
    finally:
        _one_at_a_time.release()


def discover_server_tools_in_folder(
    folder: Path, command: str, args: list[str], isolation: Isolation
) -> ToolListing:
    # Not at the top: the SDK is half a second and 27 MB that most processes never need.
    from coordinator.mcp.servers import stdio as mcp_stdio  # noqa: PLC0415

    process = start_server_for_tool_discovery(folder, command, args, isolation)
    try:
        return mcp_stdio.list_tools_of_running_server(process, within=ANSWER_WITHIN, most_bytes=MOST_BYTES)
    finally:
        kill_discovery_process(process)


def start_server_for_tool_discovery(
    folder: Path, command: str, args: list[str], isolation_level: Isolation
) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603 - an allowed command, without a shell
            isolation.prepare_isolated_command_line([command, *args], folder, isolation_level),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=isolation.build_base_process_environment(folder),
            start_new_session=True,
        )
    except (OSError, ValueError) as problem:  # ValueError: a NUL in an argument
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise UnprocessableRequest(
            f"{command} cannot be started here: {reason}. Paste its tools/list instead."
        ) from None


def kill_discovery_process(process: subprocess.Popen[bytes]) -> None:
    """Kill the server and whatever it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
