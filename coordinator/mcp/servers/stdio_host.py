"""The address of the host of stdio servers (coordinator.mcp.hosting): a Unix socket that only this user may open."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from urllib.parse import quote

from django.conf import settings

from coordinator.lib import private_files

NAME = "mcp-stdio.sock"
LONGEST_PATH = 100  # bytes; what a socket's name may have on every system
CALLER = "x-signalbox-caller"  # identifies callers, where each has a process of its own
# A request with it is not sent to a server that had to be started first.
WHEN_READY = "x-signalbox-when-ready"
STARTED = 425  # … but answered so, once the server is ready for it
# In the data of an error: the host answers, since the server's process has ended.
PROCESS_ENDED = "signalbox/process-ended"
ASKER = "x-signalbox-asker"  # identifies callers, also where they share a process


def ensure_host_socket_path() -> Path:
    """Return the socket's path: in the data folder, or in a private folder of the temporary one if that is too long."""
    path = Path(settings.DATA_DIR) / NAME
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return path
    digest = hashlib.blake2b(os.fsencode(settings.DATA_DIR), digest_size=8).hexdigest()
    folder = Path(tempfile.gettempdir()) / f"signalbox-{os.geteuid()}-{digest}"
    private_files.ensure_private_folder(folder)
    return folder / NAME


def build_hosted_server_url_path(server_id: str) -> str:
    """Return the path, on the socket, at which a server is offered as streamable HTTP."""
    return f"/servers/{quote(server_id, safe='')}/mcp"
