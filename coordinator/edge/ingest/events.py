"""The endpoints for events: `POST /sessions/{id}/events` for one, as recorded; `POST /api/events` for a batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from coordinator.actions.sessions.events import Outcome
from coordinator.actions.upkeep import idempotency
from coordinator.edge.http.auth import Authenticator
from coordinator.edge.http.bodies import RequestBodies
from coordinator.edge.http.messages import get_edge_operation_of_request, get_request_headers, send_json
from coordinator.edge.http.validation_errors import parse_json_body, parse_new_event
from coordinator.edge.ingest.ownership import WriteRights
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.errors import BadRequest, RequestTooLarge, ServiceBusy, SignalboxError, UnprocessableRequest
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import json_bounds
from coordinator.lib import process_metrics as meters
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.sessions.events import NewEvent, RecordedEvent

ANSWER_WITHIN = (
    3.8  # seconds from the first byte: executors give up at five, and must receive a refusal before
)
# Seconds after that for a batch that is being written; 10,000 events take their time.
BATCH_ANSWER_TIMEOUT_SECONDS = 20.0
MOST_EVENTS = 10_000
MOST_LINES = 2 * MOST_EVENTS  # empty ones between them included

NDJSON = frozenset(
    {b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/jsonlines"}
)

T = TypeVar("T")
OK = b'{"ok":true}'
encode = msgspec.json.Encoder(enc_hook=str).encode
Parsed = list[NewEvent | SignalboxError]


class EventIngestEndpoint:
    """The endpoints through which events come in. One a process."""

    def __init__(
        self, auth: Authenticator, rights: WriteRights, writer: GroupWriter, bodies: RequestBodies
    ) -> None:
        self._auth = auth
        self._rights = rights
        self._writer = writer
        self._bodies = bodies

    async def receive_event(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one event of a session; answers when it is committed."""
        deadline = time.monotonic() + ANSWER_WITHIN
        headers = get_request_headers(scope)
        caller = await await_until_deadline(
            self._auth.authenticate_api_key_caller(
                scope, headers, *get_edge_operation_of_request(scope).scopes
            ),
            deadline,
        )
        with self._bodies.reserve_body_during_block(f"key:{caller.id}") as reservation:
            body = await reservation.read_body(
                receive, headers, get_edge_operation_of_request(scope).body.key
            )
            event = await reservation.decode_received_body(parse_new_event, body)
            if event.session_id != session_id:
                raise BadRequest("Event session_id must match URL session_id")
            await await_until_deadline(self._rights.require_write_right(caller, session_id), deadline)
            key = headers.get(b"idempotency-key")
            once = self.build_idempotency_claim(key, caller.name, session_id, body)
            result = await self._writer.submit_events(
                [event],
                deadline=deadline,
                size=len(body),
                once=once,
                make_answer=encode_event_outcome_for_storage if once else None,
            )
            outcome = decode_stored_event_outcome(result) if isinstance(result, bytes) else result[0]
        if isinstance(outcome, SignalboxError):
            raise outcome
        await send_json(send, 201, OK)

    async def receive_event_batch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take many events, of any sessions; answers with one result an event when the good ones are committed."""
        deadline = time.monotonic() + ANSWER_WITHIN
        headers = get_request_headers(scope)
        caller = await await_until_deadline(
            self._auth.authenticate_api_key_caller(
                scope, headers, *get_edge_operation_of_request(scope).scopes
            ),
            deadline,
        )
        with self._bodies.reserve_body_during_block(f"key:{caller.id}") as reservation:
            body = await reservation.read_body(
                receive, headers, get_edge_operation_of_request(scope).body.key
            )
            kind = headers.get(b"content-type", b"")
            parsed = await reservation.decode_received_body(
                partial(parse_each_event_or_error, content_type=kind), body
            )
            parsed = await await_until_deadline(
                self.replace_foreign_events_with_refusals(caller, parsed), max(deadline, time.monotonic() + 1)
            )

            def make_batch_answer(outcomes: Sequence[Outcome]) -> bytes:
                return encode_batch_answer(parsed, outcomes)

            meters.BATCHES.observe(len(parsed))
            answer = await self._writer.submit_events(
                [item for item in parsed if isinstance(item, NewEvent)],
                deadline=max(deadline, time.monotonic() + 1),  # a large body may have taken its time to come
                size=len(body),
                once=self.build_idempotency_claim(
                    headers.get(b"idempotency-key"), caller.name, "/api/events", body
                ),
                make_answer=make_batch_answer,
                answer_timeout=BATCH_ANSWER_TIMEOUT_SECONDS,
            )
        await send_json(send, 200, answer)

    async def replace_foreign_events_with_refusals(self, caller: KeyIdentity, parsed: Parsed) -> Parsed:
        """Return the batch with a refusal in place of each event of a session that is not the caller's."""
        session_ids = {item.session_id for item in parsed if isinstance(item, NewEvent)}
        refused = await self._rights.session_write_refusals_by_id(caller, session_ids)
        return [refused.get(item.session_id, item) if isinstance(item, NewEvent) else item for item in parsed]

    def build_idempotency_claim(
        self, key: bytes | None, caller: str, endpoint: str, body: bytes
    ) -> idempotency.IdempotencyClaim | None:
        if key is None:
            return None
        if not 0 < len(key) <= 255:
            raise BadRequest("Idempotency-Key must have 1 to 255 characters.")
        return idempotency.derive_idempotency_claim(
            caller=caller, endpoint=endpoint, key=key.decode("latin-1"), content=body
        )


async def await_until_deadline(answer: Awaitable[T], deadline: float) -> T:
    """Await `answer`, but no longer than until `deadline`. Raises ServiceBusy then."""
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await answer
    except TimeoutError:
        raise ServiceBusy("The database is busy. Nothing was written; try again.", retry_after=1) from None


def parse_each_event_or_error(body: bytes, content_type: bytes) -> Parsed:
    """Return each event of a JSON array or of NDJSON lines, or what is wrong with it.

    Raises UnprocessableRequest where the whole cannot be read, RequestTooLarge for too many events.
    """
    texts = split_batch_items(body, content_type)
    if len(texts) > MOST_EVENTS:
        raise RequestTooLarge(f"A batch may hold at most {MOST_EVENTS} events.")
    return [parse_event_or_error(text, index) for index, text in enumerate(texts)]


def split_batch_items(body: bytes, content_type: bytes) -> Sequence[bytes | msgspec.Raw]:
    kind = content_type.partition(b";")[0].strip().lower()
    start = body.lstrip()[:1]
    if kind.endswith((b"ndjson", b"jsonl", b"json-seq", b"jsonlines")) or (
        start == b"{" and kind != b"application/json"
    ):
        lines = body.split(b"\n", MOST_LINES)
        if len(lines) > MOST_LINES:
            raise RequestTooLarge(f"A batch may hold at most {MOST_LINES} lines.")
        return [line for line in lines if line.strip()]
    try:
        return msgspec.json.decode(body, type=list[msgspec.Raw])
    except RecursionError:  # one of them nests too deep, which is reported for that one alone
        try:
            return json_bounds.split_json_array(body)
        except ValueError as problem:
            raise UnprocessableRequest(str(problem)) from None
    except msgspec.MsgspecError:
        parse_json_body(body)
        raise UnprocessableRequest(
            "Send a JSON array of events, or one event a line as application/x-ndjson."
        ) from None


def parse_event_or_error(text: bytes | msgspec.Raw, index: int) -> NewEvent | SignalboxError:
    try:
        return parse_new_event(text, ("body", index))
    except UnprocessableRequest as fault:
        return fault


def encode_batch_answer(parsed: Parsed, outcomes: Sequence[Outcome]) -> bytes:
    """Return the batch's answer: counts, and for each event its place, status and id or detail."""
    written = iter(outcomes)
    results = []
    for index, item in enumerate(parsed):
        outcome = item if isinstance(item, SignalboxError) else next(written)
        if isinstance(outcome, RecordedEvent):
            results.append({"index": index, "status": 201, "id": outcome.event_id})
        else:
            results.append({"index": index, "status": outcome.status, "detail": outcome.detail})
    accepted = sum(result["status"] == 201 for result in results)
    return encode({"accepted": accepted, "rejected": len(results) - accepted, "results": results})


def encode_event_outcome_for_storage(outcomes: Sequence[Outcome]) -> bytes:
    return encode_batch_answer([NewEvent(event_type="", session_id="", timestamp="")], outcomes)


def decode_stored_event_outcome(answer: bytes) -> Outcome:
    result = msgspec.json.decode(answer)["results"][0]
    if result["status"] == 201:
        return RecordedEvent(result["id"])
    refusal = SignalboxError(result["detail"])
    refusal.status = result["status"]
    return refusal
