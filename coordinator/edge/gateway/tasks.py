"""Held calls as tasks (io.modelcontextprotocol/tasks): polled, cancelled, and run when a poll finds them approved.

What a task's server asks its client (2026-07-28) is a question of the task, answered by `tasks/update`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
from django.utils import timezone

from coordinator.actions import gateway_calls
from coordinator.actions.gateway_calls import Attempt, CallPlace
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.line import Line
from coordinator.edge.gateway.records import Records
from coordinator.edge.gateway.registry import Registry
from coordinator.edge.gateway.running import (
    Runner,
    ServerQuestion,
    kept_with,
    opened_message,
    question_in,
    task_of,
    told_with,
)
from coordinator.errors import NotFound
from coordinator.gateway import answers, messages
from coordinator.gateway.binding import Binding
from coordinator.gateway.messages import INVALID_PARAMS, MISSING_CAPABILITY, TASKS, Message
from coordinator.lib import instants
from coordinator.lib.asgi import Message as AsgiMessage
from coordinator.lib.threads import EdgeThreads
from coordinator.models import GatewayCall, PermissionRequest
from coordinator.models.gateway import CallState
from coordinator.policy import approvals as rules
from coordinator.policy.tool_rules import DENY, Ruling

METHODS = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
OURS = "sbx-"
MOST_TRIES = 4  # how often an answer is taken in anew while others come


class Tasks:
    """Answers for tasks of ours. One a process."""

    def __init__(
        self,
        threads: EdgeThreads,
        records: Records,
        runner: Runner,
        registry: Registry,
        linked: Callable[[Exchange], Awaitable[Exchange]],
    ) -> None:
        """`linked` finds the way to a call's server for what came to the door of all servers."""
        self._registry = registry
        self._linked = linked
        self._threads = threads
        self._records = records
        self._runner = runner

    @staticmethod
    def is_ours(message: Message) -> bool:
        return message.method in METHODS and (message.name or "").startswith(OURS)

    async def answer(self, x: Exchange) -> None:
        """Answer a request about one of our tasks."""
        if not declares_tasks(x.message):
            await x.line.answer(ask_to_declare(x.message), 400)
            return
        try:
            call = await self._threads.run(
                gateway_calls.find_task,
                x.message.name or "",
                key_id=x.key.id,
                agent_id=x.agent_id,
                now=timezone.now(),
            )
        except NotFound as problem:
            await x.line.answer(answers.error(x.message.id, INVALID_PARAMS, str(problem.detail)))
            return
        if x.message.method == "tasks/get":
            await self._get(x, call)
        elif x.message.method == "tasks/update":
            await self._update(x, call)
        else:
            await self._threads.run(gateway_calls.cancel_task, call, x.key.actor, now=timezone.now())
            await x.line.answer(answers.result(x.message.id, {"resultType": "complete"}))

    async def _get(self, x: Exchange, call: GatewayCall) -> None:
        request = await self._threads.run(rules.find, call.request_id or "")
        if call.state == CallState.WAITING and not rules.standing(request, timezone.now()).waiting:
            await self._decided(x, call, request)
            call = await self._threads.run(GatewayCall.objects.get, pk=call.call_id)
        elif (question := _question(call)) is not None:
            await self._answered(x, call, question)
            call = await self._threads.run(GatewayCall.objects.get, pk=call.call_id)
        value: dict[str, Any] = {"resultType": "complete", **task_of(call, gateway_calls.card(request))}
        value |= _payload(call, x.message)
        await x.line.answer(answers.result(x.message.id, value))

    async def _update(self, x: Exchange, call: GatewayCall) -> None:
        """Take in what the client says to its server's question; what nobody asks any more is let go."""
        told = x.message.params.get("inputResponses")
        if not isinstance(told, dict):
            words = "A task update must contain inputResponses, an object."
            await x.line.answer(answers.error(x.message.id, INVALID_PARAMS, words))
            return
        for _ in range(MOST_TRIES):
            question = _question(call)
            if question is None:
                break
            kept = gateway_calls.message_of(call)
            said = {name: told[name] for name in question.requests if name in told}
            with_it = kept_with(kept, told_with(kept) | said)
            is_noted = await self._threads.run(gateway_calls.note_said, call, with_it)
            call = await self._threads.run(GatewayCall.objects.get, pk=call.call_id)
            if is_noted:
                await self._answered(x, call, question)
                break
        await x.line.answer(answers.result(x.message.id, {"resultType": "complete"}))

    async def _answered(self, x: Exchange, call: GatewayCall, question: ServerQuestion) -> None:
        """Let a task go on whose client has said all that its server asks."""
        said = question.said(told_with(gateway_calls.message_of(call)))
        if len(said) < len(question.requests):
            return
        original, attempt = await self._attempt(x, call)
        refusal = await self._threads.run(
            gateway_calls.go_on, attempt, question.state.round, now=timezone.now()
        )
        if refusal is None:
            record = self._records.taken_up(original, call.call_id, call.session_id or "", call.tool_name)
            self._runner.run_task(original, record, attempt.binding, question.state, said)
        elif refusal.decision == DENY:
            await self._refuse(original, call, _denied(call, refusal))
        else:
            await self._refuse(original, call, answers.stopped_short(call.tool_name, refusal.reason))

    async def _decided(self, x: Exchange, call: GatewayCall, request: PermissionRequest) -> None:
        now = timezone.now()
        original, attempt = await self._attempt(x, call)
        if rules.standing(request, now).allowed:
            refusal = await self._threads.run(gateway_calls.begin, attempt, request.request_id, now=now)
            if refusal is None:
                record = self._records.taken_up(original, call.call_id, call.session_id or "", call.tool_name)
                record.decided_by = f"approved by {request.approved_by or 'somebody'}"
                self._runner.run_task(original, record, attempt.binding)
                return
            if refusal.decision == DENY:
                words = _denied(call, refusal)
            else:
                words = f"{call.tool_name} did not run. {refusal.reason} Call it again to ask again."
        elif request.status == PermissionRequest.Status.DENIED:
            await self._threads.run(gateway_calls.take_denial, attempt, request.request_id, now=now)
            context = rules.context_of(request)
            words = answers.by_person(call.tool_name, context.reason if context else None)
        else:
            words = answers.undecided(call.tool_name, rules.standing(request, now).word)
        await self._refuse(original, call, words)

    async def _refuse(self, original: Exchange, call: GatewayCall, words: str) -> None:
        """End a task without running it, or its rest; nothing where another line of its client was faster."""
        response = answers.tool_error(original.message, words)
        if await self._threads.run(gateway_calls.refuse_task, call, response, now=timezone.now()):
            record = self._records.taken_up(original, call.call_id, call.session_id or "", call.tool_name)
            self._records.end(record, "denied", response)

    async def _attempt(self, x: Exchange, call: GatewayCall) -> tuple[Exchange, Attempt]:
        """Return the call's own request, and the try to run it. Raises NotFound."""
        original = await self._original(x, call)
        place = CallPlace(call.session_id, call.gateway_session)
        return original, Attempt(call.call_id, _binding(call, original), original.caller, place)

    async def _original(self, x: Exchange, call: GatewayCall) -> Exchange:
        """Return the call's own request, with nobody on its line. Raises NotFound."""
        headers, body = opened_message(gateway_calls.message_of(call))
        server = await self._registry.get(call.server_id)
        if server is None:
            raise NotFound(f"The MCP server {call.server_id} no longer exists.")
        original = replace(x, server=server, headers=headers, message=messages.read(body), line=Line(_nobody))
        return original if x.server.name else await self._linked(original)


def declares_tasks(message: Message) -> bool:
    """Say whether the client of a stateless message says that it knows tasks."""
    extensions = message.capabilities.get("extensions")
    return isinstance(extensions, dict) and TASKS in extensions


def ask_to_declare(message: Message) -> bytes:
    """Return the answer to a client that asks about a task and does not say that it knows them."""
    wanted: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
    words = f"Declare the extension {TASKS} to ask about tasks."
    return answers.error(message.id, MISSING_CAPABILITY, words, wanted)


async def _nobody(_: AsgiMessage) -> None:
    return


def _binding(call: GatewayCall, original: Exchange) -> Binding:
    arguments = original.message.params.get("arguments")
    return Binding(
        original.key.actor,
        call.key_id,
        call.agent_id,
        call.server_id,
        call.tool_name,
        arguments if isinstance(arguments, dict) else None,
        call.arguments_digest,
        call.definition_digest,
        call.policy_version,
    )


def _denied(call: GatewayCall, denial: Ruling) -> str:
    return answers.denied(call.server_id, call.tool_name, denial.reason, gateway_calls.allowed_at(denial))


def _question(call: GatewayCall) -> ServerQuestion | None:
    """Return what a task's server asks its client; None where it does not, or its result was not kept."""
    if call.state != CallState.DONE or call.message is None:
        return None
    try:
        return question_in(gateway_calls.result_of(call))
    except NotFound:
        return None


def _payload(call: GatewayCall, message: Message) -> dict[str, Any]:
    """Return what a task brings: what its server asks, its result once it has ended, or the error that it met."""
    if call.state not in {CallState.DONE, CallState.DENIED, CallState.LOST}:
        return {}
    if (question := _question(call)) is not None:
        return {"status": "input_required", "inputRequests": question.requests}
    try:
        response = msgspec.json.decode(gateway_calls.result_of(call))
    except (NotFound, msgspec.MsgspecError):
        at = call.started_at
        words = answers.unknown_end(
            call.tool_name, "an unknown time" if at is None or isinstance(at, str) else instants.canonical(at)
        )
        response = msgspec.json.decode(answers.tool_error(message, words))
    if "error" in response:
        told = response["error"]
        words = str(told.get("message", "")) if isinstance(told, dict) else ""
        return {"status": "failed", "statusMessage": words, "error": told}
    return {"result": response["result"]}
