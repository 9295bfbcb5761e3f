"""Writes what hooks tell: finds each hook's session, and has its events written, whatever the database is at.

Hooks are not sent again. So what came in is written as soon as the database can, and who posted it waits no longer
than `HOOK_ANSWER_AFTER`. What could not be written within `WRITE_WITHIN`, or is refused, is a line in the log, and an
event in its session as soon as that can be written: a gap is seen.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from django.conf import settings
from django.utils import timezone

from coordinator.actions import reported_sessions as sessions
from coordinator.actions import tool_calls
from coordinator.dialects.contract import Dialect
from coordinator.dialects.hooks import Hook
from coordinator.edge.writer import GroupWriter, not_written
from coordinator.errors import Busy, NotFound, SignalboxError
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import instants
from coordinator.policy.tool_rules import NO_OPINION, Ruling
from coordinator.sessions.events import NewEvent
from coordinator.sessions.reports import KnownSession, SessionLocation, is_told_by_runner

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_KNOWN = 20_000  # sessions whose ids a process remembers
KNOWN_FOR = 60.0  # seconds without a hook after which it looks again: silence may have ended the session
WRITE_WITHIN = 30.0  # seconds for which a hook that is answered already may wait for the database


class _Known(NamedTuple):
    """A session, until when on the loop's clock that holds, and which one its hook says that a runner drives."""

    session: KnownSession
    until: float
    named: str | None


class Recorder:
    """Writes what the hooks of one agent tell. One an agent and process."""

    def __init__(self, writer: GroupWriter, dialect: Dialect) -> None:
        self._writer = writer
        self.dialect = dialect
        # By key, because a key finds only sessions that are open to it.
        self._known: dict[tuple[KeyIdentity | None, str], _Known] = {}
        self._writing: set[asyncio.Task[SignalboxError | None]] = set()
        self._lost: dict[str, Counter[str]] = {}  # hooks by name, by the agent's session id

    async def session_of(
        self, hook: Hook, where: SessionLocation, *, within: float = WRITE_WITHIN
    ) -> KnownSession:
        """Return our session for the hook's, one open to its key; made on its first hook. Raises Busy."""
        now = asyncio.get_running_loop().time()
        heard = self._known.get((where.by, hook.session))
        known = heard.session if heard is not None and heard.until >= now else None
        # Whether a runner drives it is asked each time: its runner goes, and the agent is taken up in a terminal.
        if known is None or known.driven or where.driven or (where.hostname and not known.complete):
            at = instants.parse(hook.at) or timezone.now()
            known = await self._heard(hook, where, at, within)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
        until = now + min(KNOWN_FOR, settings.SESSION_SILENT_AFTER / 2)
        self._known[where.by, hook.session] = _Known(known, until, where.driven)
        if hook.name in self.dialect.beginnings and not known.driven:
            take_up = functools.partial(sessions.take_up, known.session_id, timezone.now())
            await self.perform(take_up, within=within)
        return known

    async def _heard(self, hook: Hook, where: SessionLocation, at: datetime, within: float) -> KnownSession:
        return await self.perform(
            functools.partial(sessions.active_session_for, hook.session, where, at), within=within
        )

    async def observe(
        self, hook: Hook, where: SessionLocation, size: int, ruling: Ruling = NO_OPINION
    ) -> None:
        """Have the hook written, with what policy says of it; returns when it is, or a moment later.

        Raises what it was refused for by then.
        """
        await self._soon(hook, self._observed(hook, where, size, ruling))

    async def _observed(self, hook: Hook, where: SessionLocation, size: int, ruling: Ruling) -> None:
        known = await self.session_of(hook, where)
        if known.driven:
            is_piece = self.dialect.pieces is not None and self.dialect.pieces.of(hook) is not None
            events: list[NewEvent] = [] if is_piece else [*self.dialect.events_of(hook, known.session_id)]
        else:
            events = await self._events(hook, known.session_id, ruling)
        await self._write(hook, events, size, where.by)

    async def write(
        self, hook: Hook, events: Sequence[NewEvent], size: int, by: KeyIdentity | None = None
    ) -> None:
        """Have events of the hook's session written; returns when they are, or a moment later."""
        if events:
            await self._soon(hook, self._write(hook, list(events), size, by))

    async def _soon(self, hook: Hook, work: Coroutine[Any, Any, None]) -> None:
        """Have `work` done; returns when it is, or after `HOOK_ANSWER_AFTER`. Raises what it was refused by then."""
        task = asyncio.ensure_future(self._kept(hook, work))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        await asyncio.wait([task], timeout=settings.HOOK_ANSWER_AFTER)
        if task.done() and (refusal := task.result()) is not None:
            if isinstance(refusal, Busy) and hook.sent_as is not None and hook.name not in self.dialect.calls:
                self._not_lost(hook)
            raise refusal

    def _not_lost(self, hook: Hook) -> None:
        """Take back that a hook is lost: whoever is told so sends it again."""
        left = self._lost.pop(hook.session, Counter()) - Counter([hook.name])
        if left:
            self._lost[hook.session] = left

    async def _kept(self, hook: Hook, work: Coroutine[Any, Any, None]) -> SignalboxError | None:
        """Do `work`, to the end; return why it failed, for whoever still waits."""
        try:
            await work
            return None
        except SignalboxError as problem:
            refusal = problem
            log.error("A hook %s of %s is lost: %s", hook.name, hook.session, problem.detail)
        except Exception:
            refusal = not_written()
            log.exception("A hook %s of %s is lost", hook.name, hook.session)
        self._lost.setdefault(hook.session, Counter())[hook.name] += 1
        return refusal

    async def _write(self, hook: Hook, events: list[NewEvent], size: int, by: KeyIdentity | None) -> None:
        """Write, first of all what was lost before. Raises Busy, and Invalid for what cannot be kept.

        What the runner tells that drives the agent is left to it.
        """
        heard = self._known.get((by, hook.session))
        if heard is not None and heard.session.driven:
            events = _untold(events)
        if not events:
            return
        lost = self._lost.pop(hook.session, None)
        if lost:
            events = [self.dialect.loss_of(hook, events[0].session_id, lost), *events]
        try:
            if await self._submit(events, size):
                return
            # The session was deleted under us: what its agent still does is heard all the same.
            self._known.pop((by, hook.session), None)
            named = heard.named if heard is not None else None
            where = SessionLocation(hook.folder, profile=self.dialect.name, by=by, driven=named)
            known = await self._heard(hook, where, timezone.now(), WRITE_WITHIN)
            events = _untold(events) if known.driven else events  # it was joined with its runner's
            for event in events:
                event.session_id = known.session_id
            if events:
                await self._submit(events, size)
        except BaseException:
            if lost:
                self._lost.setdefault(hook.session, Counter()).update(lost)
            raise

    async def perform(self, work: Callable[[], T], *, within: float = WRITE_WITHIN) -> T:
        """Have a small piece of work done with the next group of events; return what it returns. Raises Busy."""
        return await self._writer.perform(work, deadline=time.monotonic() + within)

    async def _submit(self, events: list[NewEvent], size: int) -> bool:
        """Write; return False where the session is gone. Raises Busy, and Invalid for what cannot be kept."""
        deadline = time.monotonic() + WRITE_WITHIN
        outcomes = await self._writer.submit(events, deadline=deadline, size=size)
        assert not isinstance(outcomes, bytes)
        problems = [outcome for outcome in outcomes if isinstance(outcome, SignalboxError)]
        if any(isinstance(problem, NotFound) for problem in problems):
            return False
        if problems:
            raise problems[0]
        return True

    async def _edited_call(self, result: NewEvent) -> str | None:
        """Return the id of the call whose input was edited here and whose result this is."""
        ids = self.dialect.name, result.session_id, result.tool_name or "", result.tool_input
        return await self.perform(functools.partial(tool_calls.edited_call, *ids))

    async def _events(self, hook: Hook, session_id: str, ruling: Ruling) -> list[NewEvent]:
        dialect, pieces = self.dialect, self.dialect.pieces
        piece = pieces.of(hook) if pieces else None
        if pieces and piece is not None:
            text = await self.perform(functools.partial(sessions.put_together, session_id, piece))
            return [pieces.whole(hook, session_id, piece.message_id, text)] if text else []
        events: list[NewEvent] = []
        if pieces and hook.name in dialect.turn_ends:
            left = await self.perform(functools.partial(sessions.leftovers, session_id))
            events += [pieces.whole(hook, session_id, name, text) for name, text in left.items() if text]
        events += dialect.events_of(hook, session_id)
        for event in events:
            if event.event_type == "post_tool" and event.tool_use_id is None:
                event.tool_use_id = await self._edited_call(event)
        if ruling.by and events:
            events[0].reason = f"{ruling.decision} ({ruling.by}): {ruling.reason}"
        return events


def _untold(events: list[NewEvent]) -> list[NewEvent]:
    """Return what the runner that drives the agent does not tell of it."""
    return [one for one in events if not is_told_by_runner(one.event_type, one.role)]
