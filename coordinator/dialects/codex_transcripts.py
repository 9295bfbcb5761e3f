"""Lines of Codex's rollouts (`~/.codex/sessions/YEAR/MONTH/DAY/rollout-*.jsonl`) as events.

Recorded with version 0.169.0 (`@openai/codex`): `session_meta`, `turn_context`, `response_item` (message, reasoning,
function_call, custom_tool_call and their outputs), `token_usage_record`, and of `event_msg` token_count and
item_completed. Only read, in what is public of its source: sub-agents' files, local_shell_call, web_search_call,
compacted, thread names, turn_aborted, errors, exec_command_end of older versions, and that those have no
token_usage_record. What `event_msg` repeats of a `response_item` is passed over.

A command is named as Codex's own hooks name it: `Bash`, with its `command`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from coordinator.dialects.codex import SOURCE as PROGRAM
from coordinator.dialects.hooks import as_object, decoded, in_words, opened, origin, said
from coordinator.dialects.transcript_formats import Record, TranscriptFormat, count_of, text_in
from coordinator.errors import Invalid
from coordinator.importing.lines import BROKEN, ImportedEvent, ImportedLine, NotUnderstood
from coordinator.importing.transcripts import Transcript
from coordinator.lib import instants
from coordinator.sessions.reports import TURN_END

COMMANDS = frozenset({"exec_command", "shell", "shell_command", "container.exec", "local_shell"})
# What Codex tells the model of itself, in a person's place; newer versions mark it (`provenance`).
NOT_TYPED = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
    "<turn_aborted>",
    "<skill>",
    "<user_shell_command>",
)
NOT_DONE = (
    "unsupported call",
    "unsupported custom tool call",
    "exec_command failed",
    "failed to parse function arguments",
)
_FILE = re.compile(r"rollout-.+\.jsonl")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_EXITED = re.compile(
    r"\A(?:.{0,80}\n){0,3}?Process exited with code (-?\d{1,9})\n(?:.{0,80}\n){0,2}?Output:\n"
)


@dataclass(slots=True)
class _Begun:
    """A call that has no result yet, and what another item said of how it ran."""

    tool: str
    given: dict[str, Any] | None
    output: str | None = None
    exit_code: int | None = None
    took: int | None = None


@dataclass(slots=True)
class Reader:
    """Reads one rollout's lines in order."""

    session: str
    subagent: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    turn: str | None = None
    model: str | None = None
    prompted: str | None = None  # the turn whose first prompt was met
    calls: dict[str, _Begun] = field(default_factory=dict)
    counts_requests: bool = False
    total: int = -1
    title: str | None = None

    def read(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events; none for what Codex keeps for itself. Raises NotUnderstood."""
        try:
            fields = decoded(body)
        except Invalid:
            raise NotUnderstood(BROKEN) from None
        kind, payload = text_in(fields, "type"), fields.get("payload") if isinstance(fields, dict) else None
        if not isinstance(payload, dict):
            raise NotUnderstood(f"type {kind:.60}" if kind else "no type")
        meaning = _LINES.get(kind or "")
        if meaning is None:
            raise NotUnderstood(f"type {kind:.60}" if kind else "no type")
        record = self._record(body, fields, payload)
        events = list(meaning(self, payload, record))
        return [record.line(events, self.facts)] if events else []

    def rest(self, _now: datetime) -> list[ImportedLine]:
        """Return the thread's name, where it was given one."""
        if not self.title or self.subagent:
            return []
        return [ImportedLine(self.session, "", "", {}, [], self.title)]

    def _record(self, body: bytes, fields: dict[str, Any], payload: dict[str, Any]) -> Record:
        text = text_in(fields, "timestamp") or ""
        moment = instants.parse(text)
        about = payload.get("internal_chat_message_metadata_passthrough")
        turn = text_in(about, "turn_id") or text_in(payload, "turn_id") or self.turn
        key = origin(self.session, "rollout", self.subagent, hashlib.sha256(body.strip()).hexdigest())
        at = instants.canonical(moment) if moment else text
        return Record(self.session, key, at, turn, self.subagent, self.model)


Events = Iterator[ImportedEvent]
Meaning = Callable[[Reader, dict[str, Any], Record], Events]


def _meta(reader: Reader, payload: dict[str, Any], _record: Record) -> Events:
    """Note of which thread the lines are. A sub-agent's thread names its session beside its own id."""
    thread = text_in(payload, "id") or reader.session
    if reader.facts:  # a copy of an earlier session's, in the file of one that goes on from there
        return
    reader.session = text_in(payload, "session_id") or thread
    reader.subagent = None if thread == reader.session else thread
    git = payload.get("git")
    found = {
        "cwd": text_in(payload, "cwd"),
        "version": text_in(payload, "cli_version"),
        "gitBranch": text_in(git, "branch"),
        "parent": text_in(payload, "forked_from_id"),
    }
    reader.facts = {name: one for name, one in found.items() if one}
    yield from ()


def _context(reader: Reader, payload: dict[str, Any], _record: Record) -> Events:
    reader.turn, reader.model = (
        text_in(payload, "turn_id") or reader.turn,
        text_in(payload, "model") or reader.model,
    )
    yield from ()


def _nothing(_reader: Reader, _payload: dict[str, Any], _record: Record) -> Events:
    yield from ()


# --- what was said to the model, and by it --------------------------------------------------------------------


def _item(reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    kind = text_in(payload, "type")
    meaning = _ITEMS.get(kind or "")
    if meaning is None:
        raise NotUnderstood(f"response_item {kind:.60}" if kind else "response_item without a type")
    yield from meaning(reader, payload, record)


def _message(reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    content = payload.get("content")
    blocks = [_block(one) for one in (content if isinstance(content, list) else []) if isinstance(one, dict)]
    texts = [str(one["text"]) for one in blocks if one.get("type") == "text"]
    role, text = payload.get("role"), "\n\n".join(texts)
    if role == "assistant" and text.strip():
        yield record.words(text, "words")
    if role != "user" or not blocks or _is_harness(payload) or text.lstrip().startswith(NOT_TYPED):
        return
    known: tuple[str, ...] = ()
    if record.turn and record.turn != reader.prompted and record.subagent is None:
        reader.prompted, known = record.turn, (origin(record.session, "prompt", record.turn),)
    yield record.message("user", blocks, "prompt", also=known, claims=known)


def _block(block: dict[str, Any]) -> dict[str, Any]:
    text = block.get("text")
    return said(text) if isinstance(text, str) else block


def _is_harness(payload: dict[str, Any]) -> bool:
    """Say whether Codex itself put the message there."""
    about = payload.get("internal_chat_message_metadata_passthrough")
    parts = about.get("content_item_metadata") if isinstance(about, dict) else None
    found = (
        [one.get("provenance") for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []
    )
    return bool(found) and all(isinstance(one, dict) and one.get("type") != "user" for one in found)


def _reasoning(_reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    for name in ("summary", "content"):
        parts = payload.get(name)
        texts = [text for one in (parts if isinstance(parts, list) else []) if (text := text_in(one, "text"))]
        if texts:
            yield record.thought("\n\n".join(texts), "thought")
            return


def _call(reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    call_id = text_in(payload, "call_id") or text_in(payload, "id")
    name = _name(payload)
    given = payload.get("input") if "input" in payload else opened(payload.get("arguments"))
    begun = _Begun(*named_as_by_hooks(name, given))
    if call_id is None:
        yield record.event("pre_tool", "call", tool_name=begun.tool, tool_input=begun.given)
        return
    reader.calls[call_id] = begun
    yield record.call(call_id, begun.tool, begun.given)


def _name(payload: dict[str, Any]) -> str:
    name, space = text_in(payload, "name") or "tool", text_in(payload, "namespace")
    if space is None or not space.startswith("mcp__") or name.startswith("mcp__"):
        return name
    return f"{space.rstrip('_')}__{name}"


def named_as_by_hooks(name: str, came: Any) -> tuple[str, dict[str, Any] | None]:
    """Return a call's tool and input as hooks name them."""
    given = {"command": came} if name == "apply_patch" and isinstance(came, str) else as_object(came)
    if name not in COMMANDS or given is None:
        return name, given
    command = given.get("cmd", given.get("command"))
    rest = {key: value for key, value in given.items() if key not in {"cmd", "command"}}
    if isinstance(command, list) and all(isinstance(one, str) for one in command):
        through_a_shell = len(command) == 3 and command[1] in {"-lc", "-c"}
        command = command[2] if through_a_shell else shlex.join(command)
    return "Bash", {"command": command, **rest}


def _shell_call(reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    action = payload.get("action")
    given = (
        {name: value for name, value in action.items() if name != "type"} if isinstance(action, dict) else {}
    )
    yield from _call(reader, {**payload, "name": "local_shell", "input": given}, record)


def _search(_reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    """A search that the model's own service ran: there is no more of it than that it was made."""
    call_id, action = text_in(payload, "id") or record.key, payload.get("action")
    yield record.call(call_id, "WebSearch", as_object(action))
    yield record.result(call_id, "WebSearch", as_object(action), tool_output=payload.get("status"))


def _output(reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    call_id, came = text_in(payload, "call_id"), payload.get("output")
    begun = reader.calls.pop(call_id or "", None) or _Begun("tool", None)
    failed = False
    if isinstance(came, dict):  # older versions
        failed, came = came.get("success") is False, came.get("content", came)
    text, code = _ran(came, begun)
    values: dict[str, Any] = {"exit_code": code, "duration_ms": begun.took}
    if code:
        values["error"] = f"Exit code {code}\n{text}".strip()
    elif failed or text.startswith(NOT_DONE):
        values["error"] = text or "The call failed."
    else:
        values["tool_output"] = text if isinstance(came, str) else came
    if call_id is None:
        yield record.event("post_tool", "result", tool_name=begun.tool, **values)
        return
    yield record.result(call_id, begun.tool, begun.given, **values)


def without_frame(text: str) -> tuple[str, int | None]:
    """Return a command's output, without Codex's frame for the model, and its exit code, where that names it."""
    match = _EXITED.match(text)
    return (text[match.end() :], int(match[1])) if match else (text, None)


def _ran(came: Any, begun: _Begun) -> tuple[str, int | None]:
    """Return a call's output, without Codex's frame, and its exit code where it has one."""
    if begun.output is not None:
        return begun.output, begun.exit_code
    text = came if isinstance(came, str) else in_words(came)
    if begun.tool != "Bash":
        return text, None
    text, code = without_frame(text)
    if code is not None:
        return text, code
    try:
        wrapped = json.loads(text) if text.startswith('{"output"') else None
    except (ValueError, RecursionError):
        wrapped = None
    if isinstance(wrapped, dict) and isinstance(wrapped.get("output"), str):
        about = wrapped.get("metadata")
        code = about.get("exit_code") if isinstance(about, dict) else None
        return wrapped["output"], code if isinstance(code, int) else None
    return text, None


def _compacted(_reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    text = text_in(payload, "message")
    yield record.event("compaction", "compaction", tool_input={"summary": text} if text else None)


# --- tokens, and what else it notes ---------------------------------------------------------------------------


def _request(reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    reader.counts_requests = True
    response = text_in(payload, "response_id")
    also = (origin(record.session, "request", response),) if response else ()
    yield record.usage("request", _tokens(payload.get("usage")), also)


def _tokens(usage: Any) -> dict[str, int]:
    """Return the tokens of a request; OpenAI counts those read from a cache and written to it into the input."""
    told = usage if isinstance(usage, dict) else {}
    given, read, written = (
        count_of(told.get(name))
        for name in ("input_tokens", "cached_input_tokens", "cache_write_input_tokens")
    )
    return {
        "input_tokens": max(0, given - read - written),
        "output_tokens": count_of(told.get("output_tokens")),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


def _event(reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    kind = text_in(payload, "type")
    if kind == "token_count":
        yield from _counted(reader, payload, record)
    elif kind == "item_completed":
        item = payload.get("item")
        if isinstance(item, dict) and item.get("type") == "CommandExecution":
            _note_how_it_ran(reader, item, item.get("id"))
    elif kind == "exec_command_end":
        _note_how_it_ran(reader, payload, payload.get("call_id"))
    elif kind == "thread_name_updated":
        reader.title = text_in(payload, "thread_name") or reader.title
    elif kind == "turn_aborted":
        yield record.event(TURN_END, "aborted", reason="cancelled")
    elif kind == "error":
        yield record.event("api_error", "error", error=text_in(payload, "message") or in_words(payload))


def _counted(reader: Reader, payload: dict[str, Any], record: Record) -> Events:
    """Count a request by what older versions wrote; they write it again when nothing but the limits has changed."""
    info = payload.get("info")
    usage = info.get("last_token_usage") if isinstance(info, dict) else None
    all_of_it = info.get("total_token_usage") if isinstance(info, dict) else None
    total = count_of(all_of_it.get("total_tokens")) if isinstance(all_of_it, dict) else -1
    if reader.counts_requests or not isinstance(usage, dict) or total == reader.total:
        return
    reader.total = total
    yield record.usage("request", _tokens(usage))


def _note_how_it_ran(reader: Reader, item: dict[str, Any], call_id: Any) -> None:
    begun = reader.calls.get(call_id) if isinstance(call_id, str) else None
    output, code, took = item.get("aggregated_output"), item.get("exit_code"), item.get("duration")
    if begun is None or not isinstance(output, str):
        return
    begun.output = output
    begun.exit_code = code if isinstance(code, int) and abs(code) < 2**31 else None
    if isinstance(took, dict):
        begun.took = count_of(took.get("secs")) * 1000 + count_of(took.get("nanos")) // 1_000_000


_LINES: dict[str, Meaning] = {
    "session_meta": _meta,
    "turn_context": _context,
    "response_item": _item,
    "compacted": _compacted,
    "token_usage_record": _request,
    "event_msg": _event,
    "world_state": _nothing,
    "inter_agent_communication": _nothing,
}
_ITEMS: dict[str, Meaning] = {
    "message": _message,
    "reasoning": _reasoning,
    "function_call": _call,
    "custom_tool_call": _call,
    "local_shell_call": _shell_call,
    "web_search_call": _search,
    "function_call_output": _output,
    "custom_tool_call_output": _output,
    "local_shell_call_output": _output,
    "ghost_snapshot": _nothing,
    "compaction": _nothing,
}


def _reader(one: Transcript, _kinds: dict[str, str]) -> Reader:
    named = _ID.search(one.path.stem)
    return Reader(named.group() if named else one.path.stem)


def _is_one(path: Path) -> bool:
    return _FILE.fullmatch(path.name) is not None


FORMAT = TranscriptFormat(
    name=PROGRAM,
    home_in="CODEX_HOME",
    home=".codex",
    folders=("sessions", "archived_sessions"),
    is_one=_is_one,
    reader=_reader,
)
