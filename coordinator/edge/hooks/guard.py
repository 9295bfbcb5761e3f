"""The outermost guard of hooks: a decision of policy to ask or deny is sent even if the endpoint inside fails.

An agent goes on where it receives nothing, or anything but 200. So the endpoint behind this guard only returns its
answer or raises, and the guard alone sends. A call that a rule or a grant denies is denied. One that a rule asks is
left to the agent's own prompt, or denied where the rule denies at its deadline or the agent cannot be made to ask.
A call about which something is unknown (its body cannot be read, its key ended) gets the strictest ruling that policy
has for any such call.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from coordinator.dialects.dialect_base import AgentReply, Answer, Dialect
from coordinator.dialects.hooks import AgentHook
from coordinator.edge.hooks.deliveries import (
    BY_THE_AGENT,
    ID,
    HookDelivery,
    HookKeepAlive,
    parse_hook_delivery_or_default,
)
from coordinator.edge.http.messages import ClientDisconnected, get_request_headers, send_json
from coordinator.edge.policy.rulings import PolicyRulings
from coordinator.errors import (
    Forbidden,
    ServiceRestarting,
    SignalboxError,
    TooManyRequests,
    Unauthorized,
    UnprocessableRequest,
)
from coordinator.identity.keys import KeyEnded, KeyIdentity
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.policy.rules.tool_rules import ASK, DENY, OBSERVE, PartialCall, Ruling, stricter_ruling

log = logging.getLogger(__name__)

LATE = 5.0  # seconds beyond its wait after which a hook is answered though the endpoint still works on it
BLOCKED_TOOLS_HEADER = b"x-signalbox-held"  # which tools are held for certain (policy.rules.offline_blocking)
HOLDS = b"x-signalbox-holds-this"  # whether this very call is: `yes`, `ask` where a rule only asks, `no`
MAX_TOOLS_HEADER_BYTES = 3_000  # bytes of BLOCKED_TOOLS_HEADER; beyond that, all tools are
ENDED_MEANWHILE = "The session continued before anyone answered in Signalbox."


@dataclass(slots=True)
class GuardedCall:
    """What the endpoint has found out about the hook it answers; each step fills in what it learns."""

    delivery: HookDelivery = BY_THE_AGENT  # its id is one under which it may come again
    caller: KeyIdentity | None = None
    reading: bool = False
    body: bytes | None = None  # None until it is read, as is `hook`
    hook: AgentHook | None = None
    unread: str | None = None  # why its body could not be read
    ruling: Ruling | None = None  # None until policy has spoken
    late: bool = False  # its agent has gone on


class GuardedEndpoint(Protocol):
    """The endpoint behind the guard: it answers a hook or raises, and never sends anything by itself."""

    dialect: Dialect

    async def process_hook_and_build_reply(
        self, call: GuardedCall, scope: Scope, receive: Receive
    ) -> AgentReply | None:
        """Return the hook's answer, None for no opinion."""

    async def read_unauthenticated_hook_into_call(
        self, call: GuardedCall, scope: Scope, receive: Receive
    ) -> None:
        """Read the hook into `call`."""


class HookGuard:
    """The guard of one agent's hooks. One an agent and process."""

    def __init__(
        self, endpoint: GuardedEndpoint, rulings: PolicyRulings, longest_wait: Callable[[Scope], float]
    ) -> None:
        """`longest_wait` returns for how many seconds the hook of a request may wait for a person."""
        self._dialect = endpoint.dialect
        self._last_resort = (
            endpoint.dialect.build_unknown_call_denial()
        )  # made now: later nothing may be left that works
        self._endpoint = endpoint
        self._rulings = rulings
        self._longest_wait = longest_wait

    async def answer_hook_with_fallback(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one hook in and answer it; empty, which leaves everything to the agent, unless policy speaks."""
        call = GuardedCall()
        try:
            call.delivery = parse_hook_delivery_or_default(get_request_headers(scope))
        except Exception:
            log.exception("It cannot be told how a hook was delivered")
        if call.delivery.sent_as is None:
            answer = await self.decide_hook_answer(call, scope, receive)
            await send_hook_answer(send, answer, self.build_hook_answer_headers(call))
            return
        keep_alive = HookKeepAlive(send, functools.partial(self.pending_request_headers_or_none, call))
        try:
            async with keep_alive:
                answer = await self.decide_hook_answer(call, scope, receive)
        except SignalboxError as problem:
            if not keep_alive.begun:
                raise
            answer = {"signalbox": {"status": problem.status, "detail": str(problem.detail)}}
        if keep_alive.begun:
            await keep_alive.send_hook_answer_body(b"" if answer is None else json.dumps(answer).encode())
        else:
            await send_hook_answer(send, answer, self.build_hook_answer_headers(call))

    async def decide_hook_answer(self, call: GuardedCall, scope: Scope, receive: Receive) -> Answer | None:
        """Return the answer, None for no opinion. Raises the problem that is reported by its status."""
        reply: AgentReply | None = None
        problem: Exception | None = None
        try:
            async with asyncio.timeout(self._longest_wait(scope) + LATE):
                reply = await self._endpoint.process_hook_and_build_reply(call, scope, receive)
        except Exception as error:
            problem = error
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not we were called off, but a thread we waited for.
            problem = ServiceRestarting("Signalbox is stopping.")
        if reply is not None:
            return reply.answer
        if isinstance(problem, ServiceRestarting) and can_hook_be_redelivered(
            call.delivery.sent_as, call.ruling
        ):
            raise problem
        if not is_unknown_caller_refusal(call, problem):
            reply = await self.build_fallback_reply_or_none(call, problem, scope, receive)
        if reply is not None:
            return reply.answer
        # What a person must fix, or what is lost, is reported by its status; any other problem leaves the call to the
        # agent's own prompt.
        is_lost = call.hook is None or call.late or not self._dialect.is_call_hook(call.hook)
        if problem is not None and (is_lost or isinstance(problem, Unauthorized)):
            raise problem
        return None

    def pending_request_headers_or_none(self, call: GuardedCall) -> list[tuple[bytes, bytes]] | None:
        """Return what the line of a waiting call says of it; None for one that nobody is asked about yet."""
        if call.ruling is None or call.hook is None or call.late:
            return None
        prompts = call.hook.name in self._dialect.prompts
        if call.ruling.decision != ASK and not (prompts and call.ruling.decision == OBSERVE):
            return None
        should_ask_in_terminal = call.ruling.decision == ASK
        is_certain = can_hook_be_redelivered(call.delivery.sent_as, call.ruling)
        pending_value = b"yes" if is_certain else b"ask" if should_ask_in_terminal else b"no"
        return [*self.build_hook_answer_headers(call), (HOLDS, pending_value)]

    def build_hook_answer_headers(self, call: GuardedCall) -> list[tuple[bytes, bytes]]:
        """Return the headers that say which hook is answered, and which tools are held for its caller, if known."""
        sent_as = call.delivery.sent_as
        headers = [(ID, sent_as.encode())] if sent_as is not None else []
        if call.caller is None:
            return headers
        try:
            caller = PartialCall(agent_id=call.caller.agent_id, agent_known=True, program=self._dialect.name)
            guarded_tools = self._rulings.list_offline_blocked_tools(caller)
            if guarded_tools is not None:
                packed = encode_offline_blocked_tools(tuple(guarded_tools))
                if len(packed) > MAX_TOOLS_HEADER_BYTES:
                    packed = b'[["hold","*"]]'
                headers.append((BLOCKED_TOOLS_HEADER, packed))
        except Exception:  # it goes with answers that must not fail
            log.exception("It cannot be told which calls are held")
        return headers

    async def build_fallback_reply_or_none(
        self, call: GuardedCall, problem: Exception | None, scope: Scope, receive: Receive
    ) -> AgentReply | None:
        """Return the answer to a call that the endpoint has none for. Never raises."""
        if call.ruling is not None and call.ruling.decision not in {ASK, DENY}:
            return None
        try:
            if not call.reading:
                await self.fill_call_hook_or_log(call, scope, receive)
            if call.hook is not None and not self._dialect.is_call_hook(call.hook):
                return None
            if call.ruling is None:
                await self._rulings.refresh_policy_rules()
            # Which hook about a call it is, None for one that may be any other, and what policy says at worst.
            name = call.hook.name if call.hook is not None else self._dialect.guess_call_hook_name(call.body)
            ruling = call.ruling or self.strictest_hook_ruling(call)
            if problem is not None and call.hook is not None and name is not None:
                log_undecided_hook(call.hook, problem)
            fallback_reason = describe_unanswered_call_for_person(problem, ruling)
            if name is not None and call.unread is not None and call.ruling is None:
                is_broken = call.hook is not None or isinstance(problem, UnprocessableRequest)
                ruling, fallback_reason = (
                    self._dialect.derive_ruling_for_unreadable_call(
                        name, ruling, call.unread, is_broken=is_broken
                    ),
                    "",
                )
            return (
                None
                if name is None
                else self._dialect.build_undecided_call_reply(name, ruling, fallback_reason)
            )
        except Exception:
            log.exception("A hook is denied because Signalbox met an error")
            return self._last_resort

    async def fill_call_hook_or_log(self, call: GuardedCall, scope: Scope, receive: Receive) -> None:
        try:
            async with asyncio.timeout(LATE):
                await self._endpoint.read_unauthenticated_hook_into_call(call, scope, receive)
        except Exception as problem:
            log.warning("A hook cannot be read: %s", str(problem).strip())

    def strictest_hook_ruling(self, call: GuardedCall) -> Ruling:
        """Return the strictest that policy may say of the call and of the shell lines that run as part of it."""
        partial_call = self.build_partial_call(call)
        worst = self._rulings.find_strictest_possible_ruling(partial_call)
        shell = call.hook.embedded_shell_lines if call.hook is not None else None
        if shell is None or call.hook is None:
            return worst
        texts = self._dialect.shell_line_subjects(call.hook, shell)
        for text in [*texts, *([None] if shell.problem else [])]:
            line = replace(partial_call, tool=shell.tool, text=text)
            worst = stricter_ruling(worst, self._rulings.find_strictest_possible_ruling(line))
        return worst

    def build_partial_call(self, call: GuardedCall) -> PartialCall:
        """Return what is known of the call."""
        agent_id, agent_known = call.caller.agent_id if call.caller else None, call.caller is not None
        program = self._dialect.name
        if call.hook is None or not call.hook.has_tool_name:
            return PartialCall(agent_id=agent_id, agent_known=agent_known, program=program)
        try:
            text = self._dialect.call_subject(call.hook)
        except Exception:  # too deep for JSON, say
            text = None
        return PartialCall(call.hook.tool_name, text, agent_id, agent_known, program)


@functools.lru_cache(maxsize=256)
def encode_offline_blocked_tools(guarded_tools: tuple[tuple[str, str], ...]) -> bytes:
    return json.dumps(guarded_tools, separators=(",", ":")).encode("ascii")


def can_hook_be_redelivered(sent_as: str | None, ruling: Ruling | None) -> bool:
    """Return whether the call is certainly asked and held, and its sender will send it again."""
    return sent_as is not None and ruling is not None and ruling.decision == ASK and ruling.deny_at_deadline


def describe_unanswered_call_for_person(problem: Exception | None, ruling: Ruling) -> str:
    """Return why nobody could be asked, for the person at the agent's prompt; nothing where nobody need be."""
    if ruling.decision != ASK:
        return ""
    if problem is None:
        return ENDED_MEANWHILE
    if isinstance(problem, SignalboxError) and isinstance(problem.detail, str):
        return f"Signalbox could not ask anyone: {problem.detail}"
    if isinstance(problem, TimeoutError):
        return "Signalbox could not ask anyone in time."
    return "Signalbox could not ask anyone because of an error."


def is_unknown_caller_refusal(call: GuardedCall, problem: Exception | None) -> bool:
    """Say whether the caller was refused as nobody we know: rules are no stranger's business."""
    refused = isinstance(problem, Unauthorized | Forbidden | TooManyRequests) and not isinstance(
        problem, KeyEnded
    )
    return call.caller is None and refused


def log_undecided_hook(hook: AgentHook, problem: Exception) -> None:
    if isinstance(problem, SignalboxError | ClientDisconnected | TimeoutError):
        detail = problem.detail if isinstance(problem, SignalboxError) else type(problem).__name__
        log.warning("Nobody decides a hook %s of %s here: %s", hook.name, hook.session, detail)
    else:
        log.error("Nobody decides a hook %s of %s here", hook.name, hook.session, exc_info=problem)


async def send_hook_answer(send: Send, answer: Answer | None, extra: list[tuple[bytes, bytes]]) -> None:
    """Answer 200, with nothing where there is no opinion: the agent goes on as if there were no hook."""
    if answer is not None:
        await send_json(send, 200, answer, *extra)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0"), *extra]})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
