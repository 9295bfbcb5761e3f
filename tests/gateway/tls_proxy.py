"""A proxy at which TLS ends, in front of a served program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.gateway.example_server import serving
from tests.patience import PATIENCE

METHODS = ["GET", "HEAD", "POST", "DELETE"]
OF_ONE_CONNECTION = {b"connection", b"content-length", b"transfer-encoding", b"content-encoding"}


@contextlib.contextmanager
def ending_tls(port: int, target: str, certificate: Path) -> Iterator[None]:
    """Pass requests to the port on to `target` for the length of the block."""

    async def pass_on(request: Request) -> Response:
        headers = [pair for pair in request.headers.items() if pair[0] != "connection"]
        headers += [("X-Forwarded-Proto", "https"), ("X-Forwarded-For", "203.0.113.7")]
        url = httpx.URL(target).join(str(request.url.replace(scheme="", netloc="")))
        async with httpx.AsyncClient(timeout=PATIENCE, verify=False) as client:
            answer = await client.request(request.method, url, headers=headers, content=await request.body())
        response = Response(answer.content, answer.status_code)
        response.raw_headers += [
            (name, text) for name, text in answer.headers.raw if name.lower() not in OF_ONE_CONNECTION
        ]
        return response

    application = Starlette(routes=[Route("/{path:path}", pass_on, methods=METHODS)])
    with serving(application, port=port, ssl_certfile=certificate):
        yield
