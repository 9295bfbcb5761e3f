"""Sending an approved call, once: it goes on when its client leaves, and its result is kept for whoever comes back."""

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

from coordinator.actions import gateway_calls
from coordinator.actions.approvals.holding import held_for
from coordinator.actions.gateway_calls import CallPlace
from coordinator.edge.brake_gate import BrakeGate
from coordinator.edge.gateway.exchange import Exchange, headers_for_server
from coordinator.edge.gateway.line import Line
from coordinator.edge.gateway.links import SessionOver
from coordinator.edge.gateway.records import CallRecord, Records
from coordinator.edge.gateway.registry import Registry
from coordinator.edge.gateway.sending import Sending
from coordinator.edge.gateway.upstreams import Forgotten, LeftOpen, finish
from coordinator.edge.http import Headers
from coordinator.edge.notes import Notes
from coordinator.edge.rulings import by_brake
from coordinator.errors import SignalboxError
from coordinator.gateway import answers, deciding
from coordinator.gateway.binding import Binding, policy_version
from coordinator.gateway.http_client import UpstreamFailed
from coordinator.gateway.listing import result_of
from coordinator.gateway.messages import Message
from coordinator.gateway.servers import Server
from coordinator.gateway.states import GoOnState, opened, packed
from coordinator.lib import instants
from coordinator.lib.threads import EdgeThreads
from coordinator.models import GatewayCall
from coordinator.models.gateway import CallState
from coordinator.policy.brakes import Braked
from coordinator.policy.tool_rules import ASK, Ruling

log = logging.getLogger(__name__)

HEARD_ELSEWHERE = "The client hears the end on another stream."
POLL_EVERY = 2_000  # milliseconds that a task's client is asked to let pass
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class NotSent(Exception):
    """The call did not reach its server; the text says why, as the end of "The server …"."""


class NotSentByBrake(NotSent):
    """A brake is on for the agent."""

    def __init__(self, brake: Braked) -> None:
        super().__init__(f"was not asked: {brake.words.rstrip('.')}")
        self.brake = brake


class Runner:
    """The approved calls that run in this process."""

    def __init__(
        self,
        sending: Sending,
        registry: Registry,
        records: Records,
        threads: EdgeThreads,
        *,
        gate: BrakeGate,
        notes: Notes,
    ) -> None:
        self._notes = notes
        self._sending = sending
        self._registry = registry
        self._records = records
        self._threads = threads
        self._gate = gate
        self._jobs: set[asyncio.Task[None]] = set()

    async def run(self, x: Exchange, record: CallRecord, binding: Binding) -> None:
        """Send the call and answer the client; where it leaves, the call runs on."""
        await self._detached(x, self._job(x, record, binding, without_state(x.message, None)))

    async def go_on(self, x: Exchange, record: CallRecord, binding: Binding, state: GoOnState) -> None:
        """Send the next try of a call whose server asked for more."""
        body = without_state(x.message, state.inner, keep_responses=True)
        await self._detached(x, self._job(x, record, binding, body, state))

    def run_task(
        self,
        x: Exchange,
        record: CallRecord,
        binding: Binding,
        state: GoOnState | None = None,
        said: dict[str, Any] | None = None,
    ) -> None:
        """Send the call of a task, for which nobody waits on a line; with `state`, with what the client `said`."""
        body = with_answers(x.message, state.inner, said or {}) if state else without_state(x.message, None)
        self._start(self._job(x, record, binding, body, state, line=None))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task

    async def _detached(self, x: Exchange, work: Coroutine[Any, Any, None]) -> None:
        x.is_sent = True
        task = self._start(work)
        left = asyncio.Event()
        with x.gone.then(left.set):
            if x.gone.happened:
                left.set()
            leaving = asyncio.ensure_future(left.wait())
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            leaving.cancel()
        if task.done():
            task.result()
        else:
            x.line.is_over = True  # nobody hears it any more

    async def _job(
        self,
        x: Exchange,
        record: CallRecord,
        binding: Binding,
        body: bytes,
        state: GoOnState | None = None,
        **options: Any,
    ) -> None:
        """Send a call, or with `state` the next try of it, and note how that ended."""
        line: Line | None = options.get("line", x.line)
        event, response, problem = None, None, None
        try:
            with record.at_server(x):
                response, event = await self._sent_in_time(x, body, line)
        except (UpstreamFailed, NotSent) as failure:
            problem = failure
        if isinstance(problem, LeftOpen) and line is not None:
            await self._note(functools.partial(gateway_calls.leave_to_client, record.call_id))
            self._records.end(record, "ok", None, HEARD_ELSEWHERE)
            await line.end()
            return
        if response is None:
            assert problem is not None
            response = await self._failed(x, record, binding, problem, state, is_task=line is None)
        elif (question := _wrapped(response, record, binding, state.round + 1 if state else 0)) is not None:
            response, event = question, None
            await self._ended(record.call_id, response, asks=True)
            self._records.leave(record)
        else:
            await self._ended(record.call_id, response)
            self._records.end(record, outcome_of(response), response)
        if line is not None and not x.gone.happened:
            if x.takes_notes:
                through = f"a result of {record.tool} of {record.server_id}"
                response, event = await self._notes.added(record.session_id, through, response, event)
            await finish(line, response, event)
            if not x.gone.happened:
                await self._threads.run(gateway_calls.deliver, record.call_id, now=timezone.now())

    async def _sent_in_time(self, x: Exchange, body: bytes, line: Line | None) -> tuple[bytes, bytes | None]:
        """Send a call and return its response. After the time that it has at most it counts as lost elsewhere, too."""
        within = x.server.call_seconds + gateway_calls.STARTS_WITHIN.total_seconds()
        try:
            async with asyncio.timeout(within):
                return await self._sent(x, body, line)
        except TimeoutError:
            words = f"did not answer within {within:.0f} seconds"
            raise UpstreamFailed(words, may_have_run=True) from None

    async def _sent(self, x: Exchange, body: bytes, line: Line | None) -> tuple[bytes, bytes | None]:
        look = functools.partial(self._require_no_brake, x)
        try:
            x.server = await self._as_it_stands(x.server)
            await self._require_no_brake(x)
            response, event, _ = await self._sending.call(x, body, line, look)
        except (InterfaceError, OperationalError) as problem:  # which is asked only before the call goes out
            raise NotSent("was not asked: the database did not answer") from problem
        except SessionOver:
            raise NotSent(str(Forgotten())) from None
        except SignalboxError as problem:
            raise NotSent(f"was not asked: {str(problem.detail).rstrip('.')}") from None
        except UpstreamFailed as problem:
            if problem.may_have_run:
                raise
            raise NotSent(str(problem)) from None
        return response, event

    async def _require_no_brake(self, x: Exchange) -> None:
        """Raise NotSentByBrake where a brake is on for the agent."""
        if (brake := await x.braked(self._gate)) is not None:
            raise NotSentByBrake(brake)

    async def _as_it_stands(self, server: Server) -> Server:
        """Return the server as it is now: it may have been edited while the call waited. Raises NotSent."""
        self._registry.forget(server.name)
        found = await self._registry.get(server.name)
        if found is None or found.target is None:
            raise NotSent(found.fault if found else "is not registered any more")
        return found

    async def _ended(self, call_id: str, response: bytes, *, asks: bool = False) -> None:
        await self._note(functools.partial(gateway_calls.end, call_id, response, asks=asks))

    async def _note(self, end: Callable[..., None]) -> None:
        """Write down how a call ended, at this instant."""
        try:
            await self._threads.run(end, now=timezone.now())
        except DatabaseError:
            # It stays `running` until its time is over, and is lost then: told, not run again.
            log.exception("The end of a call could not be written")

    async def _failed(
        self,
        x: Exchange,
        record: CallRecord,
        binding: Binding,
        problem: Exception,
        state: GoOnState | None,
        *,
        is_task: bool,
    ) -> bytes:
        """Note that a call got no response; return what its client is told."""
        sent, server_id, tool, why = (
            not isinstance(problem, NotSent),
            binding.server_id,
            binding.tool,
            str(problem),
        )
        stands = state is not None and not sent and not is_task
        if sent:
            words = answers.broke_off(server_id, tool, why)
        elif state is None:
            words = answers.not_reached(server_id, tool, why, approved=True)
        else:
            words = answers.not_gone_on(server_id, tool, why, stands=stands)
        response = answers.tool_error(x.message, words, {"decision": "allow", "sent": sent})
        if isinstance(problem, NotSentByBrake):
            await self._note_brake(x, record, binding, problem.brake)
        if sent:
            why_lost = f"The server {why}: it may have run."
            await self._note(functools.partial(gateway_calls.lose, record.call_id, why_lost, by=binding))
        elif state is None:
            await self._threads.run(gateway_calls.undo, record.call_id, response, now=timezone.now())
        elif stands:
            await self._threads.run(gateway_calls.go_back, record.call_id, state.round, now=timezone.now())
            self._records.leave(record)
            return response
        else:
            await self._ended(record.call_id, response)
        self._records.end(record, "failed", response, f"The server {problem}.")
        return response

    async def _note_brake(self, x: Exchange, record: CallRecord, binding: Binding, brake: Braked) -> None:
        """Have it audited that a brake stopped an approved call. Its client hears of the brake in any case."""
        record.decided_by = f"brake {brake.id}"
        place = CallPlace(record.session_id, x.client.session_id if x.client else None)
        note = functools.partial(
            gateway_calls.note_denial, binding, by_brake(brake), place, now=timezone.now()
        )
        try:
            await self._records.perform(note)
        except SignalboxError as problem:
            log.error("A call that a brake stopped is missing from the audit log: %s", problem.detail)

    async def bound_anew(self, x: Exchange, old: Binding) -> tuple[Binding, Ruling] | None:
        """Return the call as it is to be judged now, and why; None where it is not asked any more, or cannot be."""
        self._registry.forget(old.server_id)
        server = await self._registry.get(old.server_id)
        if server is None or old.tool not in server.tools:
            return None
        ruling, _ = await self._threads.run(
            deciding.now, server, old.tool, x.caller, old.arguments, timezone.now()
        )
        if ruling.decision != ASK:
            return None
        definition = server.tools[old.tool].definition
        return replace(old, definition_digest=definition, policy_version=policy_version(ruling)), ruling


def outcome_of(response: bytes) -> str:
    """Say whether a response is a result (`ok`) or tells of a failure (`error`)."""
    try:
        value = msgspec.json.decode(response)
        failed = "error" in value or value["result"].get("isError") is True
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError, AttributeError, TypeError):
        failed = True
    return "error" if failed else "ok"


def without_state(message: Message, inner: str | None, *, keep_responses: bool = False) -> bytes:
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


def with_answers(message: Message, inner: str | None, said: dict[str, Any]) -> bytes:
    """Return a call as its server shall get it once its question was answered: with its state, and what was said."""
    fields = _fields(message.raw)
    params = _fields(fields["params"]) | {"inputResponses": msgspec.Raw(_encode(said))}
    params.pop("requestState", None)
    if inner is not None:
        params["requestState"] = msgspec.Raw(_encode(inner))
    return _encode(fields | {"params": msgspec.Raw(_encode(params))})


def _wrapped(response: bytes, record: CallRecord, binding: Binding, round_: int) -> bytes | None:
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
    until = time.time() + held_for().total_seconds()
    state = GoOnState(record.call_id, binding.key, until, round_, inner if isinstance(inner, str) else None)
    result["requestState"] = msgspec.Raw(_encode(packed(state)))
    return _encode(fields | {"result": msgspec.Raw(_encode(result))})


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """What a call's server asks its client, by names that no other question of the same call has."""

    state: GoOnState
    requests: dict[str, Any]

    def said(self, told: dict[str, Any]) -> dict[str, Any]:
        """Return what a client told, by the server's own names; what answers nothing that is asked is left out."""
        begins = _begins(self.state)
        return {name.removeprefix(begins): told[name] for name in self.requests if name in told}


def question_in(response: bytes) -> ServerQuestion | None:
    """Return the question in a kept response; None where it asks for nothing, or for nothing any more."""
    result = result_of(response)
    if not isinstance(result, dict) or result.get("resultType") != "input_required":
        return None
    state, asked = opened(result.get("requestState")), result.get("inputRequests")
    if not isinstance(state, GoOnState):
        return None
    begins = _begins(state)
    return ServerQuestion(
        state, {f"{begins}{name}": one for name, one in asked.items()} if isinstance(asked, dict) else {}
    )


def _begins(state: GoOnState) -> str:
    return f"{state.round + 1}."


def renumbered(response: bytes, number: Any) -> bytes:
    """Return a kept response as the answer to another request."""
    return _encode(_fields(response) | {"id": msgspec.Raw(_encode(number))})


def kept_message(x: Exchange) -> bytes:
    """Return what of a request is kept with its task: the body and the headers that go to the server."""
    passed = headers_for_server(x, "POST")
    headers = {name.decode(): value.decode("latin-1") for name, value in passed.items()}
    return json.dumps({"headers": headers, "body": x.message.raw.decode()}).encode()


def opened_message(kept: bytes) -> tuple[Headers, bytes]:
    """Return the headers and the body of a kept request."""
    value = json.loads(kept)
    headers = {name.encode(): text.encode("latin-1") for name, text in value["headers"].items()}
    return headers, value["body"].encode()


def told_with(kept: bytes) -> dict[str, Any]:
    """Return what the client has said, by the questions' names, to its task whose request is kept."""
    found = json.loads(kept).get("said", {})
    return found if isinstance(found, dict) else {}


def kept_with(kept: bytes, said: dict[str, Any]) -> bytes:
    """Return a kept request with what the client has said."""
    return json.dumps(json.loads(kept) | {"said": said}).encode()


STATUSES = {
    CallState.WAITING: "working",
    CallState.RUNNING: "working",
    CallState.CANCELLED: "cancelled",
}


def task_of(call: GatewayCall, link: str) -> dict[str, Any]:
    """Return a task as clients are told of it, without its result."""
    waits = call.state == CallState.WAITING
    changed = call.ended_at or call.started_at or call.created_at
    task: dict[str, Any] = {
        "taskId": call.call_id,
        "status": STATUSES.get(CallState(call.state), "completed"),
        "createdAt": _instant(call.created_at),
        "lastUpdatedAt": _instant(changed),
        "ttlMs": int(held_for().total_seconds() * 1000),
        "pollIntervalMs": POLL_EVERY,
    }
    if waits:
        task["statusMessage"] = f"Waiting for approval. A person decides at {link}."
    return task


def _instant(value: Any) -> str:
    return value if isinstance(value, str) else instants.canonical(value)
