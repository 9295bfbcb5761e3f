"""Writes what hooks tell: finds each hook's session, and has its events written, whatever the database is at.

Hooks are not sent again. So what came in is written as soon as the database can, and who posted it waits no longer
than `HOOK_ANSWER_AFTER`. What could not be written within `WRITE_WITHIN`, or is refused, is a line in the log, and an
event in its session as soon as that can be written: a gap is seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from django.conf import settings
from django.utils import timezone

from coordinator.actions import reported_sessions as sessions
from coordinator.actions import tool_calls
from coordinator.client import transcript_lines
from coordinator.dialects.contract import Dialect
from coordinator.dialects.hooks import Hook
from coordinator.edge.writer import (
    SLOW_TO_PREPARE,
    GroupWriter,
    Look,
    MakeEvents,
    WriteJob,
    Written,
    not_written,
)
from coordinator.errors import Busy, NotFound, QuotaReached, SignalboxError
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import instants
from coordinator.policy.tool_rules import NO_OPINION, Ruling
from coordinator.sessions.events import DedupedEvent, NewEvent
from coordinator.sessions.reports import MODEL_REQUEST, KnownSession, SessionLocation, is_told_by_runner

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
        # … and those that a hook has the writer find, until it has.
        self._finding: dict[tuple[KeyIdentity | None, str], asyncio.Future[None]] = {}
        self._writing: set[asyncio.Task[Any]] = set()
        self._lost: dict[str, Counter[str]] = {}  # hooks by name, by the agent's session id

    async def session_of(
        self, hook: Hook, where: SessionLocation, *, within: float = WRITE_WITHIN
    ) -> KnownSession:
        """Return our session for the hook's, one open to its key; made on its first hook. Raises Busy."""
        known = self._remembered(hook, where)
        if known is None:
            known = await self.perform(functools.partial(_heard, hook, where), within=within)
            self._remember(hook, where, known)
        return known

    def _remembered(self, hook: Hook, where: SessionLocation) -> KnownSession | None:
        """Return the session as an earlier hook found it; None where the database must be asked."""
        heard = self._known.get((where.by, hook.session))
        left = 0.0 if heard is None else heard.until - asyncio.get_running_loop().time()
        if heard is None or left < 0:
            return None
        known = heard.session
        # Whether a runner drives it is asked each time: its runner goes, and the agent is taken up in a terminal.
        if known.driven or where.driven or (where.hostname and not known.complete):
            return None
        if left < KNOWN_FOR / 2:
            self._remember(hook, where, known)
        return known

    def _remember(self, hook: Hook, where: SessionLocation, known: KnownSession) -> None:
        key = where.by, hook.session
        if key not in self._known and len(self._known) >= MOST_KNOWN:
            self._known.clear()
        until = asyncio.get_running_loop().time() + min(KNOWN_FOR, settings.SESSION_SILENT_AFTER / 2)
        self._known[key] = _Known(known, until, where.driven)

    async def observe(
        self,
        hook: Hook,
        where: SessionLocation,
        size: int,
        ruling: Ruling = NO_OPINION,
        *,
        look: Look | None = None,
    ) -> Any:
        """Have the hook written, with what policy says of it; returns when it is, or a moment later.

        Returns what `look` read after the commit, None where it is not written yet. Raises what it was refused for
        by then.
        """
        known = self._remembered(hook, where)
        events = None if known is None else self._own_events(hook, known, ruling)
        if events is None:
            return await self._soon(hook, self._observed(hook, where, size, ruling, look=look, known=known))
        if events and size < SLOW_TO_PREPARE and hook.session not in self._lost:
            return await self._write_now(hook, events, size, where.by, look)
        return await self._soon(hook, self._write(hook, events, size, where.by, look))

    async def _write_now(
        self, hook: Hook, events: list[NewEvent], size: int, by: KeyIdentity | None, look: Look | None
    ) -> Any:
        """Write as `_soon` has it done, but without a task of its own where nothing goes wrong, for most hooks."""
        try:
            job = self._writer.begin(events, deadline=time.monotonic() + WRITE_WITHIN, size=size, look=look)
        except (Busy, QuotaReached):
            return await self._soon(hook, self._write(hook, events, size, by, look))
        is_answered = False
        try:
            is_answered = await self._writer.is_answered(job, within=settings.HOOK_ANSWER_AFTER)
        finally:
            if not is_answered:  # or whoever waited was called off
                self._start(hook, self._go_on(hook, job, by))
        if not is_answered:
            return None
        if job.is_refused:
            return await self._soon(hook, self._go_on(hook, job, by))
        return job.seen

    async def _go_on(self, hook: Hook, job: WriteJob, by: KeyIdentity | None) -> Any:
        """Wait for a job that was begun, as `_write` does."""
        try:
            return _checked(await self._writer.written(job)).seen
        except NotFound:
            return await self._write_anew(hook, job.items, job.size, by, job.look)

    async def _observed(
        self,
        hook: Hook,
        where: SessionLocation,
        size: int,
        ruling: Ruling,
        *,
        look: Look | None,
        known: KnownSession | None,
    ) -> Any:
        """Write a hook whose session is not `known` yet, or whose events depend on what the database holds."""
        key = where.by, hook.session
        if known is None:
            if not where.driven and key in self._finding:
                # Once for all hooks that come meanwhile, and in their order.
                await asyncio.wait([self._finding[key]])
            known = self._remembered(hook, where)
            if known is not None and (events := self._own_events(hook, known, ruling)) is not None:
                return await self._write(hook, events, size, where.by, look)
        finding = asyncio.get_running_loop().create_future()
        if known is None:
            self._finding.setdefault(key, finding)
        try:
            return await self._found_and_written(
                hook, where, size=size, ruling=ruling, known=known, look=look
            )
        finally:
            finding.set_result(None)
            if self._finding.get(key) is finding:
                del self._finding[key]

    def _own_events(self, hook: Hook, known: KnownSession, ruling: Ruling) -> list[NewEvent] | None:
        """Return the hook's events, None where what is written depends on what the database holds."""
        if self._depends(hook):
            return None
        events = self._plain_events(hook, known.session_id, ruling)
        return None if any(_lacks_its_call(event) for event in events) else events

    def _depends(self, hook: Hook) -> bool:
        """Say whether what is written for the hook depends on what the database holds of its session."""
        pieces = self.dialect.pieces
        if hook.name in self.dialect.beginnings or transcript_lines.FIELD in hook.fields:
            return True
        return pieces is not None and (hook.name in self.dialect.turn_ends or pieces.of(hook) is not None)

    async def _found_and_written(
        self,
        hook: Hook,
        where: SessionLocation,
        *,
        size: int,
        ruling: Ruling,
        known: KnownSession | None,
        look: Look | None,
    ) -> Any:
        """Find the hook's session where it is not `known`, and write the hook's events, in one transaction."""
        with self._lost_before(hook) as lost:
            make = functools.partial(self._made, hook, where, ruling, lost)
            try:
                written = await self._record(size, make=functools.partial(make, known), look=look)
            except NotFound:
                # The session was deleted under us: what its agent still does is heard all the same.
                self._known.pop((where.by, hook.session), None)
                written = await self._record(size, make=functools.partial(make, None), look=look)
        self._remember(hook, where, written.made)
        return written.seen

    def _made(
        self,
        hook: Hook,
        where: SessionLocation,
        ruling: Ruling,
        lost: Counter[str] | None,
        known: KnownSession | None,
    ) -> tuple[KnownSession, list[NewEvent]]:
        """Return the hook's session and its events. Called by the writing thread, in the transaction."""
        begins = hook.name in self.dialect.beginnings
        if known is None:
            known = _heard(hook, where)
            begins = begins and not known.is_new
        if begins and not known.driven:
            sessions.take_up(known.session_id, timezone.now())
        events = self._events(hook, known, ruling)
        if lost and events:
            events = [self.dialect.loss_of(hook, known.session_id, lost), *events]
        return known, events

    async def write(
        self, hook: Hook, events: Sequence[NewEvent], size: int, by: KeyIdentity | None = None
    ) -> None:
        """Have events of the hook's session written; returns when they are, or a moment later."""
        if events:
            await self._soon(hook, self._write(hook, list(events), size, by))

    def _start(self, hook: Hook, work: Coroutine[Any, Any, T]) -> asyncio.Task[T | SignalboxError]:
        """Have `work` done, whoever waits for it."""
        task = asyncio.create_task(self._kept(hook, work))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def _soon(self, hook: Hook, work: Coroutine[Any, Any, T]) -> T | None:
        """Have `work` done; return its result, or None after `HOOK_ANSWER_AFTER`. Raises what refused it by then."""
        task = self._start(hook, work)
        await asyncio.wait([task], timeout=settings.HOOK_ANSWER_AFTER)
        if not task.done():
            return None
        result = task.result()
        if isinstance(result, SignalboxError):
            if isinstance(result, Busy) and hook.sent_as is not None and hook.name not in self.dialect.calls:
                self._not_lost(hook)
            raise result
        return result

    def _not_lost(self, hook: Hook) -> None:
        """Take back that a hook is lost: whoever is told so sends it again."""
        left = self._lost.pop(hook.session, Counter()) - Counter([hook.name])
        if left:
            self._lost[hook.session] = left

    async def _kept(self, hook: Hook, work: Coroutine[Any, Any, T]) -> T | SignalboxError:
        """Do `work`, to the end; return its result or why it failed, for whoever still waits."""
        try:
            return await work
        except SignalboxError as problem:
            refusal = problem
            log.error("A hook %s of %s is lost: %s", hook.name, hook.session, problem.detail)
        except Exception:
            refusal = not_written()
            log.exception("A hook %s of %s is lost", hook.name, hook.session)
        self._lost.setdefault(hook.session, Counter())[hook.name] += 1
        return refusal

    async def _write(
        self,
        hook: Hook,
        events: list[NewEvent],
        size: int,
        by: KeyIdentity | None,
        look: Look | None = None,
    ) -> Any:
        """Write, first of all what was lost before; return what `look` saw. Raises Busy, and Invalid.

        What the runner tells that drives the agent is left to it.
        """
        heard = self._known.get((by, hook.session))
        if heard is not None and heard.session.driven:
            events = _untold(events)
        if not events:
            return None
        with self._lost_before(hook) as lost:
            if lost:
                events = [self.dialect.loss_of(hook, events[0].session_id, lost), *events]
            try:
                return (await self._record(size, events, look=look)).seen
            except NotFound:
                return await self._write_anew(hook, events, size, by, look)

    async def _write_anew(
        self, hook: Hook, events: list[NewEvent], size: int, by: KeyIdentity | None, look: Look | None
    ) -> Any:
        """Write what the session was deleted under: what its agent still does is heard all the same."""
        heard = self._known.pop((by, hook.session), None)
        named = heard.named if heard is not None else None
        where = SessionLocation(hook.folder, profile=self.dialect.name, by=by, driven=named)
        known = await self.session_of(hook, where)
        events = _untold(events) if known.driven else events  # it was joined with its runner's
        for event in events:
            event.session_id = known.session_id
        return (await self._record(size, events, look=look)).seen if events else None

    @contextlib.contextmanager
    def _lost_before(self, hook: Hook) -> Iterator[Counter[str] | None]:
        """Give the hooks of the session that were lost, to be written now; what fails keeps them for later."""
        lost = self._lost.pop(hook.session, None)
        try:
            yield lost
        except BaseException:
            if lost:
                self._lost.setdefault(hook.session, Counter()).update(lost)
            raise

    async def perform(self, work: Callable[[], T], *, within: float = WRITE_WITHIN) -> T:
        """Have a small piece of work done with the next group of events; return what it returns. Raises Busy."""
        return await self._writer.perform(work, deadline=time.monotonic() + within)

    async def _record(
        self,
        size: int,
        events: Sequence[NewEvent] = (),
        *,
        make: MakeEvents | None = None,
        look: Look | None = None,
    ) -> Written:
        """Write. Raises NotFound where the session is gone, Busy, and Invalid for what cannot be kept."""
        deadline = time.monotonic() + WRITE_WITHIN
        return _checked(await self._writer.record(events, deadline=deadline, size=size, make=make, look=look))

    def _events(self, hook: Hook, known: KnownSession, ruling: Ruling) -> list[NewEvent]:
        """Return the hook's events, with what the database holds of its session. Called by the writing thread."""
        pieces, session_id = self.dialect.pieces, known.session_id
        if hook.unread is not None:
            return [*self.dialect.unread_of(hook, session_id)]
        piece = pieces.of(hook) if pieces else None
        if known.driven:
            return [] if piece is not None else _untold([*self.dialect.events_of(hook, session_id)])
        if pieces and piece is not None:
            text = sessions.put_together(session_id, piece)
            return [pieces.whole(hook, session_id, piece.message_id, text)] if text else []
        unfinished: list[NewEvent] = []
        if pieces and hook.name in self.dialect.turn_ends:
            left = sessions.leftovers(session_id)
            unfinished = [pieces.whole(hook, session_id, name, text) for name, text in left.items() if text]
        events = self._plain_events(hook, session_id, ruling)
        for event in filter(_lacks_its_call, events):
            ids = self.dialect.name, session_id, event.tool_name or "", event.tool_input
            event.tool_use_id = tool_calls.edited_call(*ids)
        if any(map(_is_read_request, events)) and sessions.has_telemetry_tokens(session_id):
            events = [event for event in events if not _is_read_request(event)]
        return [*unfinished, *events]

    def _plain_events(self, hook: Hook, session_id: str, ruling: Ruling) -> list[NewEvent]:
        """Return the hook's events as far as the hook alone tells them."""
        events: list[NewEvent] = [*self.dialect.events_of(hook, session_id)]
        if ruling.by and events:
            events[0].reason = f"{ruling.decision} ({ruling.by}): {ruling.reason}"
        return events


def _checked(written: Written) -> Written:
    """Return what became of events. Raises the refusal of any of them, that of a session that is gone first."""
    problems = [outcome for outcome in written.outcomes if isinstance(outcome, SignalboxError)]
    if problems:
        raise next((one for one in problems if isinstance(one, NotFound)), problems[0])
    return written


def _heard(hook: Hook, where: SessionLocation) -> KnownSession:
    """Return our session for the hook's, which speaks just now."""
    at = instants.parse(hook.at) or timezone.now()
    return sessions.active_session_for(hook.session, where, at)


def _is_read_request(event: NewEvent) -> bool:
    """Say whether it is a request to the model as a transcript tells it, which telemetry may have told, too."""
    return isinstance(event, DedupedEvent) and event.late and event.event_type == MODEL_REQUEST


def _lacks_its_call(event: NewEvent) -> bool:
    """Say whether it is a result without its call's id: a person may have edited the call's input here."""
    return event.event_type == "post_tool" and event.tool_use_id is None


def _untold(events: list[NewEvent]) -> list[NewEvent]:
    """Return what the runner that drives the agent does not tell of it."""
    return [one for one in events if not is_told_by_runner(one.event_type, one.role)]
