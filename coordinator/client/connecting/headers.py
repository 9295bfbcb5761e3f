"""`signalbox headers`: the headers of Claude Code's telemetry, as JSON; its settings name this as `otelHeadersHelper`.

So the key is stored in one file only, and not in Claude Code's settings, which people share.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence

from coordinator.client import settings
from coordinator.client.settings import NotConnected


def run(arguments: Sequence[str]) -> int:
    """Print the headers, with `--mcp` those of the gateway; return the exit code."""
    try:
        key = settings.resolve_client_settings().key
    except NotConnected as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if "--mcp" in arguments and (session := os.environ.get("SIGNALBOX_SESSION")):
        headers["X-Signalbox-Session"] = session
    sys.stdout.write(json.dumps(headers))
    return 0
