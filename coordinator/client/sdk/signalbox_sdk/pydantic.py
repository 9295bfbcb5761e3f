"""Pydantic AI: tools with `requires_approval`, and the deferred requests of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_ai import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from signalbox_sdk.asking import ApproverVerdict, ToolQuestion, ask_async
from signalbox_sdk.connection import Connection


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
        except (AssertionError, TypeError, ValueError):
            return ApproverVerdict("refused", reason="The call's arguments are not a JSON object.")
        question = ToolQuestion(
            call.tool_name, arguments, conversation=conversation, key=f"{conversation}:{call.tool_call_id}"
        )
        return await ask_async(question, timeout=timeout, connection=connection)

    verdicts = await asyncio.gather(*map(ask_about, requests.approvals))
    return requests.build_results(
        approvals={
            call.tool_call_id: ToolApproved(override_args=verdict.arguments)
            if verdict.is_approved
            else ToolDenied(verdict.message)
            for call, verdict in zip(requests.approvals, verdicts, strict=True)
        }
    )
