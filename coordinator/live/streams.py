"""Server-sent event streams: who may open one, how it starts, what it replays, how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.errors import ServiceBusy, SignalboxError, TooManyRequests
from coordinator.feed import reader as feed
from coordinator.feed.reader import FeedChange
from coordinator.lib.asgi import Send
from coordinator.lib.threads import EdgeThreads
from coordinator.live.channels import HEARTBEAT, EventFrame, FrameBlob, LiveChannel, StreamSubscriber
from coordinator.live.hub import FeedHub, TopicIndex

log = logging.getLogger(__name__)

TEND_EVERY = 5.0
REPLAY_PAGE = 500
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache, no-store"),
    (b"x-accel-buffering", b"no"),
    (b"x-content-type-options", b"nosniff"),
]


@dataclass(frozen=True, slots=True)
class StreamOpening:
    """How one stream starts.

    `after` is the last id the client has (None: it has nothing), `hello` makes the first frames of a client
    that has nothing, or that asks for more than is kept or than `most_replayed`, given the id they are up to.
    """

    client: str
    channel: LiveChannel
    after: int | None
    hello: Callable[[int], Awaitable[list[EventFrame]]]
    most_replayed: int | None = None


def build_sse_frame(change_id: int, label: str, event: str, data: bytes) -> EventFrame:
    """Return one event; `data` is JSON without line breaks. The id begins with the change's id."""
    return EventFrame(
        change_id, b"id: %d%b\nevent: %b\ndata: %b\n\n" % (change_id, label.encode(), event.encode(), data)
    )


def last_event_id_or_none(header: bytes | None, query: str | None) -> int | None:
    """Return the change id a client saw last, from Last-Event-ID or the query; None where it gives none.

    An unknown id counts as one that is no longer kept: -1.
    """
    text = (header.decode("latin-1") if header else query or "").strip()
    if not text:
        return None
    number = text.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 19 else -1


class LiveStreams:
    """All open streams of one process."""

    def __init__(self, hub: FeedHub, threads: EdgeThreads, *, most: int, most_per_client: int) -> None:
        self._hub = hub
        self._threads = threads
        self._most = most
        self._most_per_client = most_per_client
        self._channels: dict[Any, LiveChannel] = {}
        self._channels_by_topic = TopicIndex[LiveChannel]()
        self._clients: Counter[str] = Counter()
        self._closing = False
        self._tender: asyncio.Task[None] | None = None
        hub.listeners.append(self._queue_changes_on_channels)

    def __len__(self) -> int:
        return self._clients.total()

    def start_channel_maintenance(self) -> None:
        self._tender = asyncio.ensure_future(self._send_channel_heartbeats_forever())

    def close_all_streams(self) -> None:
        """End every stream in good order; none can be opened from now on."""
        self._closing = True
        if self._tender is not None:
            self._tender.cancel()
        for member in self.iterate_open_subscribers():
            member.close()

    def recheck_permissions_of_open_streams(self) -> None:
        """Have every stream check whether its client may still listen: a key or user has changed."""
        for member in self.iterate_open_subscribers():
            member.try_enqueue_blob(HEARTBEAT)

    def get_or_create_channel(self, name: Any, make: Callable[[], LiveChannel]) -> LiveChannel:
        """Return the channel of that name, made on first use; it is dropped with its last member."""
        if name not in self._channels:
            self._channels[name] = make()
        return self._channels[name]

    def iterate_open_subscribers(self) -> Iterator[StreamSubscriber]:
        return (member for channel in list(self._channels.values()) for member in list(channel.members))

    def _queue_changes_on_channels(self, batch: Sequence[FeedChange]) -> None:
        for channel, changes in self._channels_by_topic.wanted_changes_by_subscriber(batch).items():
            channel.queue_changes(changes)

    async def _send_channel_heartbeats_forever(self) -> None:
        while True:
            await asyncio.sleep(TEND_EVERY)
            now = asyncio.get_running_loop().time()
            for channel in list(self._channels.values()):
                channel.send_heartbeats_and_drop_stuck(now)

    async def send_sse_stream(
        self, send: Send, opening: StreamOpening, still_allowed: Callable[[], Awaitable[object]]
    ) -> None:
        """Serve one stream to its end. Raises ServiceBusy or TooManyRequests before it begins.

        `still_allowed` is awaited before each piece; what it raises ends the stream.
        """
        with (
            self._temporary_channel_membership(opening) as member,
            self._reserve_stream_slot_during_block(opening.client),
        ):
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
            # Sends the headers off: a client must see that it is connected before anything happens.
            await member.send_blob(send, FrameBlob([EventFrame(0, b": connected\n\n")], upto=0))
            try:
                async for first in self._iterate_hello_or_missed_blobs(opening, member):
                    await member.send_blob(send, first)
                while (blob := await member.wait_for_next_blob()) is not None:
                    await still_allowed()
                    await member.send_blob(send, blob)
            except SignalboxError as refusal:
                log.info("a stream ends: %s", refusal.detail)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    @contextlib.contextmanager
    def _reserve_stream_slot_during_block(self, client: str) -> Iterator[None]:
        if self._closing or len(self) >= self._most:
            raise ServiceBusy("No more live streams can be opened here now. Try again soon.", retry_after=5)
        own_count = self._clients[client]
        # At most one more than others leave free, so that the next client always finds room.
        if own_count >= min(self._most_per_client, self._most - len(self) + 1):
            raise TooManyRequests(f"{client} already has {own_count} live streams open.", retry_after=30)
        self._clients[client] += 1
        self._hub.feed.add_watcher()
        try:
            yield
        finally:
            self._hub.feed.remove_watcher()
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    @contextlib.contextmanager
    def _temporary_channel_membership(self, opening: StreamOpening) -> Iterator[StreamSubscriber]:
        channel, member = opening.channel, StreamSubscriber(self._hub.position)
        if not channel.members:
            self._channels_by_topic[channel] = channel.wants
        channel.members.add(member)
        try:
            yield member
        finally:
            channel.members.discard(member)
            if not channel.members and channel in self._channels_by_topic:
                del self._channels_by_topic[channel]
                self._channels = {name: other for name, other in self._channels.items() if other.members}

    async def _iterate_hello_or_missed_blobs(
        self, opening: StreamOpening, member: StreamSubscriber
    ) -> AsyncIterator[FrameBlob]:
        """Yield what comes before the live part: a hello, or what the client missed."""
        after, upto = opening.after, member.after
        if after is None:
            yield FrameBlob(await opening.hello(upto), upto=upto)
            return
        # Another worker may have told the client more than this one has heard of yet. Set before anything is
        # waited for: what this one hears of meanwhile is already put into the member's queue.
        member.after = max(after, upto)
        too_far = opening.most_replayed is not None and upto - after > opening.most_replayed
        if too_far or not await self._threads.run_in_thread(feed.can_replay_changes, after):
            if after > upto:  # an id of another database: it has kept back what came meanwhile
                member.after = upto = self._hub.position
            yield FrameBlob(
                [build_sse_frame(upto, "", "reset", b"{}"), *await opening.hello(upto)], upto=upto
            )
            return
        while after < upto:
            page = await self._threads.run_in_thread(
                feed.list_changes_after, after, upto=upto, limit=REPLAY_PAGE
            )
            if not page:
                return
            after = page[-1].id
            wanted_changes = [change for change in page if opening.channel.wants(change)]
            if wanted_changes and (frames := await opening.channel.render_missed_changes(wanted_changes)):
                yield FrameBlob(frames, upto=after)
