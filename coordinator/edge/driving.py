"""What runners say of the sessions whose agents they drive: updates, questions, questions taken back.

Each answer to updates is given when they are committed. A question is held like a poll: for at most `HELD` seconds,
after which the runner asks again and joins the same card.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import msgspec
from django.utils import timezone

from coordinator.actions import runners
from coordinator.actions.driving import permissions, taking
from coordinator.actions.driving.permissions import PermissionQuestion
from coordinator.dialects.acp import SPEECH
from coordinator.dialects.hooks import mended
from coordinator.dialects.loaded import subject_text
from coordinator.edge.auth import Admission, Authenticator
from coordinator.edge.bodies import Bodies
from coordinator.edge.brake_gate import BrakeGate
from coordinator.edge.http import headers_of, send_json
from coordinator.edge.limits import KEY, LIMITS
from coordinator.edge.rulings import ASKED_AT_GATEWAY, Rulings
from coordinator.edge.waits import Disconnect, Waits
from coordinator.edge.writer import GroupWriter
from coordinator.errors import Invalid
from coordinator.identity import session_keys
from coordinator.identity.keys import KeyIdentity
from coordinator.identity.scopes import RUNNERS
from coordinator.lib import json_bounds
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.names import behind_gateway
from coordinator.models import Runner
from coordinator.policy import agent_options
from coordinator.policy.tool_calls import AskedCall
from coordinator.policy.tool_rules import ALLOW, DENY, OBSERVE, Ruling, stricter
from coordinator.sessions.driving import Update

LIMIT = LIMITS["events"][KEY]
HELD = 25.0  # seconds a question is held
WRITE_WITHIN = 10.0  # seconds until a runner is told to send again
MOST_UPDATES = 2_000  # updates of one post
MOST_KNOWN = 2_000  # runners that a process remembers
KNOWN_FOR = 1.0  # seconds until it looks at a runner again, and notes that it lives

NOT_YET: dict[str, Any] = {"permission_request_id": None, "outcome": None, "reason": None}

T = TypeVar("T")
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=500, pattern=r"^[^\x00]*$")]


class SentUpdate(msgspec.Struct):
    """One update, as the runner had it from its agent."""

    n: Annotated[int, msgspec.Meta(ge=1, le=2**53)]
    at: str
    update: dict[str, Any]


class Updates(msgspec.Struct):
    """What has happened in a session since the last post."""

    runner_id: Name
    updates: Annotated[list[SentUpdate], msgspec.Meta(max_length=MOST_UPDATES)]
    run_id: Name | None = None


class Asked(msgspec.Struct):
    """The agent asks whether a call may run; `known` is what its runner saw of the call before."""

    runner_id: Name
    tool_call: dict[str, Any]
    options: list[dict[str, Any]]
    run_id: Name | None = None
    known: Any = None
    ask: Name | None = None  # what names this question: asked again under it, it is the same


class Withdrawn(msgspec.Struct):
    """Nobody waits for the answer about this call any more."""

    runner_id: Name
    toolCallId: Name
    why: str = "The agent withdrew the question."
    ask: Name | None = None


class DrivingDoor:
    """The doors of runners that drive agents. One a process."""

    def __init__(
        self,
        auth: Authenticator,
        writer: GroupWriter,
        *,
        rulings: Rulings,
        gate: BrakeGate,
        waits: Waits,
        threads: EdgeThreads,
        bodies: Bodies,
    ) -> None:
        self._auth = auth
        self._writer = writer
        self._rulings = rulings
        self._gate = gate
        self._waits = waits
        self._threads = threads
        self._bodies = bodies
        self._known: dict[tuple[KeyIdentity, str], tuple[Runner, float]] = {}

    async def updates(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /runner/sessions/{id}/updates`: 200 with the number that the next update must have."""
        admission, body = await self._read(Updates, scope, receive)
        told = [_update(one) for one in body.updates]
        runner = await self._runner(body.runner_id, admission.caller)
        work = functools.partial(_take, session_id, runner, told, body.run_id)
        await send_json(send, 200, {"ok": True, "next": await self._perform(work)})

    async def permission(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /runner/sessions/{id}/permission`: 200 with the outcome, null while nobody has answered."""
        admission, body = await self._read(Asked, scope, receive)
        question = PermissionQuestion(
            session_id,
            body.run_id,
            mended(body.tool_call),
            [one for one in _listed(body.known) if isinstance(one, dict)],
            tuple(mended(agent_options.readable(body.options))),
            body.ask,
        )
        runner = await self._runner(body.runner_id, admission.caller)
        asked = await self._perform(functools.partial(_note, question, runner))
        until = time.monotonic() + HELD
        with Disconnect(receive) as gone:
            answer = NOT_YET
            if not await self._is_braked(asked, admission, until):
                answer = await self._decided(question, asked, admission, gone=gone, until=until)
            # A brake may have been put on while a person was waited for.
            if answer["outcome"] is not None and await self._is_braked(asked, admission, until):
                answer = NOT_YET | {"permission_request_id": answer["permission_request_id"]}
        if not gone.happened:
            await admission.still_allowed()
            await send_json(send, 200, answer)

    async def _is_braked(self, asked: AskedCall, admission: Admission, until: float) -> bool:
        """Wait while a brake holds the call; say whether one still does."""
        held = await self._gate.pass_through(
            (asked.agent_id, asked.program),
            asked.host,
            wait=until - time.monotonic(),
            asker=admission.caller.name,
            still_allowed=admission.still_allowed,
        )
        return held is not None

    async def _decided(
        self,
        question: PermissionQuestion,
        asked: AskedCall,
        admission: Admission,
        *,
        gone: Disconnect,
        until: float,
    ) -> dict[str, Any]:
        """Answer by the rules, else by a person."""
        ruling = await self._ruling(asked)
        if ruling.decision not in {ALLOW, DENY}:
            return await self._answered(question, asked, ruling, admission, gone=gone, until=until)
        by, now = admission.caller.actor, timezone.now()
        work = functools.partial(permissions.by_ruling, asked, ruling, question.options, by=by, now=now)
        return await self._perform(work)

    async def _ruling(self, asked: AskedCall) -> Ruling:
        """Return what policy says. A call through the gateway is judged as there, and a person is not asked twice."""
        handed = None
        if behind_gateway(asked.tool) is not None:
            handed = await self._threads.run(session_keys.of_session, asked.session_id)
        key_id, agent_id = handed or (None, asked.agent_id)
        ruling = await self._rulings.on(asked.tool, asked.about, agent_id, asked.program, key_id)
        agents = (asked.agent_id, asked.program)
        if handed is None:
            return stricter(ruling, await self._rulings.by_budgets(agents, asked.session_id))
        by_budgets = await self._rulings.budgets_on(
            asked.tool, agents, asked.session_id, agent_id=agent_id, key_id=key_id
        )
        ruling = stricter(ruling, by_budgets)
        asked_there = ASKED_AT_GATEWAY in (ruling, by_budgets) and ruling.decision == OBSERVE
        return replace(ruling, decision=ALLOW) if asked_there else ruling

    async def _answered(
        self,
        question: PermissionQuestion,
        asked: AskedCall,
        ruling: Ruling,
        admission: Admission,
        *,
        gone: Disconnect,
        until: float,
    ) -> dict[str, Any]:
        """Put the question before people, and wait for a while."""
        by, now = admission.caller.actor, timezone.now()
        put = functools.partial(permissions.put, asked, ruling, ask=question.ask, by=by, now=now)
        row = await self._threads.run(put)
        with self._waits.places.place(admission.caller.name):
            answer = await self._waits.wait_until(
                lambda: permissions.answer_of(row.request_id, question.options, timezone.now()),
                topics=[f"permission_requests:{row.pk}"],
                timeout=max(0.0, until - time.monotonic()),
                still_allowed=admission.still_allowed,
                gone=gone,
            )
        return answer or NOT_YET | {"permission_request_id": row.request_id}

    async def withdraw(self, session_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /runner/sessions/{id}/permission/withdraw`: 200, also where nothing stands open."""
        admission, body = await self._read(Withdrawn, scope, receive)
        runner = await self._runner(body.runner_id, admission.caller)
        await self._perform(functools.partial(_withdraw, session_id, body, runner))
        await send_json(send, 200, {"ok": True})

    async def _read(self, kind: type[T], scope: Scope, receive: Receive) -> tuple[Admission, T]:
        """Return who posts, and what. Raises Invalid for a body that is not of this kind."""
        headers = headers_of(scope)
        admission = await self._auth.admit(scope, headers, *RUNNERS)
        with self._bodies.hold(f"key:{admission.caller.id}") as held:
            body = await held.read(receive, headers, LIMIT)
            return admission, await held.decoded(functools.partial(_body, kind), body)

    async def _runner(self, runner_id: str, caller: KeyIdentity) -> Runner:
        """Return who posts, its sign of life noted. Raises as runners.note_sign_of_life does."""
        now = asyncio.get_running_loop().time()
        known, until = self._known.get((caller, runner_id), (None, 0.0))
        if known is None or until < now:
            note = functools.partial(runners.note_sign_of_life, runner_id, timezone.now(), key=caller)
            known = await self._threads.run(note)
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[caller, runner_id] = known, now + KNOWN_FOR
        return known

    async def _perform(self, work: Callable[[], T]) -> T:
        return await self._writer.perform(work, deadline=time.monotonic() + WRITE_WITHIN)


def _body(kind: type[T], body: bytes) -> T:
    if json_bounds.is_deeper(body):
        raise Invalid(f"Nested deeper than {json_bounds.DEEPEST} levels.")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise Invalid(f"The body cannot be read: {problem}") from None


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _update(sent: SentUpdate) -> Update:
    fields: dict[str, Any] = mended(sent.update)
    kind = fields.pop("sessionUpdate", None)
    return Update(sent.n, sent.at, kind if isinstance(kind, str) and kind else "update", fields)


def _take(session_id: str, runner: Runner, told: list[Update], run_id: str | None) -> int:
    return taking.take(session_id, runner, told, run_id=run_id, speech=SPEECH, now=timezone.now())


def _note(question: PermissionQuestion, runner: Runner) -> AskedCall:
    asked = permissions.note(question, runner, SPEECH, timezone.now())
    return replace(asked, about=subject_text(asked.program, asked.tool, asked.tool_input))


def _withdraw(session_id: str, body: Withdrawn, runner: Runner) -> None:
    permissions.withdraw(session_id, runner, body.toolCallId, ask=body.ask, why=body.why, now=timezone.now())
