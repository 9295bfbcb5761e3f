"""How agent programs name their calls and report them in hooks, for the demo's terminals."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from coordinator.demo.tasks import ToolCallStep


@dataclass(frozen=True, slots=True)
class AgentProgramFormat:
    """An agent program. `turn` is the field of a turn's id; `call` its form of a call, None for one it never makes.

    It `reports_messages` as it displays them, has a hook for calls that `fails`, and `describes` a call that it asks
    for.
    """

    turn: str
    call: Callable[[ToolCallStep], ToolCallStep | None] = lambda call: call
    reports_messages: bool = False
    fails: str = "PostToolUse"
    describes: bool = False


def build_codex_call_or_none(call: ToolCallStep) -> ToolCallStep | None:
    """Return a call as Codex makes it: nearly all is a command, and an edit is a patch."""
    if call.tool == "Bash" or call.tool.startswith("mcp__"):
        return replace(call, output=plain_tool_output(call.output))
    command = _COMMANDS.get(call.tool)
    if command is not None:
        return ToolCallStep(
            "Bash", {"command": command(call.input)}, plain_tool_output(call.output), call.error, call.seconds
        )
    if call.tool in {"Edit", "Write"}:
        return ToolCallStep(
            "apply_patch", {"command": build_codex_patch(call)}, "Done!", call.error, call.seconds
        )
    return None


_COMMANDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "Read": lambda given: f"cat {given['file_path']}",
    "Grep": lambda given: f"rg -l {shlex.quote(given['pattern'])} {given['path']}",
    "Glob": lambda given: f"rg --files -g {shlex.quote(given['pattern'])}",
}


def build_codex_patch(call: ToolCallStep) -> str:
    path = call.input["file_path"]
    if call.tool == "Write":
        lines = "".join(f"+{line}\n" for line in call.input["content"].splitlines())
        return f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch\n"
    old, new = (call.input[name].splitlines() for name in ("old_string", "new_string"))
    lines = "".join([*(f"-{line}\n" for line in old), *(f"+{line}\n" for line in new)])
    return f"*** Begin Patch\n*** Update File: {path}\n@@\n{lines}*** End Patch\n"


def plain_tool_output(output: Any) -> Any:
    if isinstance(output, dict):
        return (
            output.get("stdout")
            or output.get("file", {}).get("content")
            or "\n".join(output.get("filenames", []))
        )
    return output


PROGRAMS = {
    "claude-code": AgentProgramFormat("prompt_id", reports_messages=True, fails="PostToolUseFailure"),
    "codex": AgentProgramFormat("turn_id", build_codex_call_or_none, describes=True),
}


def program_format_or_default(name: str) -> AgentProgramFormat:
    """Return how a program speaks; one that is not known here as most do."""
    return PROGRAMS.get(name, PROGRAMS["claude-code"])
