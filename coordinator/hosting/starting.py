"""Starting the keeper of the host of stdio servers. `serve` loads this, and nothing of the host itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from coordinator.hosting import keeper
from coordinator.mcp import stdio_host

MANAGE = Path(__file__).resolve().parents[2] / "manage.py"


def start_keeper() -> subprocess.Popen[bytes]:
    """Start the keeper beside this process; it ends with it."""
    command = [sys.executable, str(MANAGE), "mcp_host"]
    path = str(stdio_host.socket_path())
    return subprocess.Popen(  # noqa: S603 - ours
        [sys.executable, "-I", keeper.__file__, path, str(os.getpid()), *command]
    )
