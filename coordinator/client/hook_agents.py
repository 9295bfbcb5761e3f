"""What the command must know of an agent where it cannot ask the server: its calls, its deadline, the form of a denial.

The server's `dialects` say the same and more; a test compares the two for every agent there is.
"""

from __future__ import annotations

from coordinator.client.tool_names import mcp_call_name
from coordinator.client.transcript_lines import TranscriptWords

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

WORDS = "…words…"  # stands in a form where the reason goes
LONGEST_REASON = 9_000  # characters; Claude Code cuts at 10,000


def _named_tool(payload: Mapping[str, Any]) -> str | None:
    found = payload.get("tool_name")
    return found if isinstance(found, str) and found else None


def _gemini_tool(payload: Mapping[str, Any]) -> str | None:
    place = payload.get("mcp_context")
    if isinstance(place, dict):
        server, tool = place.get("server_name"), place.get("tool_name")
        if isinstance(server, str) and isinstance(tool, str) and server and tool:
            return mcp_call_name(server, tool)
    return _named_tool(payload)


_CURSOR_TOOLS = {"beforeShellExecution": "Shell", "beforeReadFile": "Read"}


def _cursor_tool(payload: Mapping[str, Any]) -> str | None:
    event, named = payload.get("hook_event_name"), _named_tool(payload)
    if event == "beforeMCPExecution":
        server = payload.get("mcp_server_name")
        return mcp_call_name(server, named) if isinstance(server, str) and server and named else named
    return _CURSOR_TOOLS.get(str(event)) or named


class Forms:
    """How an agent is answered about a call: to deny it, and to ask in its terminal, None where it asks anyway."""

    __slots__ = ("ask", "deny")

    def __init__(self, deny: Mapping[str, Any], ask: Mapping[str, Any] | None) -> None:
        self.deny = deny
        self.ask = ask


class Agent:
    """One agent program.

    Of its hooks, `calls` tell of a call before it runs: by the hook's name, the forms of its answers; a hook that
    cannot be understood counts as the first of them. The hook's name stands in one of `named_in`. `timeout` is how
    many seconds the agent waits for a hook where its settings do not say, or the least that is known. `tool` returns
    the name that rules know the call's tool by, None where it cannot be told. `session_ends` are the hooks that end a
    session, for an agent that streams its hooks: the first is sent for it when the agent has gone. `words` is how its
    transcript completes what its hooks tell of its words.
    """

    __slots__ = ("calls", "name", "named_in", "session_ends", "timeout", "tool", "words")

    def __init__(
        self,
        name: str,
        timeout: float,
        calls: Mapping[str, Forms],
        tool: Callable[[Mapping[str, Any]], str | None] = _named_tool,
        *,
        named_in: tuple[str, ...] = ("hook_event_name",),
        session_ends: tuple[str, ...] = (),
        words: TranscriptWords | None = None,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.calls = calls
        self.tool = tool
        self.named_in = named_in
        self.session_ends = session_ends
        self.words = words

    @property
    def worst(self) -> str:
        """The hook that one which cannot be understood counts as."""
        return next(iter(self.calls))

    def denial(self, event: str, words: str) -> Any:
        """Return the answer that denies the call of this hook, in the agent's own JSON."""
        return _filled(self._forms(event).deny, words[:LONGEST_REASON])

    def question(self, event: str, words: str) -> Any:
        """Return the answer that has the agent ask its own person, or denies where it cannot; None where it asks."""
        return _filled(self._forms(event).ask, words[:LONGEST_REASON])

    def _forms(self, event: str) -> Forms:
        return self.calls.get(event) or self.calls[self.worst]


def _filled(form: Any, words: str) -> Any:
    if isinstance(form, dict):
        return {name: _filled(value, words) for name, value in form.items()}
    return form.replace(WORDS, words) if isinstance(form, str) else form


def _pre_tool(decision: str, words: str = WORDS) -> dict[str, Any]:
    return _hook_output("PreToolUse", permissionDecision=decision, permissionDecisionReason=words)


def _hook_output(event: str, **said: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **said}}


_PROMPT = Forms(_hook_output("PermissionRequest", decision={"behavior": "deny", "message": WORDS}), None)
_SKILL_DENIED = _hook_output(
    "PreSkillShellCommand", permissionDecision="deny", permissionDecisionReason=WORDS
)
_SKILL_COMMAND = Forms(_SKILL_DENIED, _SKILL_DENIED)  # while a skill is loaded nobody can be asked
# A slash command that a person typed can only be blocked.
_BLOCKED = {"decision": "block", "reason": WORDS}
_EXPANSION = Forms(_BLOCKED, _BLOCKED)
_CANNOT_ASK = "cannot be told to ask for it in {}. Have it approved in Signalbox, then try again."


def _cannot_ask(agent: str, where: str = "the terminal") -> str:
    return f"{WORDS} {agent} {_CANNOT_ASK.format(where)}"


def _cursor(decision: str, words: str = WORDS) -> dict[str, Any]:
    return {"permission": decision, "user_message": words, "agent_message": words}


_CURSOR_DENIES = Forms(_cursor("deny"), _cursor("deny", _cannot_ask("Cursor", "its window")))
_CURSOR_ASKS = Forms(_cursor("deny"), _cursor("ask"))


def _copilot(decision: str) -> dict[str, Any]:
    return {"permissionDecision": decision, "permissionDecisionReason": WORDS}


def _opencode(words: str) -> dict[str, Any]:
    return {"decision": "deny", "reason": words}


def _goose(words: str) -> dict[str, Any]:
    return {"decision": "block", "reason": words}


def _by_plugin(name: str, title: str) -> Agent:
    return Agent(
        name,
        600,  # our plugin's own limit: OpenCode and its forks have none
        {
            "tool.execute.before": Forms(_opencode(WORDS), _opencode(_cannot_ask(title))),
            "permission.asked": Forms(_opencode(WORDS), None),
        },
        session_ends=("dispose", "session.deleted"),
    )


HOOK_AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            "claude-code",
            600,
            {
                "PreToolUse": Forms(_pre_tool("deny"), _pre_tool("ask")),
                "PermissionRequest": _PROMPT,
                "PreSkillShellCommand": _SKILL_COMMAND,
                "UserPromptExpansion": _EXPANSION,
            },
        ),
        Agent(
            "codex",
            600,
            {
                "PreToolUse": Forms(_pre_tool("deny"), _pre_tool("deny", _cannot_ask("Codex"))),
                "PermissionRequest": _PROMPT,
            },
            words=TranscriptWords(
                ("Stop", "SessionEnd"), rb'"response_item".*("role":"assistant"|"reasoning")'
            ),
        ),
        Agent(
            "gemini",
            60,
            {
                "BeforeTool": Forms(
                    {"decision": "deny", "reason": WORDS},
                    {"decision": "deny", "reason": _cannot_ask("Gemini CLI")},
                )
            },
            _gemini_tool,
            words=TranscriptWords(
                ("AfterAgent", "SessionEnd"),
                rb'"type":"gemini"',
                rb'"type":"user","content":\[\{"text":',
                ("id", "timestamp", "type", "content", "thoughts", "model", "tokens"),
            ),
        ),
        _by_plugin("opencode", "OpenCode"),
        _by_plugin("kilo", "Kilo"),
        Agent("qwen-code", 60, {"PreToolUse": Forms(_pre_tool("deny"), _pre_tool("ask"))}),
        Agent(
            "copilot",
            30,
            {"PreToolUse": Forms(_copilot("deny"), _copilot("ask"))},
            # Sub-agents' last words are told by their end.
            words=TranscriptWords(
                ("Stop",),
                rb'\A\{"type":"assistant\.message"(?!.*"agentId":")',
                written=rb'\A\{"type":"hook\.start".*"hookType":"agentStop"',
            ),
        ),
        Agent(
            "cursor",
            30,  # no length is documented
            {
                "preToolUse": _CURSOR_DENIES,
                "beforeReadFile": _CURSOR_DENIES,
                "beforeShellExecution": _CURSOR_ASKS,
                "beforeMCPExecution": _CURSOR_ASKS,
            },
            _cursor_tool,
        ),
        Agent(
            "goose",
            30,
            {"PreToolUse": Forms(_goose(WORDS), _goose(_cannot_ask("Goose")))},
            named_in=("event", "hook_event_name"),
        ),
    )
}
