"""LangGraph: tools of a `ToolNode` that wait, and graphs that stop at `interrupt()` until a person decided.

What resumes an interrupt only says that somebody decided. The node asks the server again what that was, so a wrong or
forged resume value approves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from langchain_core.messages import ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, Interrupt, interrupt

from signalbox_sdk.asking import PENDING, UNAVAILABLE, ApproverVerdict, ToolQuestion, ask, ask_async
from signalbox_sdk.connection import Connection

QUESTION = "signalbox_question"  # in an interrupt's value
DECIDED, UNDECIDED = "decided", "undecided"  # what resumes it
SENT = "__pregel_push"  # how the path of a task begins that `Send` made
READ_WITHIN_SECONDS = 10.0  # a verdict that somebody has reached: for a server that is away for a moment

Answer: TypeAlias = ToolMessage | Command[Any]
Execute: TypeAlias = Callable[[ToolCallRequest], Answer]
ExecuteAsync: TypeAlias = Callable[[ToolCallRequest], Awaitable[Answer]]


def approve_tool(
    conversation: str, *, timeout: float | None = None, connection: Connection | None = None
) -> Callable[[ToolCallRequest, Execute], Answer]:
    """Return the `wrap_tool_call` of a `ToolNode`: a person decides each call while its node waits."""

    def wrap_tool_call(request: ToolCallRequest, execute: Execute) -> Answer:
        verdict = ask(build_question(request, conversation), timeout=timeout, connection=connection)
        return (
            execute(build_approved(request, verdict))
            if verdict.is_approved
            else reject_call(request, verdict)
        )

    return wrap_tool_call


def approve_tool_async(
    conversation: str, *, timeout: float | None = None, connection: Connection | None = None
) -> Callable[[ToolCallRequest, ExecuteAsync], Awaitable[Answer]]:
    """Return the `awrap_tool_call` of a `ToolNode`: the same without blocking the event loop."""

    async def wrap_tool_call(request: ToolCallRequest, execute: ExecuteAsync) -> Answer:
        question = build_question(request, conversation)
        verdict = await ask_async(question, timeout=timeout, connection=connection)
        if verdict.is_approved:
            return await execute(build_approved(request, verdict))
        return reject_call(request, verdict)

    return wrap_tool_call


def interrupt_tool(
    conversation: str, *, connection: Connection | None = None
) -> Callable[[ToolCallRequest, Execute], Answer]:
    """Return the `wrap_tool_call` of a `ToolNode`: each call stops the graph until a person decided.

    Several calls in one node, which `Send` has not separated, wait in it: going on after one of them would run those
    again that already ran.
    """

    def wrap_tool_call(request: ToolCallRequest, execute: Execute) -> Answer:
        question = build_question(request, conversation)
        if question.key and is_alone(request):
            verdict = ask_by_interrupt(question, connection=connection)
        else:
            verdict = ask(question, connection=connection)
        return (
            execute(build_approved(request, verdict))
            if verdict.is_approved
            else reject_call(request, verdict)
        )

    return wrap_tool_call


def ask_by_interrupt(question: ToolQuestion, *, connection: Connection | None = None) -> ApproverVerdict:
    """Ask a person, and stop the graph with `interrupt()` until somebody decided (`answer_interrupts`).

    It runs in a node, needs a checkpointer, and asks a question that has a key. What precedes it in its node runs
    again when the graph goes on, as with every `interrupt()`: make it the first thing of its node.
    """
    if not question.key:
        raise ValueError("A question that stops a graph needs a key, by which it is found again.")
    verdict = ask(question, timeout=0, connection=connection)
    value = {QUESTION: describe_question(question), "request_id": verdict.request_id}
    # How often it stops depends on what resumed it alone: a node counts its interrupts when it runs again.
    while interrupt(value) != DECIDED:
        pass
    return ask(question, timeout=READ_WITHIN_SECONDS, connection=connection)


def answer_interrupts(
    interrupts: Iterable[Interrupt[Any]],
    *,
    timeout: float | None = None,
    connection: Connection | None = None,
) -> Command[Any]:
    """Wait until a person decided what a graph stopped for, and return the command that makes it go on.

    The interrupts are those of the last result (`result["__interrupt__"]`), or of a graph that an earlier process ran
    (`graph.get_state(config).interrupts`). Those of others stay as they are.
    """
    ends_at = None if timeout is None else time.monotonic() + timeout
    resume: dict[str, str] = {}
    for item in interrupts:
        if question := read_question(item.value):
            remaining = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            resume[item.id] = name_state(ask(question, timeout=remaining, connection=connection))
    return Command(resume=resume)


async def answer_interrupts_async(
    interrupts: Iterable[Interrupt[Any]],
    *,
    timeout: float | None = None,
    connection: Connection | None = None,
) -> Command[Any]:
    """Do the same as `answer_interrupts` without blocking the event loop."""
    ends_at = None if timeout is None else time.monotonic() + timeout
    resume: dict[str, str] = {}
    for item in interrupts:
        if question := read_question(item.value):
            remaining = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            resume[item.id] = name_state(await ask_async(question, timeout=remaining, connection=connection))
    return Command(resume=resume)


def build_question(request: ToolCallRequest, conversation: str) -> ToolQuestion:
    """Return the question about a call. One without an id cannot be met again, and is another each time."""
    call = request.tool_call
    key = f"{conversation}:{call['id']}" if call["id"] else None
    return ToolQuestion(call["name"], call["args"], conversation=conversation, key=key)


def is_alone(request: ToolCallRequest) -> bool:
    """Say whether a call is the only one that its node runs, or has a task of its own (`Send`)."""
    path = (request.runtime.config.get("metadata") or {}).get("langgraph_path") or ()
    if path and path[0] == SENT:
        return True
    state = request.state
    messages = state if isinstance(state, list) else read_field(state, "messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return len(getattr(last, "tool_calls", ())) == 1


def read_field(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)


def build_approved(request: ToolCallRequest, verdict: ApproverVerdict) -> ToolCallRequest:
    """Return the call with the arguments that may run."""
    return replace(request, tool_call={**request.tool_call, "args": verdict.arguments})


def reject_call(request: ToolCallRequest, verdict: ApproverVerdict) -> ToolMessage:
    """Return what the model reads about a call that does not run."""
    call = request.tool_call
    return ToolMessage(verdict.message, name=call["name"], tool_call_id=call["id"] or "", status="error")


def describe_question(question: ToolQuestion) -> dict[str, Any]:
    """Return a question as checkpoints keep it."""
    return {
        "tool": question.tool,
        "arguments": dict(question.arguments),
        "why": question.why,
        "conversation": question.conversation,
        "key": question.key,
        "agent": question.agent,
        "runs_edited_input": question.runs_edited_input,
    }


def read_question(value: Any) -> ToolQuestion | None:
    """Return the question in an interrupt's value; None for an interrupt of others."""
    described = value.get(QUESTION) if isinstance(value, Mapping) else None
    if not isinstance(described, Mapping):
        return None
    return ToolQuestion(**described)


def name_state(verdict: ApproverVerdict) -> str:
    """Return what resumes an interrupt. While nobody decided or the server is away, the graph stops again."""
    return UNDECIDED if verdict.status in (PENDING, UNAVAILABLE) else DECIDED
