"""OpenTelemetry in: `POST /v1/logs`, `/v1/traces`, `/v1/metrics`, as JSON or protobuf, answered in kind.

Sent again after a lost answer, the same records change nothing. Refusals that are worth a retry are 503 with
Retry-After; what cannot be read is 400 and is not sent again. Metrics are taken and not kept: Claude Code's tokens
and costs come with its log records, one by one and with their session.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.utils import timezone

from coordinator.actions import reported_sessions as sessions
from coordinator.dialects import otlp, otlp_wire
from coordinator.dialects.otlp import SessionReport
from coordinator.edge.auth import Authenticator
from coordinator.edge.bodies import Bodies, BodyShare
from coordinator.edge.grpc_refusal import NO_GRPC
from coordinator.edge.http import Headers, headers_of
from coordinator.edge.limits import KEY, LIMITS
from coordinator.edge.writer import GroupWriter
from coordinator.errors import BadRequest, NotFound, SignalboxError, TooLarge, Unsupported
from coordinator.identity.keys import KeyIdentity
from coordinator.identity.scopes import REPORTERS
from coordinator.lib import instants, json_bounds
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.runs.statuses import STOP_EVENTS
from coordinator.sessions.events import NewEvent
from coordinator.sessions.reports import MODEL_REQUEST, TURN_END, KnownSession, is_told_by_runner

LIMIT = LIMITS["telemetry"][KEY]
MOST_EVENTS, MOST_SESSIONS = 10_000, 500
ANSWER_WITHIN = 8.0  # seconds; exporters give up at ten
PROTOBUF, JSON = b"application/x-protobuf", b"application/json"
COUNTED = {"logs": "rejectedLogRecords", "traces": "rejectedSpans"}
READERS: dict[str, Callable[[Any, datetime], list[SessionReport]]] = {
    "logs": otlp.from_logs,
    "traces": otlp.from_traces,
}


class TelemetryDoor:
    def __init__(
        self, auth: Authenticator, writer: GroupWriter, threads: EdgeThreads, bodies: Bodies
    ) -> None:
        self._auth = auth
        self._bodies = bodies
        self._writer = writer
        self._threads = threads

    async def take(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one export request of `kind` (logs, traces, metrics) and answer as the protocol says."""
        headers = headers_of(scope)
        form = headers.get(b"content-type", JSON).partition(b";")[0].strip().lower()
        try:
            caller = await self._auth.program(scope, headers, *REPORTERS)
            with self._bodies.hold(f"key:{caller.id}") as held:
                reports = await self._reports(kind, form, headers, receive, held)
                rejected, why = await self._written(reports, caller, held.size)
        except SignalboxError as refusal:
            await _send_status(send, form, refusal)
            return
        await _send(send, 200, form, _partial(kind, form, rejected, why))

    async def _reports(
        self, kind: str, form: bytes, headers: Headers, receive: Receive, held: BodyShare
    ) -> list[SessionReport]:
        """Read the request. Raises what it is refused for."""
        if form not in {PROTOBUF, JSON}:
            is_grpc = form.startswith(b"application/grpc")
            raise Unsupported(NO_GRPC if is_grpc else "Send application/json or application/x-protobuf.")
        weigh = json_bounds.weight if form == JSON else partial(otlp_wire.weight, kind)
        body = await held.read(receive, headers, LIMIT, weigh)
        return await held.decoded(partial(_read, kind, form, now=timezone.now()), body)

    async def _written(self, reports: list[SessionReport], caller: KeyIdentity, size: int) -> tuple[int, str]:
        """Write what they say; return how many events were refused, and why the first."""
        events = await self._threads.run(placed, reports, caller, timezone.now()) if reports else []
        if not events:
            return 0, ""
        outcomes = await self._writer.submit(events, deadline=time.monotonic() + ANSWER_WITHIN, size=size)
        assert not isinstance(outcomes, bytes)
        refusals = [one for one in outcomes if isinstance(one, SignalboxError)]
        if any(isinstance(one, NotFound) for one in refusals):
            raise sessions_changed()
        return len(refusals), str(refusals[0].detail) if refusals else ""


def sessions_changed() -> SignalboxError:
    """Return the refusal for records whose session was deleted while they were written: sent again, they fit."""
    problem = SignalboxError("A session was deleted while this was written. Send it again.", retry_after=1)
    problem.status = 503
    return problem


def _read(kind: str, form: bytes, body: bytes, now: datetime) -> list[SessionReport]:
    if form == PROTOBUF:
        request: Any = otlp_wire.decode(kind, body) if kind in READERS else {}
    else:
        try:
            request = json_bounds.loads(body or b"{}", most=LIMIT.becomes)
        except json_bounds.TooDeep as problem:
            raise BadRequest(f"{problem}.") from None
        except (ValueError, RecursionError):
            raise BadRequest("The body is not JSON.") from None
        if not isinstance(request, dict):
            raise BadRequest("The body must be a JSON object.")
    reader = READERS.get(kind)
    reports = reader(request, now) if reader else []
    if sum(len(report.events) for report in reports) > MOST_EVENTS:
        raise TooLarge(f"An export may hold at most {MOST_EVENTS} records.")
    if len({report.session for report in reports}) > MOST_SESSIONS:
        raise TooLarge(f"An export may name at most {MOST_SESSIONS} sessions.")
    return reports


def placed(reports: list[SessionReport], by: KeyIdentity, now: datetime) -> list[NewEvent]:
    """Give each event its session, one that this key may write into; made where there is none."""
    known: dict[str, KnownSession] = {}
    subagents: dict[str, tuple[str, str] | None] = {}
    events: list[NewEvent] = []
    times = _times(reports, now)
    for one in reports:
        if one.thread is not None and one.session not in subagents:
            subagents[one.session] = sessions.subagent_of(one.session, one.thread, by)
        if (above := subagents.get(one.session)) is not None:
            events += _of_subagent(one.events, *above)
            continue
        if one.session not in known:
            if one.only_known and sessions.session_id_of(one.session, by) is None:
                continue
            where = one.where._replace(agent_name=by.name_of_agent(one.where.agent_name), by=by)
            first, last = times[one.session]
            known[one.session] = sessions.observed_session_for(one.session, where, first, last, now)
        found = known[one.session]
        for event in one.events:
            if found.driven and is_told_by_runner(event.event_type, event.role):
                continue
            event.session_id = found.session_id
            if event.event_type in STOP_EVENTS:
                if sessions.is_over(found.session_id):
                    continue  # who told its end first may know more of it
                if _goes_on(event, times[one.session][1], now):
                    event.event_type = TURN_END
            events.append(event)
    return events


def _of_subagent(events: Iterable[NewEvent], session_id: str, name: str) -> Iterator[NewEvent]:
    """Yield what a sub-agent's thread has used, in the session that started it; its hooks tell all else there."""
    for event in events:
        if event.event_type == MODEL_REQUEST:
            event.session_id, event.subagent = session_id, name
            yield event


def _times(reports: list[SessionReport], now: datetime) -> dict[str, tuple[datetime, datetime]]:
    """Return when the first and the last of what is told of each session happened; its end is no happening."""
    found: dict[str, list[datetime]] = {}
    for one in reports:
        moments = found.setdefault(one.session, [])
        moments += [_at(event, now) for event in one.events if event.event_type not in STOP_EVENTS]
    ends = datetime.min.replace(tzinfo=UTC)
    return {session: (min(all_, default=now), max(all_, default=ends)) for session, all_ in found.items()}


def _at(event: NewEvent, now: datetime) -> datetime:
    return instants.parse(event.timestamp) or now


def _goes_on(end: NewEvent, last: datetime, now: datetime) -> bool:
    at = _at(end, now)
    return last > at or sessions.goes_on(end.session_id, instants.to_us(at))


def _partial(kind: str, form: bytes, rejected: int, why: str) -> bytes:
    if not rejected:
        return b"{}" if form == JSON else b""
    if form == JSON:
        answer = {"partialSuccess": {COUNTED[kind]: str(rejected), "errorMessage": why}}
        return json.dumps(answer).encode()
    words = why.encode()
    inner = b"\x08" + _varint(rejected) + b"\x12" + _varint(len(words)) + words
    return b"\x0a" + _varint(len(inner)) + inner


async def _send_status(send: Send, form: bytes, refusal: SignalboxError) -> None:
    words = refusal.detail if isinstance(refusal.detail, str) else json.dumps(refusal.detail)
    extra = [] if refusal.retry_after is None else [(b"retry-after", str(refusal.retry_after).encode())]
    text = words.encode()
    body = (
        b"\x12" + _varint(len(text)) + text if form == PROTOBUF else json.dumps({"message": words}).encode()
    )
    await _send(send, refusal.status, form, body, *extra)


async def _send(send: Send, status: int, form: bytes, body: bytes, *extra: tuple[bytes, bytes]) -> None:
    kind = form if form in {PROTOBUF, JSON} else JSON
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
