"""Delivery of hooks by the program on the agent's machine (`coordinator.client`): under an id, at once or later.

A hook that is sent again under the same id is the same hook. A hook that could not be sent in time is sent later;
the agent has gone on by then, so such a hook is only recorded.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import unquote_to_bytes

from coordinator.dialects.hooks import replace_unstorable_text
from coordinator.edge.http.messages import Headers
from coordinator.lib.asgi import Send

ID, AGE, DENIED = b"x-signalbox-hook-id", b"x-signalbox-age", b"x-signalbox-denied"
_ID = re.compile(rb"[A-Za-z0-9_-]{16,64}")
OLDEST = 30 * 86_400.0  # seconds
LONGEST_REASON = 2_000  # characters
SIGN_AFTER = 0.1  # seconds without an answer after which the first sign of life goes out
SIGN_EVERY = 5.0


@dataclass(frozen=True, slots=True)
class HookDelivery:
    """How one hook was delivered.

    `sent_as` is its id, None where it has none. `age` is how many seconds ago the agent reported it, None where it
    still waits for the answer; `denied` is then why its call was not let run, None where it was.
    """

    sent_as: str | None = None
    age: float | None = None
    denied: str | None = None


BY_THE_AGENT = HookDelivery()


def parse_hook_delivery_or_default(headers: Headers) -> HookDelivery:
    """Return how a hook is delivered; headers that make no sense count as missing."""
    delivery_header = headers.get(ID)
    if delivery_header is None or not _ID.fullmatch(delivery_header):
        return BY_THE_AGENT
    age = parse_delivery_age(headers.get(AGE, b""))
    if age is None:
        return HookDelivery(delivery_header.decode())
    reason = unquote_to_bytes(headers.get(DENIED, b"")).decode("utf-8", "replace").strip()
    return HookDelivery(
        delivery_header.decode(), age, str(replace_unstorable_text(reason))[:LONGEST_REASON] or None
    )


def parse_delivery_age(text: bytes) -> float | None:
    try:
        age = float(text)
    except ValueError:
        return None
    return age if 0 <= age <= OLDEST else None


class HookKeepAlive:
    """Sends keep-alives while a hook waits: blanks before the answer's JSON, from `SIGN_AFTER` seconds on.

    So the client can distinguish a person who thinks from a server that is gone, and no proxy closes the connection.
    The answer's status is then always 200. `about` returns the answer's headers once it is known that somebody
    waits, and None before.
    """

    def __init__(self, send: Send, about: Callable[[], Sequence[tuple[bytes, bytes]] | None]) -> None:
        self.begun = False
        self._send = send
        self._about = about

    async def __aenter__(self) -> HookKeepAlive:
        self._task = asyncio.ensure_future(self.send_hook_keep_alives())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def send_hook_keep_alives(self) -> None:
        await asyncio.sleep(SIGN_AFTER)
        while (headers := self._about()) is None:
            await asyncio.sleep(SIGN_AFTER)
        headers = [(b"content-type", b"application/json"), (b"x-accel-buffering", b"no"), *headers]
        self.begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        while True:
            await self._send({"type": "http.response.body", "body": b" ", "more_body": True})
            await asyncio.sleep(SIGN_EVERY)

    async def send_hook_answer_body(self, body: bytes) -> None:
        """Send the answer behind the signs that were given."""
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
