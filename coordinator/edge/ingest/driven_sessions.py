"""Reports of runners about the sessions whose agents they drive: updates, questions, withdrawn questions.

Each answer to updates is given when they are committed. A question is held like a poll: for at most
QUESTION_WAIT_SECONDS, after which the runner asks again and joins the same card.
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

from coordinator.actions.agents import runners
from coordinator.actions.driving import applying as taking
from coordinator.actions.driving import permissions
from coordinator.actions.driving.permissions import PermissionQuestion
from coordinator.dialects.acp import SPEECH
from coordinator.dialects.dialect_registry import build_call_subject_text
from coordinator.dialects.hooks import replace_unstorable_text
from coordinator.edge.http.auth import Admission, Authenticator
from coordinator.edge.http.bodies import RequestBodies
from coordinator.edge.http.messages import get_edge_operation_of_request, get_request_headers, send_json
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.edge.policy.brake_gate import BrakeGate
from coordinator.edge.policy.rulings import DECIDED_AT_GATEWAY, PolicyRulings
from coordinator.edge.polling.waits import DisconnectWatcher, LongPollWaiters
from coordinator.errors import UnprocessableRequest
from coordinator.identity import session_keys
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import instants, json_bounds
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.servers.names import unwrap_gateway_call_or_none
from coordinator.models import Runner
from coordinator.policy.requests import agent_options
from coordinator.policy.requests.questions import is_question_tool
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.policy.rules.call_history import TimedCall
from coordinator.policy.rules.call_text import copy_call_text_with_folder
from coordinator.policy.rules.tool_rules import ALLOW, DENY, NO_OPINION, OBSERVE, Ruling, stricter_ruling
from coordinator.sessions.driven_agent_updates import DrivenAgentUpdate

QUESTION_WAIT_SECONDS = 25.0  # seconds a question is held
WRITE_WITHIN = 10.0  # seconds until a runner is asked to send again
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


class SessionUpdates(msgspec.Struct):
    """What has happened in a session since the last post."""

    runner_id: Name
    updates: Annotated[list[SentUpdate], msgspec.Meta(max_length=MOST_UPDATES)]
    run_id: Name | None = None


class PermissionQuestionBody(msgspec.Struct):
    """The agent asks whether a call may run; `known` is what its runner saw of the call before."""

    runner_id: Name
    tool_call: dict[str, Any]
    options: list[dict[str, Any]]
    run_id: Name | None = None
    known: Any = None
    ask: Name | None = None  # what names this question: asked again under it, it is the same
    elicitation: dict[str, Any] | None = (
        None  # the form that the agent has a person fill in, in place of options
    )


class PermissionWithdrawal(msgspec.Struct):
    """Nobody waits for the answer about this call any more."""

    runner_id: Name
    toolCallId: Name
    why: str = "The agent withdrew the question."
    ask: Name | None = None


class DrivingEndpoint:
    """The endpoints of runners that drive agents. One a process."""

    def __init__(
        self,
        auth: Authenticator,
        writer: GroupWriter,
        *,
        rulings: PolicyRulings,
        gate: BrakeGate,
        waits: LongPollWaiters,
        threads: EdgeThreads,
        bodies: RequestBodies,
    ) -> None:
        self._auth = auth
        self._writer = writer
        self._rulings = rulings
        self._gate = gate
        self._waits = waits
        self._threads = threads
        self._bodies = bodies
        self._known_runners: dict[tuple[KeyIdentity, str], tuple[Runner, float]] = {}

    async def receive_session_updates(
        self, session_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`POST /runner/sessions/{id}/updates`: 200 with the number that the next update must have."""
        admission, body = await self.authenticate_and_read_runner_body(SessionUpdates, scope, receive)
        session_updates = [build_session_update(update) for update in body.updates]
        runner = await self.find_runner_and_record_contact(body.runner_id, admission.caller)
        work = functools.partial(
            apply_updates_and_get_next_number, session_id, runner, session_updates, body.run_id
        )
        await send_json(send, 200, {"ok": True, "next": await self.run_runner_write_in_transaction(work)})

    async def receive_permission_question_and_wait(
        self, session_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`POST /runner/sessions/{id}/permission`: 200 with the outcome, null while nobody has answered."""
        admission, body = await self.authenticate_and_read_runner_body(PermissionQuestionBody, scope, receive)
        question = PermissionQuestion(
            session_id,
            body.run_id,
            replace_unstorable_text(body.tool_call),
            [known_option for known_option in wrap_in_list(body.known) if isinstance(known_option, dict)],
            tuple(replace_unstorable_text(agent_options.parse_agent_answer_options(body.options))),
            body.ask,
            None if body.elicitation is None else replace_unstorable_text(body.elicitation),
        )
        runner = await self.find_runner_and_record_contact(body.runner_id, admission.caller)
        question_call = await self.run_runner_write_in_transaction(
            functools.partial(record_question_and_build_call, question, runner)
        )
        until = time.monotonic() + QUESTION_WAIT_SECONDS
        with DisconnectWatcher(receive) as disconnect_watcher:
            answer = NOT_YET
            if not await self.wait_and_check_still_braked(question_call, admission, until):
                answer = await self.decide_question_or_ask_people(
                    question, question_call, admission, disconnect=disconnect_watcher, until=until
                )
            # A brake may have been put on while a person was waited for.
            if answer["outcome"] is not None and await self.wait_and_check_still_braked(
                question_call, admission, until
            ):
                answer = NOT_YET | {"permission_request_id": answer["permission_request_id"]}
        if not disconnect_watcher.happened:
            await admission.require_still_allowed()
            await send_json(send, 200, answer)

    async def wait_and_check_still_braked(
        self, call_request: ToolCallRequest, admission: Admission, until: float
    ) -> bool:
        """Wait while a brake holds the call; say whether one still does."""
        holding_brake = await self._gate.await_release_or_get_brake(
            (call_request.agent_id, call_request.program),
            call_request.host,
            wait=until - time.monotonic(),
            asker=admission.caller.name,
            still_allowed=admission.require_still_allowed,
        )
        return holding_brake is not None

    async def decide_question_or_ask_people(
        self,
        question: PermissionQuestion,
        call_request: ToolCallRequest,
        admission: Admission,
        *,
        disconnect: DisconnectWatcher,
        until: float,
    ) -> dict[str, Any]:
        """Answer by the rules, else by a person."""
        ruling = await self.judge_permission_question(call_request)
        if ruling.decision == ALLOW and is_question_tool(call_request.tool):
            ruling = NO_OPINION  # no rule knows the answer
        if ruling.decision not in {ALLOW, DENY}:
            return await self.submit_question_and_wait_briefly(
                question, call_request, ruling, admission, disconnect=disconnect, until=until
            )
        by, now = admission.caller.caller_actor, timezone.now()
        work = functools.partial(
            permissions.record_and_build_ruling_answer, call_request, ruling, question, actor=by, now=now
        )
        return await self.run_runner_write_in_transaction(work)

    async def judge_permission_question(self, call_request: ToolCallRequest) -> Ruling:
        """Return what policy says. A call through the gateway is judged as there, and a person is not asked twice."""
        handed = None
        if unwrap_gateway_call_or_none(call_request.tool) is not None:
            handed = await self._threads.run_in_thread(
                session_keys.find_session_agent_and_key, call_request.session_id
            )
        key_id, agent_id = handed or (None, call_request.agent_id)
        ruling = await self._rulings.judge_tool_call(
            call_request.tool,
            call_request.about,
            agent_id,
            call_request.program,
            key_id,
            find_moment=functools.partial(build_timed_call_of_request, call_request),
        )
        agents = (call_request.agent_id, call_request.program)
        if handed is None:
            return stricter_ruling(
                ruling, await self._rulings.judge_session_budgets(agents, call_request.session_id)
            )
        by_budgets = await self._rulings.judge_call_budgets(
            call_request.tool, agents, call_request.session_id, agent_id=agent_id, key_id=key_id
        )
        ruling = stricter_ruling(ruling, by_budgets)
        gateway_will_ask = DECIDED_AT_GATEWAY in (ruling, by_budgets) and ruling.decision == OBSERVE
        return replace(ruling, decision=ALLOW) if gateway_will_ask else ruling

    async def submit_question_and_wait_briefly(
        self,
        question: PermissionQuestion,
        call_request: ToolCallRequest,
        ruling: Ruling,
        admission: Admission,
        *,
        disconnect: DisconnectWatcher,
        until: float,
    ) -> dict[str, Any]:
        """Put the question before people, and wait for a while."""
        by, now = admission.caller.caller_actor, timezone.now()
        put_question = functools.partial(
            permissions.submit_permission_question, call_request, ruling, ask=question.ask, actor=by, now=now
        )
        row = await self._threads.run_in_thread(put_question)
        with self._waits.poll_limit.reserve_slot_during_block(admission.caller.name):
            answer = await self._waits.wait_until(
                lambda: permissions.load_question_outcome(row.request_id, question, timezone.now()),
                topics=[f"permission_requests:{row.pk}"],
                timeout=max(0.0, until - time.monotonic()),
                still_allowed=admission.require_still_allowed,
                disconnect=disconnect,
            )
        return answer or NOT_YET | {"permission_request_id": row.request_id}

    async def withdraw_permission_question(
        self, session_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`POST /runner/sessions/{id}/permission/withdraw`: 200, also where no question is open."""
        admission, body = await self.authenticate_and_read_runner_body(PermissionWithdrawal, scope, receive)
        runner = await self.find_runner_and_record_contact(body.runner_id, admission.caller)
        await self.run_runner_write_in_transaction(
            functools.partial(withdraw_runner_question, session_id, body, runner)
        )
        await send_json(send, 200, {"ok": True})

    async def authenticate_and_read_runner_body(
        self, kind: type[T], scope: Scope, receive: Receive
    ) -> tuple[Admission, T]:
        """Return who posts, and what. Raises UnprocessableRequest for a body that is not of this kind."""
        headers = get_request_headers(scope)
        admission = await self._auth.admit_api_key_caller(scope, headers)
        with self._bodies.reserve_body_during_block(f"key:{admission.caller.id}") as reservation:
            body = await reservation.read_body(
                receive, headers, get_edge_operation_of_request(scope).body.key
            )
            return admission, await reservation.decode_received_body(
                functools.partial(decode_runner_body, kind), body
            )

    async def find_runner_and_record_contact(self, runner_id: str, caller: KeyIdentity) -> Runner:
        """Return who posts, its sign of life noted. Raises as runners.note_sign_of_life does."""
        now = asyncio.get_running_loop().time()
        known_runner, until = self._known_runners.get((caller, runner_id), (None, 0.0))
        if known_runner is None or until < now:
            note = functools.partial(
                runners.require_runner_and_record_contact, runner_id, timezone.now(), key=caller
            )
            known_runner = await self._threads.run_in_thread(note)
            if len(self._known_runners) >= MOST_KNOWN:
                self._known_runners.clear()
            self._known_runners[caller, runner_id] = known_runner, now + KNOWN_FOR
        return known_runner

    async def run_runner_write_in_transaction(self, work: Callable[[], T]) -> T:
        return await self._writer.perform_in_transaction(work, deadline=time.monotonic() + WRITE_WITHIN)


async def build_timed_call_of_request(call_request: ToolCallRequest) -> TimedCall:
    """Return the call as its session's events name it."""
    return TimedCall(
        call_request.session_id,
        call_request.tool,
        call_request.tool_input,
        instants.instant_from_microseconds(call_request.since_us),
        call_request.call_id,
        folder=call_request.folder,
    )


def decode_runner_body(kind: type[T], body: bytes) -> T:
    if json_bounds.is_json_too_deep(body):
        raise UnprocessableRequest(f"Nested deeper than {json_bounds.DEEPEST} levels.")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise UnprocessableRequest(f"The body cannot be read: {problem}") from None


def wrap_in_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def build_session_update(sent: SentUpdate) -> DrivenAgentUpdate:
    fields: dict[str, Any] = replace_unstorable_text(sent.update)
    kind = fields.pop("sessionUpdate", None)
    return DrivenAgentUpdate(sent.n, sent.at, kind if isinstance(kind, str) and kind else "update", fields)


def apply_updates_and_get_next_number(
    session_id: str, runner: Runner, updates: list[DrivenAgentUpdate], run_id: str | None
) -> int:
    return taking.apply_updates_return_next_number(
        session_id, runner, updates, run_id=run_id, speech=SPEECH, now=timezone.now()
    )


def record_question_and_build_call(question: PermissionQuestion, runner: Runner) -> ToolCallRequest:
    question_call = permissions.record_and_build_question_call(question, runner, SPEECH, timezone.now())
    about = build_call_subject_text(question_call.program, question_call.tool, question_call.tool_input)
    return replace(question_call, about=copy_call_text_with_folder(about, question_call.folder))


def withdraw_runner_question(session_id: str, body: PermissionWithdrawal, runner: Runner) -> None:
    permissions.withdraw_driven_question(
        session_id, runner, body.toolCallId, ask=body.ask, reason=body.why, now=timezone.now()
    )
