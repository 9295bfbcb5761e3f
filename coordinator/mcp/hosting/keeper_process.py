"""Starting the keeper of the host of stdio servers. `serve` loads this, and nothing of the host itself."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time

from coordinator.lib import installation
from coordinator.mcp.hosting import keeper
from coordinator.mcp.servers import stdio_host

log = logging.getLogger(__name__)

RESTART_PAUSE_SECONDS = 2.0  # at least, between two starts of a keeper


class KeeperProcess:
    """The keeper process of this process, started again when it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0

    def ensure_running(self) -> None:
        """Start the keeper where it does not run, unless it was started a moment ago."""
        if self._process is not None and self._process.poll() is None:
            return
        now = time.monotonic()
        if self._process is not None:
            if now - self._started_at < RESTART_PAUSE_SECONDS:
                return
            log.warning("The keeper of stdio MCP servers has ended. It is started again.")
        self._process, self._started_at = start_keeper(), now

    def process_ids(self) -> list[int]:
        """Return the keeper's process id, in a list that is empty where it does not run."""
        return [] if self._process is None or self._process.poll() is not None else [self._process.pid]


def start_keeper() -> subprocess.Popen[bytes]:
    """Start the keeper as a process that ends with this one."""
    command = [*installation.management_command_argv_prefix(), "mcp_host"]
    path = str(stdio_host.ensure_host_socket_path())
    return subprocess.Popen(  # noqa: S603 - ours
        [sys.executable, "-I", keeper.__file__, path, str(os.getpid()), *command]
    )
