"""Claude Agent SDK: `can_use_tool`, the hook before a tool, and calls that a run defers until a person decided."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    CanUseTool,
    HookMatcher,
    Message,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    TextBlock,
    ToolPermissionContext,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)

from signalbox_sdk.asking import (
    APPROVED,
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
    read_text,
)

HOOK_SECONDS = 24 * 3600.0  # a hook has a deadline, after which Claude would go on without it
EXTRA_SECONDS = 120.0  # in which the answer to a hook's question comes, also from a server that is away

Json = dict[str, Any]


def approve_tool(
    conversation: str, *, timeout: float | None = None, connection: Connection | None = None
) -> CanUseTool:
    """Return the option `can_use_tool`: a person decides each call that no rule of Claude allows or denies."""

    async def can_use_tool(
        tool: str, arguments: Json, context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        call_id = read_item_or_attribute(context, "tool_use_id")
        question = build_call_question(tool, arguments, call_id, conversation)
        verdict = await ask_about_call(question, timeout=timeout, connection=connection)
        if verdict.is_approved:
            return PermissionResultAllow(updated_input=verdict.arguments)
        return PermissionResultDeny(message=verdict.message)

    return can_use_tool


def approve_hook(
    conversation: str,
    *,
    matcher: str | None = None,
    timeout: float = HOOK_SECONDS,
    connection: Connection | None = None,
) -> HookMatcher:
    """Return an item of `hooks["PreToolUse"]`: a person decides each call, whatever the rules of Claude allow.

    Args:
        conversation: The program's own id of the session.
        matcher: The tools that need a person, as Claude matches them; default: all.
        timeout: Seconds to wait, after which the call does not run.
        connection: The server; default: the environment's.
    """

    async def before_tool(hook: Any, _tool_use_id: Any, _context: Any) -> Any:
        question = build_hook_question(hook, conversation)
        return build_hook_output(await ask_about_call(question, timeout=timeout, connection=connection))

    return HookMatcher(matcher, [before_tool], timeout=timeout + EXTRA_SECONDS, on_failure="block")


def defer_tool(
    conversation: str, *, matcher: str | None = None, connection: Connection | None = None
) -> HookMatcher:
    """Return an item of `hooks["PreToolUse"]`: a call ends the run until a person decided (`wait_for_deferred`).

    Of several calls in one message, Claude defers the last and forgets the others, which do not run.
    """

    async def before_tool(hook: Any, _tool_use_id: Any, _context: Any) -> Any:
        question = build_hook_question(hook, conversation)
        return build_hook_output(
            await ask_about_call(question, timeout=0, connection=connection), defers=True
        )

    return HookMatcher(matcher, [before_tool], timeout=EXTRA_SECONDS, on_failure="block")


async def wait_for_deferred(
    result: ResultMessage,
    conversation: str,
    *,
    timeout: float | None = None,
    connection: Connection | None = None,
) -> bool:
    """Wait until a person decided the call that a run deferred, and say whether to resume its session.

    False: nothing was deferred, nobody decided in time, or the server is away.
    """
    call = read_item_or_attribute(result, "deferred_tool_use")
    if call is None:
        return False
    tool, arguments, call_id = (read_item_or_attribute(call, name) for name in ("name", "input", "id"))
    question = build_call_question(tool, arguments, call_id, conversation)
    verdict = await ask_about_call(question, timeout=timeout, connection=connection)
    return verdict.status not in (PENDING, UNAVAILABLE)


def build_hook_question(hook: Any, conversation: str) -> ToolQuestion | None:
    """Return the question about the call that a hook receives; None where the hook does not give all of it."""
    tool, arguments, call_id = (
        read_item_or_attribute(hook, name) for name in ("tool_name", "tool_input", "tool_use_id")
    )
    return build_call_question(tool, arguments, call_id, conversation)


def build_hook_output(verdict: ApproverVerdict, *, defers: bool = False) -> Json:
    """Return what a hook answers to Claude."""
    answer: Json = {"hookEventName": "PreToolUse", "permissionDecision": "deny"}
    if verdict.status == APPROVED:
        answer |= {"permissionDecision": "allow", "updatedInput": verdict.arguments}
    elif defers and verdict.status in (PENDING, UNAVAILABLE):
        answer["permissionDecision"] = "defer"
    else:
        answer["permissionDecisionReason"] = verdict.message
    return {"hookSpecificOutput": answer}


async def report_run(
    conversation: str,
    messages: AsyncIterable[Message],
    *,
    prompt: str = "",
    agent: str | None = None,
    connection: Connection | None = None,
) -> AsyncIterator[Message]:
    """Yield a run's messages, and report what they contain: calls with their results, texts, tokens.

    Args:
        conversation: The program's own id of the session.
        messages: What `query` or `ClaudeSDKClient.receive_response` yields.
        prompt: The run's prompt, which its messages do not contain.
        agent: For a key that is bound to several agents.
        connection: The server; default: the environment's.
    """
    report = MessageReporter(RunReporter(conversation, agent, connection), prompt)
    async for message in messages:
        with log_reporting_failures():
            await report.report_message(message)
        yield message
    with log_reporting_failures():
        await report.report_answer()


class MessageReporter:
    """Puts the messages of a run together: an answer comes in several, a call and its result in two."""

    def __init__(self, reporter: RunReporter, prompt: str) -> None:
        self._reporter = reporter
        self._prompt = prompt
        self._calls: dict[str, ToolUseBlock] = {}
        self._answer: AssistantMessage | None = None  # the newest message of the answer that is under way
        self._texts: list[str] = []
        self._output_tokens = 0  # of the answers that were reported

    async def report_message(self, message: Message) -> None:
        """Report what this message completes: the answer before it, or calls of tools."""
        if isinstance(message, AssistantMessage):
            if self._answer is not None and self._answer.message_id != message.message_id:
                await self.report_answer()
            self._answer = message
            self._texts += [block.text for block in message.content if isinstance(block, TextBlock)]
            self._calls |= {block.id: block for block in message.content if isinstance(block, ToolUseBlock)}
        elif isinstance(message, UserMessage) and isinstance(message.content, list):
            await self.report_answer()
            for block in message.content:
                if isinstance(block, ToolResultBlock) and (call := self._calls.pop(block.tool_use_id, None)):
                    await self._report_result(call, block)
        elif isinstance(message, ResultMessage):
            await self.report_answer(message.usage)

    async def report_answer(self, run_usage: Json | None = None) -> None:
        """Report the answer that is under way. `run_usage` are the tokens of the whole run, once it has ended.

        The messages of an answer come before its last token is counted, so the last answer has what the others lack.
        """
        message, texts = self._answer, self._texts
        self._answer, self._texts = None, []
        if message is None:
            return
        usage = message.usage or {}
        cache_read = read_count(usage.get("cache_read_input_tokens"))
        whole_run = read_count((run_usage or {}).get("output_tokens"))
        output = max(read_count(usage.get("output_tokens")), whole_run - self._output_tokens)
        self._output_tokens += output
        report = ModelRequestReport(
            message.model,
            self._prompt,
            "\n\n".join(texts),
            read_count(usage.get("input_tokens"))
            + read_count(usage.get("cache_creation_input_tokens"))
            + cache_read,
            output,
            cache_read,
            message.message_id,
        )
        self._prompt = ""
        await self._reporter.send_report_async(report)

    async def _report_result(self, call: ToolUseBlock, block: ToolResultBlock) -> None:
        result = read_text(block.content)
        error = result or "failed" if block.is_error else None
        await self._reporter.send_report_async(ToolCallReport(call.name, call.input, result, error, call.id))
