"""`POST /api/access/check`: whether an agent may call a tool. Answered from memory, for each call of a tool."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

import msgspec
import pydantic
from django.db import Error as DatabaseError
from django.utils import timezone

from coordinator.actions.policy import denials
from coordinator.actions.policy.denials import AccessDenial
from coordinator.api.access import AccessCheck, AccessChecks, resolve_agent_for_access_check
from coordinator.edge.http.auth import Admission, Authenticator
from coordinator.edge.http.bodies import RequestBodies
from coordinator.edge.http.messages import get_edge_operation_of_request, get_request_headers, send_json
from coordinator.edge.http.validation_errors import parse_json_body
from coordinator.edge.policy.policy_cache import PolicyCache
from coordinator.edge.polling.waits import DisconnectWatcher, LongPollWaiters
from coordinator.errors import UnprocessableRequest
from coordinator.identity.keys import KeyIdentity
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.policy.grants import access
from coordinator.policy.grants.access import Verdict
from coordinator.policy.limits import brakes
from coordinator.policy.limits.brakes import ActiveBrake
from coordinator.sessions.agent_programs import AGENT_TITLES

log = logging.getLogger(__name__)

MOST_CHECKS = 2_000
LONGEST_WAIT = 600.0
WINDOW = 60.0  # seconds over which repeated denials are counted into one audit row
MOST_NAMED = 500  # different denied calls a window that get rows of their own

Name = Annotated[str, msgspec.Meta(max_length=500, pattern=r"^[^\x00]*$")]


class AccessQuestion(msgspec.Struct):
    """One question. `agent_id` may be left out by a key that speaks as an agent."""

    server_id: Name
    tool_name: Name
    agent_id: Name | None = None


class AccessCheckBody(msgspec.Struct):
    """One question, or many in `checks`; `wait` holds a single one that is denied until it is not any more."""

    server_id: Name | None = None
    tool_name: Name | None = None
    agent_id: Name | None = None
    checks: Annotated[list[AccessQuestion], msgspec.Meta(max_length=MOST_CHECKS)] | None = None
    wait: Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT)] = 0


_decode = msgspec.json.Decoder(AccessCheckBody).decode


class AccessEndpoint:
    """The endpoint and the log of what it denied. One a process."""

    def __init__(
        self,
        auth: Authenticator,
        policies: PolicyCache,
        waits: LongPollWaiters,
        threads: EdgeThreads,
        bodies: RequestBodies,
    ) -> None:
        self._auth = auth
        self._bodies = bodies
        self._policies = policies
        self._waits = waits
        self._threads = threads
        self.denied = DenialLog(threads)

    async def answer_access_check(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 200 with one verdict, or with `results` in the order of `checks`."""
        headers = get_request_headers(scope)
        admission = await self._auth.admit_api_key_caller(scope, headers)
        caller = admission.caller
        with self._bodies.reserve_body_during_block(f"key:{caller.id}") as reservation:
            body = await reservation.decode_received_body(
                parse_access_body,
                await reservation.read_body(receive, headers, get_edge_operation_of_request(scope).body.key),
            )
        if body.checks is not None:
            questions = [access_question_as_tuple(check, caller) for check in body.checks]
            verdicts = await self.resolve_access_verdicts(questions, caller)
            braked = await self.load_brakes_by_agent(agent for agent, _, _ in questions)
            results = [
                {
                    "agent_id": agent,
                    "server_id": server,
                    "tool_name": tool,
                    **build_access_answer(verdict, braked.get(agent)),
                }
                for (agent, server, tool), verdict in zip(questions, verdicts, strict=True)
            ]
            await send_json(send, 200, {"results": results})
            return
        question = access_question_as_tuple(
            AccessQuestion(body.server_id or "", body.tool_name or "", body.agent_id), caller
        )
        (verdict,) = await self.resolve_access_verdicts([question], caller)
        braked = await self.load_brakes_by_agent([question[0]])
        if body.wait and (verdict.is_denied or braked):
            with DisconnectWatcher(receive) as disconnect_watcher:
                verdict = await self.await_access_and_get_verdict(
                    question, body.wait, admission, disconnect_watcher
                )
            if disconnect_watcher.happened:
                return
            await admission.require_still_allowed()
            braked = await self.load_brakes_by_agent([question[0]])
        await send_json(send, 200, build_access_answer(verdict, braked.get(question[0])))

    async def load_brakes_by_agent(self, agents: Iterable[str]) -> dict[str, ActiveBrake]:
        """Return, for those agents that a brake may hold, which does."""
        return await self._threads.run_in_thread(brakes.find_brakes_by_agent, set(agents), AGENT_TITLES)

    async def resolve_access_verdicts(
        self, questions: Sequence[tuple[str, str, str]], caller: KeyIdentity
    ) -> list[Verdict]:
        policies = await self._policies.load_policies({(agent, server) for agent, server, _ in questions})
        now = timezone.now()
        verdicts = []
        for agent, server, tool in questions:
            verdict = policies[agent, server].decide_tool_access(agent, server, tool, now)
            verdicts.append(verdict)
            if not verdict.is_allowed:
                self.denied.count_denial(AccessDenial(agent, server, tool, verdict, caller.caller_actor), now)
        return verdicts

    async def await_access_and_get_verdict(
        self, question: tuple[str, str, str], wait: float, admission: Admission, disconnect: DisconnectWatcher
    ) -> Verdict:
        server_id = question[1]
        topics = [f"{topic}:{server_id}" for topic in ("grants", "mcp_servers", "mcp_tools")]
        topics.append("brakes")
        check = functools.partial(find_access_verdict_unless_denied, *question)
        with self._waits.poll_limit.reserve_slot_during_block(admission.caller.name):
            waited = await self._waits.wait_until(
                check,
                topics=topics,
                timeout=wait,
                still_allowed=admission.require_still_allowed,
                disconnect=disconnect,
            )
        return (
            await self._threads.run_in_thread(resolve_tool_access_now, *question)
            if waited is None
            else waited
        )


def access_question_as_tuple(check: AccessQuestion, caller: KeyIdentity) -> tuple[str, str, str]:
    return (resolve_agent_for_access_check(caller, check.agent_id), check.server_id, check.tool_name)


def resolve_tool_access_now(agent_id: str, server_id: str, tool_name: str) -> Verdict:
    return access.resolve_tool_access(agent_id, server_id, tool_name, timezone.now())


def find_access_verdict_unless_denied(agent_id: str, server_id: str, tool_name: str) -> Verdict | None:
    verdict = resolve_tool_access_now(agent_id, server_id, tool_name)
    return (
        None
        if verdict.is_denied or brakes.find_brake_on_agent(agent_id, AGENT_TITLES) is not None
        else verdict
    )


def build_access_answer(verdict: Verdict, brake: ActiveBrake | None) -> dict[str, Any]:
    """Return the verdict as it is answered; while a brake is on, nothing is allowed or asked."""
    answer_fields = verdict.verdict_as_json()
    if brake is None or verdict.is_denied:
        return answer_fields
    return answer_fields | {"verdict": access.DENY, "source": "brake", "reason": brake.agent_message}


def parse_access_body(raw: bytes) -> AccessCheckBody:
    """Read the body; raises UnprocessableRequest with every fault in the recorded form."""
    try:
        body = _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise build_access_validation_error(raw) from None
    if body.checks is None and (not body.server_id or not body.tool_name):
        raise build_access_validation_error(raw)
    return body


def build_access_validation_error(raw: bytes) -> UnprocessableRequest:
    """Let pydantic, with the model that the API's page shows, say what is wrong."""
    value = parse_json_body(raw)
    many = isinstance(value, dict) and value.get("checks") is not None
    try:
        (AccessChecks if many else AccessCheck).model_validate(value)
    except pydantic.ValidationError as problem:
        return UnprocessableRequest(
            [pydantic_access_error_as_json(dict(error)) for error in problem.errors(include_url=False)]
        )
    return UnprocessableRequest(
        [{"type": "value_error", "loc": ["body"], "msg": "Cannot be read.", "input": None}]
    )


def pydantic_access_error_as_json(error: dict[str, Any]) -> dict[str, Any]:
    validation_error = {name: error[name] for name in ("type", "msg", "input")}
    validation_error["loc"] = ["body", *error["loc"]]
    if "ctx" in error:
        validation_error["ctx"] = {name: str(value) for name, value in error["ctx"].items()}
    return validation_error


@dataclass
class DenialCount:
    """What was denied of one kind since its first row was written."""

    denial: AccessDenial
    since: datetime
    more: int = 0


class DenialLog:
    """Counts denials and has them written: the first of a kind at once, then one row a window with the count."""

    def __init__(self, threads: EdgeThreads) -> None:
        self._threads = threads
        self._windows: dict[tuple[str, str, str, str, str], DenialCount] = {}
        self._omitted_count = 0
        self._writing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def count_denial(self, denial: AccessDenial, now: datetime) -> None:
        """Take note of one denial; returns at once."""
        kind = (
            denial.agent_id,
            denial.server_id,
            denial.tool_name,
            denial.by.name,
            denial.verdict.decision,
        )
        window = self._windows.get(kind)
        if window is not None:
            window.more += 1
        elif len(self._windows) >= MOST_NAMED:
            self._omitted_count += 1
        else:
            self._windows[kind] = DenialCount(denial, now)
            self.start_denial_write([denial], 0)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW, self.rotate_denial_window)

    def rotate_denial_window(self) -> None:
        """End the window: write the counts and start the next window."""
        self._timer = None
        counted, other_denials = self.pop_denials_and_omitted_count()
        if counted or other_denials:
            self.start_denial_write(counted, other_denials)

    def pop_denials_and_omitted_count(self) -> tuple[list[AccessDenial], int]:
        windows, other_denials = self._windows, self._omitted_count
        self._windows, self._omitted_count = {}, 0
        counted = [
            replace(window.denial, count=window.more, since=window.since)
            for window in windows.values()
            if window.more
        ]
        return counted, other_denials

    def start_denial_write(self, rows: list[AccessDenial], omitted_count: int) -> None:
        task = asyncio.ensure_future(self.write_denials(rows, omitted_count))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def write_denials(self, rows: list[AccessDenial], omitted_count: int) -> None:
        try:
            await self._threads.run_in_thread(
                denials.record_access_denials, rows, omitted_count=omitted_count, now=timezone.now()
            )
        except DatabaseError:
            log.exception("Denied calls could not be written to the audit log")

    async def flush_denials(self) -> None:
        """Write what was counted so far; call it before the threads end."""
        if self._timer is not None:
            self._timer.cancel()
            self.rotate_denial_window()
        if self._writing:
            await asyncio.wait(self._writing, timeout=2)
