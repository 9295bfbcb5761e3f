"""The outermost guard of the hook door: what policy asks or denies is answered so, whatever goes wrong inside.

An agent goes on where it hears nothing, or anything but 200. So the door behind this guard only returns its answer
or raises, and the guard alone speaks: a call that a rule or a grant denies is denied, one that a rule asks is left
to the agent's own prompt, or denied where the rule denies at its deadline or the agent cannot be told to ask. What
could not be found out about the call (its body cannot be read, its key ended) counts as the worst that policy says
of any such call.
"""

from __future__ import annotations

import asyncio
import functools
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from coordinator.dialects.contract import Answer, Dialect, Reply
from coordinator.dialects.hooks import Hook
from coordinator.edge.hook_deliveries import ID, SignsOfLife, delivery_of
from coordinator.edge.http import Gone, headers_of, send_json
from coordinator.edge.rulings import Rulings
from coordinator.errors import Forbidden, Invalid, Restarting, SignalboxError, TooMany, Unauthorized
from coordinator.identity.keys import KeyEnded, KeyIdentity
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.policy.tool_rules import ASK, DENY, OBSERVE, PartialCall, Ruling, stricter

log = logging.getLogger(__name__)

LATE = 5.0  # seconds beyond its wait after which a hook is answered though the door still works on it
HELD = b"x-signalbox-held"  # which tools are held for certain (policy.certain)
HOLDS = b"x-signalbox-holds-this"  # whether this very call is: `yes`, `ask` where a rule only asks, `no`
MOST_HELD = 3_000  # bytes of HELD; beyond that, all tools are
ENDED_MEANWHILE = "The session continued before anyone answered in Signalbox."


@dataclass(slots=True)
class GuardedCall:
    """What the door has found out about the hook it answers; each step fills in what it learns.

    `body` and `hook` are None until they are read, `ruling` until policy has spoken. `sent_as` is its id,
    under which it comes again where nothing is heard and the call is held for certain. `late`: its agent has gone on.
    `unread` is why its body could not be read.
    """

    sent_as: str | None = None
    caller: KeyIdentity | None = None
    reading: bool = False
    body: bytes | None = None
    hook: Hook | None = None
    unread: str | None = None
    ruling: Ruling | None = None
    late: bool = False


class Door(Protocol):
    """What stands behind the guard: it answers a hook, or raises, and never sends anything by itself."""

    dialect: Dialect

    async def answer(self, call: GuardedCall, scope: Scope, receive: Receive) -> Reply | None:
        """Return the hook's answer, None for no opinion."""

    async def read(self, call: GuardedCall, scope: Scope, receive: Receive) -> None:
        """Read the hook into `call`."""


class CallGuard:
    """The guard of one agent's hooks. One an agent and process."""

    def __init__(self, door: Door, rulings: Rulings, longest: Callable[[Scope], float]) -> None:
        """`longest` tells from the request for how many seconds its hook may wait for a person."""
        self._dialect = door.dialect
        self._last_resort = door.dialect.last_resort()  # made now: later nothing may be left that works
        self._door = door
        self._rulings = rulings
        self._longest = longest

    async def hook(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Take one hook in and answer it; empty, which leaves everything to the agent, unless policy speaks."""
        call = GuardedCall(sent_as=_sent_as(scope))
        if call.sent_as is None:
            answer = await self._answer(call, scope, receive)
            await _send(send, answer, self._about(call))
            return
        signs = SignsOfLife(send, functools.partial(self._signs, call))
        try:
            async with signs:
                answer = await self._answer(call, scope, receive)
        except SignalboxError as problem:
            if not signs.begun:
                raise
            answer = {"signalbox": {"status": problem.status, "detail": str(problem.detail)}}
        if signs.begun:
            await signs.end(b"" if answer is None else json.dumps(answer).encode())
        else:
            await _send(send, answer, self._about(call))

    async def _answer(self, call: GuardedCall, scope: Scope, receive: Receive) -> Answer | None:
        """Return the answer, None for no opinion. Raises the problem that is told by its status."""
        reply, problem = await self._attempt(call, scope, receive)
        if isinstance(problem, Restarting) and comes_again(call.sent_as, call.ruling):
            raise problem
        if reply is None and not _is_stranger(call, problem):
            reply = await self._unanswered(call, problem, scope, receive)
        if reply is None and problem is not None and self._is_told(call, problem):
            raise problem
        return reply.answer if reply is not None else None

    def _signs(self, call: GuardedCall) -> list[tuple[bytes, bytes]] | None:
        """Return what the line of a waiting call says of it; None for one that nobody is asked about yet."""
        if call.ruling is None or call.hook is None or call.late:
            return None
        prompts = call.hook.name in self._dialect.prompts
        if call.ruling.decision != ASK and not (prompts and call.ruling.decision == OBSERVE):
            return None
        asks = call.ruling.decision == ASK
        holds = b"yes" if comes_again(call.sent_as, call.ruling) else b"ask" if asks else b"no"
        return [*self._about(call), (HOLDS, holds)]

    def _about(self, call: GuardedCall) -> list[tuple[bytes, bytes]]:
        """Return the headers that say which hook is answered, and which tools are held for its caller, if known."""
        named = [(ID, call.sent_as.encode())] if call.sent_as is not None else []
        return named if call.caller is None else [*named, *self._held(call.caller)]

    def _held(self, caller: KeyIdentity) -> list[tuple[bytes, bytes]]:
        try:
            known = PartialCall(agent_id=caller.agent_id, agent_known=True, program=self._dialect.name)
            held = self._rulings.held_tools(known)
            if held is None:
                return []
            packed = _packed(tuple(held))
        except Exception:  # it goes with answers that must not fail
            log.exception("It cannot be told which calls are held")
            return []
        return [(HELD, packed if len(packed) <= MOST_HELD else b'[["hold","*"]]')]

    async def _attempt(
        self, call: GuardedCall, scope: Scope, receive: Receive
    ) -> tuple[Reply | None, Exception | None]:
        try:
            async with asyncio.timeout(self._longest(scope) + LATE):
                return await self._door.answer(call, scope, receive), None
        except Exception as problem:
            return None, problem
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not we were called off, but a thread we waited for.
            return None, Restarting("Signalbox is stopping.")

    async def _unanswered(
        self, call: GuardedCall, problem: Exception | None, scope: Scope, receive: Receive
    ) -> Reply | None:
        """Return the answer to a call that the door has none for. Never raises."""
        if call.ruling is not None and call.ruling.decision not in {ASK, DENY}:
            return None
        try:
            if not call.reading:
                await self._read(call, scope, receive)
            if call.hook is not None and not self._dialect.is_call(call.hook):
                return None
            if call.ruling is None:
                await self._rulings.refresh()
            name, ruling = self._asked(call)
            if problem is not None and call.hook is not None and name is not None:
                _log(call.hook, problem)
            why = why_unasked(problem, ruling)
            if name is not None and call.unread is not None and call.ruling is None:
                is_broken = call.hook is not None or isinstance(problem, Invalid)
                ruling, why = self._dialect.by_unread(name, ruling, call.unread, is_broken=is_broken), ""
            return None if name is None else self._dialect.unasked(name, ruling, why)
        except Exception:
            log.exception("A hook is denied because Signalbox met an error")
            return self._last_resort

    async def _read(self, call: GuardedCall, scope: Scope, receive: Receive) -> None:
        try:
            async with asyncio.timeout(LATE):
                await self._door.read(call, scope, receive)
        except Exception as problem:
            log.warning("A hook cannot be read: %s", str(problem).strip())

    def _asked(self, call: GuardedCall) -> tuple[str | None, Ruling]:
        """Return which hook about a call it is, None for one that may be any other, and what policy says at worst."""
        name = call.hook.name if call.hook is not None else self._dialect.call_in(call.body)
        return name, call.ruling or self._strictest(call)

    def _strictest(self, call: GuardedCall) -> Ruling:
        """Return the strictest that policy may say of the call and of the shell lines that run as part of it."""
        known = self._known(call)
        worst = self._rulings.strictest_possible(known)
        shell = call.hook.shell_lines if call.hook is not None else None
        if shell is None:
            return worst
        texts = [self._dialect.subject(shell.tool, given) for given in shell.inputs]
        for text in [*texts, *([None] if shell.problem else [])]:
            line = replace(known, tool=shell.tool, text=text)
            worst = stricter(worst, self._rulings.strictest_possible(line))
        return worst

    def _known(self, call: GuardedCall) -> PartialCall:
        """Return what is known of the call."""
        agent_id, agent_known = call.caller.agent_id if call.caller else None, call.caller is not None
        program = self._dialect.name
        if call.hook is None or not call.hook.names_tool:
            return PartialCall(agent_id=agent_id, agent_known=agent_known, program=program)
        try:
            text = self._dialect.about(call.hook)
        except Exception:  # too deep for JSON, say
            text = None
        return PartialCall(call.hook.tool, text, agent_id, agent_known, program)

    def _is_told(self, call: GuardedCall, problem: Exception) -> bool:
        """Say whether the problem is answered by its status: what a person must fix, or what is lost.

        Any other problem leaves the call to the agent's own prompt.
        """
        if call.hook is None or call.late or isinstance(problem, Unauthorized):
            return True
        return not self._dialect.is_call(call.hook)


@functools.lru_cache(maxsize=256)
def _packed(held: tuple[tuple[str, str], ...]) -> bytes:
    return json.dumps(held, separators=(",", ":")).encode("ascii")


def _sent_as(scope: Scope) -> str | None:
    """Return the id under which a hook comes again; None where it does not."""
    try:
        return delivery_of(headers_of(scope)).sent_as
    except Exception:
        log.exception("It cannot be told how a hook was delivered")
        return None


def comes_again(sent_as: str | None, ruling: Ruling | None) -> bool:
    """Say whether the call is one that is asked and held for certain, and whoever sent it comes back."""
    return sent_as is not None and ruling is not None and ruling.decision == ASK and ruling.deny_at_deadline


def why_unasked(problem: Exception | None, ruling: Ruling) -> str:
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


def _is_stranger(call: GuardedCall, problem: Exception | None) -> bool:
    """Say whether the caller was refused as nobody we know: rules are no stranger's business."""
    refused = isinstance(problem, Unauthorized | Forbidden | TooMany) and not isinstance(problem, KeyEnded)
    return call.caller is None and refused


def _log(hook: Hook, problem: Exception) -> None:
    if isinstance(problem, SignalboxError | Gone | TimeoutError):
        words = problem.detail if isinstance(problem, SignalboxError) else type(problem).__name__
        log.warning("Nobody decides a hook %s of %s here: %s", hook.name, hook.session, words)
    else:
        log.error("Nobody decides a hook %s of %s here", hook.name, hook.session, exc_info=problem)


async def _send(send: Send, answer: Answer | None, extra: list[tuple[bytes, bytes]]) -> None:
    """Answer 200, with nothing where there is no opinion: the agent goes on as if there were no hook."""
    if answer is not None:
        await send_json(send, 200, answer, *extra)
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0"), *extra]})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
