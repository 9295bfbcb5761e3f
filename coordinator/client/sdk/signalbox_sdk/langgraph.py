"""LangGraph: tools of a `ToolNode` that wait, and graphs that stop at `interrupt()` until a person decided.

What resumes an interrupt only says that somebody decided. The node asks the server again what that was, so a wrong or
forged resume value approves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, Interrupt, interrupt

from signalbox_sdk.asking import (
    PENDING,
    UNAVAILABLE,
    ApproverVerdict,
    ToolQuestion,
    ask,
    ask_async,
    read_item_or_attribute,
)
from signalbox_sdk.connection import Connection
from signalbox_sdk.reporting import (
    ModelRequestReport,
    RunReporter,
    ToolCallReport,
    log_reporting_failures,
    read_count,
    read_text,
)

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
            execute(build_approved_request(request, verdict))
            if verdict.is_approved
            else build_rejection_message(request, verdict)
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
            return await execute(build_approved_request(request, verdict))
        return build_rejection_message(request, verdict)

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
            execute(build_approved_request(request, verdict))
            if verdict.is_approved
            else build_rejection_message(request, verdict)
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
        if question := question_from_interrupt_value(item.value):
            remaining = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            resume[item.id] = verdict_resume_value(ask(question, timeout=remaining, connection=connection))
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
        if question := question_from_interrupt_value(item.value):
            remaining = None if ends_at is None else max(0.0, ends_at - time.monotonic())
            resume[item.id] = verdict_resume_value(
                await ask_async(question, timeout=remaining, connection=connection)
            )
    return Command(resume=resume)


def build_question(request: ToolCallRequest, conversation: str) -> ToolQuestion:
    """Return the question about a call. One without an id cannot be met again, and is another each time."""
    call = request.tool_call
    call_id = call.get("id")
    key = f"{conversation}:{call_id}" if call_id else None
    return ToolQuestion(call["name"], call["args"], conversation=conversation, key=key)


def is_alone(request: ToolCallRequest) -> bool:
    """Say whether a call is the only one that its node runs, or has a task of its own (`Send`)."""
    config = read_item_or_attribute(read_item_or_attribute(request, "runtime"), "config")
    path = read_item_or_attribute(read_item_or_attribute(config, "metadata"), "langgraph_path")
    if isinstance(path, list | tuple) and path and path[0] == SENT:
        return True
    state = read_item_or_attribute(request, "state")
    messages = state if isinstance(state, list) else read_item_or_attribute(state, "messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return len(getattr(last, "tool_calls", ())) == 1


def build_approved_request(request: ToolCallRequest, verdict: ApproverVerdict) -> ToolCallRequest:
    """Return the call with the arguments that may run."""
    return replace(request, tool_call={**request.tool_call, "args": verdict.arguments})


def build_rejection_message(request: ToolCallRequest, verdict: ApproverVerdict) -> ToolMessage:
    """Return what the model reads about a call that does not run."""
    call = request.tool_call
    return ToolMessage(verdict.message, name=call["name"], tool_call_id=call.get("id") or "", status="error")


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


def question_from_interrupt_value(value: Any) -> ToolQuestion | None:
    """Return the question in an interrupt's value; None for an interrupt of others."""
    described = value.get(QUESTION) if isinstance(value, Mapping) else None
    if not isinstance(described, Mapping):
        return None
    return ToolQuestion(**described)


def verdict_resume_value(verdict: ApproverVerdict) -> str:
    """Return what resumes an interrupt. While nobody decided or the server is away, the graph stops again."""
    return UNDECIDED if verdict.status in (PENDING, UNAVAILABLE) else DECIDED


def report_run(
    conversation: str, *, agent: str | None = None, connection: Connection | None = None
) -> BaseCallbackHandler:
    """Return one of the `callbacks` of a graph's config: calls with results, what was said, and tokens are reported.

    A tool is reported with its arguments where it is one of LangChain's, as in a `ToolNode`.
    """
    return ReportingHandler(RunReporter(conversation, agent, connection))


class ReportingHandler(BaseCallbackHandler):  # type: ignore[misc] # the SDK is not installed where types are checked
    """Reports what a graph does. LangChain runs it in a thread where the graph runs in an event loop."""

    def __init__(self, reporter: RunReporter) -> None:
        self._reporter = reporter
        self._prompts: dict[Any, str] = {}
        self._calls: dict[Any, tuple[str, dict[str, Any], str | None]] = {}

    def on_chat_model_start(
        self, serialized: Any, messages: list[list[BaseMessage]], *, run_id: Any, **_more: Any
    ) -> None:
        """Keep what the person said, for the report of the answer."""
        with log_reporting_failures():
            last = messages[-1][-1] if messages and messages[-1] else None
            self._prompts[run_id] = (
                read_text(last.content) if last is not None and last.type == "human" else ""
            )

    def on_llm_end(self, response: Any, *, run_id: Any, **_more: Any) -> None:
        """Report the answer and its tokens."""
        with log_reporting_failures():
            prompt = self._prompts.pop(run_id, "")
            for generations in response.generations:
                message = getattr(generations[0], "message", None) if generations else None
                if message is None:
                    continue
                usage = getattr(message, "usage_metadata", None) or {}
                details = usage.get("input_token_details") or {}
                model = message.response_metadata.get("model_name")
                report = ModelRequestReport(
                    model if isinstance(model, str) else "unknown",
                    prompt,
                    read_text(message.content),
                    read_count(usage.get("input_tokens")),
                    read_count(usage.get("output_tokens")),
                    read_count(details.get("cache_read")),
                    message.id or str(run_id),
                )
                self._reporter.send_report(report)

    def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: Any,
        inputs: Any = None,
        **more: Any,
    ) -> None:
        """Keep the call, for the report of its end."""
        with log_reporting_failures():
            name = more.get("name") or (serialized or {}).get("name") or "tool"
            call_id = more.get("tool_call_id")
            arguments = dict(inputs) if isinstance(inputs, Mapping) else {}
            self._calls[run_id] = (str(name), arguments, call_id if isinstance(call_id, str) else None)

    def on_tool_end(self, output: Any, *, run_id: Any, **_more: Any) -> None:
        """Report a call that ran."""
        with log_reporting_failures():
            if call := self._calls.pop(run_id, None):
                name, arguments, call_id = call
                call_id = call_id or getattr(output, "tool_call_id", None) or str(run_id)
                result = read_text(output.content) if isinstance(output, ToolMessage) else output
                failed = isinstance(output, ToolMessage) and output.status == "error"
                self._reporter.send_report(
                    ToolCallReport(name, arguments, result, str(result) if failed else None, call_id)
                )

    def on_tool_error(self, error: BaseException, *, run_id: Any, **_more: Any) -> None:
        """Report a call that failed."""
        with log_reporting_failures():
            if call := self._calls.pop(run_id, None):
                name, arguments, call_id = call
                problem = str(error) or repr(error)
                self._reporter.send_report(
                    ToolCallReport(name, arguments, None, problem, call_id or str(run_id))
                )
