"""A stdio MCP server that asks its client whatever a call of its tool says, and answers with what it was answered."""

from __future__ import annotations

import json
import sys
from typing import Any


def write(message: dict[str, Any] | str) -> None:
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
    sys.stdout.flush()


def main() -> None:
    waiting: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            text = json.dumps(message)
            write({"jsonrpc": "2.0", "id": waiting, "result": {"content": [{"type": "text", "text": text}]}})
        elif message["method"] == "tools/call":
            arguments = message["params"]["arguments"]
            waiting = message["id"]
            if "line" in arguments:
                write(arguments["line"])
            if "result" in arguments:
                write({"jsonrpc": "2.0", "id": waiting, "result": arguments["result"]})


main()
