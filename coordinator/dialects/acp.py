"""The dialect of agents that a runner drives: updates of the Agent Client Protocol as events. Pure.

Recorded with Claude Code (its adapter), Codex (its adapter), Gemini CLI and OpenCode; tests/data/acp holds the records.
The protocol names no tools: each agent reports the tool of a call in a field of its own. Where that is known, a call
gets the name and the input that the agent's hooks would give it, so that the same rules and displays apply.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from coordinator.sessions.driven_agent_updates import (
    LONGEST_OUTPUT,
    AgentProtocolReader,
    ReportedToolCall,
    SpeechPiece,
    TurnUsage,
)

CHUNKS = {
    "agent_message_chunk": "message",
    "agent_thought_chunk": "thought",
    "user_message_chunk": "user",
}
OVER = frozenset({"completed", "failed", "cancelled"})
# Fields of a call that its later updates replace, where they name them.
REPLACED = ("title", "kind", "status", "content", "locations", "rawInput", "rawOutput", "name")
# The tool that a kind of call is, where its agent does not say it in a way that we know.
BY_KIND = {
    "execute": "Bash",
    "edit": "Edit",
    "read": "Read",
    "search": "Grep",
    "fetch": "WebFetch",
    "delete": "Delete",
    "move": "Move",
    "think": "Think",
    "switch_mode": "SwitchMode",
}
KNOWN_META = frozenset({"claudeCode", "terminal_output_delta", "terminal_info", "terminal_exit"})


# --- words ------------------------------------------------------------------------------------------------


def acp_message_piece(kind: str, fields: Mapping[str, Any]) -> SpeechPiece | None:
    """Return the piece of a message in a chunk; None for any other update."""
    speaker = CHUNKS.get(kind)
    if speaker is None:
        return None
    block, message_id = fields.get("content"), fields.get("messageId")
    name = message_id if isinstance(message_id, str) else None
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return SpeechPiece(speaker, name, block["text"])
    acp_content = convert_acp_content([block])
    return SpeechPiece(speaker, name, "", acp_content[0] if acp_content else None)


def convert_acp_content(blocks: Any) -> list[dict[str, Any]]:
    """Return the blocks of a prompt or a message as events hold them; images as the models' API has them."""
    converted = []
    for block in blocks if isinstance(blocks, list) else []:
        if not isinstance(block, dict):
            continue
        if block.get("type") == "image" and isinstance(block.get("data"), str):
            source = {"type": "base64", "media_type": block.get("mimeType"), "data": block["data"]}
            converted.append({"type": "image", "source": source})
        else:
            converted.append(dict(block))
    return converted


# --- calls ------------------------------------------------------------------------------------------------


def merge_acp_call_update(call_so_far: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is known of a call with one more update of it (or the call of a permission request)."""
    after = dict(call_so_far)
    for name in REPLACED:
        if name in fields and fields[name] is not None:
            after[name] = fields[name]
    after.setdefault("toolCallId", fields.get("toolCallId"))
    after.setdefault("firstTitle", fields.get("title"))
    if isinstance(call_so_far.get("rawInput"), dict) and isinstance(fields.get("rawInput"), dict):
        # A permission request may name less of the input than the call itself.
        after["rawInput"] = {**call_so_far["rawInput"], **fields["rawInput"]}
    meta = fields.get("_meta")
    if isinstance(meta, dict):
        after |= claude_call_metadata(meta.get("claudeCode"))
        after |= codex_terminal_output_fields(after, meta)
        if unknown := {name: value for name, value in meta.items() if name not in KNOWN_META}:
            after["meta"] = {**(after.get("meta") or {}), **unknown}
    return after


def claude_call_metadata(reported: Any) -> dict[str, Any]:
    if not isinstance(reported, dict):
        return {}
    names = {"toolName": "toolName", "toolResponse": "toolResponse", "parentToolUseId": "parent"}
    return {ours: reported[name] for name, ours in names.items() if reported.get(name) is not None}


def codex_terminal_output_fields(call_so_far: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the terminal output that Codex reports in the update's metadata."""
    output_fields: dict[str, Any] = {}
    delta, ended = meta.get("terminal_output_delta"), meta.get("terminal_exit")
    if isinstance(delta, dict) and isinstance(delta.get("data"), str):
        output_fields["shown"] = (str(call_so_far.get("shown") or "") + delta["data"])[-LONGEST_OUTPUT:]
    if isinstance(ended, dict):
        output_fields["exit"] = ended.get("exit_code")
    return output_fields


def build_acp_call(call_so_far: Mapping[str, Any], program: str) -> ReportedToolCall:
    """Return the call as far as it is known."""
    tool, tool_input = resolve_acp_tool_and_input(call_so_far, program)
    status = call_so_far.get("status")
    over = status in OVER
    return ReportedToolCall(
        tool=tool,
        tool_input=tool_input,
        title=nonblank_text(call_so_far.get("title")) or tool,
        ready=over
        or status == "in_progress"
        or bool(call_so_far.get("asked"))
        or has_complete_acp_call_input(call_so_far, program),
        over=over,
        output=acp_call_output(call_so_far) if over else None,
        error=describe_acp_failure(call_so_far) if status in {"failed", "cancelled"} else None,
        parent=nonblank_text(call_so_far.get("parent")),
        extra={
            name: call_so_far[name]
            for name in ("title", "kind", "locations", "meta")
            if call_so_far.get(name) not in (None, [])
        },
    )


def has_complete_acp_call_input(call_so_far: Mapping[str, Any], program: str) -> bool:
    """Say whether a call that has not begun has its whole input: all but OpenCode send none before."""
    return bool(call_so_far.get("rawInput")) and program != "opencode"


def nonblank_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def resolve_acp_tool_and_input(
    call_so_far: Mapping[str, Any], program: str
) -> tuple[str, dict[str, Any] | None]:
    """Return a call's tool and its input, as the program's hooks name them."""
    raw = call_so_far.get("rawInput")
    input_fields = dict(raw) if isinstance(raw, dict) and raw else None
    kind = nonblank_text(call_so_far.get("kind")) or "other"
    if program == "claude-code" and (name := nonblank_text(call_so_far.get("toolName"))):
        return name, input_fields
    if program == "codex":
        return codex_acp_tool_and_input(call_so_far, kind, input_fields)
    if program == "gemini":
        return gemini_acp_tool_and_input(call_so_far, kind, input_fields)
    if program == "opencode":
        return opencode_acp_tool_and_input(call_so_far, kind, input_fields)
    return tool_and_input_by_kind(call_so_far, kind, input_fields)


def tool_and_input_by_kind(
    call_so_far: Mapping[str, Any], kind: str, tool_input: dict[str, Any] | None
) -> tuple[str, dict[str, Any] | None]:
    tool = (
        nonblank_text(call_so_far.get("toolName"))
        or nonblank_text(call_so_far.get("name"))
        or BY_KIND.get(kind)
    )
    tool = tool or nonblank_text(call_so_far.get("firstTitle")) or "tool"
    return tool, tool_input or infer_acp_input(call_so_far, kind)


def infer_acp_input(call_so_far: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """Return an input made of what a call shows, for agents that keep its own to themselves."""
    changes = convert_acp_diffs_to_edit_input(call_so_far)
    if changes:
        return changes
    title, path = nonblank_text(call_so_far.get("title")), first_location_path(call_so_far)
    if kind == "execute" and title:
        return {"command": title}
    if path:
        return {"file_path": path, **({"description": title} if title else {})}
    return {"description": title} if title else None


def convert_acp_diffs_to_edit_input(call_so_far: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a call's diffs say as the input of an edit: one file, or one after the other."""
    blocks = call_so_far.get("content")
    diffs = [
        block
        for block in (blocks if isinstance(blocks, list) else [])
        if isinstance(block, dict) and block.get("type") == "diff"
    ]
    edits = [
        {
            "file_path": str(one.get("path") or ""),
            "old_string": str(one.get("oldText") or ""),
            "new_string": str(one.get("newText") or ""),
        }
        for one in diffs
    ]
    if len(edits) == 1:
        return edits[0]
    return {"file_path": edits[0]["file_path"], "edits": edits} if edits else None


def first_location_path(call_so_far: Mapping[str, Any]) -> str | None:
    locations = call_so_far.get("locations")
    first = locations[0] if isinstance(locations, list) and locations else None
    return nonblank_text(first.get("path")) if isinstance(first, dict) else None


def codex_acp_tool_and_input(
    call_so_far: Mapping[str, Any], kind: str, tool_input: dict[str, Any] | None
) -> tuple[str, dict[str, Any] | None]:
    """Codex runs all but edits in a shell, and calls that Bash in its hooks."""
    command = tool_input.get("command") if tool_input else None
    if isinstance(command, str | list):
        return "Bash", {"command": unwrap_shell_command(command)}
    if call_so_far.get("name") == "exec_command" or kind == "execute":
        title = nonblank_text(call_so_far.get("title"))
        return "Bash", {"command": title, "description": title} if kind != "execute" else {"command": title}
    if kind == "edit":
        return "apply_patch", convert_acp_diffs_to_edit_input(call_so_far) or tool_input
    return tool_and_input_by_kind(call_so_far, kind, tool_input)


# Of these names, in these places: a program of that name anywhere else may be anything.
SHELLS = frozenset(
    place + name for place in ("", "/bin/", "/usr/bin/", "/usr/local/bin/") for name in ("bash", "sh", "zsh")
)


def unwrap_shell_command(command: str | Sequence[Any]) -> str:
    """Return the command that a shell is started with (`/bin/bash -lc 'git push'`), else the command itself."""
    try:
        parts = shlex.split(command) if isinstance(command, str) else [str(part) for part in command]
    except ValueError:
        return str(command)
    if len(parts) == 3 and parts[1] in {"-lc", "-c"} and parts[0] in SHELLS:
        return parts[2]
    return command if isinstance(command, str) else shlex.join(parts)


GEMINI_CALL = re.compile(r"\A([a-z][a-z_]*?)(?:__|-\d)")


def gemini_acp_tool_and_input(
    call_so_far: Mapping[str, Any], kind: str, tool_input: dict[str, Any] | None
) -> tuple[str, dict[str, Any] | None]:
    """Gemini CLI names a call's tool in its id, and nothing of its input but what it shows."""
    match = GEMINI_CALL.match(str(call_so_far.get("toolCallId") or ""))
    tool = match[1] if match else None
    if tool is None:
        return tool_and_input_by_kind(call_so_far, kind, tool_input)
    changes = convert_acp_diffs_to_edit_input(call_so_far)
    if tool == "write_file" and changes and "new_string" in changes:
        return tool, tool_input or {"file_path": changes["file_path"], "content": changes["new_string"]}
    return tool, tool_input or infer_acp_input(call_so_far, kind)


def opencode_acp_tool_and_input(
    call_so_far: Mapping[str, Any], kind: str, tool_input: dict[str, Any] | None
) -> tuple[str, dict[str, Any] | None]:
    """Return the tool and input of a call of OpenCode, whose first title is its tool and whose input has the folder."""
    first = nonblank_text(call_so_far.get("firstTitle"))
    if tool_input:
        tool_input.pop("cwd", None)
    if first and re.fullmatch(r"[a-z][a-z0-9_]*", first):
        return first, tool_input or infer_acp_input(call_so_far, kind)
    tool = {"execute": "bash", "edit": "edit", "read": "read", "search": "grep", "fetch": "webfetch"}.get(
        kind
    )
    return tool or tool_and_input_by_kind(call_so_far, kind, tool_input)[0], tool_input or infer_acp_input(
        call_so_far, kind
    )


# --- results ----------------------------------------------------------------------------------------------


def acp_call_output(call_so_far: Mapping[str, Any]) -> Any:
    """Return a call's result: as its hooks would give it, else its output, else what it shows."""
    if call_so_far.get("toolResponse") is not None:
        return call_so_far["toolResponse"]
    shown_output, raw = nonblank_text(call_so_far.get("shown")), call_so_far.get("rawOutput")
    code = call_so_far.get("exit")
    code = code if code is not None or not isinstance(raw, dict) else raw.get("exit_code")
    if shown_output is not None:
        return {"stdout": shown_output, "exit_code": code} if isinstance(code, int) else shown_output
    if isinstance(raw, dict) and isinstance(raw.get("output"), str):
        return raw["output"]
    if isinstance(raw, str) and raw.strip():
        return raw
    return acp_content_text(call_so_far) or (raw if raw not in (None, "", {}) else None)


def acp_content_text(call_so_far: Mapping[str, Any]) -> str | None:
    """Return the texts that a call shows, one below the other."""
    blocks = call_so_far.get("content")
    texts = []
    for content_block in blocks if isinstance(blocks, list) else []:
        block = (
            content_block.get("content")
            if isinstance(content_block, dict) and content_block.get("type") == "content"
            else None
        )
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            texts.append(block["text"])
    return "\n".join(texts).strip() or None


def describe_acp_failure(call_so_far: Mapping[str, Any]) -> str:
    code = call_so_far.get("exit")
    if call_so_far.get("status") == "cancelled":
        return "The call was cancelled."
    if isinstance(code, int) and code:
        return f"Exit code {code}."
    raw = call_so_far.get("rawOutput")
    failure_text = acp_content_text(call_so_far) or (raw if isinstance(raw, str) else None)
    return (failure_text or "The call failed.")[:20_000]


def acp_running_output(call_so_far: Mapping[str, Any]) -> str | None:
    """Return the output so far of a call that still runs, where its own updates hold it."""
    if call_so_far.get("shown"):
        return str(call_so_far["shown"])
    if call_so_far.get("status") == "in_progress" and call_so_far.get("kind") == "execute":
        return acp_content_text(call_so_far)
    return None


# --- usage ------------------------------------------------------------------------------------------------

KINDS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cachedReadTokens": "cache_read_tokens",
    "cachedWriteTokens": "cache_write_tokens",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cachedInputTokens": "cache_read_tokens",
    "cacheWriteInputTokens": "cache_write_tokens",
}


def parse_turn_usage(ended: Mapping[str, Any]) -> TurnUsage:
    """Return a turn's tokens: by model where the agent says so (in `_meta.quota`), else in all."""
    meta = ended.get("_meta")
    quota = meta.get("quota") if isinstance(meta, dict) else None
    by_model = quota.get("model_usage") if isinstance(quota, dict) else None
    cost = ended.get("cost")
    usages = []
    for model_usage in by_model if isinstance(by_model, list) else []:
        counts = normalize_token_counts(
            model_usage.get("token_count") if isinstance(model_usage, dict) else None
        )
        if counts:
            usages.append((nonblank_text(model_usage.get("model")), counts))
    if not usages and (
        counts := normalize_token_counts(ended.get("usage") or (quota or {}).get("token_count"))
    ):
        usages = [(None, counts)]
    return TurnUsage(tuple(usages), cost if isinstance(cost, dict) else None)


def normalize_token_counts(reported: Any) -> dict[str, int]:
    """Return tokens by kind: the input without what came from or went into a cache, the output with the thoughts.

    Agents differ in what they count within what; their total says it.
    """
    figures = {
        name: value
        for name, value in (reported.items() if isinstance(reported, dict) else ())
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53
    }
    counts = {KINDS[name]: value for name, value in figures.items() if name in KINDS}
    total, thought = figures.get("totalTokens"), figures.get("thoughtTokens", 0)
    if total is None or "input_tokens" not in counts or "output_tokens" not in counts:
        return counts
    cached = counts.get("cache_read_tokens", 0) + counts.get("cache_write_tokens", 0)
    difference = total - counts["input_tokens"] - counts["output_tokens"]
    if difference != cached and difference == cached + thought:
        counts["output_tokens"] += thought
    elif difference != cached and difference in {0, thought} and cached <= counts["input_tokens"]:
        counts["input_tokens"] -= cached
        counts["output_tokens"] += difference
    return counts


SPEECH = AgentProtocolReader(
    acp_message_piece,
    merge_acp_call_update,
    build_acp_call,
    acp_running_output,
    convert_acp_content,
    parse_turn_usage,
)
