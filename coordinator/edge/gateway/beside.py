"""Calls of servers that run beside their agent (`signalbox mcp`): asked about here, sent there, told about here.

The same rules as at `/mcp`; only the bytes go another way. Whoever waits asks again with the call's id.
"""

from __future__ import annotations

import functools
import json
import time
from typing import Annotated, Any, TypeVar

import msgspec
from django.utils import timezone

from coordinator.actions import approvals, gateway_calls
from coordinator.actions.gateway_calls import Attempt, CallPlace
from coordinator.client import mcp_methods
from coordinator.client.mcp_methods import Use
from coordinator.edge.auth import Admission, Authenticator
from coordinator.edge.bodies import SLOW_TO_DECODE, Bodies
from coordinator.edge.brake_gate import BrakeGate
from coordinator.edge.gateway.calls import Calls, binding_of
from coordinator.edge.gateway.exchange import Exchange, agent_of, is_impatience, named_session
from coordinator.edge.gateway.holding import CANCELLED
from coordinator.edge.gateway.line import Line
from coordinator.edge.gateway.listings import Listings
from coordinator.edge.gateway.reads import UNKNOWN_METHOD, refusal_of
from coordinator.edge.gateway.records import CallRecord, Records
from coordinator.edge.gateway.refusals import Refusals
from coordinator.edge.gateway.registry import Registry
from coordinator.edge.gateway.running import Runner
from coordinator.edge.http import Gone, headers_of, send_json
from coordinator.edge.limits import KEY, LIMITS
from coordinator.edge.rulings import by_brake
from coordinator.edge.shares import Shares
from coordinator.edge.waits import Disconnect, Waits
from coordinator.errors import Forbidden, Invalid, NotFound, SignalboxError
from coordinator.gateway import answers, messages
from coordinator.gateway.binding import Binding
from coordinator.gateway.messages import Unreadable
from coordinator.gateway.servers import Server
from coordinator.identity.scopes import AGENT_SCOPES
from coordinator.lib import json_bounds
from coordinator.lib.asgi import Message as AsgiMessage
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.tools import listing_of
from coordinator.models import PermissionRequest
from coordinator.policy import approvals as rules
from coordinator.policy.brakes import Braked
from coordinator.policy.tool_rules import ASK, DENY, Ruling, stricter

T = TypeVar("T")

LIMIT = LIMITS["question"][KEY]
HELD_FOR = 25.0  # seconds for which one question is held
MOST_HELD = 4_000
MOST_TRIES = 4
CHANGED = "The policy changed while the call waited. Call it again."

CALL = "tools/call"

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


class CallQuestion(msgspec.Struct):
    """A call that is about to be sent. `arguments` is their JSON as text; `call_id` comes with a question put again.

    Of another request `method` says which; then `tool` is the same, and `arguments` are the params.

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


class Cancelling(msgspec.Struct):
    """Why a client wants a call no more, in its own words."""

    reason: str = ""


class Ending(msgspec.Struct):
    """How a call ended. `result` is its JSON as text, possibly cut off."""

    is_error: bool = False
    milliseconds: Annotated[int, msgspec.Meta(ge=0, le=10**10)] = 0
    result: str = ""


class Listing(msgspec.Struct):
    """The tools that a server lists, each as its definition."""

    tools: list[Any]


Answer = dict[str, Any]


class BesideDoor:
    """The doors of one process."""

    def __init__(
        self,
        auth: Authenticator,
        *,
        bodies: Bodies,
        calls: Calls,
        listings: Listings,
        records: Records,
        refusals: Refusals,
        registry: Registry,
        runner: Runner,
        gate: BrakeGate,
        waits: Waits,
        threads: EdgeThreads,
    ) -> None:
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
        self._places = Shares(MOST_HELD, "calls that wait for people")

    async def ask(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/mcp/calls`: whether a call may be sent; held for up to 25 seconds while a person is asked."""
        admission, raw = await self._read(scope, receive)
        question = _decoded(raw, CallQuestion)
        with Disconnect(receive) as gone:
            read = _message if question.method == CALL else _other_message
            is_large = len(raw) >= SLOW_TO_DECODE
            message = await self._bodies.decode(read, question) if is_large else read(question)
            x = await self._exchange(scope, admission, question.server, gone, message)
            x.named_session = question.session or x.named_session
            await self._require_beside(x)
            await self._take_in(x.server, [question.definition] if question.definition is not None else [])
            x.server = await self._server(question.server, admission, x.agent_id)
            decide = self._decide if question.method == CALL else self._decide_read
            answer = await decide(x, question)
            if not gone.happened:
                await send_json(send, 200, answer)

    async def end(self, call_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/mcp/calls/{call_id}/end`: how a call that was allowed has ended."""
        admission, raw = await self._read(scope, receive)
        ending = _decoded(raw, Ending)
        agent_id = agent_of(admission, headers_of(scope))
        call = await self._threads.run(
            gateway_calls.end_beside,
            call_id,
            key_id=admission.caller.id,
            agent_id=agent_id,
            now=timezone.now(),
        )
        with Disconnect(receive) as gone:
            x = await self._exchange(scope, admission, call.server_id, gone, _empty_call(call.tool_name))
            record = self._records.taken_up(x, call_id, call.session_id or "", call.tool_name)
            record.began = time.perf_counter()
            record.upstream = ending.milliseconds / 1000
            response = _response(ending)
            self._records.end(record, "error" if ending.is_error else "ok", response)
        await send_json(send, 200, {"ok": True})

    async def cancel(self, call_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/mcp/calls/{call_id}/cancel`: a call that was not sent is not wanted any more."""
        admission, raw = await self._read(scope, receive)
        told = _decoded(raw, Cancelling).reason
        agent_id = agent_of(admission, headers_of(scope))
        call = await self._threads.run(
            gateway_calls.cancel_beside,
            call_id[:500],
            admission.caller.actor,
            key_id=admission.caller.id,
            agent_id=agent_id,
            keeps_card=is_impatience(told),
            now=timezone.now(),
        )
        if call is not None:
            with Disconnect(receive) as gone:
                message = _empty_call(call.tool_name)
                x = await self._exchange(scope, admission, call.server_id, gone, message)
                record = self._records.taken_up(x, call_id, call.session_id or "", call.tool_name)
                self._records.end(record, "held", None, CANCELLED)
        await send_json(send, 200, {"ok": True})

    async def listing(self, server_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /api/mcp/listings/{server}`: which of a server's tools the agent may see."""
        admission, raw = await self._read(scope, receive)
        told = _decoded(raw, Listing)
        with Disconnect(receive) as gone:
            x = await self._exchange(scope, admission, server_id, gone, _empty_call(""))
            await self._require_beside(x)
            listing = await self._take_in(x.server, told.tools)
            x.server = await self._server(server_id, admission, x.agent_id)
            names = await self._listings.names(x, listing)
        await send_json(send, 200, {"tools": names})

    async def _read(self, scope: Scope, receive: Receive) -> tuple[Admission, bytes]:
        headers = headers_of(scope)
        admission = await self._auth.admit(scope, headers, *AGENT_SCOPES)
        with self._bodies.hold(f"key:{admission.caller.id}") as held:
            return admission, await held.read(receive, headers, LIMIT)

    async def _exchange(
        self, scope: Scope, admission: Admission, server_id: str, gone: Disconnect, message: messages.Message
    ) -> Exchange:
        headers = headers_of(scope)
        agent_id = agent_of(admission, headers)
        return Exchange(
            admission,
            agent_id,
            headers,
            message,
            await self._server(server_id, admission, agent_id),
            Line(_nobody),
            gone,
            time.perf_counter(),
            named_session=named_session(headers),
        )

    async def _require_beside(self, x: Exchange) -> None:
        """Hear of tools from no agent but one that may use the server, and of no server that is asked from here.

        Raises Forbidden.
        """
        name = x.server.name
        problem: SignalboxError
        if not await self._listings.may_reach(x):
            problem = Forbidden(f"{x.agent_id} has no grant for anything of the MCP server {name}.")
        elif not x.server.is_beside:
            problem = Forbidden(
                f"The MCP server {name} is reached through Signalbox: use `signalbox mcp {name}`."
            )
        else:
            return
        await self._refusals.note(x.admission, x.agent_id, name, problem, known=True)
        raise problem

    async def _server(self, server_id: str, admission: Admission, agent_id: str) -> Server:
        found = await self._registry.get(server_id)
        if found is None:
            words = f"There is no MCP server {server_id[:100]!r} here. Ask an admin to register it."
            problem = NotFound(words)
            await self._refusals.note(admission, agent_id, server_id, problem, known=False)
            raise problem
        if found.is_off:
            raise NotFound(f"The MCP server {server_id} is switched off.")
        return found

    async def _take_in(self, server: Server, tools: list[Any]) -> list[tuple[str, str]]:
        """Note what a server lists; return names and digests. Raises Invalid."""
        listing = listing_of({"tools": tools})
        await self._listings.take_in(server, listing)
        return [(tool.name, tool.digest) for tool in listing.tools]

    async def _decide(self, x: Exchange, question: CallQuestion) -> Answer:
        tool, arguments = question.tool, x.message.params.get("arguments")
        session_id = await self._records.session_of(x)
        ruling, _ = await self._calls.decide(x, tool, arguments, session_id)
        call_id = question.call_id or gateway_calls.new_id()
        is_again = question.call_id is not None and not question.begins
        if question.begins and question.call_id:  # or whoever asks did not hear the first answer
            is_again = await self._threads.run(gateway_calls.is_begun, call_id)
        if is_again:
            record = self._records.taken_up(x, call_id, session_id, tool)
        else:
            record = self._records.begin(x, call_id, session_id, tool, arguments)
        record.decided_by = f"{ruling.decision} ({ruling.by})" if ruling.by else ""
        if ruling.decision == DENY:
            words = await self._calls.note_denial(x, record, ruling)
            attempt = Attempt(call_id, binding_of(x, record, ruling), x.caller, CallPlace(session_id))
            await self._threads.run(gateway_calls.leave_beside, attempt, now=timezone.now())
            return self._no(record, words)
        event_id = None if is_again else await self._records.write_begin(record)
        place = CallPlace(session_id, event_id=event_id, client="signalbox mcp")
        binding = binding_of(x, record, ruling)
        attempt = Attempt(call_id, binding, x.caller, place, is_beside=True)
        if ruling.decision == ASK:
            return await self._asked_unless_cancelled(x, record, ruling, attempt)
        if (brake := await x.braked(self._gate)) is not None:
            return await self._held_back(x, record, attempt, brake)
        await self._threads.run(gateway_calls.begin_beside, attempt, now=timezone.now())
        return {"decision": "allow", "call_id": call_id}

    async def _decide_read(self, x: Exchange, question: CallQuestion) -> Answer:
        """Answer whether a request other than a call may be sent, at once: nobody is asked about one."""
        method, use = question.method, mcp_methods.use_of(x.message.value)
        session_id = await self._records.session_of(x)
        record = self._records.begin_read(x, session_id, method if use else UNKNOWN_METHOD, x.message.params)
        if use not in {Use.READ, Use.LIST}:
            return self._no(record, f"The method {method[:100]!r} is not asked about.")
        ruling, _ = await self._calls.decide(x, method, x.message.params, session_id, is_read=True)
        if use is Use.READ and (brake := await x.braked(self._gate)) is not None:
            ruling = stricter(ruling, by_brake(brake))
        record.decided_by = f"{ruling.decision} ({ruling.by})" if ruling.by else ""
        if ruling.decision == DENY or (ruling.decision == ASK and use is Use.READ):
            words = refusal_of(x, method, ruling)
            await self._refusals.note(x.admission, x.agent_id, x.server.name, Forbidden(words), known=True)
            return self._no(record, words)
        self._records.end(record, "ok", None)
        return {"decision": "allow", "call_id": record.call_id}

    async def _asked_unless_cancelled(
        self, x: Exchange, record: CallRecord, ruling: Ruling, attempt: Attempt
    ) -> Answer:
        try:
            answer = await self._asked(x, record, ruling, attempt)
        except gateway_calls.Cancelled:
            self._records.leave(record)  # its end is written where it is cancelled
            return {"decision": "deny", "call_id": attempt.call_id, "reason": CANCELLED}
        if answer["decision"] == DENY:
            await self._threads.run(gateway_calls.leave_beside, attempt, now=timezone.now())
        return answer

    async def _asked(self, x: Exchange, record: CallRecord, ruling: Ruling, attempt: Attempt) -> Answer:
        if await self._threads.run(gateway_calls.is_begun_beside, attempt):
            if (brake := await x.braked(self._gate)) is not None:
                return await self._held_back(x, record, attempt, brake)
            return {"decision": "allow", "call_id": attempt.call_id}
        with self._places.place(x.key.name):
            for _ in range(MOST_TRIES):
                row = await self._threads.run(gateway_calls.ask_beside, attempt, ruling, now=timezone.now())
                found = await self._until_decided(x, row, attempt.call_id)
                if found is None:
                    return await self._wait(row, attempt)
                answer = await self._decided(x, record, attempt, found)
                if answer is not None:
                    return answer
                fresh = await self._runner.bound_anew(x, attempt.binding)
                if fresh is None:
                    await self._calls.note_denial(x, record, Ruling(DENY, CHANGED, "gateway"))
                    break
                ruling = fresh[1]
                attempt = Attempt(attempt.call_id, fresh[0], attempt.caller, attempt.place, is_beside=True)
        return self._no(record, CHANGED)

    async def _until_decided(
        self, x: Exchange, row: PermissionRequest, call_id: str
    ) -> PermissionRequest | None:
        found = await self._waits.wait_until(
            functools.partial(_if_decided, row.request_id, call_id),
            topics=[f"permission_requests:{row.pk}", f"gateway_calls:{call_id}"],
            timeout=HELD_FOR,
            still_allowed=x.admission.still_allowed,
            gone=x.gone,
        )
        if x.gone.happened:
            raise Gone
        await x.admission.still_allowed()
        return found

    async def _wait(self, row: PermissionRequest, attempt: Attempt) -> Answer:
        why = "The agent's `signalbox mcp` goes on asking."
        await self._threads.run(
            approvals.hold, row.request_id, by=attempt.binding.by, reason=why, now=timezone.now()
        )
        card = gateway_calls.card(row)
        return {
            "decision": "wait",
            "call_id": attempt.call_id,
            "request_id": row.request_id,
            "card": card,
            "reason": f"Waits for approval at {card}.",
        }

    async def _held_back(self, x: Exchange, record: CallRecord, attempt: Attempt, brake: Braked) -> Answer:
        """Refuse a call that a brake holds; one that was allowed before, unheard, is not sent either."""
        await self._threads.run(gateway_calls.undo_beside, attempt, now=timezone.now())
        await self._calls.note_denial(x, record, by_brake(brake))
        return self._no(record, brake.words)

    async def _decided(
        self, x: Exchange, record: CallRecord, attempt: Attempt, row: PermissionRequest
    ) -> Answer | None:
        """Return the answer by a person's verdict; None where it does not count for this call any more."""
        now, binding = timezone.now(), attempt.binding
        standing = rules.standing(row, now)
        if standing.allowed:
            if (brake := await x.braked(self._gate)) is not None:
                return await self._held_back(x, record, attempt, brake)
            refusal = await self._threads.run(gateway_calls.begin, attempt, row.request_id, now=now)
            if refusal is not None and refusal.decision == DENY:
                return self._no(record, _denied(binding, refusal))
            # Another line of the same call may have been faster.
            if refusal is None or await self._threads.run(gateway_calls.is_begun_beside, attempt):
                return {"decision": "allow", "call_id": attempt.call_id}
            return None
        if row.status == PermissionRequest.Status.DENIED:
            await self._threads.run(gateway_calls.take_denial, attempt, row.request_id, now=now)
            context = rules.context_of(row)
            record.decided_by = f"denied by {row.approved_by or 'somebody'}"
            return self._no(record, answers.by_person(binding.tool, context.reason if context else None))
        return self._no(record, answers.undecided(binding.tool, standing.word))

    def _no(self, record: CallRecord, words: str) -> Answer:
        self._records.end(record, "denied", None, words)
        return {"decision": "deny", "call_id": record.call_id, "reason": words}


def _decoded(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise Invalid(f"The body cannot be read: {problem}") from None


def _message(question: CallQuestion) -> messages.Message:
    """Return the call as the message that it will be, its arguments as the text that was told."""
    name = json.dumps(question.tool)
    begins = f'{{"jsonrpc":"2.0","id":0,"method":"tools/call","params":{{"name":{name},"arguments":'
    text = f"{begins}{question.arguments}}}}}"
    try:
        message = messages.read(text.encode("utf-8", "surrogatepass"))
    except Unreadable as problem:
        raise Invalid(f"The arguments cannot be judged: {problem}") from None
    same = message.raw_arguments.decode() == question.arguments.strip()
    if not same or not isinstance(message.params.get("arguments"), dict):
        raise Invalid("The arguments must be one JSON object.")
    return message


def _other_message(question: CallQuestion) -> messages.Message:
    """Return a request other than a call as the message that it will be."""
    begins = f'{{"jsonrpc":"2.0","id":0,"method":{json.dumps(question.method)},"params":'
    try:
        is_object = isinstance(json.loads(question.arguments), dict)
        message = messages.read(f"{begins}{question.arguments}}}".encode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError, Unreadable) as problem:
        raise Invalid(f"The parameters cannot be judged: {problem}") from None
    if not is_object:
        raise Invalid("The parameters must be one JSON object.")
    return message


def _empty_call(tool: str) -> messages.Message:
    return messages.Message(
        b"", {"jsonrpc": "2.0", "id": 0, "method": "tools/call", "params": {"name": tool}}
    )


def _response(ending: Ending) -> bytes | None:
    """Return what a server answered as a response; one that was cut off as text."""
    if not ending.result:
        return None
    try:
        value = json_bounds.loads(ending.result)
    except ValueError:
        value = {"content": [{"type": "text", "text": ending.result[:3_000]}]}
    result = value if isinstance(value, dict) else {"content": []}
    if "code" in result and "message" in result and "content" not in result:
        return answers.error(0, -32000, str(result["message"]))
    return answers.result(0, result)


def _denied(binding: Binding, denial: Ruling) -> str:
    return answers.denied(binding.server_id, binding.tool, denial.reason, gateway_calls.allowed_at(denial))


def _if_decided(request_id: str, call_id: str) -> PermissionRequest | None:
    gateway_calls.require_wanted(call_id)
    row = rules.find(request_id)
    return None if rules.standing(row, timezone.now()).waiting else row


async def _nobody(_: AsgiMessage) -> None:
    return
