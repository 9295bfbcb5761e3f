"""Recording of hooks: finds each hook's session and writes its events, also while the database is slow or away.

Hooks are not sent again. So a hook is written as soon as the database can, and its sender waits no longer than
`HOOK_ANSWER_AFTER`. A hook that could not be written within `WRITE_WITHIN`, or is refused, is logged, and becomes an
event in its session as soon as that can be written, so that the gap is visible.
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

from coordinator.actions.sessions import reported_sessions as sessions
from coordinator.actions.sessions import tool_calls
from coordinator.actions.usage import limits
from coordinator.client import transcript_lines
from coordinator.dialects.dialect_base import Dialect
from coordinator.dialects.hooks import AgentHook
from coordinator.edge.ingest.write_queue import (
    SLOW_TO_PREPARE,
    GroupWriter,
    MakeEvents,
    ReadBack,
    WriteJob,
    WriteResult,
    count_and_build_not_written_error,
)
from coordinator.errors import NotFound, QuotaReached, ServiceBusy, SignalboxError
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import instants
from coordinator.policy.rules.tool_rules import NO_OPINION, Ruling
from coordinator.sessions.events import DedupedEvent, NewEvent
from coordinator.sessions.reports import (
    MODEL_REQUEST,
    RecordedHookSession,
    SessionLocation,
    is_runner_reported_event_type,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST_KNOWN = 20_000  # sessions whose ids a process remembers
KNOWN_FOR = 60.0  # seconds without a hook after which it looks again: silence may have ended the session
WRITE_WITHIN = 30.0  # seconds for which a hook that is answered already may wait for the database


class CachedSession(NamedTuple):
    """A session, until when on the loop's clock that holds, and which one its hook says that a runner drives."""

    session: RecordedHookSession
    until: float
    named: str | None


class HookRecorder:
    """Writes what the hooks of one agent report. One an agent and process."""

    def __init__(self, writer: GroupWriter, dialect: Dialect) -> None:
        self._writer = writer
        self.dialect = dialect
        # By key, because a key finds only sessions that are open to it.
        self._known_sessions: dict[tuple[KeyIdentity | None, str], CachedSession] = {}
        # … and those that a hook has the writer find, until it has.
        self._finding: dict[tuple[KeyIdentity | None, str], asyncio.Future[None]] = {}
        self._writing: set[asyncio.Task[Any]] = set()
        self._lost: dict[str, Counter[str]] = {}  # hooks by name, by the agent's session id

    async def find_or_create_hook_session(
        self, hook: AgentHook, location: SessionLocation, *, within: float = WRITE_WITHIN
    ) -> RecordedHookSession:
        """Return our session for the hook's, one open to its key; made on its first hook. Raises ServiceBusy."""
        cached_session = self.get_cached_session(hook, location)
        if cached_session is None:
            cached_session = await self.run_hook_work_in_writer(
                functools.partial(reopen_or_create_hook_session, hook, location), within=within
            )
            self.cache_hook_session(hook, location, cached_session)
        return cached_session

    def get_cached_session(self, hook: AgentHook, location: SessionLocation) -> RecordedHookSession | None:
        """Return the session as an earlier hook found it; None where the database must be asked."""
        known_session = self._known_sessions.get((location.by, hook.session))
        remaining_seconds = (
            0.0 if known_session is None else known_session.until - asyncio.get_running_loop().time()
        )
        if known_session is None or remaining_seconds < 0:
            return None
        session = known_session.session
        # Whether a runner drives it is asked each time: its runner goes, and the agent is taken up in a terminal.
        if session.driven or location.driven or (location.hostname and not session.complete):
            return None
        if remaining_seconds < KNOWN_FOR / 2:
            self.cache_hook_session(hook, location, session)
        return session

    def cache_hook_session(
        self, hook: AgentHook, location: SessionLocation, known_session: RecordedHookSession
    ) -> None:
        key = location.by, hook.session
        if key not in self._known_sessions and len(self._known_sessions) >= MOST_KNOWN:
            self._known_sessions.clear()
        until = asyncio.get_running_loop().time() + min(KNOWN_FOR, settings.SESSION_SILENT_AFTER / 2)
        self._known_sessions[key] = CachedSession(known_session, until, location.driven)

    async def record_hook_events(
        self,
        hook: AgentHook,
        location: SessionLocation,
        size: int,
        ruling: Ruling = NO_OPINION,
        *,
        read_back: ReadBack | None = None,
    ) -> Any:
        """Have the hook written, with what policy says of it; returns when it is, or a moment later.

        Returns what `read_back` read after the commit, None where it is not written yet. Raises what it was refused for
        by then.
        """
        cached_session = self.get_cached_session(hook, location)
        events = (
            None
            if cached_session is None
            else self.build_hook_events_without_database(hook, cached_session, ruling)
        )
        if events is None:
            return await self.await_hook_write_result_briefly(
                hook,
                self.record_hook_needing_database(
                    hook, location, size, ruling, read_back=read_back, known_session=cached_session
                ),
            )
        if events and size < SLOW_TO_PREPARE and hook.session not in self._lost:
            return await self.enqueue_and_await_hook_write(hook, events, size, location.by, read_back)
        return await self.await_hook_write_result_briefly(
            hook, self.write_lost_hooks_and_events(hook, events, size, location.by, read_back)
        )

    async def enqueue_and_await_hook_write(
        self,
        hook: AgentHook,
        events: list[NewEvent],
        size: int,
        key: KeyIdentity | None,
        read_back: ReadBack | None,
    ) -> Any:
        """Write as `_soon` has it done, but without a task of its own where nothing goes wrong, for most hooks."""
        try:
            job = self._writer.enqueue_small_event_write(
                events, deadline=time.monotonic() + WRITE_WITHIN, size=size, read_back=read_back
            )
        except (ServiceBusy, QuotaReached):
            return await self.await_hook_write_result_briefly(
                hook, self.write_lost_hooks_and_events(hook, events, size, key, read_back)
            )
        is_answered = False
        try:
            is_answered = await self._writer.wait_and_check_job_answered(
                job, within=settings.HOOK_ANSWER_AFTER
            )
        finally:
            if not is_answered:  # or the waiting caller was cancelled
                self.start_hook_write(hook, self.wait_for_hook_write_job(hook, job, key))
        if not is_answered:
            return None
        if job.is_refused:
            return await self.await_hook_write_result_briefly(
                hook, self.wait_for_hook_write_job(hook, job, key)
            )
        return job.read_values

    async def wait_for_hook_write_job(self, hook: AgentHook, job: WriteJob, key: KeyIdentity | None) -> Any:
        """Wait for a job that was begun, as `_write` does."""
        try:
            return raise_for_refused_events(await self._writer.wait_for_write_result(job)).read_values
        except NotFound:
            return await self.recreate_session_and_write_events(hook, job.items, job.size, key, job.read_back)

    async def record_hook_needing_database(
        self,
        hook: AgentHook,
        location: SessionLocation,
        size: int,
        ruling: Ruling,
        *,
        read_back: ReadBack | None,
        known_session: RecordedHookSession | None,
    ) -> Any:
        """Write a hook whose session is not `known` yet, or whose events depend on what the database holds."""
        key = location.by, hook.session
        if known_session is None:
            if not location.driven and key in self._finding:
                # Once for all hooks that come meanwhile, and in their order.
                await asyncio.wait([self._finding[key]])
            known_session = self.get_cached_session(hook, location)
            if (
                known_session is not None
                and (events := self.build_hook_events_without_database(hook, known_session, ruling))
                is not None
            ):
                return await self.write_lost_hooks_and_events(hook, events, size, location.by, read_back)
        finding = asyncio.get_running_loop().create_future()
        if known_session is None:
            self._finding.setdefault(key, finding)
        try:
            return await self.ensure_session_and_write_hook(
                hook, location, size=size, ruling=ruling, known_session=known_session, read_back=read_back
            )
        finally:
            finding.set_result(None)
            if self._finding.get(key) is finding:
                del self._finding[key]

    def build_hook_events_without_database(
        self, hook: AgentHook, known_session: RecordedHookSession, ruling: Ruling
    ) -> list[NewEvent] | None:
        """Return the hook's events, None where what is written depends on what the database holds."""
        dialect = self.dialect
        if (
            hook.unread is not None
            or hook.name in dialect.beginnings
            or transcript_lines.FIELD in hook.fields
        ):
            return None
        if dialect.sends_pieces and (hook.name in dialect.turn_ends or dialect.extract_message_piece(hook)):
            return None
        events = self.build_events_from_hook_only(hook, known_session.session_id, ruling)
        return None if any(is_tool_result_without_call_id(event) for event in events) else events

    async def ensure_session_and_write_hook(
        self,
        hook: AgentHook,
        location: SessionLocation,
        *,
        size: int,
        ruling: Ruling,
        known_session: RecordedHookSession | None,
        read_back: ReadBack | None,
    ) -> Any:
        """Find the hook's session where it is not `known`, and write the hook's events, in one transaction."""
        with self.claim_lost_hooks_during_block(hook) as lost:
            make = functools.partial(self.ensure_session_and_build_events, hook, location, ruling, lost)
            try:
                written = await self.submit_hook_events(
                    size, make=functools.partial(make, known_session), read_back=read_back
                )
            except NotFound:
                # The session was deleted under us: what its agent still does is recorded all the same.
                self._known_sessions.pop((location.by, hook.session), None)
                written = await self.submit_hook_events(
                    size, make=functools.partial(make, None), read_back=read_back
                )
        self.cache_hook_session(hook, location, written.created)
        return written.read_values

    def ensure_session_and_build_events(
        self,
        hook: AgentHook,
        location: SessionLocation,
        ruling: Ruling,
        lost: Counter[str] | None,
        known_session: RecordedHookSession | None,
    ) -> tuple[RecordedHookSession, list[NewEvent]]:
        """Return the hook's session and its events. Called by the writing thread, in the transaction."""
        begins = hook.name in self.dialect.beginnings
        if known_session is None:
            known_session = reopen_or_create_hook_session(hook, location)
            begins = begins and not known_session.is_new
        if begins and not known_session.driven:
            sessions.reopen_ended_session(known_session.session_id, timezone.now())
        events = self.build_hook_events_using_database(hook, known_session, ruling)
        self.store_subscription_limits_of_hook(hook, location)
        if lost and events:
            events = [self.dialect.build_lost_hooks_event(hook, known_session.session_id, lost), *events]
        return known_session, events

    def store_subscription_limits_of_hook(self, hook: AgentHook, location: SessionLocation) -> None:
        """Keep the limits of a subscription that the hook brings along. Called by the writing thread."""
        now = timezone.now()
        line = self.dialect.find_hook_usage_limit_line(hook, now)
        at = instants.parse_instant_or_none(line.at) if line is not None else None
        if line is not None and at is not None:
            limits.record_subscription_limit_readings(
                self.dialect.name, location.hostname or "", line.limits, reported_at=at, now=now
            )

    async def write_hook_events(
        self, hook: AgentHook, events: Sequence[NewEvent], size: int, key: KeyIdentity | None = None
    ) -> None:
        """Have events of the hook's session written; returns when they are, or a moment later."""
        if events:
            await self.await_hook_write_result_briefly(
                hook, self.write_lost_hooks_and_events(hook, list(events), size, key)
            )

    def start_hook_write(
        self, hook: AgentHook, work: Coroutine[Any, Any, T]
    ) -> asyncio.Task[T | SignalboxError]:
        """Run `work` in a task that outlives its caller."""
        task = asyncio.create_task(self.run_hook_write_or_return_error(hook, work))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def await_hook_write_result_briefly(
        self, hook: AgentHook, work: Coroutine[Any, Any, T]
    ) -> T | None:
        """Have `work` done; return its result, or None after `HOOK_ANSWER_AFTER`. Raises what refused it by then."""
        task = self.start_hook_write(hook, work)
        await asyncio.wait([task], timeout=settings.HOOK_ANSWER_AFTER)
        if not task.done():
            return None
        result = task.result()
        if isinstance(result, SignalboxError):
            if (
                isinstance(result, ServiceBusy)
                and hook.sent_as is not None
                and hook.name not in self.dialect.calls
            ):
                self.unmark_lost_hook(hook)
            raise result
        return result

    def unmark_lost_hook(self, hook: AgentHook) -> None:
        """Remove the mark that a hook is lost: its sender is notified and sends it again."""
        remaining_losses = self._lost.pop(hook.session, Counter()) - Counter([hook.name])
        if remaining_losses:
            self._lost[hook.session] = remaining_losses

    async def run_hook_write_or_return_error(
        self, hook: AgentHook, work: Coroutine[Any, Any, T]
    ) -> T | SignalboxError:
        """Do `work`, to the end; return its result or why it failed, for a caller that still waits."""
        try:
            return await work
        except SignalboxError as problem:
            refusal = problem
            log.error("A hook %s of %s is lost: %s", hook.name, hook.session, problem.detail)
        except Exception:
            refusal = count_and_build_not_written_error()
            log.exception("A hook %s of %s is lost", hook.name, hook.session)
        self._lost.setdefault(hook.session, Counter())[hook.name] += 1
        return refusal

    async def write_lost_hooks_and_events(
        self,
        hook: AgentHook,
        events: list[NewEvent],
        size: int,
        key: KeyIdentity | None,
        read_back: ReadBack | None = None,
    ) -> Any:
        """Write, first of all what was lost before; return what `read_back` saw. Raises ServiceBusy, and Invalid.

        Events that are reported by the runner that drives the agent are left to it.
        """
        known_session = self._known_sessions.get((key, hook.session))
        if known_session is not None and known_session.session.driven:
            events = drop_events_reported_by_runner(events)
        if not events:
            return None
        with self.claim_lost_hooks_during_block(hook) as lost:
            if lost:
                events = [self.dialect.build_lost_hooks_event(hook, events[0].session_id, lost), *events]
            try:
                return (await self.submit_hook_events(size, events, read_back=read_back)).read_values
            except NotFound:
                return await self.recreate_session_and_write_events(hook, events, size, key, read_back)

    async def recreate_session_and_write_events(
        self,
        hook: AgentHook,
        events: list[NewEvent],
        size: int,
        key: KeyIdentity | None,
        read_back: ReadBack | None,
    ) -> Any:
        """Write the events whose session was deleted meanwhile: what its agent still does is recorded."""
        known_session = self._known_sessions.pop((key, hook.session), None)
        named_session = known_session.named if known_session is not None else None
        where = SessionLocation(hook.working_folder, profile=self.dialect.name, by=key, driven=named_session)
        hook_session = await self.find_or_create_hook_session(hook, where)
        events = (
            drop_events_reported_by_runner(events) if hook_session.driven else events
        )  # it was joined with its runner's
        for event in events:
            event.session_id = hook_session.session_id
        return (
            (await self.submit_hook_events(size, events, read_back=read_back)).read_values if events else None
        )

    @contextlib.contextmanager
    def claim_lost_hooks_during_block(self, hook: AgentHook) -> Iterator[Counter[str] | None]:
        """Give the hooks of the session that were lost, to be written now; what fails keeps them for later."""
        lost = self._lost.pop(hook.session, None)
        try:
            yield lost
        except BaseException:
            if lost:
                self._lost.setdefault(hook.session, Counter()).update(lost)
            raise

    async def run_hook_work_in_writer(self, work: Callable[[], T], *, within: float = WRITE_WITHIN) -> T:
        """Have a small piece of work done with the next group of events; return what it returns. Raises ServiceBusy."""
        return await self._writer.perform_in_transaction(work, deadline=time.monotonic() + within)

    async def submit_hook_events(
        self,
        size: int,
        events: Sequence[NewEvent] = (),
        *,
        make: MakeEvents | None = None,
        read_back: ReadBack | None = None,
    ) -> WriteResult:
        """Write. Raises NotFound where the session is gone, ServiceBusy, and Invalid for what cannot be kept."""
        deadline = time.monotonic() + WRITE_WITHIN
        return raise_for_refused_events(
            await self._writer.write_and_read_back(
                events, deadline=deadline, size=size, make=make, read_back=read_back
            )
        )

    def build_hook_events_using_database(
        self, hook: AgentHook, known_session: RecordedHookSession, ruling: Ruling
    ) -> list[NewEvent]:
        """Return the hook's events, with what the database holds of its session. Called by the writing thread."""
        dialect, session_id = self.dialect, known_session.session_id
        if hook.unread is not None:
            return [*dialect.build_unreadable_hook_events(hook, session_id)]
        piece = dialect.extract_message_piece(hook)
        if known_session.driven:
            return (
                []
                if piece is not None
                else drop_events_reported_by_runner(
                    [*dialect.build_hook_and_transcript_events(hook, session_id)]
                )
            )
        if piece is not None:
            text = sessions.store_piece_or_pop_message(session_id, piece)
            return (
                [dialect.build_complete_message_event(hook, session_id, piece.message_id, text)]
                if text
                else []
            )
        unfinished: list[NewEvent] = []
        if dialect.sends_pieces and hook.name in dialect.turn_ends:
            unfinished = [
                dialect.build_complete_message_event(hook, session_id, name, text)
                for name, text in sessions.pop_unfinished_messages(session_id).items()
                if text
            ]
        events = self.build_events_from_hook_only(hook, session_id, ruling)
        for event in filter(is_tool_result_without_call_id, events):
            ids = self.dialect.name, session_id, event.tool_name or "", event.tool_input
            event.tool_use_id = tool_calls.find_edited_input_call_id(*ids)
        if any(map(is_transcript_model_request, events)) and sessions.has_telemetry_tokens(session_id):
            events = [event for event in events if not is_transcript_model_request(event)]
        return [*unfinished, *events]

    def build_events_from_hook_only(self, hook: AgentHook, session_id: str, ruling: Ruling) -> list[NewEvent]:
        """Return the hook's events as far as they follow from the hook alone."""
        events: list[NewEvent] = [*self.dialect.build_hook_and_transcript_events(hook, session_id)]
        if ruling.by and events:
            events[0].reason = f"{ruling.decision} ({ruling.by}): {ruling.reason}"
        return events


def raise_for_refused_events(written: WriteResult) -> WriteResult:
    """Return what became of events. Raises the refusal of any of them, that of a session that is gone first."""
    problems = [outcome for outcome in written.outcomes if isinstance(outcome, SignalboxError)]
    if problems:
        raise next((problem for problem in problems if isinstance(problem, NotFound)), problems[0])
    return written


def reopen_or_create_hook_session(hook: AgentHook, location: SessionLocation) -> RecordedHookSession:
    """Return our session for the hook's, which speaks just now."""
    at = instants.parse_instant_or_none(hook.at) or timezone.now()
    return sessions.reopen_or_create_session(hook.session, location, at)


def is_transcript_model_request(event: NewEvent) -> bool:
    """Return whether it is a request to the model from a transcript, which telemetry may have reported, too."""
    return isinstance(event, DedupedEvent) and event.late and event.event_type == MODEL_REQUEST


def is_tool_result_without_call_id(event: NewEvent) -> bool:
    """Say whether it is a result without its call's id: a person may have edited the call's input here."""
    return event.event_type == "post_tool" and event.tool_use_id is None


def drop_events_reported_by_runner(events: list[NewEvent]) -> list[NewEvent]:
    """Return the events that the runner that drives the agent does not report."""
    return [event for event in events if not is_runner_reported_event_type(event.event_type, event.role)]
