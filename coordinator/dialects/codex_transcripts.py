"""Lines of Codex's rollouts (`~/.codex/sessions/YEAR/MONTH/DAY/rollout-*.jsonl`) as events.

Recorded with version 0.169.0 (`@openai/codex`): `session_meta`, `turn_context`, `response_item` (message, reasoning,
function_call, custom_tool_call and their outputs), `token_usage_record`, and of `event_msg` token_count and
item_completed. Only read, in what is public of its source: sub-agents' files, local_shell_call, web_search_call,
compacted, thread names, thread_rolled_back, turn_aborted, errors, exec_command_end of older versions, and that those
have no token_usage_record. What `event_msg` repeats of a `response_item` is passed over.

A command is named as Codex's own hooks name it: `Bash`, with its `command`.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from coordinator.dialects.codex import SOURCE as PROGRAM
from coordinator.dialects.hooks import (
    decode_json_for_storage,
    format_value_as_text,
    make_event_origin,
    make_text_block,
    parse_embedded_json,
    wrap_non_object_value,
)
from coordinator.dialects.rewinds import build_rewind_event_input
from coordinator.dialects.transcript_formats import (
    TranscriptFormat,
    TranscriptRecord,
    get_nonblank_text_field,
    nonnegative_integer_or_zero,
)
from coordinator.errors import UnprocessableRequest
from coordinator.importing.lines import BROKEN, ImportedEvent, ImportedLine, UnknownLineKind
from coordinator.importing.transcripts import TranscriptFile
from coordinator.lib import instants
from coordinator.sessions.reports import REWIND, TURN_END
from coordinator.usage.amounts import UsageDetail
from coordinator.usage.limit_readings import LimitReading, parse_codex_rate_limits

COMMANDS = frozenset({"exec_command", "shell", "shell_command", "container.exec", "local_shell"})
# Beginnings of texts that Codex itself sends to the model as a prompt; newer versions mark them (`provenance`).
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
TURN_BEGINNINGS = frozenset({"task_started", "turn_started"})
# Between two lines of a copy passes less; a model's answer takes longer.
REPLAY_GAP = timedelta(milliseconds=400)
_FILE = re.compile(r"rollout-.+\.jsonl")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
_EXITED = re.compile(
    r"\A(?:.{0,80}\n){0,3}?Process exited with code (-?\d{1,9})\n(?:.{0,80}\n){0,2}?Output:\n"
)


@dataclass(slots=True)
class CodexPrompt:
    """What a person typed: when, when the line before it was written, and how many messages came since."""

    at: str
    before: str
    messages: int = 1


@dataclass(slots=True)
class CodexPendingCall:
    """A call that has no result yet, and what another item said of how it ran."""

    tool: str
    tool_input: dict[str, Any] | None
    output: str | None = None
    exit_code: int | None = None
    took: int | None = None


@dataclass(slots=True)
class CodexReplay:
    """The lines at the beginning of a fork or a sub-agent that repeat what its parent's rollout has.

    Codex copies the parent's lines when it begins the thread, all in one go and mostly with the times of the copy.
    They end where the first line comes that was written by itself. Of the last turn before that nobody can say at once
    whether it is the parent's or has just begun here. So its lines are held back: it is the thread's own if it is in no
    copy before and no answer of a model is in it.
    """

    parent_turns: set[str] = field(default_factory=set)
    last_at: datetime | None = None  # of the line before
    pending_lines: list[tuple[bytes, Any]] = field(default_factory=list)  # of the last turn
    turn: str | None = None
    is_answered: bool = False
    is_over: bool = False
    totals: dict[str, int] = field(default_factory=dict)  # all requests of the parent together

    def buffer_line_and_release_own_lines(self, body: bytes, fields: Any) -> list[tuple[bytes, Any]]:
        """Return the lines, up to this one, that are known to be the thread's own."""
        at = instants.parse_instant_or_none(get_nonblank_text_field(fields, "timestamp") or "")
        if at is not None:
            if self.last_at is not None and at - self.last_at > REPLAY_GAP:
                self.is_over = True
                return [*self.pending_lines_if_own_turn(), (body, fields)]
            self.last_at = max(at, self.last_at or at)
        payload = fields.get("payload") if isinstance(fields, dict) else None
        turn = find_started_codex_turn_id(get_nonblank_text_field(fields, "type"), payload)
        if turn is not None and turn != self.turn:
            self.parent_turns.add(self.turn or "")
            self.turn, self.is_answered, self.pending_lines = turn, False, []
        self.totals = find_codex_totals(payload) or self.totals
        self.is_answered = self.is_answered or is_codex_model_answer(fields, payload)
        if self.turn is not None:
            self.pending_lines.append((body, fields))
        return []

    def pending_lines_if_own_turn(self) -> list[tuple[bytes, Any]]:
        """Return the held lines if they are the thread's own turn."""
        is_own = not self.is_answered and self.turn not in self.parent_turns
        return self.pending_lines if is_own else []


@dataclass(slots=True)
class CodexTranscriptReader:
    """Reads one rollout's lines in order."""

    session: str
    subagent: str | None = None
    facts: dict[str, str] = field(default_factory=dict)
    turn: str | None = None
    model: str | None = None
    prompted: str | None = None  # the turn whose first prompt was met
    calls: dict[str, CodexPendingCall] = field(default_factory=dict)
    counts_requests: bool = False
    totals: dict[str, int] = field(default_factory=dict)  # all requests together, as the line before had it
    title: str | None = None
    limits: tuple[LimitReading, ...] = ()
    limits_at: str = ""
    has_meta: bool = False
    replay: CodexReplay | None = None
    began: str = ""  # of a rollout whose lines have no times
    prompts: list[CodexPrompt] = field(default_factory=list)  # those that were not taken back
    last_at: str = ""  # of the line before
    bare_lines: int = 0

    def convert_line_to_events(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events; none for what Codex keeps for itself. Raises UnknownLineKind."""
        try:
            fields = decode_json_for_storage(body)
        except UnprocessableRequest:
            raise UnknownLineKind(BROKEN) from None
        if isinstance(fields, dict) and "payload" not in fields:
            fields = self.upgrade_2025_rollout_line(fields)
        if self.replay is None:
            return self.read_rollout_line(body, fields)
        own = self.replay.buffer_line_and_release_own_lines(body, fields)
        self.totals = self.replay.totals
        if self.replay.is_over:
            self.replay = None
        return [line for rollout_line in own for line in self.read_rollout_line(*rollout_line)]

    def upgrade_2025_rollout_line(self, fields: dict[str, Any]) -> dict[str, Any]:
        """Return a line of a rollout of 2025 in the later form: its items had no envelope and no times."""
        if "record_type" in fields:
            return {"type": "world_state", "payload": {}}
        if "type" not in fields and get_nonblank_text_field(fields, "id"):
            self.began = get_nonblank_text_field(fields, "timestamp") or ""
            return {"type": "session_meta", "timestamp": self.began, "payload": fields}
        if get_nonblank_text_field(fields, "type") not in _ITEMS:
            return fields
        self.bare_lines += 1  # two equal items are two
        return {
            "type": "response_item",
            "timestamp": self.began,
            "payload": fields,
            "number": self.bare_lines,
        }

    def read_rollout_line(self, body: bytes, fields: Any) -> list[ImportedLine]:
        kind, payload = (
            get_nonblank_text_field(fields, "type"),
            fields.get("payload") if isinstance(fields, dict) else None,
        )
        if not isinstance(payload, dict):
            raise UnknownLineKind(f"type {kind:.60}" if kind else "no type")
        meaning = _LINES.get(kind or "")
        if meaning is None:
            raise UnknownLineKind(f"type {kind:.60}" if kind else "no type")
        record = self.build_codex_record(body, fields, payload)
        events = list(meaning(self, payload, record))
        self.last_at = record.at
        return [record.build_imported_line(events, self.facts)] if events else []

    def flush_pending_file_lines(self, _now: datetime) -> list[ImportedLine]:
        """Return what was held back of a thread that repeats another's, and the thread's name, if it was given one."""
        pending_lines, self.replay = (self.replay.pending_lines_if_own_turn() if self.replay else []), None
        lines = [line for rollout_line in pending_lines for line in self.read_rollout_line(*rollout_line)]
        if self.title and not self.subagent:
            lines.append(ImportedLine(self.session, "", "", {}, [], self.title))
        if self.limits:
            lines.append(ImportedLine(self.session, "", self.limits_at, {}, [], limits=self.limits))
        return lines

    def build_codex_record(
        self, body: bytes, fields: dict[str, Any], payload: dict[str, Any]
    ) -> TranscriptRecord:
        text = get_nonblank_text_field(fields, "timestamp") or ""
        moment = instants.parse_instant_or_none(text)
        about = payload.get("internal_chat_message_metadata_passthrough")
        turn = (
            get_nonblank_text_field(about, "turn_id")
            or get_nonblank_text_field(payload, "turn_id")
            or self.turn
        )
        parts = (fields["number"],) if "number" in fields else ()
        key = make_event_origin(
            self.session, "rollout", self.subagent, hashlib.sha256(body.strip()).hexdigest(), *parts
        )
        at = instants.format_canonical_instant(moment) if moment else text
        return TranscriptRecord(self.session, key, at, turn, self.subagent, self.model)


Events = Iterator[ImportedEvent]
Meaning = Callable[[CodexTranscriptReader, dict[str, Any], TranscriptRecord], Events]


def apply_codex_session_meta(
    reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    """Record the thread of the lines. A sub-agent's thread names its session in addition to its own id."""
    thread = get_nonblank_text_field(payload, "id") or reader.session
    if reader.has_meta:  # a copy of an earlier session's, in the file of one that goes on from there
        return
    parent = codex_parent_thread(payload)
    reader.session = get_nonblank_text_field(payload, "session_id") or parent or thread
    reader.subagent = None if thread == reader.session else thread
    git = payload.get("git")
    meta_facts = {
        "cwd": get_nonblank_text_field(payload, "cwd"),
        "version": get_nonblank_text_field(payload, "cli_version"),
        "gitBranch": get_nonblank_text_field(git, "branch"),
        "parent": get_nonblank_text_field(payload, "forked_from_id"),
    }
    reader.facts = {name: fact for name, fact in meta_facts.items() if fact}
    reader.has_meta = True
    if reader.subagent or parent or "parent" in reader.facts:
        reader.replay = CodexReplay(last_at=instants.parse_instant_or_none(record.at))
    yield from ()


def codex_parent_thread(payload: dict[str, Any]) -> str | None:
    """Return the thread that spawned this one as a sub-agent."""
    node: Any = payload
    for name in ("source", "subagent", "thread_spawn"):
        node = node.get(name) if isinstance(node, dict) else None
    return get_nonblank_text_field(node, "parent_thread_id")


def find_started_codex_turn_id(kind: str | None, payload: Any) -> str | None:
    """Return the id of the turn that a line begins; None for any other line."""
    if kind == "turn_context" or (
        kind == "event_msg" and get_nonblank_text_field(payload, "type") in TURN_BEGINNINGS
    ):
        return get_nonblank_text_field(payload, "turn_id") or "a turn without an id"
    return None


def is_codex_model_answer(fields: Any, payload: Any) -> bool:
    """Say whether a line is, or counts, what a model answered."""
    if (
        get_nonblank_text_field(fields, "type") == "token_usage_record"
        or get_nonblank_text_field(payload, "role") == "assistant"
    ):
        return True
    kind = get_nonblank_text_field(payload, "type")
    return (
        kind in {"reasoning", "function_call", "custom_tool_call"} or find_codex_totals(payload) is not None
    )


def find_codex_totals(payload: Any) -> dict[str, int] | None:
    """Return the tokens of all requests together, where a `token_count` names them."""
    info = payload.get("info") if isinstance(payload, dict) else None
    totals = info.get("total_token_usage") if isinstance(info, dict) else None
    if not isinstance(totals, dict):
        return None
    return {name: nonnegative_integer_or_zero(value) for name, value in totals.items()}


def apply_codex_turn_context(
    reader: CodexTranscriptReader, payload: dict[str, Any], _record: TranscriptRecord
) -> Events:
    reader.turn, reader.model = (
        get_nonblank_text_field(payload, "turn_id") or reader.turn,
        get_nonblank_text_field(payload, "model") or reader.model,
    )
    yield from ()


def ignore_rollout_item(
    _reader: CodexTranscriptReader, _payload: dict[str, Any], _record: TranscriptRecord
) -> Events:
    yield from ()


# --- what was said to the model, and by it --------------------------------------------------------------------


def dispatch_codex_response_item(
    reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    kind = get_nonblank_text_field(payload, "type")
    meaning = _ITEMS.get(kind or "")
    if meaning is None:
        raise UnknownLineKind(f"response_item {kind:.60}" if kind else "response_item without a type")
    yield from meaning(reader, payload, record)


def iterate_codex_message_events(
    reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    content = payload.get("content")
    blocks = [
        convert_codex_block(block)
        for block in (content if isinstance(content, list) else [])
        if isinstance(block, dict)
    ]
    texts = [str(text_block["text"]) for text_block in blocks if text_block.get("type") == "text"]
    role, text = payload.get("role"), "\n\n".join(texts)
    if role == "assistant" and text.strip():
        if reader.prompts:
            reader.prompts[-1].messages += 1
        yield record.build_assistant_message(text, "words")
    if (
        role != "user"
        or not blocks
        or is_message_by_codex_itself(payload)
        or text.lstrip().startswith(NOT_TYPED)
    ):
        return
    known_origins: tuple[str, ...] = ()
    if record.turn and record.turn != reader.prompted and record.subagent is None:
        reader.prompted, known_origins = (
            record.turn,
            (make_event_origin(record.session, "prompt", record.turn),),
        )
    reader.prompts.append(CodexPrompt(record.at, reader.last_at))
    yield record.build_imported_message("user", blocks, "prompt", also=known_origins, claims=known_origins)


def convert_codex_block(block: dict[str, Any]) -> dict[str, Any]:
    text = block.get("text")
    return make_text_block(text) if isinstance(text, str) else block


def is_message_by_codex_itself(payload: dict[str, Any]) -> bool:
    """Say whether Codex itself put the message there."""
    about = payload.get("internal_chat_message_metadata_passthrough")
    parts = about.get("content_item_metadata") if isinstance(about, dict) else None
    provenances = (
        [part.get("provenance") for part in parts if isinstance(part, dict)]
        if isinstance(parts, list)
        else []
    )
    return bool(provenances) and all(
        isinstance(provenance, dict) and provenance.get("type") != "user" for provenance in provenances
    )


def read_codex_reasoning(
    _reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    for name in ("summary", "content"):
        parts = payload.get(name)
        texts = [
            text
            for part in (parts if isinstance(parts, list) else [])
            if (text := get_nonblank_text_field(part, "text"))
        ]
        if texts:
            yield record.build_thought_message("\n\n".join(texts), "thought")
            return


def read_codex_call(
    reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    call_id = get_nonblank_text_field(payload, "call_id") or get_nonblank_text_field(payload, "id")
    name = qualified_codex_tool_name(payload)
    call_input = payload.get("input") if "input" in payload else parse_embedded_json(payload.get("arguments"))
    begun = CodexPendingCall(*convert_codex_call_to_hook_form(name, call_input))
    if call_id is None:
        yield record.build_imported_event(
            "pre_tool", "call", tool_name=begun.tool, tool_input=begun.tool_input
        )
        return
    reader.calls[call_id] = begun
    yield record.build_imported_call(call_id, begun.tool, begun.tool_input)


def qualified_codex_tool_name(payload: dict[str, Any]) -> str:
    name, space = (
        get_nonblank_text_field(payload, "name") or "tool",
        get_nonblank_text_field(payload, "namespace"),
    )
    if space is None or not space.startswith("mcp__") or name.startswith("mcp__"):
        return name
    return f"{space.rstrip('_')}__{name}"


def convert_codex_call_to_hook_form(name: str, call_input: Any) -> tuple[str, dict[str, Any] | None]:
    """Return a call's tool and input as hooks name them."""
    tool_input = (
        {"command": call_input}
        if name == "apply_patch" and isinstance(call_input, str)
        else wrap_non_object_value(call_input)
    )
    if name not in COMMANDS or tool_input is None:
        return name, tool_input
    command = tool_input.get("cmd", tool_input.get("command"))
    rest = {key: value for key, value in tool_input.items() if key not in {"cmd", "command"}}
    if isinstance(command, list) and all(isinstance(word, str) for word in command):
        through_a_shell = len(command) == 3 and command[1] in {"-lc", "-c"}
        command = command[2] if through_a_shell else shlex.join(command)
    return "Bash", {"command": command, **rest}


def read_local_shell_call(
    reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    action = payload.get("action")
    shell_input = (
        {name: value for name, value in action.items() if name != "type"} if isinstance(action, dict) else {}
    )
    yield from read_codex_call(reader, {**payload, "name": "local_shell", "input": shell_input}, record)


def read_codex_web_search(
    _reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    """A search that the model's own service ran: there is no more of it than that it was made."""
    call_id, action = get_nonblank_text_field(payload, "id") or record.key, payload.get("action")
    yield record.build_imported_call(call_id, "WebSearch", wrap_non_object_value(action))
    yield record.build_imported_call_result(
        call_id, "WebSearch", wrap_non_object_value(action), tool_output=payload.get("status")
    )


def iterate_codex_result_events(
    reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    call_id, output = get_nonblank_text_field(payload, "call_id"), payload.get("output")
    begun = reader.calls.pop(call_id or "", None) or CodexPendingCall("tool", None)
    failed = False
    if isinstance(output, dict):  # older versions
        failed, output = output.get("success") is False, output.get("content", output)
    text, code = parse_codex_output(output, begun)
    values: dict[str, Any] = {"exit_code": code, "duration_ms": begun.took}
    if code:
        values["error"] = f"Exit code {code}\n{text}".strip()
    elif failed or text.startswith(NOT_DONE):
        values["error"] = text or "The call failed."
    else:
        values["tool_output"] = text if isinstance(output, str) else output
    if call_id is None:
        yield record.build_imported_event("post_tool", "result", tool_name=begun.tool, **values)
        return
    yield record.build_imported_call_result(call_id, begun.tool, begun.tool_input, **values)


def codex_output_and_exit_code(text: str) -> tuple[str, int | None]:
    """Return a command's output, without Codex's frame for the model, and its exit code, where that names it."""
    match = _EXITED.match(text)
    return (text[match.end() :], int(match[1])) if match else (text, None)


def parse_codex_output(output: Any, begun: CodexPendingCall) -> tuple[str, int | None]:
    """Return a call's output, without Codex's frame, and its exit code where it has one."""
    if begun.output is not None:
        return begun.output, begun.exit_code
    text = output if isinstance(output, str) else format_value_as_text(output)
    if begun.tool != "Bash":
        return text, None
    text, code = codex_output_and_exit_code(text)
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


def read_codex_compaction(
    _reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    text = get_nonblank_text_field(payload, "message")
    yield record.build_imported_event(
        "compaction", "compaction", tool_input={"summary": text} if text else None
    )


# --- tokens, and what else it notes ---------------------------------------------------------------------------


def convert_codex_token_usage_record(
    reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    reader.counts_requests = True
    response = get_nonblank_text_field(payload, "response_id")
    also = (make_event_origin(record.session, "request", response),) if response else ()
    usage = payload.get("usage")
    yield record.build_imported_model_request(
        "request", codex_token_counts(usage), also, detail=build_codex_usage_detail(usage)
    )


def codex_token_counts(usage: Any) -> dict[str, int]:
    """Return the tokens of a request; OpenAI counts those read from a cache and written to it into the input."""
    counts = usage if isinstance(usage, dict) else {}
    input_tokens, read, written = (
        nonnegative_integer_or_zero(counts.get(name))
        for name in ("input_tokens", "cached_input_tokens", "cache_write_input_tokens")
    )
    return {
        "input_tokens": max(0, input_tokens - read - written),
        "output_tokens": nonnegative_integer_or_zero(counts.get("output_tokens")),
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


def build_codex_usage_detail(usage: Any) -> UsageDetail:
    """Return the details of a request's usage other than its tokens."""
    usage_fields = usage if isinstance(usage, dict) else {}
    return UsageDetail(
        provider="openai",
        reasoning_tokens=nonnegative_integer_or_zero(usage_fields.get("reasoning_output_tokens")),
    )


def iterate_event_message_events(
    reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    kind = get_nonblank_text_field(payload, "type")
    if kind == "token_count":
        limits = parse_codex_rate_limits(
            payload.get("rate_limits"), instants.parse_instant_or_none(record.at)
        )
        if limits:
            reader.limits, reader.limits_at = tuple(limits), record.at
        yield from convert_legacy_codex_token_count(reader, payload, record)
    elif kind == "item_completed":
        item = payload.get("item")
        if isinstance(item, dict) and item.get("type") == "CommandExecution":
            remember_command_outcome(reader, item, item.get("id"))
    elif kind == "exec_command_end":
        remember_command_outcome(reader, payload, payload.get("call_id"))
    elif kind == "thread_name_updated":
        reader.title = get_nonblank_text_field(payload, "thread_name") or reader.title
    elif kind == "thread_rolled_back":
        yield from read_codex_rollback(reader, payload, record)
    elif kind == "turn_aborted":
        yield record.build_imported_event(TURN_END, "aborted", reason="cancelled")
    elif kind == "error":
        yield record.build_imported_event(
            "api_error",
            "error",
            error=get_nonblank_text_field(payload, "message") or format_value_as_text(payload),
        )


def read_codex_rollback(
    reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    """Say which turns a person took back; `num_turns` counts prompts."""
    turn_count = min(nonnegative_integer_or_zero(payload.get("num_turns")), len(reader.prompts))
    if not turn_count:
        return
    left = reader.prompts[-turn_count:]
    del reader.prompts[-turn_count:]
    messages = sum(prompt.messages for prompt in left)
    tool_input = build_rewind_event_input(left[0].before, left[0].at, reader.last_at, record.at, messages)
    if tool_input is not None:
        yield record.build_imported_event(REWIND, REWIND, tool_input=tool_input)


def convert_legacy_codex_token_count(
    reader: CodexTranscriptReader, payload: dict[str, Any], record: TranscriptRecord
) -> Events:
    """Count a request by what older versions wrote; they write it again when nothing but the limits has changed."""
    info = payload.get("info")
    usage = info.get("last_token_usage") if isinstance(info, dict) else None
    before, totals = reader.totals, find_codex_totals(payload)
    if reader.counts_requests or (not isinstance(usage, dict) and totals is None):
        return
    if totals is not None:
        if totals == before:
            return
        reader.totals = totals
    if not isinstance(usage, dict):
        usage = {name: max(0, value - before.get(name, 0)) for name, value in (totals or {}).items()}
    yield record.build_imported_model_request(
        "request", codex_token_counts(usage), detail=build_codex_usage_detail(usage)
    )


def remember_command_outcome(reader: CodexTranscriptReader, item: dict[str, Any], call_id: Any) -> None:
    begun = reader.calls.get(call_id) if isinstance(call_id, str) else None
    output, code, took = item.get("aggregated_output"), item.get("exit_code"), item.get("duration")
    if begun is None or not isinstance(output, str):
        return
    begun.output = output
    begun.exit_code = code if isinstance(code, int) and abs(code) < 2**31 else None
    if isinstance(took, dict):
        begun.took = (
            nonnegative_integer_or_zero(took.get("secs")) * 1000
            + nonnegative_integer_or_zero(took.get("nanos")) // 1_000_000
        )


_LINES: dict[str, Meaning] = {
    "session_meta": apply_codex_session_meta,
    "turn_context": apply_codex_turn_context,
    "response_item": dispatch_codex_response_item,
    "compacted": read_codex_compaction,
    "token_usage_record": convert_codex_token_usage_record,
    "event_msg": iterate_event_message_events,
    "world_state": ignore_rollout_item,
    "inter_agent_communication": ignore_rollout_item,
}
_ITEMS: dict[str, Meaning] = {
    "message": iterate_codex_message_events,
    "reasoning": read_codex_reasoning,
    "function_call": read_codex_call,
    "custom_tool_call": read_codex_call,
    "local_shell_call": read_local_shell_call,
    "web_search_call": read_codex_web_search,
    "function_call_output": iterate_codex_result_events,
    "custom_tool_call_output": iterate_codex_result_events,
    "local_shell_call_output": iterate_codex_result_events,
    "ghost_snapshot": ignore_rollout_item,
    "compaction": ignore_rollout_item,
}


def make_codex_reader(file: TranscriptFile, _kinds: dict[str, str]) -> CodexTranscriptReader:
    match = _ID.search(file.path.stem)
    return CodexTranscriptReader(match.group() if match else file.path.stem)


def is_codex_rollout(path: Path) -> bool:
    return _FILE.fullmatch(path.name) is not None


FORMAT = TranscriptFormat(
    name=PROGRAM,
    home_in="CODEX_HOME",
    home=".codex",
    folders=("sessions", "archived_sessions"),
    is_one=is_codex_rollout,
    reader=make_codex_reader,
)
