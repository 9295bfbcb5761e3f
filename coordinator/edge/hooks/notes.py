"""Notes on their way to agents: with the answer to a hook, or with the result of a call through the gateway.

For which sessions notes wait is kept in memory and follows the feed, so that nobody asks the database at each step. Who
finds one takes it there (actions.sessions.notes), and whatever goes wrong with a note changes nothing of the answer.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Sequence

import msgspec
from django.utils import timezone

from coordinator.actions.sessions import notes
from coordinator.feed.reader import FeedChange
from coordinator.lib.fair_queue import clear_current_caller
from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import FeedHub
from coordinator.sessions.notes import find_session_ids_with_pending_notes, format_notes_for_agent

log = logging.getLogger(__name__)

TOPIC = "notes"
NOTES_CACHE_SECONDS = 15.0  # what the feed may have missed is seen within this time
WITHIN = 1.0  # seconds that an answer waits for its note
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_blocks = msgspec.json.Decoder(list[msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class PendingNotes:
    """The notes that wait, as this process knows of them. Used on the event loop."""

    def __init__(self, hub: FeedHub, threads: EdgeThreads) -> None:
        self._threads = threads
        self._waiting: frozenset[str] = frozenset()
        self._until = 0.0
        self._reading: asyncio.Task[None] | None = None
        hub.listeners.append(self.reload_pending_notes_on_change)

    def reload_pending_notes_on_change(self, batch: Sequence[FeedChange]) -> None:
        """Read again for whom notes wait, where one was written or handed over."""
        if any(change.topic == TOPIC for change in batch):
            self._until = 0.0
            self.get_or_start_notes_load()

    async def has_notes_for_any_session(self) -> bool:
        """Say whether a note waits for anybody."""
        if self._until <= asyncio.get_running_loop().time():
            await asyncio.wait([self.get_or_start_notes_load()], timeout=WITHIN)
        return bool(self._waiting)

    async def consume_session_notes(
        self, session_id: str, through: str, *, given_to: str | None = None
    ) -> str:
        """Return what the agent of this session is to read now; empty where nothing waits, or cannot be had."""
        if session_id not in self._waiting:
            return ""
        # The first to acquire it decides about the notes: the thread, which then hands them over while the answer
        # waits, or the answer that waits no longer, and then the thread hands over nothing.
        first = functools.partial(threading.Lock().acquire, blocking=False)
        take = functools.partial(
            notes.claim_notes_for_delivery,
            session_id,
            through,
            timezone.now(),
            given_to=given_to,
            is_awaited=first,
        )
        taking = asyncio.ensure_future(self._threads.run_in_thread(take))
        try:
            await asyncio.wait([taking], timeout=WITHIN)
            if not taking.done() and first():
                raise TimeoutError("the database is busy")
            return format_notes_for_agent(await taking)
        except Exception as problem:
            log.warning("A note of %s is not delivered now: %s", session_id, str(problem).strip())
            return ""
        finally:
            first()
            taking.cancel()

    async def consume_notes_into_call_response(
        self, session_id: str, through: str, response: bytes, event: bytes | None
    ) -> tuple[bytes, bytes | None]:
        """Return a call's response with the notes of its session, and without its event where it carries any."""
        if (
            not await self.has_notes_for_any_session()
            or session_id not in self._waiting
            or append_text_to_tool_result(response, "") is None
        ):
            return response, event
        text = await self.consume_session_notes(session_id, through)
        body_with_notes = append_text_to_tool_result(response, text) if text else None
        return (response, event) if body_with_notes is None else (body_with_notes, None)

    def get_or_start_notes_load(self) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self.cache_session_ids_with_notes())
        return self._reading

    async def cache_session_ids_with_notes(self) -> None:
        clear_current_caller()
        loop = asyncio.get_running_loop()
        try:
            while self._until <= loop.time():
                # A note that is written meanwhile sets it back.
                self._until = loop.time() + NOTES_CACHE_SECONDS
                self._waiting = await self._threads.run_in_thread(
                    find_session_ids_with_pending_notes, timezone.now()
                )
        except Exception as problem:
            log.warning("It cannot be read for whom notes wait: %s", str(problem).strip())
            self._until = loop.time() + WITHIN


def append_text_to_tool_result(response: bytes, text: str) -> bytes | None:
    """Return a tool's result with a text added to its content, all else as it was; None where it has no content."""
    try:
        fields = _fields(response)
        result = _fields(fields["result"])
        content = _blocks(result["content"])
        kind = msgspec.json.decode(result["resultType"]) if "resultType" in result else "complete"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        return None
    if kind != "complete" or (not content and "structuredContent" in result):
        return None
    added = {"type": "text", "text": text, "_meta": {"signalbox/note": True}}
    result["content"] = msgspec.Raw(_encode([*content, msgspec.Raw(_encode(added))]))
    return _encode(fields | {"result": msgspec.Raw(_encode(result))})
