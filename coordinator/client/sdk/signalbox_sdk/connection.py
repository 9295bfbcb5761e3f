"""The connection to the server, and one request to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

URL_VARIABLE, KEY_VARIABLE = "SIGNALBOX_URL", "SIGNALBOX_KEY"
REQUEST_TIMEOUT_SECONDS = 10.0
RETRY_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})


class ServerUnavailable(Exception):
    """The server is away, or answered something that may be different when it is asked again."""


class RequestRefused(Exception):
    """The server refused the request, and would again."""


@dataclass(frozen=True)
class Connection:
    """A server and a key of scope `agent`. The default is `$SIGNALBOX_URL` with `$SIGNALBOX_KEY`."""

    url: str = field(default_factory=lambda: os.environ.get(URL_VARIABLE, ""))
    key: str = field(default_factory=lambda: os.environ.get(KEY_VARIABLE, ""), repr=False)
    patience: float = 60.0  # seconds without a readable answer after which the server counts as away

    def send(
        self, method: str, path: str, body: Any = None, *, timeout: float = REQUEST_TIMEOUT_SECONDS
    ) -> dict[str, Any]:
        """Return the JSON object that answers a request. Raises ServerUnavailable or RequestRefused."""
        try:
            with httpx.Client(timeout=timeout) as client:
                response = client.request(
                    method, self._build_url(path), json=body, headers=self._authorization_headers
                )
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise ServerUnavailable(f"Signalbox does not answer: {problem}") from problem
        return read_answer(response)

    async def send_async(
        self, method: str, path: str, body: Any = None, *, timeout: float = REQUEST_TIMEOUT_SECONDS
    ) -> dict[str, Any]:
        """Do the same without blocking the event loop."""
        try:
            async with httpx.AsyncClient(timeout=timeout) as client:
                response = await client.request(
                    method, self._build_url(path), json=body, headers=self._authorization_headers
                )
        except (httpx.HTTPError, httpx.InvalidURL) as problem:
            raise ServerUnavailable(f"Signalbox does not answer: {problem}") from problem
        return read_answer(response)

    def _build_url(self, path: str) -> str:
        if not self.url:
            raise RequestRefused("Set SIGNALBOX_URL and SIGNALBOX_KEY.")
        return self.url.rstrip("/") + path

    @property
    def _authorization_headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


def read_answer(response: httpx.Response) -> dict[str, Any]:
    """Return a response's JSON object. A redirect is refused: a key goes to the server that it is for."""
    if response.status_code in RETRY_STATUSES:
        raise ServerUnavailable(f"Signalbox answered {response.status_code}.")
    if not response.is_success:
        raise RequestRefused(f"Signalbox answered {response.status_code}: {response.text[:500]}")
    try:
        answer = response.json()
    except ValueError as problem:
        raise ServerUnavailable("What answered is not Signalbox: its answer is not JSON.") from problem
    if not isinstance(answer, dict):
        raise ServerUnavailable("What answered is not Signalbox: its answer is not an object.")
    return answer
