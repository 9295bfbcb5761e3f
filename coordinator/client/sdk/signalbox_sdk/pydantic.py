"""Pydantic AI: tools with `requires_approval`, and the deferred requests of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelRequest, ModelResponse, UserPromptPart

from signalbox_sdk.asking import ApproverVerdict, ask_about_call, build_call_question, read_item_or_attribute
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
) -> Callable[[Any, DeferredToolRequests], Awaitable[DeferredToolResults]]:
    """Return the handler of `HandleDeferredToolCalls`: a person decides each call while the run waits."""

    async def handle_deferred(_context: Any, requests: DeferredToolRequests) -> DeferredToolResults:
        return await answer_requests(requests, conversation, timeout=timeout, connection=connection)

    return handle_deferred


async def answer_requests(
    requests: DeferredToolRequests,
    conversation: str,
    *,
    timeout: float | None = None,
    connection: Connection | None = None,
) -> DeferredToolResults:
    """Return what a person decided about a run's deferred calls, for `deferred_tool_results` of the next run.

    The requests may come from a run of an earlier process: a call is known by its id.
    """

    async def ask_about(call: Any) -> ApproverVerdict:
        try:
            arguments = call.args_as_dict(raise_if_invalid=True)
        except (AssertionError, AttributeError, TypeError, ValueError):
            return ApproverVerdict("refused", reason="The call's arguments are not a JSON object.")
        tool, call_id = (
            read_item_or_attribute(call, "tool_name"),
            read_item_or_attribute(call, "tool_call_id"),
        )
        question = build_call_question(tool, arguments, call_id, conversation)
        return await ask_about_call(question, timeout=timeout, connection=connection)

    verdicts = await asyncio.gather(*map(ask_about, requests.approvals))
    return requests.build_results(
        approvals={
            call.tool_call_id: ToolApproved(override_args=verdict.arguments)
            if verdict.is_approved
            else ToolDenied(verdict.message)
            for call, verdict in zip(requests.approvals, verdicts, strict=True)
        }
    )


def report_run(
    conversation: str, *, agent: str | None = None, connection: Connection | None = None
) -> AbstractCapability[Any]:
    """Return a capability of an agent: calls with their results, what was said, and tokens are reported."""
    return ReportingCapability(RunReporter(conversation, agent, connection))


@dataclass
class ReportingCapability(AbstractCapability[Any]):  # type: ignore[misc] # the SDK is not installed where types are checked
    """Reports what a run does."""

    reporter: RunReporter

    async def after_model_request(
        self, ctx: Any, *, request_context: Any, response: ModelResponse
    ) -> ModelResponse:
        """Report the answer and its tokens."""
        with log_reporting_failures():
            report = ModelRequestReport(
                response.model_name or "unknown",
                find_unanswered_prompt(request_context.messages),
                "\n\n".join(part.content for part in response.parts if part.part_kind == "text"),
                response.usage.input_tokens,
                response.usage.output_tokens,
                response.usage.cache_read_tokens,
                response.provider_response_id or f"{ctx.run_id}:{response.timestamp.isoformat()}",
            )
            await self.reporter.send_report_async(report)
        return response

    async def after_tool_execute(self, ctx: Any, *, call: Any, tool_def: Any, args: Any, result: Any) -> Any:
        """Report a call that ran."""
        with log_reporting_failures():
            await self.reporter.send_report_async(
                ToolCallReport(call.tool_name, dict(args), result, None, call.tool_call_id)
            )
        return result

    async def on_tool_execute_error(
        self, ctx: Any, *, call: Any, tool_def: Any, args: Any, error: Exception
    ) -> Any:
        """Report a call that failed."""
        with log_reporting_failures():
            report = ToolCallReport(
                call.tool_name, dict(args), None, str(error) or repr(error), call.tool_call_id
            )
            await self.reporter.send_report_async(report)
        raise error


def find_unanswered_prompt(messages: list[Any]) -> str:
    """Return what the person said last, where nothing was answered since."""
    last = messages[-1] if messages else None
    parts = last.parts if isinstance(last, ModelRequest) else []
    return "\n\n".join(
        read_text(list(part.content) if not isinstance(part.content, str) else part.content)
        for part in parts
        if isinstance(part, UserPromptPart)
    )
