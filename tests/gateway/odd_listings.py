"""A server over HTTP with the lists of tools of tests/data/cases/24-mcp-listing-server.py, its answers in any form."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.gateway import example_server

PROGRAM = Path(__file__).parents[1] / "data/cases/24-mcp-listing-server.py"
PAUSE = "🌤"  # within which a stream is cut
# Lawful but rare forms of an answer with one message.
STREAM_FORMS = {
    "crlf": "data: {}\r\n\r\n",
    "cr": "data: {}\r\r",
    "nospace": "data:{}\n\n",
    "bom": "\ufeffdata: {}\n\n",
    "comments": ": keep-alive\n\n: another\ndata: {}\n\n",
    "event-name": "event: message\nid: 7\nretry: 100\ndata: {}\n\n",
    "multiline": "{}\n\n",
    "json-bom": "",  # no stream at all
}


def load_listing(mode: str) -> Callable[[str | None], dict[str, Any]]:
    """Return the program's function that answers tools/list, without the loop that reads its input."""
    names: dict[str, Any] = {}
    exec(PROGRAM.read_text().split("for line in sys.stdin")[0], names)
    names["mode"] = mode
    return names["listing"]


@contextlib.contextmanager
def serving_lists(mode: str, form: str = "") -> Iterator[str]:
    """Serve the lists of a mode; yields the address. `form` names a form of STREAM_FORMS."""
    listing = load_listing(mode)

    async def answer(request: Request) -> Response:
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "odd"},
        }
        if message["method"] == "tools/list":
            result = listing(message.get("params", {}).get("cursor"))
        elif message["method"] == "tools/call":
            result = {"content": [{"type": "text", "text": f"grüße 日本語 {PAUSE}"}]}
        body = {"jsonrpc": "2.0", "id": message["id"]} | (result if "error" in result else {"result": result})
        if not form:
            return JSONResponse(body)
        if form == "json-bom":
            return Response(f"\ufeff{json.dumps(body)}", media_type="application/json")
        if form == "multiline":
            text = "\n".join(
                f"data: {line}" for line in json.dumps(body, indent=1, ensure_ascii=False).split("\n")
            )
        else:
            text = json.dumps(body, ensure_ascii=False)
        event = STREAM_FORMS[form].replace("{}", text, 1).encode()

        async def pieces() -> AsyncIterator[bytes]:
            cut = event.find(PAUSE.encode()) + 2 if PAUSE.encode() in event else 2  # also within the mark
            yield event[:cut]
            yield event[cut:]

        return StreamingResponse(pieces(), media_type="text/event-stream")

    with example_server.serving(Starlette(routes=[Route("/mcp", answer, methods=["POST"])])) as url:
        yield url
