"""Pending calls as tasks (io.modelcontextprotocol/tasks): polled, cancelled, and run when a poll finds them approved.

A request of the task's server to its client (2026-07-28) is a question of the task, answered by `tasks/update`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
from django.utils import timezone

from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_calls import CallAttempt, CallOrigin
from coordinator.edge.gateway.approved_calls import (
    ApprovedCallRunner,
    ServerQuestion,
    decode_stored_task_answers,
    decode_stored_task_request,
    encode_task_request_with_answers,
    parse_server_question_or_none,
    task_as_client_json,
)
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.records import CallRecords
from coordinator.edge.gateway.registry import ServerRegistry
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.errors import NotFound
from coordinator.lib import instants
from coordinator.lib.asgi import Message as AsgiMessage
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway.binding import CallBinding
from coordinator.mcp.protocol import messages
from coordinator.mcp.protocol.messages import INVALID_PARAMS, MISSING_CAPABILITY, TASKS, McpMessage
from coordinator.models import GatewayCall, PermissionRequest
from coordinator.models.gateway import CallState
from coordinator.policy.requests import approvals as rules
from coordinator.policy.rules.tool_rules import DENY, Ruling

METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
OURS = "sbx-"
MOST_TRIES = 4  # how often storing an answer is retried while others come


class GatewayTasks:
    """Answers for tasks of ours. One a process."""

    def __init__(
        self,
        threads: EdgeThreads,
        records: CallRecords,
        runner: ApprovedCallRunner,
        registry: ServerRegistry,
        linked: Callable[[Exchange], Awaitable[Exchange]],
    ) -> None:
        """`linked` finds the way to a call's server for what came to the endpoint of all servers."""
        self._registry = registry
        self._linked = linked
        self._threads = threads
        self._records = records
        self._runner = runner

    @staticmethod
    def is_gateway_task_request(message: McpMessage) -> bool:
        return message.method in METHODS and (message.target_name or "").startswith(OURS)

    async def send_gateway_task_answer(self, exchange: Exchange) -> None:
        """Answer a request about one of our tasks."""
        if not has_tasks_capability(exchange.message):
            await exchange.line.send_answer(build_missing_capability_response(exchange.message), 400)
            return
        try:
            call = await self._threads.run_in_thread(
                gateway_calls.require_call_task_marking_lost,
                exchange.message.target_name or "",
                key_id=exchange.caller_key.id,
                agent_id=exchange.agent_id,
                now=timezone.now(),
            )
        except NotFound as problem:
            await exchange.line.send_answer(
                answers.encode_error_response(exchange.message.id, INVALID_PARAMS, str(problem.detail))
            )
            return
        if exchange.message.method == "tasks/get":
            await self.answer_task_get_applying_verdict(exchange, call)
        elif exchange.message.method == "tasks/update":
            await self.apply_task_input_responses(exchange, call)
        else:
            await self._threads.run_in_thread(
                gateway_calls.cancel_call_task, call, exchange.caller_key.caller_actor, now=timezone.now()
            )
            await exchange.line.send_answer(
                answers.encode_result_response(exchange.message.id, {"resultType": "complete"})
            )

    async def answer_task_get_applying_verdict(self, exchange: Exchange, call: GatewayCall) -> None:
        request = await self._threads.run_in_thread(rules.require_permission_request, call.request_id or "")
        if (
            call.state == CallState.WAITING
            and not rules.current_request_state(request, timezone.now()).waiting
        ):
            await self.apply_task_verdict(exchange, call, request)
            call = await self._threads.run_in_thread(GatewayCall.objects.get, pk=call.call_id)
        elif (question := find_task_input_question(call)) is not None:
            await self.continue_task_when_input_complete(exchange, call, question)
            call = await self._threads.run_in_thread(GatewayCall.objects.get, pk=call.call_id)
        value: dict[str, Any] = {
            "resultType": "complete",
            **task_as_client_json(call, gateway_calls.approval_url(request)),
        }
        value |= build_task_result_fields(call, exchange.message)
        await exchange.line.send_answer(answers.encode_result_response(exchange.message.id, value))

    async def apply_task_input_responses(self, exchange: Exchange, call: GatewayCall) -> None:
        """Take in what the client says to its server's question; what nobody asks any more is let go."""
        input_responses = exchange.message.params.get("inputResponses")
        if not isinstance(input_responses, dict):
            refusal_text = "A task update must contain inputResponses, an object."
            await exchange.line.send_answer(
                answers.encode_error_response(exchange.message.id, INVALID_PARAMS, refusal_text)
            )
            return
        for _ in range(MOST_TRIES):
            question = find_task_input_question(call)
            if question is None:
                break
            call_message = gateway_calls.decrypt_task_request_bytes(call)
            client_answers = {
                name: input_responses[name] for name in question.requests if name in input_responses
            }
            with_it = encode_task_request_with_answers(
                call_message, decode_stored_task_answers(call_message) | client_answers
            )
            is_noted = await self._threads.run_in_thread(
                gateway_calls.try_save_client_task_answer, call, with_it
            )
            call = await self._threads.run_in_thread(GatewayCall.objects.get, pk=call.call_id)
            if is_noted:
                await self.continue_task_when_input_complete(exchange, call, question)
                break
        await exchange.line.send_answer(
            answers.encode_result_response(exchange.message.id, {"resultType": "complete"})
        )

    async def continue_task_when_input_complete(
        self, exchange: Exchange, call: GatewayCall, question: ServerQuestion
    ) -> None:
        """Let a task go on whose client has said all that its server asks."""
        client_answers = question.select_answers_by_question_name(
            decode_stored_task_answers(gateway_calls.decrypt_task_request_bytes(call))
        )
        if len(client_answers) < len(question.requests):
            return
        original, attempt = await self.restore_task_call_attempt(exchange, call)
        refusal = await self._threads.run_in_thread(
            gateway_calls.resume_call_or_return_denial, attempt, question.state.round, now=timezone.now()
        )
        if refusal is None:
            record = self._records.resume_call_record(
                original, call.call_id, call.session_id or "", call.tool_name
            )
            self._runner.start_task_call_in_background(
                original, record, attempt.binding, question.state, client_answers
            )
        elif refusal.decision == DENY:
            await self.end_task_call_with_refusal(original, call, describe_task_denial(call, refusal))
        else:
            await self.end_task_call_with_refusal(
                original, call, answers.describe_stopped_call(call.tool_name, refusal.reason)
            )

    async def apply_task_verdict(
        self, exchange: Exchange, call: GatewayCall, request: PermissionRequest
    ) -> None:
        now = timezone.now()
        original, attempt = await self.restore_task_call_attempt(exchange, call)
        if rules.current_request_state(request, now).allowed:
            refusal = await self._threads.run_in_thread(
                gateway_calls.begin_approved_call_or_return_ruling, attempt, request.request_id, now=now
            )
            if refusal is None:
                record = self._records.resume_call_record(
                    original, call.call_id, call.session_id or "", call.tool_name
                )
                record.decided_by = f"approved by {request.approved_by or 'somebody'}"
                self._runner.start_task_call_in_background(original, record, attempt.binding)
                return
            if refusal.decision == DENY:
                denial_text = describe_task_denial(call, refusal)
            else:
                denial_text = f"{call.tool_name} did not run. {refusal.reason} Call it again to ask again."
        elif request.status == PermissionRequest.Status.DENIED:
            await self._threads.run_in_thread(
                gateway_calls.consume_call_denial, attempt, request.request_id, now=now
            )
            context = rules.request_context(request)
            denial_text = answers.describe_person_denial(call.tool_name, context.reason if context else None)
        else:
            denial_text = answers.describe_call_closed_undecided(
                call.tool_name, rules.current_request_state(request, now).word
            )
        await self.end_task_call_with_refusal(original, call, denial_text)

    async def end_task_call_with_refusal(self, original: Exchange, call: GatewayCall, text: str) -> None:
        """End a task without running it, or its rest; nothing where another line of its client was faster."""
        response = answers.encode_tool_error_response(original.message, text)
        if await self._threads.run_in_thread(
            gateway_calls.end_refused_call_task, call, response, now=timezone.now()
        ):
            record = self._records.resume_call_record(
                original, call.call_id, call.session_id or "", call.tool_name
            )
            self._records.end_call_record(record, "denied", response)

    async def restore_task_call_attempt(
        self, exchange: Exchange, call: GatewayCall
    ) -> tuple[Exchange, CallAttempt]:
        """Return the call's own request, and the try to run it. Raises NotFound."""
        original = await self.require_restored_task_exchange(exchange, call)
        origin = CallOrigin(call.session_id, call.gateway_session)
        return original, CallAttempt(
            call.call_id, build_task_call_binding(call, original), original.caller, origin
        )

    async def require_restored_task_exchange(self, exchange: Exchange, call: GatewayCall) -> Exchange:
        """Return the call's own request, with nobody on its line. Raises NotFound."""
        headers, body = decode_stored_task_request(gateway_calls.decrypt_task_request_bytes(call))
        server = await self._registry.get_cached_or_load_server(call.server_id)
        if server is None:
            raise NotFound(f"The MCP server {call.server_id} no longer exists.")
        original = replace(
            exchange,
            server=server,
            headers=headers,
            message=messages.parse_mcp_message(body),
            line=ResponseStream(discard_task_message),
        )
        return original if exchange.server.name else await self._linked(original)


def has_tasks_capability(message: McpMessage) -> bool:
    """Say whether the client of a stateless message says that it knows tasks."""
    extensions = message.stateless_client_capabilities.get("extensions")
    return isinstance(extensions, dict) and TASKS in extensions


def build_missing_capability_response(message: McpMessage) -> bytes:
    """Return the answer to a client that asks about a task and does not say that it knows them."""
    required: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    refusal_text = f"Declare the extension {TASKS} to ask about tasks."
    return answers.encode_error_response(message.id, MISSING_CAPABILITY, refusal_text, required)


async def discard_task_message(_: AsgiMessage) -> None:
    return


def build_task_call_binding(call: GatewayCall, original: Exchange) -> CallBinding:
    arguments = original.message.params.get("arguments")
    return CallBinding(
        original.caller_key.caller_actor,
        call.key_id,
        call.agent_id,
        call.server_id,
        call.tool_name,
        arguments if isinstance(arguments, dict) else None,
        call.arguments_digest,
        call.definition_digest,
        call.policy_version,
    )


def describe_task_denial(call: GatewayCall, denial: Ruling) -> str:
    return answers.describe_policy_denial(
        call.server_id, call.tool_name, denial.reason, gateway_calls.policy_page_url(denial)
    )


def find_task_input_question(call: GatewayCall) -> ServerQuestion | None:
    """Return what a task's server asks its client; None where it does not, or its result was not kept."""
    if call.state != CallState.DONE or call.message is None:
        return None
    try:
        return parse_server_question_or_none(gateway_calls.require_decrypted_call_response(call))
    except NotFound:
        return None


def build_task_result_fields(call: GatewayCall, message: McpMessage) -> dict[str, Any]:
    """Return what a task brings: what its server asks, its result once it has ended, or the error that it met."""
    if call.state not in {CallState.DONE, CallState.DENIED, CallState.LOST}:
        return {}
    if (question := find_task_input_question(call)) is not None:
        return {"status": "input_required", "inputRequests": question.requests}
    try:
        response = msgspec.json.decode(gateway_calls.require_decrypted_call_response(call))
    except (NotFound, msgspec.MsgspecError):
        at = call.started_at
        unknown_end_text = answers.describe_call_with_unknown_end(
            call.tool_name,
            "an unknown time" if at is None or isinstance(at, str) else instants.format_canonical_instant(at),
        )
        response = msgspec.json.decode(answers.encode_tool_error_response(message, unknown_end_text))
    if "error" in response:
        error = response["error"]
        unknown_end_text = str(error.get("message", "")) if isinstance(error, dict) else ""
        return {"status": "failed", "statusMessage": unknown_end_text, "error": error}
    return {"result": response["result"]}
