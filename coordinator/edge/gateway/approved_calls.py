"""Sending of approved calls, at most once. A call goes on when its client leaves; its result is stored for a retry."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

import msgspec
from django.db import Error as DatabaseError
from django.db import InterfaceError, OperationalError
from django.utils import timezone

from coordinator.actions.approvals.pending_calls import pending_call_lifetime
from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_calls import CallOrigin
from coordinator.edge.gateway.exchange import Exchange, build_upstream_headers
from coordinator.edge.gateway.records import CallRecord, CallRecords
from coordinator.edge.gateway.registry import ServerRegistry
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.upstream_calls import UpstreamSender
from coordinator.edge.gateway.upstream_sessions import UpstreamSessionLost
from coordinator.edge.gateway.upstreams import (
    UnfinishedStream,
    UpstreamSessionForgotten,
    send_final_response_to_client,
)
from coordinator.edge.hooks.notes import PendingNotes
from coordinator.edge.http.messages import Headers
from coordinator.edge.policy.brake_gate import BrakeGate
from coordinator.edge.policy.rulings import build_brake_ruling
from coordinator.errors import SignalboxError
from coordinator.lib import instants
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway.binding import CallBinding, hash_ruling_as_policy_version
from coordinator.mcp.gateway.listing import decode_response_result_or_none
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.gateway.states import ContinuationState, seal_call_state, unseal_call_state_or_none
from coordinator.mcp.protocol.http_client import UpstreamFailed
from coordinator.mcp.protocol.messages import McpMessage
from coordinator.models import GatewayCall
from coordinator.models.gateway import CallState
from coordinator.policy.limits.brakes import ActiveBrake
from coordinator.policy.rules.tool_rules import ASK, Ruling

log = logging.getLogger(__name__)

ANSWERED_ON_OTHER_STREAM = "The client hears the end on another stream."
POLL_EVERY = 2_000  # milliseconds that a task's client is asked to let pass
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class CallNotSent(Exception):
    """The call did not reach its server; the text says why, as the end of "The server …"."""


class CallStoppedByBrake(CallNotSent):
    """A brake is on for the agent."""

    def __init__(self, brake: ActiveBrake) -> None:
        super().__init__(f"was not asked: {brake.agent_message.rstrip('.')}")
        self.brake = brake


class ApprovedCallRunner:
    """The approved calls that run in this process."""

    def __init__(
        self,
        sending: UpstreamSender,
        registry: ServerRegistry,
        records: CallRecords,
        threads: EdgeThreads,
        *,
        gate: BrakeGate,
        notes: PendingNotes,
    ) -> None:
        self._notes = notes
        self._sending = sending
        self._registry = registry
        self._records = records
        self._threads = threads
        self._gate = gate
        self._jobs: set[asyncio.Task[None]] = set()

    async def run_approved_call_and_answer(
        self, exchange: Exchange, record: CallRecord, binding: CallBinding
    ) -> None:
        """Send the call and answer the client; where it leaves, the call runs on."""
        await self.run_call_detached(
            exchange,
            self.send_record_and_answer_call(
                exchange, record, binding, restore_server_state_in_call(exchange.message, None)
            ),
        )

    async def resend_call_after_server_question(
        self, exchange: Exchange, record: CallRecord, binding: CallBinding, state: ContinuationState
    ) -> None:
        """Send the next try of a call whose server asked for more."""
        body = restore_server_state_in_call(exchange.message, state.inner, keep_responses=True)
        await self.run_call_detached(
            exchange, self.send_record_and_answer_call(exchange, record, binding, body, state)
        )

    def start_task_call_in_background(
        self,
        exchange: Exchange,
        record: CallRecord,
        binding: CallBinding,
        state: ContinuationState | None = None,
        state_fields: dict[str, Any] | None = None,
    ) -> None:
        """Send the call of a task, for which nobody waits on a line; with `state`, with what the client sent
        (`state_fields`)."""
        body = (
            encode_call_with_input_responses(exchange.message, state.inner, state_fields or {})
            if state
            else restore_server_state_in_call(exchange.message, None)
        )
        self.start_and_track_call_task(
            self.send_record_and_answer_call(exchange, record, binding, body, state, line=None)
        )

    def start_and_track_call_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task

    async def run_call_detached(self, exchange: Exchange, work: Coroutine[Any, Any, None]) -> None:
        exchange.is_sent = True
        task = self.start_and_track_call_task(work)
        left_event = asyncio.Event()
        with exchange.disconnect.watch_disconnect_during_block(left_event.set):
            if exchange.disconnect.happened:
                left_event.set()
            leaving = asyncio.ensure_future(left_event.wait())
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
        if task.done():
            task.result()
        else:
            exchange.line.is_over = True  # no client receives it any more

    async def send_record_and_answer_call(
        self,
        exchange: Exchange,
        record: CallRecord,
        binding: CallBinding,
        body: bytes,
        state: ContinuationState | None = None,
        **options: Any,
    ) -> None:
        """Send a call, or with `state` the next try of it, and note how that ended."""
        line: ResponseStream | None = options.get("line", exchange.line)
        event, response, problem = None, None, None
        exchange.record = record
        try:
            with record.record_server_time_during_block(exchange):
                response, event = await self.send_call_within_deadline(exchange, body, line)
        except (UpstreamFailed, CallNotSent) as failure:
            problem = failure
        if isinstance(problem, UnfinishedStream) and line is not None:
            await self.write_call_end_or_log(
                functools.partial(gateway_calls.mark_call_answered_by_server, record.call_id)
            )
            self._records.end_call_record(record, "ok", None, ANSWERED_ON_OTHER_STREAM)
            await line.end_event_stream()
            return
        if response is None:
            assert problem is not None
            response = await self.record_failed_call_and_build_error(
                exchange, record, binding, problem, state, is_task=line is None
            )
        elif (
            question := wrap_server_question_or_none(
                response, record, binding, state.round + 1 if state else 0
            )
        ) is not None:
            response, event = question, None
            await self.record_call_result(record.call_id, response, asks_for_input=True)
            self._records.release_record_without_ending_call(record)
        else:
            await self.record_call_result(record.call_id, response)
            self._records.end_call_record(record, classify_response_ok_or_error(response), response)
        if line is not None and not exchange.disconnect.happened:
            if exchange.takes_notes:
                through = f"a result of {record.tool} of {record.server_id}"
                response, event = await self._notes.consume_notes_into_call_response(
                    record.session_id, through, response, event
                )
            await send_final_response_to_client(line, response, event)
            if not exchange.disconnect.happened:
                await self._threads.run_in_thread(
                    gateway_calls.mark_delivered_and_delete_result, record.call_id, now=timezone.now()
                )

    async def send_call_within_deadline(
        self, exchange: Exchange, body: bytes, line: ResponseStream | None
    ) -> tuple[bytes, bytes | None]:
        """Send a call and return its response. After the time that it has at most it counts as lost elsewhere, too."""
        within = exchange.call_seconds + gateway_calls.STARTS_WITHIN.total_seconds()
        try:
            async with exchange.call_timeouts.enforce_timeout_during_block(within):
                return await self.send_approved_call(exchange, body, line)
        except TimeoutError:
            failure_text = f"did not answer within {within:.0f} seconds"
            raise UpstreamFailed(failure_text, may_have_run=True) from None

    async def send_approved_call(
        self, exchange: Exchange, body: bytes, line: ResponseStream | None
    ) -> tuple[bytes, bytes | None]:
        recheck = functools.partial(self.require_no_call_brake, exchange)
        try:
            exchange.server = await self.reload_upstream_server(exchange.server)
            await self.require_no_call_brake(exchange)
            response, event, _ = await self._sending.send_call_or_use_cached_result(
                exchange, body, line, recheck
            )
        except (InterfaceError, OperationalError) as problem:  # which is asked only before the call goes out
            raise CallNotSent("was not asked: the database did not answer") from problem
        except UpstreamSessionLost:
            raise CallNotSent(str(UpstreamSessionForgotten())) from None
        except SignalboxError as problem:
            raise CallNotSent(f"was not asked: {str(problem.detail).rstrip('.')}") from None
        except UpstreamFailed as problem:
            if problem.may_have_run:
                raise
            raise CallNotSent(str(problem)) from None
        return response, event

    async def require_no_call_brake(self, exchange: Exchange) -> None:
        """Raise CallStoppedByBrake where a brake is on for the agent."""
        if (brake := await exchange.find_brake_of_calling_agent(self._gate)) is not None:
            raise CallStoppedByBrake(brake)

    async def reload_upstream_server(self, server: UpstreamServer) -> UpstreamServer:
        """Return the server as it is now: it may have been edited while the call waited. Raises CallNotSent."""
        self._registry.invalidate_cached_server(server.name)
        registered_server = await self._registry.get_cached_or_load_server(server.name)
        if registered_server is None or registered_server.target is None:
            raise CallNotSent(
                registered_server.failure if registered_server else "is not registered any more"
            )
        return registered_server

    async def record_call_result(
        self, call_id: str, response: bytes, *, asks_for_input: bool = False
    ) -> None:
        await self.write_call_end_or_log(
            functools.partial(
                gateway_calls.end_gateway_call, call_id, response, asks_for_input=asks_for_input
            )
        )

    async def write_call_end_or_log(self, end: Callable[..., None]) -> None:
        """Write down how a call ended, at this instant."""
        try:
            await self._threads.run_in_thread(end, now=timezone.now())
        except DatabaseError:
            # It stays `running` until its time is over and is then reported as lost. It is not run again.
            log.exception("The end of a call could not be written")

    async def record_failed_call_and_build_error(
        self,
        exchange: Exchange,
        record: CallRecord,
        binding: CallBinding,
        problem: Exception,
        state: ContinuationState | None,
        *,
        is_task: bool,
    ) -> bytes:
        """Record that a call got no response; return the error for its client."""
        was_sent, server_id, tool, failure_reason = (
            not isinstance(problem, CallNotSent),
            binding.server_id,
            binding.tool,
            str(problem),
        )
        can_answer_again = state is not None and not was_sent and not is_task
        if was_sent:
            failure_text = answers.describe_call_without_response(server_id, tool, failure_reason)
        elif state is None:
            failure_text = answers.describe_call_not_sent(server_id, tool, failure_reason, approved=True)
        else:
            failure_text = answers.describe_call_not_continued(
                server_id, tool, failure_reason, can_answer_again=can_answer_again
            )
        response = answers.encode_tool_error_response(
            exchange.message, failure_text, {"decision": "allow", "sent": was_sent}
        )
        if isinstance(problem, CallStoppedByBrake):
            await self.audit_brake_stop(exchange, record, binding, problem.brake)
        if was_sent:
            why_lost = f"The server {failure_reason}: it may have run."
            await self.write_call_end_or_log(
                functools.partial(gateway_calls.mark_call_lost, record.call_id, why_lost, binding=binding)
            )
        elif state is None:
            await self._threads.run_in_thread(
                gateway_calls.undo_call_start, record.call_id, response, now=timezone.now()
            )
        elif can_answer_again:
            await self._threads.run_in_thread(
                gateway_calls.reopen_server_question, record.call_id, state.round, now=timezone.now()
            )
            self._records.release_record_without_ending_call(record)
            return response
        else:
            await self.record_call_result(record.call_id, response)
        self._records.end_call_record(record, "failed", response, f"The server {problem}.")
        return response

    async def audit_brake_stop(
        self, exchange: Exchange, record: CallRecord, binding: CallBinding, brake: ActiveBrake
    ) -> None:
        """Audit that a brake stopped an approved call. The client is notified of the brake in any case."""
        record.decided_by = f"brake {brake.id}"
        origin = CallOrigin(record.session_id, exchange.client.session_id if exchange.client else None)
        note = functools.partial(
            gateway_calls.audit_call_denial, binding, build_brake_ruling(brake), origin, now=timezone.now()
        )
        try:
            await self._records.run_in_event_writer_transaction(note)
        except SignalboxError as problem:
            log.error("A call that a brake stopped is missing from the audit log: %s", problem.detail)

    async def renew_binding_ruling_or_none(
        self, exchange: Exchange, old: CallBinding
    ) -> tuple[CallBinding, Ruling] | None:
        """Return the call as it is to be judged now, and why; None where it is not asked any more, or cannot be."""
        self._registry.invalidate_cached_server(old.server_id)
        server = await self._registry.get_cached_or_load_server(old.server_id)
        if server is None or (not old.is_read and old.tool not in server.tools):
            return None
        judge = functools.partial(deciding.load_ruling_and_access_verdict, is_read=old.is_read)
        ruling, _ = await self._threads.run_in_thread(
            judge, server, old.tool, exchange.caller, old.arguments, timezone.now()
        )
        if ruling.decision != ASK:
            return None
        definition = "" if old.is_read else server.tools[old.tool].definition
        return replace(
            old, definition_digest=definition, policy_version=hash_ruling_as_policy_version(ruling)
        ), ruling


def classify_response_ok_or_error(response: bytes) -> str:
    """Return `ok` for a response with a result, `error` for one that reports a failure."""
    try:
        value = msgspec.json.decode(response)
        failed = "error" in value or value["result"].get("isError") is True
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, AttributeError, TypeError):
        failed = True
    return "error" if failed else "ok"


def restore_server_state_in_call(
    message: McpMessage, inner: str | None, *, keep_responses: bool = False
) -> bytes:
    """Return a call as its server shall get it: without what the client carried for us, with the server's own state.

    Answers to questions that nobody asked yet go with no call: who approved it did not see them.
    """
    dropped = {"requestState"} if keep_responses else {"requestState", "inputResponses"}
    if not dropped & message.params.keys():
        return message.raw
    fields = _fields(message.raw)
    params = {name: value for name, value in _fields(fields["params"]).items() if name not in dropped}
    if inner is not None:
        params["requestState"] = msgspec.Raw(_encode(inner))
    return _encode(fields | {"params": msgspec.Raw(_encode(params))})


def encode_call_with_input_responses(
    message: McpMessage, inner: str | None, answers: dict[str, Any]
) -> bytes:
    """Return a call as its server shall get it once its question was answered: with its state, and what was said."""
    fields = _fields(message.raw)
    params = _fields(fields["params"]) | {"inputResponses": msgspec.Raw(_encode(answers))}
    params.pop("requestState", None)
    if inner is not None:
        params["requestState"] = msgspec.Raw(_encode(inner))
    return _encode(fields | {"params": msgspec.Raw(_encode(params))})


def wrap_server_question_or_none(
    response: bytes, record: CallRecord, binding: CallBinding, round_: int
) -> bytes | None:
    """Return a server's question with a state around its own, by which the answer is known to belong to this call.

    None for a response that asks for nothing.
    """
    if b"input_required" not in response:
        return None
    try:
        fields = _fields(response)
        result = _fields(fields["result"])
        if msgspec.json.decode(result["resultType"]) != "input_required":
            return None
        inner = msgspec.json.decode(result["requestState"]) if "requestState" in result else None
    except (msgspec.MsgspecError, KeyError):
        return None
    until = time.time() + pending_call_lifetime().total_seconds()
    state = ContinuationState(
        record.call_id,
        binding.approval_question_digest,
        until,
        round_,
        inner if isinstance(inner, str) else None,
    )
    result["requestState"] = msgspec.Raw(_encode(seal_call_state(state)))
    return _encode(fields | {"result": msgspec.Raw(_encode(result))})


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """What a call's server asks its client, by names that no other question of the same call has."""

    state: ContinuationState
    requests: dict[str, Any]

    def select_answers_by_question_name(self, reported: dict[str, Any]) -> dict[str, Any]:
        """Return the client's answers by the server's own names, without those to questions that are not open."""
        begins = build_question_name_prefix(self.state)
        return {name.removeprefix(begins): reported[name] for name in self.requests if name in reported}


def parse_server_question_or_none(response: bytes) -> ServerQuestion | None:
    """Return the question in a kept response; None where it asks for nothing, or for nothing any more."""
    result = decode_response_result_or_none(response)
    if not isinstance(result, dict) or result.get("resultType") != "input_required":
        return None
    state, input_requests = unseal_call_state_or_none(result.get("requestState")), result.get("inputRequests")
    if not isinstance(state, ContinuationState):
        return None
    begins = build_question_name_prefix(state)
    return ServerQuestion(
        state,
        {f"{begins}{name}": input_request for name, input_request in input_requests.items()}
        if isinstance(input_requests, dict)
        else {},
    )


def build_question_name_prefix(state: ContinuationState) -> str:
    return f"{state.round + 1}."


def replace_response_id(response: bytes, number: Any) -> bytes:
    """Return a kept response as the answer to another request."""
    return _encode(_fields(response) | {"id": msgspec.Raw(_encode(number))})


def encode_task_request_for_storage(exchange: Exchange) -> bytes:
    """Return what of a request is kept with its task: the body and the headers that go to the server."""
    passed = build_upstream_headers(exchange, "POST")
    headers = {name.decode(): value.decode("latin-1") for name, value in passed.items()}
    return json.dumps({"headers": headers, "body": exchange.message.raw.decode()}).encode()


def decode_stored_task_request(stored_body: bytes) -> tuple[Headers, bytes]:
    """Return the headers and the body of a kept request."""
    value = json.loads(stored_body)
    headers = {name.encode(): text.encode("latin-1") for name, text in value["headers"].items()}
    return headers, value["body"].encode()


def decode_stored_task_answers(stored_body: bytes) -> dict[str, Any]:
    """Return what the client has said, by the questions' names, to its task whose request is kept."""
    task_answers = json.loads(stored_body).get("said", {})
    return task_answers if isinstance(task_answers, dict) else {}


def encode_task_request_with_answers(stored_body: bytes, answers: dict[str, Any]) -> bytes:
    """Return a kept request with what the client has said."""
    return json.dumps(json.loads(stored_body) | {"said": answers}).encode()


STATUSES = {
    CallState.WAITING: "working",
    CallState.RUNNING: "working",
    CallState.CANCELLED: "cancelled",
}


def task_as_client_json(call: GatewayCall, link: str) -> dict[str, Any]:
    """Return a task in the form that clients receive, without its result."""
    waits = call.state == CallState.WAITING
    changed = call.ended_at or call.started_at or call.created_at
    task: dict[str, Any] = {
        "taskId": call.call_id,
        "status": STATUSES.get(CallState(call.state), "completed"),
        "createdAt": format_task_time(call.created_at),
        "lastUpdatedAt": format_task_time(changed),
        "ttlMs": int(pending_call_lifetime().total_seconds() * 1000),
        "pollIntervalMs": POLL_EVERY,
    }
    if waits:
        task["statusMessage"] = f"Waiting for approval. A person decides at {link}."
    return task


def format_task_time(value: Any) -> str:
    return value if isinstance(value, str) else instants.format_canonical_instant(value)
