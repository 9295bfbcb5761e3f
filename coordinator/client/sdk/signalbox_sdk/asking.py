"""Ask a person whether a call may run, wait for the verdict, or come back for it.

A call is asked about with a snapshot of its arguments, and `ApproverVerdict.arguments` is what may run: that
snapshot, or what the approver made of it. A program that runs anything else runs what nobody saw.

With a `key`, the question can be asked again after a restart: the server knows it by the key and returns the same
request. A key identifies one call. Without a key, the question joins an equal one that still waits.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from signalbox_sdk.connection import Connection, RequestRefused, ServerUnavailable

PATH = "/api/permission-requests"
LONG_POLL_SECONDS = 25.0  # below what proxies let a request last
EXTRA_SECONDS = 10.0  # for the answer to a long poll
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 3.0
APPROVED, PENDING, UNAVAILABLE = "approved", "pending", "unavailable"


class NotApproved(Exception):
    """A call may not run; the text is for the model. `verdict.is_pending`: ask again with the same key later."""

    def __init__(self, verdict: ApproverVerdict) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict


@dataclass(frozen=True)
class ToolQuestion:
    """A call of a tool that somebody has to approve."""

    tool: str
    arguments: Mapping[str, Any]
    why: str = ""  # the person who decides reads it
    conversation: str | None = None  # the program's own id: the session in which the card is shown
    key: str | None = None  # by which the request is found again, one for each call
    agent: str | None = None  # for a key that is bound to several agents
    runs_edited_input: bool = True  # `ApproverVerdict.arguments` is what runs; False: the card offers no edit

    def build_body(self) -> dict[str, Any]:
        """Return the request's body. Raises TypeError or ValueError for arguments that are not JSON."""
        body = {
            "plugin_id": "sdk",
            "permission_type": "ToolCall",
            "target_resource": self.tool,
            "justification": self.why.strip() or f"The agent wants to call {self.tool}.",
            "tool_name": self.tool,
            "tool_input": snapshot_arguments(self.arguments),
            "conversation_id": self.conversation,
            "idempotency_key": self.key,
            "agent_id": self.agent,
            "runs_edited_input": self.runs_edited_input,
        }
        return {name: value for name, value in body.items() if value is not None}


@dataclass(frozen=True)
class ApproverVerdict:
    """What became of a question. Only with `is_approved` may `arguments` run."""

    status: str  # approved, pending, denied, expired, withdrawn, …, or unavailable
    request_id: str | None = None
    session_id: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)  # empty unless approved
    is_edited: bool = False  # a person changed the arguments
    reason: str = ""

    @property
    def is_approved(self) -> bool:
        return self.status == APPROVED

    @property
    def is_pending(self) -> bool:
        return self.status == PENDING

    @property
    def message(self) -> str:
        """What a model reads about a call that did not run."""
        if self.is_pending:
            return "Nobody has decided in Signalbox yet, so the call did not run."
        return f"The call did not run ({self.status} in Signalbox). {self.reason}".strip()

    def require_approval(self) -> dict[str, Any]:
        """Return the arguments that may run. Raises NotApproved."""
        if not self.is_approved:
            raise NotApproved(self)
        return self.arguments


def snapshot_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy that nobody else can change, as the server will read it."""
    copy = json.loads(json.dumps(dict(arguments), allow_nan=False))
    assert isinstance(copy, dict)
    return copy


def ask(
    question: ToolQuestion, *, timeout: float | None = None, connection: Connection | None = None
) -> ApproverVerdict:
    """Ask a person, and wait for the verdict.

    Args:
        question: The call.
        timeout: Seconds to wait; None: until somebody decides; 0: return at once, with a verdict that is pending.
        connection: The server; default: the environment's.

    Returns: The verdict. It never raises for a server that is away: the status is `unavailable` then.
    """
    connection = connection or Connection()
    conversation = Conversation(question, timeout, connection.patience)
    steps = conversation.iterate_question_requests()
    try:
        step = next(steps)
        while True:
            answer: Answer
            try:
                if step.pause:
                    time.sleep(step.pause)
                answer = connection.send(step.method, step.path, step.body, timeout=step.timeout)
            except (ServerUnavailable, RequestRefused) as problem:
                answer = problem
            step = steps.send(answer)
    except StopIteration as end:
        verdict: ApproverVerdict = end.value
        return verdict


async def ask_async(
    question: ToolQuestion, *, timeout: float | None = None, connection: Connection | None = None
) -> ApproverVerdict:
    """Do the same as `ask` without blocking the event loop."""
    connection = connection or Connection()
    conversation = Conversation(question, timeout, connection.patience)
    steps = conversation.iterate_question_requests()
    try:
        step = next(steps)
        while True:
            answer: Answer
            try:
                if step.pause:
                    await asyncio.sleep(step.pause)
                answer = await connection.send_async(step.method, step.path, step.body, timeout=step.timeout)
            except (ServerUnavailable, RequestRefused) as problem:
                answer = problem
            step = steps.send(answer)
    except StopIteration as end:
        verdict: ApproverVerdict = end.value
        return verdict


Answer = dict[str, Any] | ServerUnavailable | RequestRefused


@dataclass(frozen=True)
class Step:
    """A request to send after a pause (seconds)."""

    method: str
    path: str
    body: dict[str, Any] | None = None
    timeout: float = EXTRA_SECONDS
    pause: float = 0.0


class Conversation:
    """The requests that one question takes, without the sending: the same for both kinds of caller."""

    def __init__(self, question: ToolQuestion, timeout: float | None, patience: float) -> None:
        self._question = question
        self._ends_at = None if timeout is None else time.monotonic() + timeout
        self._patience = patience

    def iterate_question_requests(self) -> Generator[Step, Answer, ApproverVerdict]:
        """Yield requests, each of which is sent what answers it; return the verdict."""
        try:
            body = self._question.build_body()
        except (TypeError, ValueError) as problem:
            return ApproverVerdict(
                "refused", reason=f"The arguments are not JSON, so nobody can judge them: {problem}"
            )
        silent_since, pause = time.monotonic(), 0.0
        verdict = ApproverVerdict(UNAVAILABLE)
        while True:
            answer = yield self._build_next_request(verdict, body, pause)
            if isinstance(answer, RequestRefused):
                return ApproverVerdict("refused", verdict.request_id, verdict.session_id, reason=str(answer))
            if isinstance(answer, ServerUnavailable):
                if time.monotonic() - silent_since >= self._patience or self._is_wait_over():
                    return ApproverVerdict(
                        UNAVAILABLE, verdict.request_id, verdict.session_id, reason=str(answer)
                    )
                pause = min(max(pause * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
                continue
            silent_since, pause = time.monotonic(), 0.0
            verdict = parse_verdict_answer(answer, body["tool_input"])
            if not verdict.is_pending or self._is_wait_over():
                return verdict
            # A long poll that ends at once, as a brake's does, is not repeated in a tight loop.
            pause = FIRST_PAUSE_SECONDS if answer.get("brake") is not None else 0.0

    def _build_next_request(self, verdict: ApproverVerdict, body: dict[str, Any], pause: float) -> Step:
        if verdict.request_id is None:
            return Step("POST", PATH, body, pause=pause)
        seconds = min(LONG_POLL_SECONDS, self._remaining_seconds())
        path = f"{PATH}/{verdict.request_id}/wait?timeout={seconds:.3f}"
        return Step("GET", path, timeout=seconds + EXTRA_SECONDS, pause=pause)

    def _remaining_seconds(self) -> float:
        return LONG_POLL_SECONDS if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())

    def _is_wait_over(self) -> bool:
        return self._ends_at is not None and time.monotonic() >= self._ends_at


def read_item_or_attribute(value: Any, name: str) -> Any:
    """Return an item of a mapping, or an attribute of another object; None where an SDK's version has none."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def build_call_question(tool: Any, arguments: Any, call_id: Any, conversation: str) -> ToolQuestion | None:
    """Return the question about a call; None for one that is not complete."""
    if not isinstance(tool, str) or not isinstance(arguments, dict) or not isinstance(call_id, str):
        return None
    return ToolQuestion(tool, arguments, conversation=conversation, key=f"{conversation}:{call_id}")


async def ask_about_call(
    question: ToolQuestion | None, *, timeout: float | None, connection: Connection | None
) -> ApproverVerdict:
    """Return the verdict about a call."""
    if question is None:
        return ApproverVerdict("refused", reason="The call has no id or no arguments.")
    return await ask_async(question, timeout=timeout, connection=connection)


def parse_verdict_answer(answer: Mapping[str, Any], arguments: dict[str, Any]) -> ApproverVerdict:
    """Return the verdict that an answer of the server states. Whatever is not clearly a yes is none."""
    request_id, status = answer.get("request_id"), answer.get("status")
    if not isinstance(request_id, str) or not request_id.isascii() or not isinstance(status, str):
        return ApproverVerdict("unreadable", reason="The answer of Signalbox cannot be read.")
    session_id = answer.get("session_id")
    session_id = session_id if isinstance(session_id, str) else None
    reason = str(answer.get("brake") or answer.get("reason") or "")
    if answer.get("brake") is not None or status == PENDING:
        return ApproverVerdict(PENDING, request_id, session_id, reason=reason)
    allowed, edited, edited_input = answer.get("allowed"), answer.get("edited"), answer.get("edited_input")
    if (
        edited is True
        and allowed is False
        and isinstance(edited_input, dict)
        and is_edited_approval_valid(answer)
    ):
        return ApproverVerdict(APPROVED, request_id, session_id, edited_input, True, reason)
    if allowed is True and edited is False and status in (APPROVED, "auto-approved"):
        return ApproverVerdict(APPROVED, request_id, session_id, arguments, False, reason)
    status = "unreadable" if status == APPROVED and allowed is not False else status
    return ApproverVerdict(
        "not approved" if status == APPROVED else status, request_id, session_id, reason=reason
    )


def is_edited_approval_valid(answer: Mapping[str, Any]) -> bool:
    """Say whether an edited approval is still valid: the server's `allowed` is of the unedited arguments only."""
    if answer.get("status") != APPROVED or answer.get("revoked_at", "") is not None:
        return False
    expires_at = answer.get("expires_at")
    if answer.get("validity") == "once" or expires_at is None:
        return True
    try:
        return datetime.fromisoformat(expires_at) > datetime.now(UTC)
    except (TypeError, ValueError):
        return False
