"""Request bodies while they are received: their bytes, packed and decoded, are limited for each sender and in all.

A body that has not arrived whole holds no slot that another request needs. When one sender has too many incomplete
bodies, the slowest are refused (408), so that a slow sender hinders nobody, not even another client at the same
address. The bytes in memory, packed or decoded, are bounded: a sender may have at most half of what others leave
free, so that there is always room for the next sender.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from coordinator.edge.http.messages import ClientDisconnected, Headers
from coordinator.errors import BadRequest, RequestTimedOut, RequestTooLarge, ServiceBusy, UnsupportedMediaType
from coordinator.lib import json_bounds
from coordinator.lib.asgi import Receive
from coordinator.lib.body_limits import BodyLimit
from coordinator.lib.byte_budget import ByteBudget
from coordinator.lib.fair_queue import CALLER, FairThreadPool

P = ParamSpec("P")
T = TypeVar("T")
Weigh = Callable[[bytes, int], int]

IN_ALL = 256 * 1024 * 1024  # bytes in hand in one process
ARRIVING = {"key": 1_000, "person": 200}  # bodies on their way at one time, by kind of sender
ARRIVING_FROM_ADDRESS = 128
ARRIVING_IN_ALL = 4_000
BODY_GRACE_SECONDS = 1.0  # seconds for which a body may be on its way even where its sender has too many
DECODERS = 2  # threads; decoding holds the interpreter, so more would only make pages wait
SLOW_TO_DECODE = 64 * 1024  # bytes from which a body is unpacked and decoded in one of them
PLAIN = frozenset({b"", b"identity"})
TOO_SLOW = "The request did not arrive completely in time. Send it again."


class RequestBodies:
    def __init__(self) -> None:
        self.byte_budget = ByteBudget()
        self._arriving: dict[str, dict[BodyReservation, None]] = {}
        self._count = 0
        self._decoders = FairThreadPool(DECODERS, "decode")

    @contextmanager
    def reserve_body_during_block(self, sender: str) -> Iterator[BodyReservation]:
        """Give the reservation of one body, empty at first. All of it is released at the end."""
        reservation = BodyReservation(self, sender)
        try:
            yield reservation
        finally:
            self.byte_budget.release_bytes_of_sender(sender, reservation.size)

    async def decode_in_thread(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `work`, in its caller's turn, in a thread that answers no pages."""
        return await self._decoders.run_in_pool(lambda: work(*args, **kwargs), CALLER.get())

    def close(self) -> None:
        self._decoders.shut_down_pool()

    def register_body_and_abort_slow(self, reservation: BodyReservation) -> None:
        """Count a body as on its way; those that have been for too long give way to it."""
        arriving = self._arriving.setdefault(reservation.sender, {})
        arriving[reservation] = None
        self._count += 1
        now = asyncio.get_running_loop().time()
        most = ARRIVING.get(reservation.sender.partition(":")[0], ARRIVING_FROM_ADDRESS)
        while len(arriving) > most and (slowest := next(iter(arriving))).began < now - BODY_GRACE_SECONDS:
            self.abort_slow_body(slowest, now)
        if self._count > ARRIVING_IN_ALL:
            self.abort_slow_body(self.oldest_body_of_busiest_sender(), now)

    def oldest_body_of_busiest_sender(self) -> BodyReservation:
        most = max(self._arriving, key=lambda sender: len(self._arriving[sender]))
        return next(iter(self._arriving[most]))

    def abort_slow_body(self, reservation: BodyReservation, now: float) -> None:
        self.unregister_arriving_body(reservation)
        reservation.clock.reschedule(now)

    def unregister_arriving_body(self, reservation: BodyReservation) -> None:
        """Count a body as on its way no more."""
        arriving = self._arriving.get(reservation.sender, {})
        if reservation in arriving:
            del arriving[reservation]
            self._count -= 1
            if not arriving:
                del self._arriving[reservation.sender]


@dataclass(slots=True, eq=False)
class BodyReservation:
    """What one body holds: `size` bytes of `sender`'s share."""

    bodies: RequestBodies
    sender: str
    size: int = 0
    began: float = 0.0  # on the event loop's clock
    clock: asyncio.Timeout = field(init=False)

    def grow_body_reservation(self, more: int) -> None:
        """Count `more` bytes. Raises ServiceBusy where the sender, or all together, would hold too much."""
        budget = self.bodies.byte_budget
        if not budget.try_reserve_sender_bytes(self.sender, more, size=self.size, total=IN_ALL):
            raise ServiceBusy("Too many large bodies at once. Nothing was written; try again.", retry_after=1)
        self.size += more

    async def read_body(
        self,
        receive: Receive,
        headers: Headers,
        limit: BodyLimit,
        weigh: Weigh = json_bounds.estimate_decoded_json_size,
    ) -> bytes:
        """Return the whole body without its Content-Encoding, counted by its memory size, which `weigh` estimates.

        Raises RequestTooLarge over `limit` (unread if it says so, and before it is unpacked or decoded),
        RequestTimedOut, ServiceBusy, ClientDisconnected, UnsupportedMediaType and BadRequest.
        """
        declared = headers.get(b"content-length", b"")
        if declared.isdigit() and int(declared) > limit.sent:
            raise RequestTooLarge(f"The body is larger than {limit.sent} bytes.")
        chunks: list[bytes] = []
        await self.receive_body_into_callback(receive, limit, chunks.append)
        body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        encoding = headers.get(b"content-encoding", b"").strip().lower()
        if encoding in PLAIN and len(body) < SLOW_TO_DECODE:
            becomes = weigh(body, limit.becomes)
        else:  # in one go: what is unpacked and not counted yet is no more than there are threads for
            body, becomes = await self.bodies.decode_in_thread(
                decompress_and_measure_body, body, encoding, limit, weigh
            )
        if becomes > limit.becomes:
            raise RequestTooLarge(
                f"The body holds so many values that they take more than {limit.becomes} bytes."
            )
        self.grow_body_reservation(max(0, becomes - self.size))
        return body

    async def receive_body_into_callback(
        self, receive: Receive, limit: BodyLimit, keep: Callable[[bytes], object]
    ) -> None:
        """Give each piece of the body to `keep` as it arrives.

        Raises RequestTooLarge; RequestTimedOut when its time is over or it has to give way; ServiceBusy and
        ClientDisconnected.
        """
        self.began = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(limit.seconds) as self.clock:
                self.bodies.register_body_and_abort_slow(self)
                try:
                    await self.pass_body_chunks_to_callback(receive, limit, keep)
                finally:
                    self.bodies.unregister_arriving_body(self)
        except TimeoutError:
            raise RequestTimedOut(TOO_SLOW) from None

    async def pass_body_chunks_to_callback(
        self, receive: Receive, limit: BodyLimit, keep: Callable[[bytes], object]
    ) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            piece = message.get("body", b"")
            self.grow_body_reservation(len(piece))
            if self.size > limit.sent:
                raise RequestTooLarge(f"The body is larger than {limit.sent} bytes.")
            keep(piece)
            more = message.get("more_body", False)

    async def decode_received_body(self, work: Callable[[bytes], T], body: bytes) -> T:
        """Return what `work` makes of the body; a large one in a thread that answers no pages."""
        return work(body) if len(body) < SLOW_TO_DECODE else await self.bodies.decode_in_thread(work, body)


def decompress_and_measure_body(
    body: bytes, encoding: bytes, limit: BodyLimit, weigh: Weigh
) -> tuple[bytes, int]:
    if encoding not in PLAIN:
        if encoding not in {b"gzip", b"x-gzip"}:
            raise UnsupportedMediaType("Send the body plain or with Content-Encoding: gzip.")
        body = decompress_gzip(body, limit.unpacked)
    if limit.values and json_bounds.has_too_many_json_values(body, limit.values):
        raise RequestTooLarge(f"The body holds more than {limit.values:,} fields and items.")
    return body, weigh(body, limit.becomes)


def decompress_gzip(body: bytes, limit: int) -> bytes:
    """Unpack gzip; raises RequestTooLarge as soon as it passes `limit` bytes, BadRequest where it is no gzip."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        plain = unpacker.decompress(body, limit + 1)
    except zlib.error:
        raise BadRequest("The body is not gzip, although its Content-Encoding says so.") from None
    if len(plain) > limit:
        raise RequestTooLarge(f"The body unpacks to more than {limit} bytes.")
    if not unpacker.eof or unpacker.unused_data:
        raise BadRequest("The gzip body is incomplete, or something follows it.")
    return plain
