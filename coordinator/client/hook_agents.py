"""Facts about each agent for when the server cannot be asked: its calls, its deadline, the form of a denial.

The server's `dialects` say the same and more; a test compares the two for every agent there is.
"""

from __future__ import annotations

from coordinator.client.tool_names import PREFIX, build_mcp_call_name
from coordinator.client.transcript_lines import TranscriptPatterns

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

WORDS = "…words…"  # replaced by the reason in a form
LONGEST_REASON = 9_000  # characters; Claude Code cuts at 10,000


def payload_tool_name_or_none(payload: Mapping[str, Any]) -> str | None:
    tool_name = payload.get("tool_name")
    return tool_name if isinstance(tool_name, str) and tool_name else None


def gemini_tool_name(payload: Mapping[str, Any]) -> str | None:
    mcp_context = payload.get("mcp_context")
    if isinstance(mcp_context, dict):
        server, tool = mcp_context.get("server_name"), mcp_context.get("tool_name")
        if isinstance(server, str) and isinstance(tool, str) and server and tool:
            return build_mcp_call_name(server, tool)
    return payload_tool_name_or_none(payload)


_CURSOR_TOOLS = {"beforeShellExecution": "Shell", "beforeReadFile": "Read"}


def cursor_tool_name(payload: Mapping[str, Any]) -> str | None:
    event, tool_name = payload.get("hook_event_name"), payload_tool_name_or_none(payload)
    if event == "beforeMCPExecution":
        server = payload.get("mcp_server_name")
        return (
            build_mcp_call_name(server, tool_name)
            if isinstance(server, str) and server and tool_name
            else tool_name
        )
    return _CURSOR_TOOLS.get(str(event)) or tool_name


class CallAnswerForms:
    """How an agent is answered about a call: to deny it, and to ask in its terminal, None where it asks anyway."""

    __slots__ = ("ask", "deny")

    def __init__(self, deny: Mapping[str, Any], ask: Mapping[str, Any] | None) -> None:
        self.deny = deny
        self.ask = ask


class HookAgent:
    """One agent program.

    Of its hooks, `calls` report a call before it runs: by the hook's name, the forms of its answers; a hook that
    cannot be understood counts as the first of them. The hook's name is in one of `named_in`. `timeout` is how
    many seconds the agent waits for a hook where its settings do not say, or the least that is known. `tool` returns
    the name that rules know the call's tool by, None where it is unknown. `session_ends` are the hooks that end a
    session, for an agent that streams its hooks: the first is sent for it when the agent has gone. `words` is how its
    transcript completes what its hooks report of its messages.
    """

    __slots__ = ("calls", "name", "named_in", "session_ends", "timeout", "tool", "words")

    def __init__(
        self,
        name: str,
        timeout: float,
        calls: Mapping[str, CallAnswerForms],
        tool: Callable[[Mapping[str, Any]], str | None] = payload_tool_name_or_none,
        *,
        named_in: tuple[str, ...] = ("hook_event_name",),
        session_ends: tuple[str, ...] = (),
        patterns: TranscriptPatterns | None = None,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.calls = calls
        self.tool = tool
        self.named_in = named_in
        self.session_ends = session_ends
        self.words = patterns

    @property
    def strictest_hook_event(self) -> str:
        """The hook that one which cannot be understood counts as."""
        return next(iter(self.calls))

    def tool_of_unreadable_hook(self, fields: Mapping[str, Any]) -> str | None:
        """Return the tool of a hook that is no JSON; None where rules know it by a server that may be cut off."""
        tool = self.tool(fields)
        if tool is None or tool.startswith(PREFIX):
            return tool
        needs_server = fields.get("hook_event_name") == "beforeMCPExecution" or (
            self.name == "gemini" and tool.startswith("mcp_")
        )
        return None if needs_server else tool

    def build_call_denial_answer(self, event: str, text: str) -> Any:
        """Return the answer that denies the call of this hook, in the agent's own JSON."""
        return fill_hook_answer_template(self.find_call_answer_forms(event).deny, text[:LONGEST_REASON])

    def build_ask_in_terminal_answer(self, event: str, text: str) -> Any:
        """Return the answer that has the agent ask its own person, or denies where it cannot; None where it asks."""
        return fill_hook_answer_template(self.find_call_answer_forms(event).ask, text[:LONGEST_REASON])

    def find_call_answer_forms(self, event: str) -> CallAnswerForms:
        return self.calls.get(event) or self.calls[self.strictest_hook_event]


def fill_hook_answer_template(form: Any, text: str) -> Any:
    if isinstance(form, dict):
        return {name: fill_hook_answer_template(value, text) for name, value in form.items()}
    return form.replace(WORDS, text) if isinstance(form, str) else form


def pre_tool_use_answer(decision: str, text: str = WORDS) -> dict[str, Any]:
    return wrap_hook_output("PreToolUse", permissionDecision=decision, permissionDecisionReason=text)


def wrap_hook_output(event: str, **output: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **output}}


_PROMPT = CallAnswerForms(
    wrap_hook_output("PermissionRequest", decision={"behavior": "deny", "message": WORDS}), None
)
_SKILL_DENIED = wrap_hook_output(
    "PreSkillShellCommand", permissionDecision="deny", permissionDecisionReason=WORDS
)
_SKILL_COMMAND = CallAnswerForms(_SKILL_DENIED, _SKILL_DENIED)  # while a skill is loaded nobody can be asked
# A slash command that a person typed can only be blocked.
_BLOCKED = {"decision": "block", "reason": WORDS}
_EXPANSION = CallAnswerForms(_BLOCKED, _BLOCKED)
_CANNOT_ASK = "cannot be told to ask for it in {}. Have it approved in Signalbox, then try again."


def build_cannot_ask_text(agent: str, where: str = "the terminal") -> str:
    return f"{WORDS} {agent} {_CANNOT_ASK.format(where)}"


def cursor_permission_answer(decision: str, text: str = WORDS) -> dict[str, Any]:
    return {"permission": decision, "user_message": text, "agent_message": text}


_CURSOR_DENIES = CallAnswerForms(
    cursor_permission_answer("deny"),
    cursor_permission_answer("deny", build_cannot_ask_text("Cursor", "its window")),
)
_CURSOR_DENY_AND_ASK = CallAnswerForms(cursor_permission_answer("deny"), cursor_permission_answer("ask"))


def copilot_permission_answer(decision: str) -> dict[str, Any]:
    return {"permissionDecision": decision, "permissionDecisionReason": WORDS}


def opencode_denial_answer(text: str) -> dict[str, Any]:
    return {"decision": "deny", "reason": text}


def goose_denial_answer(text: str) -> dict[str, Any]:
    return {"decision": "block", "reason": text}


def build_hook_agent_with_plugin(name: str, title: str) -> HookAgent:
    return HookAgent(
        name,
        600,  # our plugin's own limit: OpenCode and its forks have none
        {
            "tool.execute.before": CallAnswerForms(
                opencode_denial_answer(WORDS), opencode_denial_answer(build_cannot_ask_text(title))
            ),
            "permission.asked": CallAnswerForms(opencode_denial_answer(WORDS), None),
            "question.asked": CallAnswerForms(opencode_denial_answer(WORDS), None),
        },
        session_ends=("dispose", "session.deleted"),
    )


HOOK_AGENTS = {
    agent.name: agent
    for agent in (
        HookAgent(
            "claude-code",
            600,
            {
                "PreToolUse": CallAnswerForms(pre_tool_use_answer("deny"), pre_tool_use_answer("ask")),
                "PermissionRequest": _PROMPT,
                "PreSkillShellCommand": _SKILL_COMMAND,
                "UserPromptExpansion": _EXPANSION,
            },
        ),
        HookAgent(
            "codex",
            600,
            {
                "PreToolUse": CallAnswerForms(
                    pre_tool_use_answer("deny"), pre_tool_use_answer("deny", build_cannot_ask_text("Codex"))
                ),
                "PermissionRequest": _PROMPT,
            },
            patterns=TranscriptPatterns(
                ("Stop", "SessionEnd"),
                rb'"response_item".*("role":"assistant"|"reasoning")',
                latest=rb'"token_count".*"rate_limits":\{',
            ),
        ),
        HookAgent(
            "gemini",
            60,
            {
                "BeforeTool": CallAnswerForms(
                    {"decision": "deny", "reason": WORDS},
                    {"decision": "deny", "reason": build_cannot_ask_text("Gemini CLI")},
                )
            },
            gemini_tool_name,
            patterns=TranscriptPatterns(
                ("AfterAgent", "SessionEnd"),
                rb'"type":"gemini"',
                rb'"type":"user","content":\[\{"text":',
                fields=("id", "timestamp", "type", "content", "thoughts", "model", "tokens"),
            ),
        ),
        build_hook_agent_with_plugin("opencode", "OpenCode"),
        build_hook_agent_with_plugin("kilo", "Kilo"),
        HookAgent(
            "qwen-code",
            60,
            {"PreToolUse": CallAnswerForms(pre_tool_use_answer("deny"), pre_tool_use_answer("ask"))},
        ),
        HookAgent(
            "copilot",
            30,
            {
                "PreToolUse": CallAnswerForms(
                    copilot_permission_answer("deny"), copilot_permission_answer("ask")
                )
            },
            # Sub-agents' last messages are reported by their end.
            patterns=TranscriptPatterns(
                ("Stop",),
                rb'\A\{"type":"assistant\.message"(?!.*"agentId":")',
                written=rb'\A\{"type":"hook\.start".*"hookType":"agentStop"',
            ),
        ),
        HookAgent(
            "cursor",
            30,  # no length is documented
            {
                "preToolUse": _CURSOR_DENIES,
                "beforeReadFile": _CURSOR_DENIES,
                "beforeShellExecution": _CURSOR_DENY_AND_ASK,
                "beforeMCPExecution": _CURSOR_DENY_AND_ASK,
            },
            cursor_tool_name,
        ),
        HookAgent(
            "goose",
            30,
            {
                "PreToolUse": CallAnswerForms(
                    goose_denial_answer(WORDS), goose_denial_answer(build_cannot_ask_text("Goose"))
                )
            },
            named_in=("event", "hook_event_name"),
        ),
    )
}
