"""The OpenTelemetry endpoints `POST /v1/logs`, `/v1/traces`, `/v1/metrics`: JSON or protobuf, answered in kind.

Sent again after a lost answer, the same records change nothing. Refusals that are worth a retry are 503 with
Retry-After; what cannot be read is 400 and is not sent again. Metrics are taken and not kept: Claude Code's tokens
and costs come with its log records, one by one and with their session.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from django.db import DatabaseError
from django.utils import timezone

from coordinator.actions.sessions import omissions
from coordinator.actions.sessions import reported_sessions as sessions
from coordinator.dialects.otlp_common import (
    MOST_NAME,
    OmittedRecordCounts,
    SessionReport,
    build_trace_session_id,
    trace_origin,
)
from coordinator.dialects.otlp_logs import convert_otlp_logs_to_reports
from coordinator.dialects.otlp_traces import convert_otlp_traces_to_reports
from coordinator.edge.http.auth import Authenticator
from coordinator.edge.http.bodies import BodyReservation, RequestBodies
from coordinator.edge.http.grpc_refusal import NO_GRPC
from coordinator.edge.http.messages import get_edge_operation_of_request, get_request_headers
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.errors import BadRequest, NotFound, RequestTooLarge, SignalboxError, UnsupportedMediaType
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import instants, json_bounds
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.body_limits import EVENTS
from coordinator.lib.threads import EdgeThreads
from coordinator.runs.statuses import STOP_EVENTS
from coordinator.sessions.events import NewEvent
from coordinator.sessions.omissions import OmissionKind, TelemetryEmitter
from coordinator.sessions.reports import (
    MODEL_REQUEST,
    TURN_END,
    RecordedHookSession,
    is_runner_reported_event_type,
)

log = logging.getLogger(__name__)

REFUSED_FOR_GOOD = frozenset({400, 413, 415, 422})  # what the same export is refused for again
MOST_EVENTS, MOST_SESSIONS = 10_000, 500
ANSWER_WITHIN = 8.0  # seconds; exporters give up at ten
PROTOBUF, JSON = b"application/x-protobuf", b"application/json"
COUNTED = {"logs": "rejectedLogRecords", "traces": "rejectedSpans"}
READERS: dict[str, Callable[[Any, datetime, OmittedRecordCounts], list[SessionReport]]] = {
    "logs": convert_otlp_logs_to_reports,
    "traces": convert_otlp_traces_to_reports,
}


class TelemetryEndpoint:
    def __init__(
        self, auth: Authenticator, writer: GroupWriter, threads: EdgeThreads, bodies: RequestBodies
    ) -> None:
        self._auth = auth
        self._bodies = bodies
        self._writer = writer
        self._threads = threads

    async def receive_telemetry(self, kind: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one export request of `kind` (logs, traces, metrics) and answer as the protocol says."""
        headers = get_request_headers(scope)
        form = headers.get(b"content-type", JSON).partition(b";")[0].strip().lower()
        caller = None
        try:
            caller = await self._auth.authenticate_api_key_caller(
                scope, headers, *get_edge_operation_of_request(scope).scopes
            )
            with self._bodies.reserve_body_during_block(f"key:{caller.id}") as reservation:
                reports, notes = await self.read_session_reports_and_omissions(
                    kind, form, scope, receive, reservation
                )
                rejected, rejection_reason = await self.write_reports_and_count_refusals(
                    reports, caller, reservation.size
                )
            await self.record_omitted_telemetry_counts(caller, notes, rejected, rejection_reason)
            rejected += notes.total_omissions_of_kind(OmissionKind.SPAN)
            rejection_reason = " ".join(filter(None, (rejection_reason, notes.message)))
        except SignalboxError as refusal:
            if caller is not None and refusal.status in REFUSED_FOR_GOOD:
                notes = OmittedRecordCounts()
                notes.add_omission(OmissionKind.EXPORT, str(refusal.detail))
                await self.record_omitted_telemetry_counts(caller, notes)
            await send_telemetry_error(send, form, refusal)
            return
        await send_telemetry_answer(
            send, 200, form, encode_partial_success(kind, form, rejected, rejection_reason)
        )

    async def record_omitted_telemetry_counts(
        self, caller: KeyIdentity, notes: OmittedRecordCounts, rejected: int = 0, rejection_reason: str = ""
    ) -> None:
        """Have people see what is left out. A database that does not take it changes nothing of the answer."""
        if rejected:
            notes.omissions[TelemetryEmitter(), OmissionKind.RECORD, rejection_reason[:MOST_NAME]] += rejected
        if not notes.omissions:
            return
        try:
            await self._threads.run_in_thread(
                omissions.record_sender_telemetry_omissions, caller.name, notes.omissions, now=timezone.now()
            )
        except DatabaseError:
            log.warning("What was left out of an export could not be counted.", exc_info=True)

    async def read_session_reports_and_omissions(
        self, kind: str, form: bytes, scope: Scope, receive: Receive, reservation: BodyReservation
    ) -> tuple[list[SessionReport], OmittedRecordCounts]:
        """Read the request; return also what of it is left out. Raises what it is refused for."""
        if form not in {PROTOBUF, JSON}:
            is_grpc = form.startswith(b"application/grpc")
            raise UnsupportedMediaType(
                NO_GRPC if is_grpc else "Send application/json or application/x-protobuf."
            )
        weigh = (
            json_bounds.estimate_decoded_json_size
            if form == JSON
            else partial(import_otlp_protobuf_module().estimate_decoded_bytes, kind)
        )
        body = await reservation.read_body(
            receive, get_request_headers(scope), get_edge_operation_of_request(scope).body.key, weigh
        )
        return await reservation.decode_received_body(
            partial(parse_session_reports_and_omissions, kind, form, now=timezone.now()), body
        )

    async def write_reports_and_count_refusals(
        self, reports: list[SessionReport], caller: KeyIdentity, size: int
    ) -> tuple[int, str]:
        """Write what they say; return how many events were refused, and why the first."""
        events = (
            await self._threads.run_in_thread(
                create_sessions_and_assign_events, reports, caller, timezone.now()
            )
            if reports
            else []
        )
        if not events:
            return 0, ""
        outcomes = await self._writer.submit_events(
            events, deadline=time.monotonic() + ANSWER_WITHIN, size=size
        )
        assert not isinstance(outcomes, bytes)
        refusals = [outcome for outcome in outcomes if isinstance(outcome, SignalboxError)]
        if any(isinstance(refusal, NotFound) for refusal in refusals):
            raise build_session_deleted_error()
        return len(refusals), str(refusals[0].detail) if refusals else ""


def build_session_deleted_error() -> SignalboxError:
    """Return the refusal for records whose session was deleted while they were written: sent again, they fit."""
    problem = SignalboxError("A session was deleted while this was written. Send it again.", retry_after=1)
    problem.status = 503
    return problem


def import_otlp_protobuf_module() -> Any:
    """Return the module that reads OTLP's protobuf. It takes some MB: only a worker that is sent such loads it."""
    from coordinator.dialects import otlp_wire  # noqa: PLC0415

    return otlp_wire


def parse_session_reports_and_omissions(
    kind: str, form: bytes, body: bytes, now: datetime
) -> tuple[list[SessionReport], OmittedRecordCounts]:
    if form == PROTOBUF:
        request: Any = (
            import_otlp_protobuf_module().decode_otlp_protobuf_as_json(kind, body) if kind in READERS else {}
        )
    else:
        try:
            request = json_bounds.load_bounded_json(body or b"{}", most=EVENTS.key.becomes)
        except json_bounds.JsonTooDeep as problem:
            raise BadRequest(f"{problem}.") from None
        except (ValueError, RecursionError):
            raise BadRequest("The body is not JSON.") from None
        if not isinstance(request, dict):
            raise BadRequest("The body must be a JSON object.")
    reader, notes = READERS.get(kind), OmittedRecordCounts()
    reports = reader(request, now, notes) if reader else []
    if sum(len(report.events) for report in reports) > MOST_EVENTS:
        raise RequestTooLarge(f"An export may hold at most {MOST_EVENTS} records.")
    if len({report.session for report in reports}) > MOST_SESSIONS:
        raise RequestTooLarge(f"An export may name at most {MOST_SESSIONS} sessions.")
    return reports, notes


def create_sessions_and_assign_events(
    reports: list[SessionReport], key: KeyIdentity, now: datetime
) -> list[NewEvent]:
    """Give each event its session, one that this key may write into; made where there is none."""
    known_sessions: dict[str, RecordedHookSession] = {}
    subagents: dict[str, tuple[str, str] | None] = {}
    events: list[NewEvent] = []
    reports = merge_trace_reports_into_session(reports, key, now)
    times = report_time_range_by_session(reports, now)
    for report in reports:
        if report.thread is not None and report.session not in subagents:
            subagents[report.session] = sessions.find_subagent_session_and_name(
                report.session, report.thread, key
            )
        if (above := subagents.get(report.session)) is not None:
            events += iterate_usage_reassigned_to_parent(report.events, *above)
            continue
        if report.session not in known_sessions:
            if report.only_known and sessions.find_session_id_by_executor_id(report.session, key) is None:
                continue
            where = report.where._replace(
                agent_name=key.agent_name_for_report(report.where.agent_name), by=key
            )
            first, last = times[report.session]
            known_sessions[report.session] = sessions.find_or_create_telemetry_session(
                report.session, where, first, last, now
            )
        known_session = known_sessions[report.session]
        for event in report.events:
            if known_session.driven and is_runner_reported_event_type(event.event_type, event.role):
                continue
            event.session_id = known_session.session_id
            if event.event_type in STOP_EVENTS:
                if sessions.is_session_finished(known_session.session_id):
                    continue  # an earlier report of its end may have more detail
                if is_session_active_after_end(event, times[report.session][1], now):
                    event.event_type = TURN_END
            events.append(event)
    return events


def merge_trace_reports_into_session(
    reports: list[SessionReport], key: KeyIdentity, now: datetime
) -> list[SessionReport]:
    """Return the reports with those parts of a trace that name no conversation in the session that others name.

    An earlier export may have named it, or this one names what an earlier export did not.
    """
    sessions_by_trace: dict[str, str] = {}
    joined_reports = []
    for report in reports:
        trace, unnamed = report.trace, build_trace_session_id(report.trace or "")
        if trace is None:
            joined_reports.append(report)
            continue
        if trace not in sessions_by_trace:
            if report.session != unnamed:
                sessions.assign_executor_or_merge_trace_session(
                    unnamed, report.session, trace_origin(trace), key, now
                )
                sessions_by_trace[trace] = report.session
            else:
                sessions_by_trace[trace] = (
                    sessions.find_executor_id_by_origin(trace_origin(trace), key) or unnamed
                )
        session = sessions_by_trace[trace] if report.session == unnamed else report.session
        joined_reports.append(replace(report, session=session))
    return joined_reports


def iterate_usage_reassigned_to_parent(
    events: Iterable[NewEvent], session_id: str, name: str
) -> Iterator[NewEvent]:
    """Yield a sub-agent thread's usage, in the session that started it; its hooks report all else there."""
    for event in events:
        if event.event_type == MODEL_REQUEST:
            event.session_id, event.subagent = session_id, name
            yield event


def report_time_range_by_session(
    reports: list[SessionReport], now: datetime
) -> dict[str, tuple[datetime, datetime]]:
    """Return the times of the first and the last reported event of each session, not counting its end."""
    times_by_session: dict[str, list[datetime]] = {}
    for report in reports:
        moments = times_by_session.setdefault(report.session, [])
        moments += [
            parse_event_time_or_now(event, now)
            for event in report.events
            if event.event_type not in STOP_EVENTS
        ]
    ends = datetime.min.replace(tzinfo=UTC)
    return {
        session: (min(all_, default=now), max(all_, default=ends))
        for session, all_ in times_by_session.items()
    }


def parse_event_time_or_now(event: NewEvent, now: datetime) -> datetime:
    return instants.parse_instant_or_none(event.timestamp) or now


def is_session_active_after_end(end: NewEvent, last: datetime, now: datetime) -> bool:
    at = parse_event_time_or_now(end, now)
    return last > at or sessions.has_active_run_or_events_after(
        end.session_id, instants.instant_to_microseconds(at)
    )


def encode_partial_success(kind: str, form: bytes, rejected: int, reason: str) -> bytes:
    if not rejected and not reason:
        return b"{}" if form == JSON else b""
    if form == JSON:
        answer = {"partialSuccess": {COUNTED[kind]: str(rejected), "errorMessage": reason}}
        return json.dumps(answer).encode()
    reason_bytes = reason.encode()
    inner = b"\x08" + encode_varint(rejected) + b"\x12" + encode_varint(len(reason_bytes)) + reason_bytes
    return b"\x0a" + encode_varint(len(inner)) + inner


async def send_telemetry_error(send: Send, form: bytes, refusal: SignalboxError) -> None:
    detail = refusal.detail if isinstance(refusal.detail, str) else json.dumps(refusal.detail)
    extra = [] if refusal.retry_after is None else [(b"retry-after", str(refusal.retry_after).encode())]
    text = detail.encode()
    body = (
        b"\x12" + encode_varint(len(text)) + text
        if form == PROTOBUF
        else json.dumps({"message": detail}).encode()
    )
    await send_telemetry_answer(send, refusal.status, form, body, *extra)


async def send_telemetry_answer(
    send: Send, status: int, form: bytes, body: bytes, *extra: tuple[bytes, bytes]
) -> None:
    kind = form if form in {PROTOBUF, JSON} else JSON
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
