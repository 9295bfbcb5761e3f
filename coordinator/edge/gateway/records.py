"""Timeline events of calls through the gateway: begin, end, who decided, and the server's response time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from django.utils import timezone

from coordinator.actions.mcp import gateway_timelines
from coordinator.actions.mcp.gateway_timelines import ReportedCall, TimelineSession
from coordinator.edge.gateway.counters import CallCounters
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.errors import SignalboxError, UnprocessableRequest
from coordinator.lib import instants
from coordinator.lib import process_metrics as meters
from coordinator.lib.expiring_cache import ExpiringCache
from coordinator.lib.fair_queue import CALLER
from coordinator.mcp.gateway.binding import qualified_method_name, qualified_tool_name
from coordinator.mcp.gateway.outputs import build_timeline_output_and_error
from coordinator.mcp.protocol.agent_call_ids import NO_CLAIM
from coordinator.mcp.servers.names import unwrap_gateway_call_or_none
from coordinator.models.gateway import BY_GATEWAY
from coordinator.sessions.events import DedupedEvent, NewEvent, RecordedEvent
from coordinator.sessions.reports import call_start_deduplication_origin

log = logging.getLogger(__name__)

T = TypeVar("T")

WRITE_WITHIN = 30.0
KNOWN_FOR = 60.0  # seconds for which a session is taken for the one that it was
MOST_KNOWN = 20_000
BEGUN_AFTER = 0.25  # seconds after which a call that still runs is written as begun
# Seconds for which ended calls wait to be written together: a transaction costs more than a call.
GATHER_FOR = 0.03
# Calls of one caller that wait, and bytes of their answers.
MOST_GATHERED, MOST_GATHERED_BYTES = 200, 256 * 1024
CLOSE_WITHIN = 2.0  # seconds in which a server that stops writes what has ended
CALLS = meters.Counter("signalbox_mcp_calls", "Calls through the MCP gateway", ("server", "tool", "outcome"))
UPSTREAM = meters.Histogram(
    "signalbox_mcp_upstream_seconds",
    "Seconds that servers took for calls",
    meters.SECONDS,
    ("server", "tool"),
)
OWN = meters.Histogram(
    "signalbox_mcp_gateway_seconds",
    "Seconds that the gateway itself took for calls",
    meters.SECONDS,
    ("server",),
)


@dataclass(slots=True)
class CallRecord:
    """One call on its way. Times in seconds; `began` is on time.perf_counter's clock.

    `reported_call` is the same call as its agent reported it, if it did: then that is its
    beginning, and the end carries its id.
    `is_read`: it is no tool call but another request, whose method is in `tool`.
    `claimed` is the id that its agent's program says it has there. `marks` are those of its result
    (mcp.gateway.injection_signs). `cached_seconds` is how old the result is where the cache answered.
    `resumed`: how often its server was asked for the rest of an answer. `goes_on` says that it was begun with an
    earlier request, `is_over` that it has ended, or goes on with another one.
    """

    call_id: str
    server_id: str
    tool: str
    arguments: Any
    session_id: str
    at: str
    began: float
    is_known: bool
    decided_by: str = ""
    waited: float = 0.0
    upstream: float = 0.0
    resumed: int = 0
    event_id: int | None = None
    is_begun: bool = False
    is_over: bool = False
    goes_on: bool = False
    is_read: bool = False
    claimed: str = ""
    marks: tuple[str, ...] = ()
    cached_seconds: int | None = None
    reported_call: ReportedCall | None = None
    beginning: asyncio.Task[None] | None = field(default=None, repr=False)
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    @contextlib.contextmanager
    def record_server_time_during_block(self, exchange: Exchange) -> Iterator[None]:
        """Take in how long the server has the call, and how often it is asked for the rest of the answer."""
        started_at = time.perf_counter()
        try:
            yield
        finally:
            if self.cached_seconds is None:
                self.upstream += time.perf_counter() - started_at
            self.resumed = exchange.resumed

    @property
    def timeline_call_id(self) -> str:
        """Return the id of the call in its timeline."""
        return self.reported_call.call_id if self.reported_call else self.call_id

    @property
    def timeline_tool_name(self) -> str:
        """Return the name of its tool there: as its agent calls it, where that can mean nothing else."""
        if self.is_read:
            return qualified_method_name(self.server_id, self.tool)
        own, reported_tool = (
            qualified_tool_name(self.server_id, self.tool),
            self.reported_call.tool_name if self.reported_call else "",
        )
        return reported_tool if own in {reported_tool, unwrap_gateway_call_or_none(reported_tool)} else own


@dataclass(slots=True)
class EndedCallBatch:
    """The events of one caller's calls that have ended, each call's together. `size` in bytes of answers."""

    timer: asyncio.TimerHandle
    calls: list[list[NewEvent]] = field(default_factory=list)
    size: int = 0


class CallRecords:
    """Writes calls into timelines. One a process."""

    def __init__(self, writer: GroupWriter) -> None:
        self._writer = writer
        self._counters = CallCounters(writer)
        self._known_sessions: ExpiringCache[tuple[str, str, str, str], TimelineSession] = ExpiringCache(
            KNOWN_FOR, MOST_KNOWN
        )
        self._of_agents: set[str] = set()  # sessions in which agents report their own calls
        self._created_sessions: set[str] = (
            set()
        )  # clients' connections for which sessions were made, by `own` below
        self._writing: set[asyncio.Task[Any]] = set()
        self._gathered: dict[str, EndedCallBatch] = {}

    async def get_or_create_timeline_session_id(self, exchange: Exchange) -> str:
        """Return the session in whose timeline the caller's calls are recorded. Raises Busy."""
        own = (
            exchange.client.session_id
            if exchange.client
            else f"{exchange.caller_key.id}:{timezone.now():%Y-%m-%d}"
        )
        claim = NO_CLAIM if exchange.named_session or exchange.caller_key.session_id else exchange.claim
        session_key = (exchange.agent_id, own, exchange.named_session or "", claim.session or claim.call_id)
        now = asyncio.get_running_loop().time()
        known_session = self._known_sessions.get(session_key, now)
        if known_session is None:
            session_for = functools.partial(gateway_timelines.reopen_or_create_timeline_session, claim=claim)
            find = functools.partial(
                session_for,
                own,
                exchange.named_session,
                exchange.agent_id,
                exchange.caller_key,
                timezone.now(),
            )
            known_session = await self._writer.perform_in_transaction(find, deadline=time.monotonic() + 5.0)
            if known_session.is_agents or not claim.session:  # its hooks may make it any moment
                self._known_sessions.put(session_key, known_session, now)
            await self.end_provisional_session_if_superseded(own, known_session)
        if known_session.is_agents:
            if len(self._of_agents) >= MOST_KNOWN:
                self._of_agents.clear()
            self._of_agents.add(known_session.session_id)
        exchange.takes_notes = known_session.is_certain
        return known_session.session_id

    def is_session_reported_by_hooks(self, session_id: str) -> bool:
        """Say whether an agent's own hooks report the calls of the session."""
        return session_id in self._of_agents

    async def end_provisional_session_if_superseded(
        self, own: str, timeline_session: TimelineSession
    ) -> None:
        """End the session that was made for a client's connection before its agent's own was there. Raises Busy."""
        if not timeline_session.is_agents:
            if len(self._created_sessions) >= MOST_KNOWN:
                self._created_sessions.clear()
            self._created_sessions.add(own)
        elif own in self._created_sessions:
            self._created_sessions.discard(own)
            await self.run_in_event_writer_transaction(
                functools.partial(gateway_timelines.end_connection_session, own, timezone.now())
            )

    def create_record_and_schedule_write(
        self, exchange: Exchange, call_id: str, session_id: str, tool: str, arguments: Any
    ) -> CallRecord:
        """Note that a call begins; it is written when it takes a moment, or ends."""
        is_known_tool = tool in exchange.server.tools
        at = instants.format_canonical_instant(timezone.now())
        record = CallRecord(
            call_id, exchange.server.name, tool, arguments, session_id, at, exchange.started, is_known_tool
        )
        record.claimed = exchange.claim.call_id
        record.timer = asyncio.get_running_loop().call_later(
            BEGUN_AFTER, self.schedule_call_begin_write, record
        )
        return record

    def begin_non_tool_request_record(
        self, exchange: Exchange, session_id: str, method: str, params: Any
    ) -> CallRecord:
        """Note that a request other than a call begins, as `begin` does."""
        record = self.create_record_and_schedule_write(
            exchange, f"sbx-{uuid.uuid4().hex}", session_id, method, params
        )
        record.is_read = record.is_known = True
        return record

    def resume_call_record(
        self, exchange: Exchange, call_id: str, session_id: str, tool: str, *, is_known: bool = True
    ) -> CallRecord:
        """Return the record of a call that was begun, and left open, with an earlier request."""
        at = instants.format_canonical_instant(timezone.now())
        arguments = exchange.message.params.get("arguments")
        record = CallRecord(
            call_id, exchange.server.name, tool, arguments, session_id, at, exchange.started, is_known
        )
        record.is_begun = record.goes_on = True
        return record

    def restart_record_as_separate_call(self, record: CallRecord, call_id: str) -> None:
        """Make it the record of a call of its own, which begins now: the one that it was taken up for has run."""
        record.call_id, record.at = call_id, instants.format_canonical_instant(timezone.now())
        record.is_begun = record.goes_on = False
        record.timer = asyncio.get_running_loop().call_later(
            BEGUN_AFTER, self.schedule_call_begin_write, record
        )

    def schedule_call_begin_write(self, record: CallRecord) -> None:
        record.beginning = self.run_write_in_background(self.write_call_begin_event(record))

    async def write_call_begin_returning_id(self, record: CallRecord) -> int | None:
        """Have the call's beginning written now; return the id of its event. Raises Busy."""
        if record.timer is not None:
            record.timer.cancel()
        await self.write_call_begin_event(record)
        return record.event_id

    async def write_call_begin_event(self, record: CallRecord) -> None:
        if record.is_begun:
            return
        record.is_begun = True
        record.reported_call = await self.claim_hook_reported_call(record)
        if record.reported_call is not None and record.reported_call.event_id is not None:
            record.event_id = record.reported_call.event_id
            return
        outcomes = await self.submit_call_events([self.build_gateway_call_begin_event(record)])
        first = outcomes[0] if outcomes else None
        record.event_id = first.event_id if isinstance(first, RecordedEvent) else None

    async def claim_hook_reported_call(self, record: CallRecord) -> ReportedCall | None:
        """Return the same call as its agent reported it. Raises Busy."""
        find: Callable[..., ReportedCall | None]
        if record.goes_on:
            find = functools.partial(gateway_timelines.find_claimed_call, record.session_id, record.tool)
        elif record.session_id in self._of_agents:
            claim_call = functools.partial(gateway_timelines.claim_reported_call, claimed=record.claimed)
            about = (record.session_id, record.server_id, record.tool, record.arguments)
            find = functools.partial(claim_call, *about)
        else:
            return None
        return await self.run_in_event_writer_transaction(
            functools.partial(find, as_call=record.call_id, now=timezone.now())
        )

    def build_gateway_call_begin_event(self, record: CallRecord) -> NewEvent:
        arguments = record.arguments if isinstance(record.arguments, dict) else {}
        values: dict[str, Any] = {
            "event_type": "pre_tool",
            "session_id": record.session_id,
            "timestamp": record.at,
            "tool_name": record.timeline_tool_name,
            "tool_input": arguments,
            "tool_use_id": record.timeline_call_id,
            "reason": record.decided_by or None,
            "source": BY_GATEWAY,
        }
        if record.reported_call is None:
            return NewEvent(**values)
        begins = (
            call_start_deduplication_origin(record.timeline_call_id, arguments),
        )  # which its agent's hook may report any moment
        own = f"gateway:{record.call_id}:begin"
        return DedupedEvent(**values, origin=own, claims=begins, unless=begins)

    async def flush_call_records(self) -> None:
        """Write what was counted or has ended, and is not written yet."""
        for caller in list(self._gathered):
            self.write_batch_of_ended_calls(caller)
        if self._writing:
            await asyncio.wait(self._writing, timeout=CLOSE_WITHIN)
        await self._counters.write_counters()

    async def run_in_event_writer_transaction(self, work: Callable[[], T]) -> T:
        """Have a small piece of work done with the next group of events. Raises Busy."""
        return await self._writer.perform_in_transaction(work, deadline=time.monotonic() + 5.0)

    def release_record_without_ending_call(self, record: CallRecord) -> None:
        """Leave a call open that goes on with another request of its client."""
        record.is_over = True
        if record.timer is not None:
            record.timer.cancel()
        CALLS.add(record.server_id, record.tool if record.is_known else "?", "held")

    def record_refused_retry(self, record: CallRecord, response: bytes) -> None:
        """Note a refusal of what came with the state of another call: that one stays open, its own try may come."""
        if record.goes_on:
            self.release_record_without_ending_call(record)
        else:
            self.end_call_record(record, "held", response)

    def end_call_record(
        self, record: CallRecord, outcome: str, response: bytes | None, error: str | None = None
    ) -> None:
        """Note how a call ended: `outcome` is ok, error, denied, held or failed. Returns at once."""
        record.is_over = True
        total = time.perf_counter() - record.began
        own = max(0.0, total - record.upstream - record.waited)
        tool = record.tool if record.is_known else "?"
        CALLS.add(record.server_id, tool, outcome)
        OWN.observe(own, record.server_id)
        upstream_ms = record.upstream * 1000 if record.upstream else None
        self._counters.count_call(record.server_id, tool, outcome, upstream_ms=upstream_ms, own_ms=own * 1000)
        if record.upstream:
            UPSTREAM.observe(record.upstream, record.server_id, tool)
        if record.timer is not None:
            record.timer.cancel()
        at, size = instants.format_canonical_instant(timezone.now()), len(response or b"")
        ended = functools.partial(self.build_gateway_call_end_event, record, at, own, response, error)
        if record.beginning is None and not self.should_claim_hook_reported_call(record):
            begins = [] if record.is_begun else [self.build_gateway_call_begin_event(record)]
            record.is_begun = True
            self.queue_events_of_ended_call([*begins, ended()], size)
        else:
            self.run_write_in_background(self.write_call_end_events(record, ended, size))

    async def write_call_end_events(
        self, record: CallRecord, ended: Callable[[], NewEvent], size: int
    ) -> None:
        """Write the end under the id of the beginning, which may be in writing or reported by the agent."""
        if record.beginning is not None:
            await asyncio.wait([record.beginning])
        begins: list[NewEvent] = []
        if self.should_claim_hook_reported_call(record):
            record.reported_call = await self.claim_hook_reported_call(record)
            is_reported = record.reported_call is not None and record.reported_call.event_id is not None
            begins = [] if record.is_begun or is_reported else [self.build_gateway_call_begin_event(record)]
            record.is_begun = True
        self.queue_events_of_ended_call([*begins, ended()], size)

    def should_claim_hook_reported_call(self, record: CallRecord) -> bool:
        """Return whether a lookup is still needed of the beginning that the call's agent may have reported."""
        of_agents = record.session_id in self._of_agents and not record.is_read
        return record.goes_on or (not record.is_begun and of_agents)

    def build_gateway_call_end_event(
        self, record: CallRecord, at: str, own: float, response: bytes | None, error: str | None
    ) -> NewEvent:
        output, failed = build_timeline_output_and_error(response)
        # Two identical reports are one end. A refusal on the way does not replace the result of the call.
        result_digest = hashlib.sha256(
            msgspec.json.encode([output, error or failed], enc_hook=str)
        ).hexdigest()[:16]
        return DedupedEvent(
            event_type="post_tool",
            session_id=record.session_id,
            timestamp=at,
            tool_name=record.timeline_tool_name,
            tool_input=record.arguments if isinstance(record.arguments, dict) else {},
            tool_output=output,
            error=error or failed,
            tool_use_id=record.timeline_call_id,
            duration_ms=round((record.upstream + own) * 1000),
            reason=record.decided_by or None,
            source=BY_GATEWAY,
            origin=f"gateway:{record.call_id}:end {result_digest}",
            origin_for=60_000,
            extra={
                "gateway": {
                    "server": record.server_id,
                    "upstream_ms": round(record.upstream * 1000, 1),
                    "own_ms": round(own * 1000, 1),
                    "waited_ms": round(record.waited * 1000),
                    **({"resumed": record.resumed} if record.resumed else {}),
                    **({"marks": record.marks} if record.marks else {}),
                    **(
                        {"cached_seconds": record.cached_seconds} if record.cached_seconds is not None else {}
                    ),
                }
            },
        )

    def queue_events_of_ended_call(self, events: list[NewEvent], size: int) -> None:
        """Have a call's events written with those of the caller's other calls that end about now."""
        caller = CALLER.get()
        gathered = self._gathered.get(caller)
        if gathered is None:
            timer = asyncio.get_running_loop().call_later(GATHER_FOR, self.write_batch_of_ended_calls, caller)
            gathered = self._gathered[caller] = EndedCallBatch(timer)
        gathered.calls.append(events)
        gathered.size += size
        if len(gathered.calls) >= MOST_GATHERED or gathered.size > MOST_GATHERED_BYTES:
            self.write_batch_of_ended_calls(caller)

    def write_batch_of_ended_calls(self, caller: str) -> None:
        gathered = self._gathered.pop(caller, None)
        if gathered is not None:
            gathered.timer.cancel()
            self.run_write_in_background(self.write_events_of_calls(gathered.calls, gathered.size))

    def run_write_in_background(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self.await_and_log_failure(work))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)
        return task

    async def await_and_log_failure(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            await work
        except SignalboxError as problem:
            log.error("A call through the gateway is missing from its timeline: %s", problem.detail)

    async def write_events_of_calls(self, calls: list[list[NewEvent]], size: int) -> None:
        """Write several calls' events; where the database cannot hold those of one, the others without them."""
        try:
            await self.submit_call_events([event for events in calls for event in events], size)
        except UnprocessableRequest:
            if len(calls) == 1:
                raise
            for events in calls:
                await self.await_and_log_failure(self.write_events_of_calls([events], size // len(calls)))

    async def submit_call_events(self, events: list[NewEvent], size: int = 0) -> list[Any]:
        deadline = time.monotonic() + WRITE_WITHIN
        written_events = await self._writer.submit_events(
            events, deadline=deadline, size=size + 500 * len(events)
        )
        return written_events if isinstance(written_events, list) else []
