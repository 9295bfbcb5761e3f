"""OpenTelemetry in: `POST /v1/logs`, `/v1/traces`, `/v1/metrics`, as JSON or protobuf, answered in kind.

Sent again after a lost answer, the same records change nothing. Refusals that are worth a retry are 503 with
Retry-After; what cannot be read is 400 and is not sent again. Metrics are taken and not kept: Claude Code's tokens
and costs come with its log records, one by one and with their session.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.utils import timezone

from coordinator.actions import claude_code as sessions
from coordinator.actions.events import NewEvent
from coordinator.actions.keys import KeyIdentity
from coordinator.dialects import otlp, protobuf
from coordinator.dialects.otlp import Told
from coordinator.edge.auth import Authenticator
from coordinator.edge.bridge import Receive, Scope, Send
from coordinator.edge.http import Headers, headers_of, plain_body, read_body
from coordinator.edge.threads import EdgeThreads
from coordinator.edge.writer import GroupWriter
from coordinator.errors import BadRequest, NotFound, SignalboxError, Unsupported

SCOPES = ("agent", "runner", "operator")
MOST_BYTES = 20 * 1024 * 1024
ANSWER_WITHIN = 8.0  # seconds; exporters give up at ten
PROTOBUF, JSON = b"application/x-protobuf", b"application/json"
COUNTED = {"logs": "rejectedLogRecords", "traces": "rejectedSpans"}
READERS: dict[str, Callable[[Any, datetime], list[Told]]] = {
    "logs": otlp.from_logs,
    "traces": otlp.from_traces,
}


class TelemetryDoor:
    """The three doors. One a process."""

    def __init__(self, auth: Authenticator, writer: GroupWriter, threads: EdgeThreads) -> None:
        self._auth = auth
        self._writer = writer
        self._threads = threads

    async def take(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one export request of `kind` (logs, traces, metrics) and answer as the protocol says."""
        headers = headers_of(scope)
        form = headers.get(b"content-type", JSON).partition(b";")[0].strip().lower()
        try:
            caller = await self._auth.program(scope, headers, *SCOPES)
            rejected, why = await self._taken(kind, form, headers, receive, caller)
        except SignalboxError as refusal:
            await _send_status(send, form, refusal)
            return
        await _send(send, 200, form, _partial(kind, form, rejected, why))

    async def _taken(
        self, kind: str, form: bytes, headers: Headers, receive: Receive, caller: KeyIdentity
    ) -> tuple[int, str]:
        if form not in {PROTOBUF, JSON}:
            raise Unsupported("Send application/json or application/x-protobuf.")
        body = await plain_body(await read_body(receive, headers, MOST_BYTES), headers, MOST_BYTES)
        told = await asyncio.to_thread(_read, kind, form, body, timezone.now())
        events = await self._threads.run(_placed, told, caller, timezone.now()) if told else []
        if not events:
            return 0, ""
        outcomes = await self._writer.submit(
            events, deadline=time.monotonic() + ANSWER_WITHIN, size=len(body)
        )
        assert not isinstance(outcomes, bytes)
        refusals = [one for one in outcomes if isinstance(one, SignalboxError)]
        if any(isinstance(one, NotFound) for one in refusals):
            raise sessions_changed()
        return len(refusals), str(refusals[0].detail) if refusals else ""


def sessions_changed() -> SignalboxError:
    """Return the refusal for records whose session was deleted while they were written: sent again, they fit."""
    problem = SignalboxError("A session was deleted meanwhile. Send it again.", retry_after=1)
    problem.status = 503
    return problem


def _read(kind: str, form: bytes, body: bytes, now: datetime) -> list[Told]:
    if form == PROTOBUF:
        request: Any = protobuf.decode(kind, body)
    else:
        try:
            request = json.loads(body or b"{}")
        except (ValueError, RecursionError):
            raise BadRequest("The body is no JSON.") from None
        if not isinstance(request, dict):
            raise BadRequest("The body must be a JSON object.")
    reader = READERS.get(kind)
    return reader(request, now) if reader else []


def _placed(told: list[Told], by: KeyIdentity, now: datetime) -> list[NewEvent]:
    """Give each event its session, one that this key may write into; made where there is none."""
    known: dict[str, str] = {}
    events: list[NewEvent] = []
    for one in told:
        if one.session not in known:
            where = one.where._replace(agent_name=by.agent_id or one.where.agent_name, by=by)
            known[one.session] = sessions.heard(one.session, where, now).session_id
        for event in one.events:
            event.session_id = known[one.session]
            events.append(event)
    return events


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
