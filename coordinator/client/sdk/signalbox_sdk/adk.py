"""Google ADK: the callback before a tool, and runs that end with a tool's confirmation until a person decided."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

from google.adk.events import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from signalbox_sdk.asking import (
    PENDING,
    UNAVAILABLE,
    ApproverVerdict,
    ToolQuestion,
    ask_about_call,
    build_call_question,
    read_item_or_attribute,
)
from signalbox_sdk.connection import Connection
from signalbox_sdk.reporting import (
    ModelRequestReport,
    RunReporter,
    ToolCallReport,
    log_reporting_failures,
    read_count,
)

CONFIRMATION = "adk_request_confirmation"  # ADK's name of the call that asks for one
READ_WITHIN_SECONDS = 10.0  # a verdict that somebody has reached: for a server that is away for a moment

BeforeTool = Callable[[BaseTool, dict[str, Any], ToolContext], Awaitable[dict[str, Any] | None]]


def approve_tool(
    conversation: str,
    *,
    tools: Collection[str] | None = None,
    timeout: float | None = None,
    connection: Connection | None = None,
) -> BeforeTool:
    """Return an agent's `before_tool_callback`: a person decides each call while the run waits.

    Args:
        conversation: The program's own id of the session.
        tools: The names of the tools that need a person; default: all.
        timeout: Seconds to wait; None: until somebody decides.
        connection: The server; default: the environment's.
    """

    async def ask_before(
        tool: BaseTool, args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        if not is_approval_needed_for_tool(tool, tools):
            return None
        question = build_question(tool, args, tool_context, conversation)
        return apply_verdict_to_arguments(
            await ask_about_call(question, timeout=timeout, connection=connection), args
        )

    return ask_before


def confirm_tool(
    conversation: str, *, tools: Collection[str] | None = None, connection: Connection | None = None
) -> BeforeTool:
    """Return an agent's `before_tool_callback`: each call ends the run with a confirmation.

    `answer_confirmations` asks about it, when the run's events are stored. The confirmation only says that somebody
    decided: the callback asks the server again what that was.
    """

    async def ask_before(
        tool: BaseTool, args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        if not is_approval_needed_for_tool(tool, tools):
            return None
        if read_item_or_attribute(tool_context, "tool_confirmation") is None:
            try:
                tool_context.request_confirmation(hint="A person decides in Signalbox.")
                tool_context.actions.skip_summarization = True  # the pause is no result for the model
            except AttributeError as problem:
                return {"error": ApproverVerdict("refused", reason=f"ADK asks for none: {problem}").message}
            return {"error": ApproverVerdict(PENDING).message}
        question = build_question(tool, args, tool_context, conversation)
        verdict = await ask_about_call(question, timeout=READ_WITHIN_SECONDS, connection=connection)
        return apply_verdict_to_arguments(verdict, args)

    return ask_before


def is_approval_needed_for_tool(tool: BaseTool, tools: Collection[str] | None) -> bool:
    """Say whether a tool is one of those that need a person: all, or the named; one without a name does."""
    name = read_item_or_attribute(tool, "name")
    return tools is None or name is None or name in tools


def build_question(
    tool: BaseTool, args: dict[str, Any], tool_context: ToolContext, conversation: str
) -> ToolQuestion | None:
    """Return the question about a call; None for one that is not complete."""
    call_id = read_item_or_attribute(tool_context, "function_call_id")
    return build_call_question(read_item_or_attribute(tool, "name"), args, call_id, conversation)


async def answer_confirmations(
    events: Iterable[Event],
    conversation: str,
    *,
    timeout: float | None = None,
    connection: Connection | None = None,
) -> types.Content | None:
    """Wait until a person decided what a run ended with, and return the `new_message` that makes it go on.

    The events are those of the run, or of the session that an earlier process ran (`session.events`).

    Returns: None where no confirmation waits, nobody decided in time, or the server is away.
    """
    calls: dict[str, types.FunctionCall] = {}
    for event in events:
        calls |= {
            call.id: call for call in event.get_function_calls() if call.name == CONFIRMATION and call.id
        }
        for response in event.get_function_responses():
            calls.pop(response.id or "", None)

    async def request_verdict_again(call: types.FunctionCall) -> ApproverVerdict:
        original = (call.args or {}).get("originalFunctionCall")
        original = original if isinstance(original, dict) else {}
        question = build_call_question(
            original.get("name"), original.get("args") or {}, original.get("id"), conversation
        )
        return await ask_about_call(question, timeout=timeout, connection=connection)

    verdicts = await asyncio.gather(*map(request_verdict_again, calls.values()))
    parts = [
        types.Part(
            function_response=types.FunctionResponse(
                id=call_id, name=CONFIRMATION, response={"confirmed": verdict.is_approved}
            )
        )
        for call_id, verdict in zip(calls, verdicts, strict=True)
        if verdict.status not in (PENDING, UNAVAILABLE)
    ]
    return types.Content(role="user", parts=parts) if parts else None


def apply_verdict_to_arguments(verdict: ApproverVerdict, args: dict[str, Any]) -> dict[str, Any] | None:
    """Make the call's arguments those that may run, and return None; otherwise what the model reads."""
    if not verdict.is_approved:
        return {"error": verdict.message}
    args.clear()  # ADK runs the tool with this very dictionary
    args.update(verdict.arguments)
    return None


def report_run(
    conversation: str, *, agent: str | None = None, connection: Connection | None = None
) -> BasePlugin:
    """Return one of the `plugins` of a `Runner`: calls with their results, what was said, and tokens are reported."""
    return ReportingPlugin(RunReporter(conversation, agent, connection))


class ReportingPlugin(BasePlugin):  # type: ignore[misc] # the SDK is not installed where types are checked
    """Reports what a run does."""

    def __init__(self, reporter: RunReporter) -> None:
        super().__init__(name="signalbox")
        self._reporter = reporter
        self._prompts: dict[str, str] = {}  # by invocation: what the person said, until an answer is reported

    async def on_user_message_callback(
        self, *, invocation_context: Any, user_message: types.Content
    ) -> types.Content | None:
        """Keep what the person said, for the report of the answer."""
        with log_reporting_failures():
            self._prompts[invocation_context.invocation_id] = join_message_part_texts(user_message)
        return None

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        """Report the answer and its tokens; a part of a streamed one comes again with the whole."""
        with log_reporting_failures():
            if llm_response.partial:
                return
            usage = llm_response.usage_metadata
            report = ModelRequestReport(
                llm_response.model_version or "unknown",
                self._prompts.pop(callback_context.invocation_id, ""),
                join_message_part_texts(llm_response.content),
                read_count(getattr(usage, "prompt_token_count", None)),
                read_count(getattr(usage, "candidates_token_count", None))
                + read_count(getattr(usage, "thoughts_token_count", None)),
                read_count(getattr(usage, "cached_content_token_count", None)),
            )
            await self._reporter.send_report_async(report)

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        """Forget the run."""
        with log_reporting_failures():
            self._prompts.pop(invocation_context.invocation_id, None)

    async def after_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, result: Any
    ) -> None:
        """Report a call that has ended; one that waits for its confirmation has not."""
        with log_reporting_failures():
            if tool_context.function_call_id in tool_context.actions.requested_tool_confirmations:
                return
            error = result.get("error") if isinstance(result, dict) else None
            report = ToolCallReport(
                tool.name, tool_args, result, str(error) if error else None, tool_context.function_call_id
            )
            await self._reporter.send_report_async(report)

    async def on_tool_error_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext, error: Exception
    ) -> None:
        """Report a call that failed."""
        with log_reporting_failures():
            problem = str(error) or repr(error)
            report = ToolCallReport(tool.name, tool_args, None, problem, tool_context.function_call_id)
            await self._reporter.send_report_async(report)


def join_message_part_texts(content: types.Content | None) -> str:
    """Return the text of a message, without the model's thoughts."""
    parts = (content.parts if content else None) or []
    return "\n\n".join(part.text for part in parts if part.text and not part.thought)
