"""Reception of bodies for Django's endpoints: complete and within the sender's limit before they take a thread."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import IO

from coordinator.edge.http.bodies import BodyReservation, RequestBodies
from coordinator.edge.http.bridge import IncompleteBody
from coordinator.edge.http.client_addresses import client_network_or_address, get_client_address_and_scheme
from coordinator.edge.http.messages import ClientDisconnected
from coordinator.errors import RequestTooLarge, SignalboxError
from coordinator.identity.declarations import body_allowance_of_url
from coordinator.lib.asgi import Receive, Scope
from coordinator.lib.body_limits import SMALL, STRANGER, BodyLimit

SPOOL_BYTES = 1024 * 1024  # a larger body waits on disk, not in memory
Prove = Callable[[Scope], Awaitable[str | None]]


class RequestBodyIntake:
    """Receives bodies. `prove` returns the authenticated sender: `key:1`, `person:2` or None."""

    def __init__(self, bodies: RequestBodies, prove: Prove) -> None:
        self._bodies = bodies
        self._prove = prove

    @contextlib.asynccontextmanager
    async def receive_body_file_during_block(
        self, scope: Scope, receive: Receive
    ) -> AsyncIterator[IO[bytes]]:
        """Give the request's body, positioned at its start, counted as in hand while the block runs.

        Raises RequestTooLarge, TooSlow and Busy, IncompleteBody, and what `prove` raises.
        """
        length = announced_content_length(scope)
        if length == 0:
            yield io.BytesIO()
            return
        sender, limit = await self.identify_sender_and_body_limit(scope, length)
        with (
            self._bodies.reserve_body_during_block(sender) as reservation,
            tempfile.SpooledTemporaryFile(SPOOL_BYTES) as body,
        ):
            await receive_into_file(reservation, receive, limit, body)
            yield body

    async def identify_request_sender(self, scope: Scope) -> str:
        """Return whose request it is: who it has proven to be from, else its address."""
        with contextlib.suppress(SignalboxError):
            if sender := await self._prove(scope):
                return sender
        return sender_key_of_client_address(scope)

    async def identify_sender_and_body_limit(self, scope: Scope, length: int | None) -> tuple[str, BodyLimit]:
        """Return who sends and what they may. Who sends little is not asked to prove anything here."""
        stranger = sender_key_of_client_address(scope)
        if length is not None and length <= STRANGER.sent:
            return stranger, STRANGER
        allowance = body_allowance_of_url(scope["path"], scope["method"])
        sender = (await self._prove(scope) if allowance != SMALL else None) or stranger
        limit = allowance.body_limit_of_sender(sender)
        if length is not None and length > limit.sent:
            raise build_too_large_error(limit)
        return sender, limit


async def receive_into_file(
    reservation: BodyReservation, receive: Receive, limit: BodyLimit, body: IO[bytes]
) -> None:
    try:
        await reservation.receive_body_into_callback(receive, limit, body.write)
    except ClientDisconnected:
        raise IncompleteBody from None
    except RequestTooLarge:
        raise build_too_large_error(limit) from None
    body.seek(0)


def sender_key_of_client_address(scope: Scope) -> str:
    return f"address:{client_network_or_address(get_client_address_and_scheme(scope).address)}"


def build_too_large_error(limit: BodyLimit) -> RequestTooLarge:
    if limit is STRANGER:
        return RequestTooLarge(
            f"Without a key or a signed-in session, the body may have at most {limit.sent} bytes."
        )
    return RequestTooLarge(f"The body is larger than {limit.sent} bytes.")


def announced_content_length(scope: Scope) -> int | None:
    """Return the announced length of the body: 0 for no body, None where it is not announced."""
    length = 0
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length" and value.isdigit():
            length = int(value)
    return length
