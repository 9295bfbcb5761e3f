"""Calls of local MCP servers (`signalbox mcp`): decided and recorded here, sent on the agent's machine.

The same rules apply as at `/mcp`. A client that waits for a decision asks again with the call's id.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import msgspec
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_calls import CallAttempt, CallOrigin
from coordinator.client import mcp_methods
from coordinator.client.mcp_methods import RequestUse
from coordinator.edge.gateway.approved_calls import ApprovedCallRunner
from coordinator.edge.gateway.audited_refusals import RefusalAudit
from coordinator.edge.gateway.calls import ToolCallHandler, build_approval_binding_from_record
from coordinator.edge.gateway.exchange import (
    Exchange,
    is_client_timeout_reason,
    parse_signalbox_session_or_none,
    resolve_agent_id_of_caller,
)
from coordinator.edge.gateway.listings import AgentToolListings
from coordinator.edge.gateway.non_tool_requests import UNKNOWN_METHOD, describe_non_tool_refusal
from coordinator.edge.gateway.pending_calls import CANCELLED
from coordinator.edge.gateway.records import CallRecord, CallRecords
from coordinator.edge.gateway.registry import ServerRegistry
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.server_requests import ServerRequestGate
from coordinator.edge.http.auth import Admission, Authenticator
from coordinator.edge.http.bodies import SLOW_TO_DECODE, RequestBodies
from coordinator.edge.http.concurrency import ConcurrencyLimit
from coordinator.edge.http.messages import (
    ClientDisconnected,
    get_edge_operation_of_request,
    get_request_headers,
    send_json,
)
from coordinator.edge.policy.brake_gate import BrakeGate
from coordinator.edge.policy.rulings import build_brake_ruling
from coordinator.edge.polling.waits import DisconnectWatcher, LongPollWaiters
from coordinator.errors import Forbidden, NotFound, SignalboxError, UnprocessableRequest
from coordinator.lib import json_bounds
from coordinator.lib.asgi import Message as AsgiMessage
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway.binding import CallBinding
from coordinator.mcp.gateway.server_requests import UNREADABLE, ServerRequest, parse_server_request_or_none
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.protocol import messages
from coordinator.mcp.protocol.messages import UnreadableMessage
from coordinator.mcp.servers.tools import parse_decoded_tool_listing
from coordinator.models import PermissionRequest
from coordinator.policy.limits.brakes import ActiveBrake
from coordinator.policy.requests import approvals as rules
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, Ruling, stricter_ruling

T = TypeVar("T")

QUESTION_WAIT_SECONDS = 25.0  # seconds for which one question is held
MAX_PENDING_CALLS = 4_000
MOST_TRIES = 4
CHANGED = "The policy changed while the call waited. Call it again."

CALL = "tools/call"

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


class CallQuestion(msgspec.Struct):
    """A call that is about to be sent. `arguments` is their JSON as text; `call_id` comes with a question put again.

    Of another request `method` says which; then `tool` is the same, and `arguments` are the params. One that comes
    `from_server` is asked of the agent's client.

    Who names the call itself says whether its question `begins`, as far as it knows.
    """

    server: Name
    tool: Name
    arguments: str = "{}"
    definition: Any = None
    session: Name | None = None
    call_id: Name | None = None
    begins: bool = False
    method: str = CALL
    from_server: bool = False


class CallCancellation(msgspec.Struct):
    """Why a client wants a call no more, in its own words."""

    reason: str = ""


class CallEnd(msgspec.Struct):
    """How a call ended. `result` is its JSON as text, possibly cut off."""

    is_error: bool = False
    milliseconds: Annotated[int, msgspec.Meta(ge=0, le=10**10)] = 0
    result: str = ""


class LocalToolListing(msgspec.Struct):
    """The tools that a server lists, each as its definition."""

    tools: list[Any]


Answer = dict[str, Any]


class LocalCallEndpoint:
    """The endpoints of one process."""

    def __init__(
        self,
        auth: Authenticator,
        *,
        bodies: RequestBodies,
        calls: ToolCallHandler,
        listings: AgentToolListings,
        records: CallRecords,
        refusals: RefusalAudit,
        registry: ServerRegistry,
        runner: ApprovedCallRunner,
        gate: BrakeGate,
        waits: LongPollWaiters,
        threads: EdgeThreads,
        server_requests: ServerRequestGate,
    ) -> None:
        self._server_requests = server_requests
        self._auth = auth
        self._bodies = bodies
        self._calls = calls
        self._listings = listings
        self._records = records
        self._refusals = refusals
        self._registry = registry
        self._runner = runner
        self._gate = gate
        self._waits = waits
        self._threads = threads
        self._pending_limit = ConcurrencyLimit(MAX_PENDING_CALLS, "calls that wait for people")

    async def handle_call_decision_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/mcp/calls`: whether a call may be sent; held for up to 25 seconds while a person is asked."""
        admission, raw = await self.authenticate_and_read_local_call(scope, receive)
        question = decode_local_body(raw, CallQuestion)
        with DisconnectWatcher(receive) as disconnect_watcher:
            read = choose_message_builder_for_question(question)
            is_large = len(raw) >= SLOW_TO_DECODE
            message = await self._bodies.decode_in_thread(read, question) if is_large else read(question)
            local_exchange = await self.build_local_exchange(
                scope, admission, question.server, disconnect_watcher, message
            )
            local_exchange.named_session = question.session or local_exchange.named_session
            await self.require_local_access_auditing_refusal(local_exchange)
            await self.store_listing_and_list_digests(
                local_exchange.server, [question.definition] if question.definition is not None else []
            )
            local_exchange.server = await self.require_enabled_server_auditing_refusal(
                question.server, admission, local_exchange.agent_id
            )
            decide = (
                self.await_local_call_decision
                if question.method == CALL
                else self.decide_local_non_tool_request
            )
            if question.from_server:
                decide = self.decide_local_server_request
            answer = await decide(local_exchange, question)
            if not disconnect_watcher.happened:
                await send_json(send, 200, answer)

    async def record_local_call_end(self, call_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/mcp/calls/{call_id}/end`: how a call that was allowed has ended."""
        admission, raw = await self.authenticate_and_read_local_call(scope, receive)
        ending = decode_local_body(raw, CallEnd)
        agent_id = resolve_agent_id_of_caller(admission, get_request_headers(scope))
        call = await self._threads.run_in_thread(
            gateway_calls.require_and_end_local_call,
            call_id,
            key_id=admission.caller.id,
            agent_id=agent_id,
            now=timezone.now(),
        )
        with DisconnectWatcher(receive) as disconnect_watcher:
            local_exchange = await self.build_local_exchange(
                scope,
                admission,
                call.server_id,
                disconnect_watcher,
                build_tools_call_without_arguments(call.tool_name),
            )
            record = self._records.resume_call_record(
                local_exchange, call_id, call.session_id or "", call.tool_name
            )
            record.began = time.perf_counter()
            record.upstream = ending.milliseconds / 1000
            response = encode_local_response_or_none(ending)
            self._records.end_call_record(record, "error" if ending.is_error else "ok", response)
        await send_json(send, 200, {"ok": True})

    async def cancel_local_call(self, call_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/mcp/calls/{call_id}/cancel`: a call that was not sent is not wanted any more."""
        admission, raw = await self.authenticate_and_read_local_call(scope, receive)
        reason = decode_local_body(raw, CallCancellation).reason
        agent_id = resolve_agent_id_of_caller(admission, get_request_headers(scope))
        call = await self._threads.run_in_thread(
            gateway_calls.cancel_local_call_before_start,
            call_id[:500],
            admission.caller.caller_actor,
            key_id=admission.caller.id,
            agent_id=agent_id,
            keeps_card=is_client_timeout_reason(reason),
            now=timezone.now(),
        )
        if call is not None:
            with DisconnectWatcher(receive) as disconnect_watcher:
                message = build_tools_call_without_arguments(call.tool_name)
                local_exchange = await self.build_local_exchange(
                    scope, admission, call.server_id, disconnect_watcher, message
                )
                record = self._records.resume_call_record(
                    local_exchange, call_id, call.session_id or "", call.tool_name
                )
                self._records.end_call_record(record, "held", None, CANCELLED)
        await send_json(send, 200, {"ok": True})

    async def store_listing_and_send_visible(
        self, server_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`POST /api/mcp/listings/{server}`: which of a server's tools the agent may see."""
        admission, raw = await self.authenticate_and_read_local_call(scope, receive)
        local_body = decode_local_body(raw, LocalToolListing)
        with DisconnectWatcher(receive) as disconnect_watcher:
            local_exchange = await self.build_local_exchange(
                scope, admission, server_id, disconnect_watcher, build_tools_call_without_arguments("")
            )
            await self.require_local_access_auditing_refusal(local_exchange)
            listing = await self.store_listing_and_list_digests(local_exchange.server, local_body.tools)
            local_exchange.server = await self.require_enabled_server_auditing_refusal(
                server_id, admission, local_exchange.agent_id
            )
            names = await self._listings.filter_visible_names(local_exchange, listing)
        await send_json(send, 200, {"tools": names})

    async def authenticate_and_read_local_call(
        self, scope: Scope, receive: Receive
    ) -> tuple[Admission, bytes]:
        headers = get_request_headers(scope)
        admission = await self._auth.admit_api_key_caller(scope, headers)
        with self._bodies.reserve_body_during_block(f"key:{admission.caller.id}") as reservation:
            return admission, await reservation.read_body(
                receive, headers, get_edge_operation_of_request(scope).body.key
            )

    async def build_local_exchange(
        self,
        scope: Scope,
        admission: Admission,
        server_id: str,
        disconnect: DisconnectWatcher,
        message: messages.McpMessage,
    ) -> Exchange:
        headers = get_request_headers(scope)
        agent_id = resolve_agent_id_of_caller(admission, headers)
        return Exchange(
            admission,
            agent_id,
            headers,
            message,
            await self.require_enabled_server_auditing_refusal(server_id, admission, agent_id),
            ResponseStream(discard_asgi_message),
            disconnect,
            time.perf_counter(),
            named_session=parse_signalbox_session_or_none(headers),
        )

    async def require_local_access_auditing_refusal(self, exchange: Exchange) -> None:
        """Raise Forbidden unless the server is local and the agent may use it."""
        name = exchange.server.name
        problem: SignalboxError
        if not await self._listings.can_agent_reach_server(exchange):
            problem = Forbidden(f"{exchange.agent_id} has no grant for anything of the MCP server {name}.")
        elif not exchange.server.is_only_on_agent_machine:
            problem = Forbidden(
                f"The MCP server {name} is reached through Signalbox: use `signalbox mcp {name}`."
            )
        else:
            return
        await self._refusals.audit_access_refusal_with_throttle(
            exchange.admission, exchange.agent_id, name, problem, is_known_server=True
        )
        raise problem

    async def require_enabled_server_auditing_refusal(
        self, server_id: str, admission: Admission, agent_id: str
    ) -> UpstreamServer:
        registered_server = await self._registry.get_cached_or_load_server(server_id)
        if registered_server is None:
            refusal_text = f"There is no MCP server {server_id[:100]!r} here. Ask an admin to register it."
            problem = NotFound(refusal_text)
            await self._refusals.audit_access_refusal_with_throttle(
                admission, agent_id, server_id, problem, is_known_server=False
            )
            raise problem
        if registered_server.is_off:
            raise NotFound(f"The MCP server {server_id} is switched off.")
        return registered_server

    async def store_listing_and_list_digests(
        self, server: UpstreamServer, tools: list[Any]
    ) -> list[tuple[str, str]]:
        """Note what a server lists; return names and digests. Raises UnprocessableRequest."""
        listing = parse_decoded_tool_listing({"tools": tools})
        await self._listings.store_listed_tools(server, listing)
        return [(tool.name, tool.definition_digest) for tool in listing.tools]

    async def await_local_call_decision(self, exchange: Exchange, question: CallQuestion) -> Answer:
        tool, arguments = question.tool, exchange.message.params.get("arguments")
        session_id = await self._records.get_or_create_timeline_session_id(exchange)
        ruling, _ = await self._calls.decide_call(exchange, tool, arguments, session_id)
        call_id = question.call_id or gateway_calls.new_gateway_call_id()
        is_again = question.call_id is not None and not question.begins
        if question.begins and question.call_id:  # or the client did not receive the first answer
            is_again = await self._threads.run_in_thread(gateway_calls.is_call_id_taken, call_id)
        if is_again:
            record = self._records.resume_call_record(exchange, call_id, session_id, tool)
        else:
            record = self._records.create_record_and_schedule_write(
                exchange, call_id, session_id, tool, arguments
            )
        record.decided_by = f"{ruling.decision} ({ruling.by})" if ruling.by else ""
        if ruling.decision == DENY:
            denial_text = await self._calls.audit_denial_and_build_text(exchange, record, ruling)
            attempt = CallAttempt(
                call_id,
                build_approval_binding_from_record(exchange, record, ruling),
                exchange.caller,
                CallOrigin(session_id),
            )
            await self._threads.run_in_thread(gateway_calls.delete_waiting_local_call, attempt)
            return self.end_record_and_build_denial(record, denial_text)
        event_id = None if is_again else await self._records.write_call_begin_returning_id(record)
        origin = CallOrigin(session_id, event_id=event_id, client="signalbox mcp")
        binding = build_approval_binding_from_record(exchange, record, ruling)
        attempt = CallAttempt(call_id, binding, exchange.caller, origin, is_local=True)
        if ruling.decision == ASK:
            return await self.open_and_await_approval_unless_cancelled(exchange, record, ruling, attempt)
        if (brake := await exchange.find_brake_of_calling_agent(self._gate)) is not None:
            return await self.undo_approval_and_build_denial(exchange, record, attempt, brake)
        denied = await self._threads.run_in_thread(
            gateway_calls.begin_local_call_or_return_denial, attempt, now=timezone.now()
        )
        if denied is not None:
            return self.end_record_and_build_person_denial(record, denied)
        return {"decision": "allow", "call_id": call_id}

    async def decide_local_non_tool_request(self, exchange: Exchange, question: CallQuestion) -> Answer:
        """Answer whether a request other than a call may be sent, at once: nobody is asked about one.

        The answer to what a task's server asks (`tasks/update`) is held by a brake alone, as at the gateway.
        """
        method, use = question.method, mcp_methods.classify_mcp_request(exchange.message.value)
        session_id = await self._records.get_or_create_timeline_session_id(exchange)
        record = self._records.begin_non_tool_request_record(
            exchange, session_id, method if use else UNKNOWN_METHOD, exchange.message.params
        )
        is_update = method == mcp_methods.TASK_UPDATE
        if use not in {RequestUse.READ, RequestUse.LIST} and not is_update:
            return self.end_record_and_build_denial(
                record, f"The method {method[:100]!r} is not asked about."
            )
        ruling = Ruling(ALLOW)
        if not is_update:
            ruling, _ = await self._calls.decide_call(
                exchange, method, exchange.message.params, session_id, is_read=True
            )
        if (
            use is not RequestUse.LIST
            and (brake := await exchange.find_brake_of_calling_agent(self._gate)) is not None
        ):
            ruling = stricter_ruling(ruling, build_brake_ruling(brake))
        record.decided_by = f"{ruling.decision} ({ruling.by})" if ruling.by else ""
        if ruling.decision == DENY or (ruling.decision == ASK and use is RequestUse.READ):
            refusal_message = describe_non_tool_refusal(exchange, method, ruling)
            await self._refusals.audit_access_refusal_with_throttle(
                exchange.admission,
                exchange.agent_id,
                exchange.server.name,
                Forbidden(refusal_message),
                is_known_server=True,
            )
            return self.end_record_and_build_denial(record, refusal_message)
        self._records.end_call_record(record, "ok", None)
        return {"decision": "allow", "call_id": record.call_id}

    async def decide_local_server_request(self, exchange: Exchange, question: CallQuestion) -> Answer:
        """Answer whether a server's request may reach the agent's client, at once: nobody is asked about one."""
        size = len(question.arguments)
        read = functools.partial(build_server_request, question)
        request = await self._bodies.decode_in_thread(read) if size >= SLOW_TO_DECODE else read()
        refusal = await self._server_requests.record_and_find_local_refusal(exchange, request, size)
        if refusal is None:
            return {"decision": "allow"}
        return {
            "decision": "deny",
            "reason": refusal.describe_server_request_refusal(exchange.server.name),
            "braked": refusal.brake is not None,
        }

    async def open_and_await_approval_unless_cancelled(
        self, exchange: Exchange, record: CallRecord, ruling: Ruling, attempt: CallAttempt
    ) -> Answer:
        try:
            answer = await self.request_local_approval_and_wait(exchange, record, ruling, attempt)
        except gateway_calls.CallCancelled:
            self._records.release_record_without_ending_call(
                record
            )  # its end is written where it is cancelled
            return {"decision": "deny", "call_id": attempt.call_id, "reason": CANCELLED}
        if answer["decision"] == DENY:
            await self._threads.run_in_thread(gateway_calls.delete_waiting_local_call, attempt)
        return answer

    async def request_local_approval_and_wait(
        self, exchange: Exchange, record: CallRecord, ruling: Ruling, attempt: CallAttempt
    ) -> Answer:
        if await self._threads.run_in_thread(gateway_calls.is_local_call_begun, attempt):
            if (brake := await exchange.find_brake_of_calling_agent(self._gate)) is not None:
                return await self.undo_approval_and_build_denial(exchange, record, attempt, brake)
            return {"decision": "allow", "call_id": attempt.call_id}
        with self._pending_limit.reserve_slot_during_block(exchange.caller_key.name):
            for _ in range(MOST_TRIES):
                row = await self._threads.run_in_thread(
                    gateway_calls.request_agent_local_call_approval, attempt, ruling, now=timezone.now()
                )
                decision = await self.await_decided_request_or_none(exchange, row, attempt.call_id)
                if decision is None:
                    return await self.defer_request_and_build_answer(row, attempt)
                answer = await self.apply_verdict_and_build_answer(exchange, record, attempt, decision)
                if answer is not None:
                    return answer
                fresh = await self._runner.renew_binding_ruling_or_none(exchange, attempt.binding)
                if fresh is None:
                    await self._calls.audit_denial_and_build_text(
                        exchange, record, Ruling(DENY, CHANGED, "gateway")
                    )
                    break
                ruling = fresh[1]
                attempt = CallAttempt(
                    attempt.call_id, fresh[0], attempt.caller, attempt.origin, is_local=True
                )
        return self.end_record_and_build_denial(record, CHANGED)

    async def await_decided_request_or_none(
        self, exchange: Exchange, row: PermissionRequest, call_id: str
    ) -> PermissionRequest | None:
        waited = await self._waits.wait_until(
            functools.partial(find_decided_local_request, row.request_id, call_id),
            topics=[f"permission_requests:{row.pk}", f"gateway_calls:{call_id}"],
            timeout=QUESTION_WAIT_SECONDS,
            still_allowed=exchange.admission.require_still_allowed,
            disconnect=exchange.disconnect,
        )
        if exchange.disconnect.happened:
            raise ClientDisconnected
        await exchange.admission.require_still_allowed()
        return waited

    async def defer_request_and_build_answer(self, row: PermissionRequest, attempt: CallAttempt) -> Answer:
        closing_reason = "The agent's `signalbox mcp` goes on asking."
        await self._threads.run_in_thread(
            approvals.mark_request_deferred_or_none,
            row.request_id,
            actor=attempt.binding.by,
            reason=closing_reason,
            now=timezone.now(),
        )
        approval_url = gateway_calls.approval_url(row)
        return {
            "decision": "wait",
            "call_id": attempt.call_id,
            "request_id": row.request_id,
            "card": approval_url,
            "reason": f"Waits for approval at {approval_url}.",
        }

    async def undo_approval_and_build_denial(
        self, exchange: Exchange, record: CallRecord, attempt: CallAttempt, brake: ActiveBrake
    ) -> Answer:
        """Refuse a call that a brake holds; one that was allowed before, unheard, is not sent either."""
        await self._threads.run_in_thread(
            gateway_calls.restore_unused_local_approval, attempt, now=timezone.now()
        )
        await self._calls.audit_denial_and_build_text(exchange, record, build_brake_ruling(brake))
        return self.end_record_and_build_denial(record, brake.agent_message)

    async def apply_verdict_and_build_answer(
        self, exchange: Exchange, record: CallRecord, attempt: CallAttempt, row: PermissionRequest
    ) -> Answer | None:
        """Return the answer by a person's verdict; None where it does not count for this call any more."""
        now, binding = timezone.now(), attempt.binding
        current_request_state = rules.current_request_state(row, now)
        if current_request_state.allowed:
            if (brake := await exchange.find_brake_of_calling_agent(self._gate)) is not None:
                return await self.undo_approval_and_build_denial(exchange, record, attempt, brake)
            refusal = await self._threads.run_in_thread(
                gateway_calls.begin_approved_call_or_return_ruling, attempt, row.request_id, now=now
            )
            if refusal is not None and refusal.decision == DENY:
                return self.end_record_and_build_denial(record, describe_local_denial(binding, refusal))
            # Another line of the same call may have been faster.
            if refusal is None or await self._threads.run_in_thread(
                gateway_calls.is_local_call_begun, attempt
            ):
                return {"decision": "allow", "call_id": attempt.call_id}
            return None
        if row.status == PermissionRequest.Status.DENIED:
            await self._threads.run_in_thread(
                gateway_calls.consume_call_denial, attempt, row.request_id, now=now
            )
            return self.end_record_and_build_person_denial(record, row)
        return self.end_record_and_build_denial(
            record, answers.describe_call_closed_undecided(binding.tool, current_request_state.word)
        )

    def end_record_and_build_person_denial(self, record: CallRecord, row: PermissionRequest) -> Answer:
        """Return the answer by a person's denial."""
        context = rules.request_context(row)
        record.decided_by = f"denied by {row.approved_by or 'somebody'}"
        return self.end_record_and_build_denial(
            record, answers.describe_person_denial(record.tool, context.reason if context else None)
        )

    def end_record_and_build_denial(self, record: CallRecord, text: str) -> Answer:
        self._records.end_call_record(record, "denied", None, text)
        return {"decision": "deny", "call_id": record.call_id, "reason": text}


def decode_local_body(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise UnprocessableRequest(f"The body cannot be read: {problem}") from None


def build_tools_call_message(question: CallQuestion) -> messages.McpMessage:
    """Return the call as the message that will be sent, its arguments as the text that was reported."""
    name = json.dumps(question.tool)
    begins = f'{{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{{"name":{name},"arguments":'
    text = f"{begins}{question.arguments}}}}}"
    try:
        message = messages.parse_mcp_message(text.encode("utf-8", "surrogatepass"))
    except UnreadableMessage as problem:
        raise UnprocessableRequest(f"The arguments cannot be judged: {problem}") from None
    same = message.raw_arguments.decode() == question.arguments.strip()
    if not same or not isinstance(message.params.get("arguments"), dict):
        raise UnprocessableRequest("The arguments must be one JSON object.")
    return message


def build_client_non_tool_request(question: CallQuestion) -> messages.McpMessage:
    """Return a request other than a call as the message that it will be."""
    begins = f'{{"jsonrpc":"2.0","id":0,"method":{json.dumps(question.method)},"params":'
    try:
        is_object = isinstance(json.loads(question.arguments), dict)
        message = messages.parse_mcp_message(
            f"{begins}{question.arguments}}}".encode("utf-8", "surrogatepass")
        )
    except (ValueError, RecursionError, UnreadableMessage) as problem:
        raise UnprocessableRequest(f"The parameters cannot be judged: {problem}") from None
    if not is_object:
        raise UnprocessableRequest("The parameters must be one JSON object.")
    return message


def choose_message_builder_for_question(
    question: CallQuestion,
) -> Callable[[CallQuestion], messages.McpMessage]:
    """Return what reads the client's message that a question is about; a server's request is none."""
    if question.from_server:
        return lambda _question: build_tools_call_without_arguments("")
    return build_tools_call_message if question.method == CALL else build_client_non_tool_request


def build_server_request(question: CallQuestion) -> ServerRequest:
    """Return the server's request that a question is about."""
    begins = f'{{"jsonrpc":"2.0","id":0,"method":{json.dumps(question.method)},"params":'
    request = parse_server_request_or_none(f"{begins}{question.arguments}}}".encode("utf-8", "surrogatepass"))
    is_object = question.arguments.lstrip().startswith("{")
    if request is None or not is_object or request.method not in {question.method, UNREADABLE}:
        raise UnprocessableRequest("The request cannot be judged.")
    return request


def build_tools_call_without_arguments(tool: str) -> messages.McpMessage:
    return messages.McpMessage(
        b"", {"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": {"name": tool}}
    )


def encode_local_response_or_none(ending: CallEnd) -> bytes | None:
    """Return what a server answered as a response; one that was cut off as text."""
    if not ending.result:
        return None
    try:
        value = json_bounds.load_bounded_json(ending.result)
    except ValueError:
        value = {"content": [{"type": "text", "text": ending.result[:3_000]}]}
    result = value if isinstance(value, dict) else {"content": []}
    if "code" in result and "message" in result and "content" not in result:
        return answers.encode_error_response(0, -32000, str(result["message"]))
    return answers.encode_result_response(0, result)


def describe_local_denial(binding: CallBinding, denial: Ruling) -> str:
    return answers.describe_policy_denial(
        binding.server_id, binding.tool, denial.reason, gateway_calls.policy_page_url(denial)
    )


def find_decided_local_request(request_id: str, call_id: str) -> PermissionRequest | None:
    gateway_calls.raise_if_call_cancelled(call_id)
    row = rules.require_permission_request(request_id)
    return None if rules.current_request_state(row, timezone.now()).waiting else row


async def discard_asgi_message(_: AsgiMessage) -> None:
    return
