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

from coordinator.feed.reader import FeedChange
from coordinator.lib.asgi import Send
from coordinator.live.hub import WantedTopics

log = logging.getLogger(__name__)

CHUNK = 64 * 1024  # bytes handed to the server at a time: it waits for the client beyond that
MOST_BYTES = 32 * 1024 * 1024  # bytes that may wait for one member; all members wait for the same bytes
MOST_BLOBS = 1_000
HEARTBEAT_EVERY = 15.0  # seconds of silence on a stream
STUCK_AFTER = 30.0  # seconds one chunk may take
PAUSE_PER_MEMBER = 0.0002  # seconds between renderings for each member: many readers get fewer, larger pieces
RETRIES = (0.05, 0.2, 0.5)  # seconds after which a rendering that failed is tried again
PENDING_MOST = 20_000  # changes waiting to be rendered; beyond, members must replay


class EventFrame(NamedTuple):
    """One server-sent event, complete with its id line, for the change with that id."""

    id: int
    data: bytes


class FrameBlob:
    """Consecutive frames as the chunks that go out, shared by all members."""

    __slots__ = ("chunks", "first", "frames", "last", "size")

    def __init__(self, frames: Sequence[EventFrame], *, upto: int) -> None:
        self.frames = frames
        self.first = frames[0].id if frames else upto
        self.last = upto
        data = b"".join(frame.data for frame in frames)
        self.size = len(data)
        self.chunks = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]

    def blob_of_frames_after_change(self, change_id: int) -> FrameBlob:
        """Return what of this comes after `change_id`."""
        if self.first > change_id:
            return self
        return FrameBlob([frame for frame in self.frames if frame.id > change_id], upto=self.last)


HEARTBEAT = FrameBlob([EventFrame(0, b": heartbeat\n\n")], upto=0)


class StreamSubscriber:
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
        self._queue: deque[FrameBlob] = deque()
        self._bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._sending_since: float | None = None

    def try_enqueue_blob(self, blob: FrameBlob) -> bool:
        """Put a blob into the member's queue; False where the queue is full and the member must be cut off."""
        if (self._bytes + blob.size > MOST_BYTES and self._queue) or len(self._queue) >= MOST_BLOBS:
            return False
        self._queue.append(blob)
        self._bytes += blob.size
        self._wake_waiter()
        return True

    def close(self) -> None:
        """End the stream in good order, after the chunk that is being sent."""
        self.closing = True
        self._wake_waiter()

    def abort_stream(self) -> None:
        """End the stream at once, whatever it is doing."""
        self.closing = True
        if self.task is not None:
            self.task.cancel()

    def is_client_stuck(self, now: float) -> bool:
        """Say whether the client has not taken a chunk for too long."""
        return self._sending_since is not None and now - self._sending_since > STUCK_AFTER

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait_for_next_blob(self) -> FrameBlob | None:
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

    async def send_blob(self, send: Send, blob: FrameBlob) -> None:
        """Send a blob, as fast as the client takes it."""
        loop = asyncio.get_running_loop()
        for chunk in blob.chunks:
            self._sending_since = loop.time()
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._sending_since = None
        self.last_sign_of_life = loop.time()


Render = Callable[[Sequence[FeedChange]], Awaitable[list[EventFrame]]]


class LiveChannel:
    """Streams that get the same: the changes that it `wants`, rendered once by `render`.

    Renderings are at least `pause` seconds apart; what comes meanwhile goes together into the next. What `sum_up`
    renders follows within `sum_up_pause` seconds after the first change, for all that came until then. All channels
    with the same pause sum up at the same moments, so that they can share what is drawn of the same thing.
    """

    def __init__(
        self,
        wants: WantedTopics,
        render: Render,
        *,
        pause: float = 0.0,
        sum_up: Render | None = None,
        sum_up_pause: float = 0.0,
    ) -> None:
        self.members: set[StreamSubscriber] = set()
        self.wants = wants
        self._render = render
        self._pause = pause
        self._pending: list[FeedChange] = []
        self._task: asyncio.Task[None] | None = None
        self._sum_up = sum_up
        self._sum_up_pause = sum_up_pause
        self._unsummed: dict[tuple[str, str | None], FeedChange] = {}
        self._summing: asyncio.Task[None] | None = None

    def queue_changes(self, changes: Sequence[FeedChange]) -> None:
        """Queue changes that this channel wants."""
        if not self.members:
            return
        self._pending.extend(changes)
        if len(self._pending) > PENDING_MOST:
            self._pending.clear()
            self.abort_all_streams()
        elif self._task is None:
            self._task = asyncio.ensure_future(self._publish_pending_changes())
        if self._sum_up is not None:
            self._unsummed |= {(change.topic, change.parent or change.key): change for change in changes}
            if self._summing is None:
                self._summing = asyncio.ensure_future(self._publish_summary_after_pause(self._sum_up))

    async def render_missed_changes(self, changes: Sequence[FeedChange]) -> list[EventFrame]:
        """Return the frames of changes that a member missed, and what sums them up."""
        frames = await self._render(changes)
        return [*frames, *await self._sum_up(changes)] if self._sum_up is not None else frames

    async def _publish_summary_after_pause(self, sum_up: Render) -> None:
        try:
            await asyncio.sleep(self.seconds_until_next_summary())
            changes, self._unsummed = list(self._unsummed.values()), {}
            if self.members and (frames := await self.render_with_retries(sum_up, changes)):
                self._send_to_members(FrameBlob(frames, upto=frames[-1].id))
        except Exception:  # pages notice that it is missing, and ask for it
            log.exception("A channel's summary could not be rendered")
        finally:
            self._summing = None
            if self._unsummed:
                self._summing = asyncio.ensure_future(self._publish_summary_after_pause(sum_up))

    def seconds_until_next_summary(self) -> float:
        pause = self._sum_up_pause
        return pause - asyncio.get_running_loop().time() % pause if pause else 0.0

    async def _publish_pending_changes(self) -> None:
        try:
            while self._pending:
                changes, self._pending = self._pending, []
                frames = await self.render_with_retries(self._render, changes)
                if frames:
                    self._send_to_members(FrameBlob(frames, upto=changes[-1].id))
                await asyncio.sleep(max(self._pause, PAUSE_PER_MEMBER * len(self.members)))
        except Exception:  # whoever is connected would wait for ever: let them come back and replay
            log.exception("A channel could not be rendered")
            self.abort_all_streams()
        finally:
            self._task = None
            if self._pending:
                self._task = asyncio.ensure_future(self._publish_pending_changes())

    async def render_with_retries(self, render: Render, changes: Sequence[FeedChange]) -> list[EventFrame]:
        for pause in RETRIES:
            try:
                return await render(changes)
            except DatabaseError as problem:  # a connection that was killed; the next try opens another
                log.warning("A channel could not read the database: %s", str(problem).strip())
                await asyncio.sleep(pause)
        return await render(changes)

    def _send_to_members(self, blob: FrameBlob) -> None:
        for member in list(self.members):
            part = blob.blob_of_frames_after_change(member.after) if blob.first <= member.after else blob
            if part.frames and not member.try_enqueue_blob(part):
                log.info("a stream that reads too slowly is cut off")
                self.members.discard(member)
                member.abort_stream()

    def abort_all_streams(self) -> None:
        """End every stream at once."""
        for member in list(self.members):
            member.abort_stream()

    def send_heartbeats_and_drop_stuck(self, now: float) -> None:
        """Send heartbeats to idle members and cut off stuck ones."""
        for member in list(self.members):
            if member.is_client_stuck(now):
                member.abort_stream()
            elif now - member.last_sign_of_life >= HEARTBEAT_EVERY:
                member.try_enqueue_blob(HEARTBEAT)
