"""One rendering for many streams: a channel turns changes into bytes once, and all its members send those bytes.

A member that cannot keep up is cut off; it reconnects with the last id that it saw and gets what it missed. It
never slows a writer, the channel or its neighbours.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from django.db import DatabaseError

from coordinator.feed.reader import Change
from coordinator.lib.asgi import Send
from coordinator.live.hub import Topics

log = logging.getLogger(__name__)

CHUNK = 64 * 1024  # bytes handed to the server at a time: it waits for the client beyond that
MOST_BYTES = 32 * 1024 * 1024  # bytes that may wait for one member; all members wait for the same bytes
MOST_BLOBS = 1_000
HEARTBEAT_EVERY = 15.0  # seconds of silence on a stream
STUCK_AFTER = 30.0  # seconds one chunk may take
PAUSE_PER_MEMBER = 0.0002  # seconds between renderings for each member: many readers get fewer, larger pieces
RETRIES = (0.05, 0.2, 0.5)  # seconds after which a rendering that failed is tried again
PENDING_MOST = 20_000  # changes waiting to be rendered; beyond, members must replay


class Frame(NamedTuple):
    """One server-sent event, complete with its id line, for the change with that id."""

    id: int
    data: bytes


class Blob:
    """Consecutive frames as the chunks that go out, shared by all members."""

    __slots__ = ("chunks", "first", "frames", "last", "size")

    def __init__(self, frames: Sequence[Frame], *, upto: int) -> None:
        self.frames = frames
        self.first = frames[0].id if frames else upto
        self.last = upto
        data = b"".join(frame.data for frame in frames)
        self.size = len(data)
        self.chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]

    def after(self, change_id: int) -> Blob:
        """Return what of this comes after `change_id`."""
        if self.first > change_id:
            return self
        return Blob([frame for frame in self.frames if frame.id > change_id], upto=self.last)


HEARTBEAT = Blob([Frame(0, b": heartbeat\n\n")], upto=0)


class Subscriber:
    """One open stream. `after` is the id up to which it has been served otherwise (init or replay)."""

    __slots__ = (
        "_bytes",
        "_queue",
        "_sending_since",
        "_waiter",
        "after",
        "closing",
        "last_sign_of_life",
        "task",
    )

    def __init__(self, after: int) -> None:
        self.after = after
        self.closing = False
        self.last_sign_of_life = asyncio.get_running_loop().time()
        self.task: asyncio.Task[object] | None = asyncio.current_task()
        self._queue: deque[Blob] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._sending_since: float | None = None

    def push(self, blob: Blob) -> bool:
        """Put a blob into the member's queue; False where the queue is full and the member must be cut off."""
        if (self._bytes + blob.size > MOST_BYTES and self._queue) or len(self._queue) >= MOST_BLOBS:
            return False
        self._queue.append(blob)
        self._bytes += blob.size
        self._wake()
        return True

    def close(self) -> None:
        """End the stream in good order, after the chunk that is being sent."""
        self.closing = True
        self._wake()

    def cut(self) -> None:
        """End the stream at once, whatever it is doing."""
        self.closing = True
        if self.task is not None:
            self.task.cancel()

    def is_stuck(self, now: float) -> bool:
        """Say whether the client has not taken a chunk for too long."""
        return self._sending_since is not None and now - self._sending_since > STUCK_AFTER

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def next(self) -> Blob | None:
        """Wait for the next blob; None when the stream is to end."""
        while not self._queue and not self.closing:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        if self.closing:
            return None
        blob = self._queue.popleft()
        self._bytes -= blob.size
        return blob

    async def send(self, send: Send, blob: Blob) -> None:
        """Send a blob, as fast as the client takes it."""
        loop = asyncio.get_running_loop()
        for chunk in blob.chunks:
            self._sending_since = loop.time()
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._sending_since = None
        self.last_sign_of_life = loop.time()


Render = Callable[[Sequence[Change]], Awaitable[list[Frame]]]


class Channel:
    """Streams that get the same: the changes that it `wants`, rendered once by `render`.

    Renderings are at least `pause` seconds apart; what comes meanwhile goes together into the next. What `sum_up`
    renders follows within `sum_up_pause` seconds after the first change, for all that came until then. All channels
    with the same pause sum up at the same moments, so that they can share what is drawn of the same thing.
    """

    def __init__(
        self,
        wants: Topics,
        render: Render,
        *,
        pause: float = 0.0,
        sum_up: Render | None = None,
        sum_up_pause: float = 0.0,
    ) -> None:
        self.members: set[Subscriber] = set()
        self.wants = wants
        self._render = render
        self._pause = pause
        self._pending: list[Change] = []
        self._task: asyncio.Task[None] | None = None
        self._sum_up = sum_up
        self._sum_up_pause = sum_up_pause
        self._unsummed: dict[tuple[str, str | None], Change] = {}
        self._summing: asyncio.Task[None] | None = None

    def on_changes(self, changes: Sequence[Change]) -> None:
        """Queue changes that this channel wants."""
        if not self.members:
            return
        self._pending.extend(changes)
        if len(self._pending) > PENDING_MOST:
            self._pending.clear()
            self.cut_all()
        elif self._task is None:
            self._task = asyncio.ensure_future(self._publish())
        if self._sum_up is not None:
            self._unsummed |= {(change.topic, change.parent or change.key): change for change in changes}
            if self._summing is None:
                self._summing = asyncio.ensure_future(self._publish_summary(self._sum_up))

    async def replay(self, changes: Sequence[Change]) -> list[Frame]:
        """Return the frames of changes that a member missed, and what sums them up."""
        frames = await self._render(changes)
        return [*frames, *await self._sum_up(changes)] if self._sum_up is not None else frames

    async def _publish_summary(self, sum_up: Render) -> None:
        try:
            await asyncio.sleep(self._until_the_next_summary())
            changes, self._unsummed = list(self._unsummed.values()), {}
            if self.members and (frames := await self._rendered(sum_up, changes)):
                self._spread(Blob(frames, upto=frames[-1].id))
        except Exception:  # pages notice that it is missing, and ask for it
            log.exception("A channel's summary could not be rendered")
        finally:
            self._summing = None
            if self._unsummed:
                self._summing = asyncio.ensure_future(self._publish_summary(sum_up))

    def _until_the_next_summary(self) -> float:
        pause = self._sum_up_pause
        return pause - asyncio.get_running_loop().time() % pause if pause else 0.0

    async def _publish(self) -> None:
        try:
            while self._pending:
                changes, self._pending = self._pending, []
                frames = await self._rendered(self._render, changes)
                if frames:
                    self._spread(Blob(frames, upto=changes[-1].id))
                await asyncio.sleep(max(self._pause, PAUSE_PER_MEMBER * len(self.members)))
        except Exception:  # whoever is connected would wait for ever: let them come back and replay
            log.exception("A channel could not be rendered")
            self.cut_all()
        finally:
            self._task = None
            if self._pending:
                self._task = asyncio.ensure_future(self._publish())

    async def _rendered(self, render: Render, changes: Sequence[Change]) -> list[Frame]:
        for pause in RETRIES:
            try:
                return await render(changes)
            except DatabaseError as problem:  # a connection that was killed; the next try opens another
                log.warning("A channel could not read the database: %s", str(problem).strip())
                await asyncio.sleep(pause)
        return await render(changes)

    def _spread(self, blob: Blob) -> None:
        for member in list(self.members):
            part = blob.after(member.after) if blob.first <= member.after else blob
            if part.frames and not member.push(part):
                log.info("a stream that reads too slowly is cut off")
                self.members.discard(member)
                member.cut()

    def cut_all(self) -> None:
        """End every stream at once."""
        for member in list(self.members):
            member.cut()

    def tend(self, now: float) -> None:
        """Send heartbeats to idle members and cut off stuck ones."""
        for member in list(self.members):
            if member.is_stuck(now):
                member.cut()
            elif now - member.last_sign_of_life >= HEARTBEAT_EVERY:
                member.push(HEARTBEAT)
