"""Claude Agent SDK: `can_use_tool`, the hook before a tool, and calls that a run defers until a person decided."""

from __future__ import annotations

from typing import Any

from claude_agent_sdk import (
    CanUseTool,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    ToolPermissionContext,
)

from signalbox_sdk.asking import (
    APPROVED,
    PENDING,
    UNAVAILABLE,
    ApproverVerdict,
    ask_about_call,
    build_call_question,
)
from signalbox_sdk.connection import Connection

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
        question = build_call_question(tool, arguments, context.tool_use_id, conversation)
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
        question = build_call_question(
            hook["tool_name"], hook["tool_input"], hook["tool_use_id"], conversation
        )
        return build_answer(await ask_about_call(question, timeout=timeout, connection=connection))

    return HookMatcher(matcher, [before_tool], timeout=timeout + EXTRA_SECONDS, on_failure="block")


def defer_tool(
    conversation: str, *, matcher: str | None = None, connection: Connection | None = None
) -> HookMatcher:
    """Return an item of `hooks["PreToolUse"]`: a call ends the run until a person decided (`wait_for_deferred`).

    Of several calls in one message, Claude defers the last and forgets the others, which do not run.
    """

    async def before_tool(hook: Any, _tool_use_id: Any, _context: Any) -> Any:
        question = build_call_question(
            hook["tool_name"], hook["tool_input"], hook["tool_use_id"], conversation
        )
        return build_answer(await ask_about_call(question, timeout=0, connection=connection), defers=True)

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
    call = result.deferred_tool_use
    if call is None:
        return False
    question = build_call_question(call.name, call.input, call.id, conversation)
    verdict = await ask_about_call(question, timeout=timeout, connection=connection)
    return verdict.status not in (PENDING, UNAVAILABLE)


def build_answer(verdict: ApproverVerdict, *, defers: bool = False) -> Json:
    """Return what a hook answers to Claude."""
    answer: Json = {"hookEventName": "PreToolUse", "permissionDecision": "deny"}
    if verdict.status == APPROVED:
        answer |= {"permissionDecision": "allow", "updatedInput": verdict.arguments}
    elif defers and verdict.status in (PENDING, UNAVAILABLE):
        answer["permissionDecision"] = "defer"
    else:
        answer["permissionDecisionReason"] = verdict.message
    return {"hookSpecificOutput": answer}
