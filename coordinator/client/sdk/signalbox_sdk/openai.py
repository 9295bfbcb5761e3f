"""OpenAI Agents SDK: a guardrail of a tool, and the interruptions of a run."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agents import (
    ItemHelpers,
    ModelResponse,
    RunHooks,
    RunResult,
    RunState,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
)

from signalbox_sdk.asking import ApproverVerdict, ToolQuestion, ask_async, read_item_or_attribute
from signalbox_sdk.connection import Connection
from signalbox_sdk.reporting import (
    ModelRequestReport,
    RunReporter,
    ToolCallReport,
    log_reporting_failures,
    read_text,
)


def approve_tool(
    conversation: str, *, timeout: float | None = None, connection: Connection | None = None
) -> ToolInputGuardrail[Any]:
    """Return an item of a tool's `tool_input_guardrails`: a person decides each call while the run waits.

    A guardrail cannot change a call. One that a person edited does not run; the model reads what was approved.
    """

    async def ask_person(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        call = read_item_or_attribute(data, "context")
        verdict = await ask_about(
            read_item_or_attribute(call, "tool_name"),
            read_item_or_attribute(call, "tool_arguments"),
            read_item_or_attribute(call, "tool_call_id"),
            conversation=conversation,
            timeout=timeout,
            connection=connection,
        )
        if verdict.is_approved and not verdict.is_edited:
            return ToolGuardrailFunctionOutput.allow()
        return ToolGuardrailFunctionOutput.reject_content(rejection_message(verdict))

    return ToolInputGuardrail(ask_person, name="signalbox")


async def answer_interruptions(
    state: RunState[Any, Any] | RunResult,
    conversation: str,
    *,
    timeout: float | None = None,
    connection: Connection | None = None,
) -> RunState[Any, Any]:
    """Return the state with which `Runner.run` goes on, after a person decided each interruption (`needs_approval`).

    The state may be that of an earlier process (`RunState.from_json`): a call is known by its id.
    """
    state = state if isinstance(state, RunState) else state.to_state()
    items = state.get_interruptions()
    verdicts = await asyncio.gather(
        *(
            ask_about(
                read_item_or_attribute(item, "tool_name"),
                read_item_or_attribute(read_item_or_attribute(item, "raw_item"), "arguments"),
                read_item_or_attribute(read_item_or_attribute(item, "raw_item"), "call_id"),
                conversation=conversation,
                timeout=timeout,
                connection=connection,
            )
            for item in items
        )
    )
    for item, verdict in zip(items, verdicts, strict=True):
        if verdict.is_approved and not verdict.is_edited:
            state.approve(item)
        else:
            state.reject(item, rejection_message=rejection_message(verdict))
    return state


async def ask_about(
    tool: Any,
    arguments: Any,
    call_id: Any,
    *,
    conversation: str,
    timeout: float | None,
    connection: Connection | None,
) -> ApproverVerdict:
    """Return the verdict about a call, whose arguments are JSON text."""
    try:
        decoded = json.loads(arguments or "")
    except (TypeError, ValueError):
        decoded = None
    has_names = all(isinstance(name, str) and name for name in (tool, call_id))
    if not isinstance(decoded, dict) or not has_names:
        return ApproverVerdict(
            "refused", reason="The call's arguments are not a JSON object, or it has no id."
        )
    key = f"{conversation}:{call_id}"
    question = ToolQuestion(tool, decoded, conversation=conversation, key=key, runs_edited_input=False)
    return await ask_async(question, timeout=timeout, connection=connection)


def rejection_message(verdict: ApproverVerdict) -> str:
    """Return what the model reads about a call that does not run as it asked for."""
    if verdict.is_edited:
        arguments = json.dumps(verdict.arguments)
        return f"The call did not run. A person would approve it with these arguments instead: {arguments}"
    return verdict.message


def report_run(
    conversation: str, *, agent: str | None = None, connection: Connection | None = None
) -> RunHooks[Any]:
    """Return the `hooks` of `Runner.run`: calls with their results, what was said, and tokens are reported."""
    return ReportingHooks(RunReporter(conversation, agent, connection))


class ReportingHooks(RunHooks[Any]):  # type: ignore[misc] # the SDK is not installed where types are checked
    """Reports what a run does."""

    def __init__(self, reporter: RunReporter) -> None:
        self._reporter = reporter
        self._prompt = ""

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        """Keep what the person said, for the report of the answer."""
        with log_reporting_failures():
            last = input_items[-1] if input_items else None
            self._prompt = ""
            if isinstance(last, dict) and last.get("role") == "user":
                self._prompt = read_text(last.get("content"))

    async def on_llm_end(self, context: Any, agent: Any, response: ModelResponse) -> None:
        """Report the answer and its tokens."""
        with log_reporting_failures():
            answer = "\n\n".join(filter(None, map(ItemHelpers.extract_last_text, response.output)))
            usage = response.usage
            report = ModelRequestReport(
                agent.model if isinstance(agent.model, str) else "unknown",
                self._prompt,
                answer,
                usage.input_tokens,
                usage.output_tokens,
                usage.input_tokens_details.cached_tokens or 0,
                response.response_id,
            )
            await self._reporter.send_report_async(report)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: object) -> None:
        """Report a call of a function; other tools, which run elsewhere, have no call id."""
        with log_reporting_failures():
            call_id = getattr(context, "tool_call_id", None)
            arguments = getattr(context, "tool_arguments", None)
            if not call_id:
                return
            try:
                decoded = json.loads(arguments or "{}")
            except ValueError:
                decoded = {}
            report = ToolCallReport(
                tool.name, decoded if isinstance(decoded, dict) else {}, result, None, call_id
            )
            await self._reporter.send_report_async(report)
