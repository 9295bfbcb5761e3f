"""Bodies for Django's doors: arrived whole, and no larger than their sender may send, before they wait for a thread."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import IO

from coordinator.edge import limits
from coordinator.edge.bodies import Bodies, BodyShare
from coordinator.edge.bridge import BodyCutShort
from coordinator.edge.http import Gone
from coordinator.edge.limits import BodyLimit
from coordinator.edge.peers import network_of, peer_of
from coordinator.errors import SignalboxError, TooLarge
from coordinator.lib.asgi import Receive, Scope

SPOOL_BYTES = 1024 * 1024  # a larger body waits on disk, not in memory
Prove = Callable[[Scope], Awaitable[str | None]]


class Intake:
    """Takes bodies in. `prove` tells who a sender has proven to be: `key:1`, `person:2` or nobody."""

    def __init__(self, bodies: Bodies, prove: Prove) -> None:
        self._bodies = bodies
        self._prove = prove

    @contextlib.asynccontextmanager
    async def take(self, scope: Scope, receive: Receive) -> AsyncIterator[IO[bytes]]:
        """Give the request's body, positioned at its start, counted as in hand while the block runs.

        Raises TooLarge, TooSlow and Busy, BodyCutShort, and what `prove` raises.
        """
        length = _announced(scope)
        if length == 0:
            yield io.BytesIO()
            return
        sender, limit = await self._sender(scope, length)
        with (
            self._bodies.hold(sender) as held,
            tempfile.SpooledTemporaryFile(SPOOL_BYTES) as body,
        ):
            await _arrive(held, receive, limit, body)
            yield body

    async def who(self, scope: Scope) -> str:
        """Return whose request it is: who it has proven to be from, else its address."""
        with contextlib.suppress(SignalboxError):
            if sender := await self._prove(scope):
                return sender
        return _stranger(scope)

    async def _sender(self, scope: Scope, length: int | None) -> tuple[str, BodyLimit]:
        """Return who sends and what they may. Who sends little is not asked to prove anything here."""
        stranger = _stranger(scope)
        if length is not None and length <= limits.STRANGER.sent:
            return stranger, limits.STRANGER
        name = limits.limit_name(scope["path"])
        sender = (await self._prove(scope) if limits.LIMITS[name] else None) or stranger
        limit = limits.limit_for(name, sender)
        if length is not None and length > limit.sent:
            raise _too_large(limit)
        return sender, limit


async def _arrive(held: BodyShare, receive: Receive, limit: BodyLimit, body: IO[bytes]) -> None:
    try:
        await held.arrive(receive, limit, body.write)
    except Gone:
        raise BodyCutShort from None
    except TooLarge:
        raise _too_large(limit) from None
    body.seek(0)


def _stranger(scope: Scope) -> str:
    return f"address:{network_of(peer_of(scope).address)}"


def _too_large(limit: BodyLimit) -> TooLarge:
    if limit is limits.STRANGER:
        return TooLarge(
            f"Without a key or a signed-in session, the body may have at most {limit.sent} bytes."
        )
    return TooLarge(f"The body is larger than {limit.sent} bytes.")


def _announced(scope: Scope) -> int | None:
    """Return how long the body says it is: 0 for none, None where only its end will tell."""
    length = 0
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length" and value.isdigit():
            length = int(value)
    return length
