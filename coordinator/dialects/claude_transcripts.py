"""Lines of Claude Code's transcripts as events. Pure translation: no clock, no database.

The format is Claude Code's own affair and changes with its releases, so a line is read for what it holds and
nothing is taken for granted: what has no meaning here is named by its type and left out. In addition to its line, each
event names the origins under which hooks or telemetry may have reported the same, as the other two dialects name them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from coordinator.dialects.claude_code import (
    NOTICE,
    TaskNotice,
    claude_code_refusal_or_none,
    is_call_running_in_background,
    parse_task_notices,
    split_text_at_xml_tag,
)
from coordinator.dialects.claude_code import SOURCE as PROGRAM
from coordinator.dialects.hooks import (
    TYPED,
    assistant_text_origin,
    build_text_dedup_origins,
    decode_json_for_storage,
    format_value_as_text,
    hook_reported_result_origins,
    make_event_origin,
    make_text_block,
    wrap_non_object_value,
)
from coordinator.dialects.rewinds import build_rewind_event_input
from coordinator.dialects.transcript_formats import TranscriptFormat, join_block_texts
from coordinator.errors import UnprocessableRequest
from coordinator.importing.lines import BROKEN, SOURCE, ImportedEvent, ImportedLine, UnknownLineKind
from coordinator.importing.transcripts import TranscriptFile
from coordinator.lib import instants
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import IN_BACKGROUND, MODEL_REQUEST, REWIND
from coordinator.usage.amounts import UsageDetail

# What Claude Code keeps for itself: nothing that happened between a person, the agent and its tools.
BOOKKEEPING = frozenset({
    "summary", "file-history-snapshot", "queue-operation", "progress", "custom-title", "ai-title", "agent-name",
    "agent-setting", "agent-color", "tag", "last-prompt", "permission-mode", "mode", "pr-link", "worktree-state",
    "content-replacement", "attribution-snapshot", "speculation-accept", "marble-origami-commit",
})  # fmt: skip
# Of that, what Claude Code or its person calls the session: the field, and which goes before which.
TITLES = {"summary": ("summary", 1), "ai-title": ("aiTitle", 2), "custom-title": ("customTitle", 3)}
QUIET_SYSTEM = frozenset({"turn_duration", "stop_hook_summary", "file_snapshot", "memory_saved"})
ENVELOPE = frozenset({
    "parentUuid", "logicalParentUuid", "isSidechain", "userType", "cwd", "sessionId", "version", "gitBranch", "type",
    "message", "toolUseResult", "uuid", "timestamp", "requestId", "agentId", "slug", "promptId", "isMeta", "entrypoint",
    "sourceToolAssistantUUID", "sourceToolUseID", "isVisibleInTranscriptOnly", "todos", "permissionMode", "content",
    "subtype", "attachment", "imagePasteIds", "thinkingMetadata",
})  # fmt: skip
FACTS = ("version", "gitBranch", "cwd", "permissionMode")
PROVIDER = "anthropic"
SYNTHETIC = "<synthetic>"  # the "model" of messages that Claude Code wrote itself
REJECTED = "User rejected tool use"
INTERRUPTED = "[Request interrupted by user"
# A request whose answer is still being written has not all its tokens yet; after so long it has ended all the same.
ANSWERED_WITHIN = timedelta(minutes=10)

MAX_REWIND_STEPS = 1_000_000  # lines of a file that are followed back from all its prompts together

# What the editor, or Claude Code itself, adds to a prompt as blocks of their own.
_CONTEXT_OPENING = re.compile(r"\s*<(ide_[a-z_]{1,30}|system-reminder)>")
_PRINTED = re.compile(r"</?(?:local-command-(?:stdout|stderr|caveat)|bash-std(?:out|err))>")


@dataclass(slots=True)
class PendingModelRequest:
    """A request to a model, as far as its lines were read. Each line repeats the tokens; the last ones are right."""

    tokens: dict[str, int]
    imported: ImportedLine
    at: datetime | None
    done: bool


class ClaudePendingCall(NamedTuple):
    """A call that has no result yet: its tool and input, and which kind of sub-agent it starts."""

    tool: str
    tool_input: dict[str, Any] | None
    starts: str | None


NOT_BEGUN = ClaudePendingCall("tool", None, None)


class ConversationLine(NamedTuple):
    """A line of a session's own conversation: the line that it follows, its time, and whether it says something."""

    parent: str | None
    at: str
    is_spoken: bool


@dataclass(slots=True)
class ConversationTree:
    """The lines of a session's own conversation, without its sub-agents', by their ids.

    A prompt that follows a line from which the conversation had gone on before is a rewind: what came after that line
    is left behind. A prompt that follows nothing is a beginning: older versions write such ones when they resume.
    """

    lines: dict[str, ConversationLine] = field(default_factory=dict)
    last: str | None = None
    steps: int = 0

    def find_rewind_before_prompt(self, parent: str | None, at: str) -> dict[str, Any] | None:
        """Return what a prompt at this time left behind (`build_rewind_event_input`); None where it only goes on."""
        left: list[ConversationLine] = []
        uuid = self.last
        while uuid != parent:
            self.steps += 1
            line = self.lines.get(uuid or "")
            if line is None or self.steps > MAX_REWIND_STEPS:
                return None
            left.append(line)
            uuid = line.parent
        messages = sum(line.is_spoken for line in left)
        if parent is None or parent not in self.lines or not messages:
            return None
        return build_rewind_event_input(self.lines[parent].at, left[-1].at, left[0].at, at, messages)

    def add_line(self, uuid: str, line: ConversationLine) -> None:
        """Note a line as the last one of the conversation; a copy of an earlier one is left out."""
        if uuid not in self.lines:
            self.lines[uuid], self.last = line, uuid


@dataclass(slots=True)
class ClaudeTranscriptReader:
    """Reads one file's lines in order. `agents` is shared by all files: sub-agents' kinds, by their ids."""

    session: str
    agent: str | None
    agents: dict[str, str]
    changed: datetime
    prompt_id: str | None = None
    at: str = ""
    # By the message's id: lines of several requests alternate where sub-agents work at the same time.
    requests: dict[str, PendingModelRequest] = field(default_factory=dict)
    calls: dict[str, ClaudePendingCall] = field(default_factory=dict)
    titles: dict[str, tuple[int, str]] = field(default_factory=dict)
    # By the last line of the conversation that they sum up.
    summaries: dict[str, str] = field(default_factory=dict)
    uuids: set[str] = field(default_factory=set)
    tree: ConversationTree = field(default_factory=ConversationTree)
    # Of the line before.
    reported_facts: tuple[list[Any], dict[str, str]] = field(default_factory=lambda: ([], {}))

    def convert_line_to_events(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events; none for bookkeeping. Raises UnknownLineKind."""
        try:
            fields = decode_json_for_storage(body)
        except UnprocessableRequest:
            raise UnknownLineKind(BROKEN) from None
        if not isinstance(fields, dict):
            raise UnknownLineKind("no object")
        line = ClaudeTranscriptLine(fields, self, body)
        kind = line.text_field("type")
        if (inner := self.unwrap_subagent_progress_line(line)) is not None:
            self.add_line_to_conversation_tree(line)
            return self.convert_subagent_progress_line(inner)
        if kind is not None and kind in BOOKKEEPING:
            self.add_line_to_conversation_tree(line)
            self.remember_session_title(line, kind)
            return []
        if uuid := line.text_field("uuid"):
            self.uuids.add(uuid)
        meaning = _MEANINGS.get(kind or "")
        if meaning is None:
            raise UnknownLineKind(f"type {kind:.60}" if kind else "no type")
        self.at = line.occurred_at_text or self.at
        if kind == "assistant":
            self.remember_model_request(line)
        events = list(meaning(line))
        is_prompt = kind == "user" and any(event.event.role == "user" for event in events)
        left = (
            self.tree.find_rewind_before_prompt(line.parent_uuid, line.occurred_at_text)
            if is_prompt
            else None
        )
        self.add_line_to_conversation_tree(line, is_spoken=is_prompt or kind == "assistant")
        if left is not None:
            events.insert(0, line.build_rewind_event(left))
        return [line.to_imported_line(events)] if events else []

    def add_line_to_conversation_tree(self, line: ClaudeTranscriptLine, *, is_spoken: bool = False) -> None:
        """Record the position of a line in the session's own conversation."""
        if (uuid := line.text_field("uuid")) and line.subagent_label is None:
            self.tree.add_line(uuid, ConversationLine(line.parent_uuid, line.occurred_at_text, is_spoken))

    def unwrap_subagent_progress_line(self, line: ClaudeTranscriptLine) -> ClaudeTranscriptLine | None:
        """Return the line of a sub-agent that a progress line of its session holds; None for any other line."""
        data = line.fields.get("data") if line.fields.get("type") == "progress" else None
        inner = (
            data.get("message") if isinstance(data, dict) and data.get("type") == "agent_progress" else None
        )
        agent = data.get("agentId") if isinstance(data, dict) else None
        if not isinstance(inner, dict) or not isinstance(agent, str):
            return None
        starts = self.calls.get(str(line.fields.get("parentToolUseID")), NOT_BEGUN).starts
        if starts:
            self.agents.setdefault(agent, starts)
        around = {name: line.fields.get(name) for name in (*FACTS, "sessionId", "timestamp", "promptId")}
        return ClaudeTranscriptLine(
            {**around, **inner, "agentId": agent, "isSidechain": True}, self, line.body
        )

    def convert_subagent_progress_line(self, line: ClaudeTranscriptLine) -> list[ImportedLine]:
        """Return the calls and results of a sub-agent, and count its requests; its messages are in its own file."""
        kind = line.text_field("type")
        if kind not in {"assistant", "user"}:
            return []
        if kind == "assistant":
            self.remember_model_request(line)
        calls = [
            progress_line
            for progress_line in _MEANINGS[kind](line)
            if progress_line.event.event_type in {"pre_tool", "post_tool"}
        ]
        return [line.to_imported_line(calls)] if calls else []

    def flush_pending_file_lines(self, now: datetime) -> list[ImportedLine]:
        """Return what is left at the file's end: titles, and the last requests, unless their answers are being written.

        A summary may be in the file of the session that came after: it counts where its conversation does.
        """
        for leaf, title in self.summaries.items():
            if leaf in self.uuids and self.titles.get(self.session, (0, ""))[0] <= TITLES["summary"][1]:
                self.titles[self.session] = (TITLES["summary"][1], title)
        title_items = [] if self.agent else self.titles.items()
        return [
            *(ImportedLine(session, "", "", {}, [], title) for session, (_, title) in title_items),
            *(
                request.imported
                for request in self.requests.values()
                if request.done or request.at is None or now - request.at > ANSWERED_WITHIN
            ),
        ]

    def remember_session_title(self, line: ClaudeTranscriptLine, kind: str) -> None:
        """Keep the session's title from a line; of two with the same weight the later one counts."""
        name, weight = TITLES.get(kind, ("", 0))
        title = line.text_field(name) if name else None
        if title is None:
            return
        if kind == "summary":
            self.summaries[line.text_field("leafUuid") or ""] = title
        elif weight >= self.titles.get(line.claude_session_id, (0, ""))[0]:
            self.titles[line.claude_session_id] = (weight, title)

    def remember_model_request(self, line: ClaudeTranscriptLine) -> None:
        """Note a line's tokens, in place of what an earlier line of the same message said."""
        usage, message_id = line.api_message.get("usage"), line.api_message.get("id")
        if not isinstance(usage, dict) or not isinstance(message_id, str) or line.message_model is None:
            return
        before = self.requests.get(message_id)
        tokens = claude_token_counts(usage)
        done = line.api_message.get("stop_reason") is not None
        if before is not None:
            tokens = {name: max(number, before.tokens[name]) for name, number in tokens.items()}
            done = done or before.done
        self.requests[message_id] = PendingModelRequest(
            tokens,
            build_model_request_usage_line(
                line, message_id, tokens, claude_extra_usage_detail(usage, tokens)
            ),
            instants.parse_instant_or_none(line.occurred_at_text),
            done,
        )


_TOKENS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}
HOUR_CACHE = "cache_write_1h_tokens"  # in addition to _TOKENS: part of what was written to a cache


def claude_token_counts(usage: dict[str, Any]) -> dict[str, int]:
    """Return the tokens that a message's usage names, by kind."""
    tokens = {name: token_count_or_zero(usage.get(theirs)) for name, theirs in _TOKENS.items()}
    split = usage.get("cache_creation")
    minutes, hour = (
        token_count_or_zero(split.get(f"ephemeral_{time}_input_tokens") if isinstance(split, dict) else None)
        for time in ("5m", "1h")
    )
    tokens["cache_write_tokens"] = max(tokens["cache_write_tokens"], minutes + hour)
    return tokens | {HOUR_CACHE: hour}


def claude_extra_usage_detail(usage: dict[str, Any], tokens: dict[str, int]) -> UsageDetail:
    """Return the details of a message's usage other than its tokens."""
    searches, tier, speed = usage.get("server_tool_use"), usage.get("service_tier"), usage.get("speed")
    return UsageDetail(
        provider=PROVIDER,
        cache_write_1h_tokens=tokens[HOUR_CACHE],
        web_searches=token_count_or_zero(
            searches.get("web_search_requests") if isinstance(searches, dict) else None
        ),
        speed=speed if speed == "fast" else None,
        is_batch=tier == "batch",
    )


def token_count_or_zero(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


@dataclass
class ClaudeTranscriptLine:
    """A line that is understood; makes events of it."""

    fields: dict[str, Any]
    reader: ClaudeTranscriptReader
    body: bytes

    def text_field(self, name: str) -> str | None:
        """Return a field that is a text with something in it, else None."""
        value = self.fields.get(name)
        return value if isinstance(value, str) and value.strip() else None

    @cached_property
    def api_message(self) -> dict[str, Any]:
        """The message of the Messages API that the line wraps."""
        message = self.fields.get("message")
        return message if isinstance(message, dict) else {}

    @property
    def claude_session_id(self) -> str:
        """Claude's id of the session."""
        return self.text_field("sessionId") or self.reader.session

    @cached_property
    def occurred_at_text(self) -> str:
        """When it happened, in canonical form; unchanged where it cannot be read."""
        text = self.text_field("timestamp") or self.reader.at
        moment = instants.parse_instant_or_none(text)
        return instants.format_canonical_instant(moment) if moment else text

    @property
    def subagent_label(self) -> str | None:
        """Which sub-agent speaks, named as hooks name it; the lines of older versions do not say which."""
        agent = self.text_field("agentId") or self.reader.agent
        if agent is None:
            return "sub-agent" if self.fields.get("isSidechain") is True else None
        kind = self.reader.agents.get(agent)
        return f"{kind} {agent}" if kind else agent

    @property
    def parent_uuid(self) -> str | None:
        """The line that this one follows; after a compaction, the last one of what was summed up."""
        return self.text_field("parentUuid") or self.text_field("logicalParentUuid")

    @cached_property
    def message_model(self) -> str | None:
        """The model that wrote the message, if one did."""
        model = self.api_message.get("model")
        return model if isinstance(model, str) and model.strip() and model != SYNTHETIC else None

    @cached_property
    def line_origin(self) -> str:
        """The origin of the whole line; a copy of it in another session's file has the same."""
        return make_event_origin(
            "line", self.text_field("uuid") or hashlib.sha256(self.body.strip()).hexdigest()
        )

    @cached_property
    def line_fields_without_column(self) -> dict[str, Any]:
        """What has no column; all of the line's events keep it."""
        remaining_fields = {
            name: field_value
            for name, field_value in self.fields.items()
            if name not in ENVELOPE and field_value not in (None, False)
        }
        return {"uuid": self.text_field("uuid")} | remaining_fields

    def to_imported_line(self, events: list[ImportedEvent]) -> ImportedLine:
        """Return the line with its events."""
        reader, raw = self.reader, [self.fields.get(name) for name in FACTS]
        if raw != reader.reported_facts[0]:  # seldom: lines of one file say the same
            facts = {name: self.text_field(name) for name in FACTS}
            reader.reported_facts = raw, {name: fact for name, fact in facts.items() if fact}
        return ImportedLine(
            self.claude_session_id, self.line_origin, self.occurred_at_text, reader.reported_facts[1], events
        )

    def build_line_event(
        self, event_type: str, number: int, *, also: tuple[str, ...] = (), **values: Any
    ) -> ImportedEvent:
        """Return the line's event `number`; `also` are the origins under which others report the same."""
        values.setdefault("origin", make_event_origin(self.line_origin, number))
        values.setdefault("subagent", self.subagent_label)
        event = DedupedEvent(
            event_type=event_type,
            session_id="",
            timestamp=self.occurred_at_text,
            prompt_id=self.text_field("promptId") or self.reader.prompt_id,
            source=SOURCE,
            late=True,
            everywhere=True,  # a resumed session's file repeats the lines of the one before
            extra=self.line_fields_without_column,
            **values,
        )
        return ImportedEvent(event, also)

    def build_rewind_event(self, left: dict[str, Any]) -> ImportedEvent:
        """Return that a person took turns back and went on with this line."""
        return self.build_line_event(
            REWIND, 0, origin=make_event_origin(self.line_origin, REWIND), tool_input=left
        )

    def build_line_message_event(
        self, role: str, content: list[Any], number: int, also: tuple[str, ...] = ()
    ) -> ImportedEvent:
        """Return what somebody said."""
        shown_blocks = [
            block if isinstance(block, dict) else make_text_block(str(block)) for block in content
        ]
        model = self.message_model if role == "assistant" else None
        typed = role == "user" and self.subagent_label is None
        claims = (
            build_text_dedup_origins(
                TYPED, self.claude_session_id, join_block_texts(shown_blocks), self.occurred_at_text
            )
            if typed
            else ()
        )
        return self.build_line_event(
            "message", number, also=also, role=role, content=shown_blocks, model=model, claims=claims
        )


def build_model_request_usage_line(
    line: ClaudeTranscriptLine, message_id: str, tokens: dict[str, int], detail: UsageDetail
) -> ImportedLine:
    """Return a request to the model by the last of its lines."""
    name = line.text_field("requestId") or message_id
    also = (
        make_event_origin(line.claude_session_id, "request", name),
        make_event_origin("request", message_id),
    )
    event = line.build_line_event(
        MODEL_REQUEST,
        0,
        also=also,
        origin=also[1],
        claims=also[:1],
        model=line.message_model,
        usage=detail,
        **{name: tokens[name] for name in _TOKENS},
    )
    return ImportedLine(line.claude_session_id, also[1], line.occurred_at_text, {}, [event])


# --- who says what ----------------------------------------------------------------------------------------


def iterate_assistant_line_events(line: ClaudeTranscriptLine) -> Iterator[ImportedEvent]:
    content = line.api_message.get("content")
    for number, block in enumerate(content if isinstance(content, list) else [content]):
        kind = str(block.get("type")) if isinstance(block, dict) else ""
        if kind in {"tool_use", "server_tool_use", "mcp_tool_use"}:
            yield remember_and_build_claude_call(line, block, number)
        elif kind.endswith("tool_result"):
            yield pop_call_and_build_result(line, block, number)
        elif (text := claude_block_text(block)) is not None:
            if not text.strip():
                continue
            if line.fields.get("isApiErrorMessage") is True:
                yield line.build_line_event("api_error", number, error=text)
                continue
            prompt_id = line.text_field("promptId") or line.reader.prompt_id
            text_origin = assistant_text_origin(line.claude_session_id, line.subagent_label, prompt_id, text)
            yield line.build_line_message_event("assistant", [make_text_block(text)], number, (text_origin,))
        elif isinstance(block, dict) and not is_hidden_thought(block):
            yield line.build_line_message_event("assistant", [block], number)


def is_hidden_thought(block: dict[str, Any]) -> bool:
    """Say whether a block holds thoughts that nobody may read."""
    return block.get("type") == "redacted_thinking" or (
        block.get("type") == "thinking" and not str(block.get("thinking") or "").strip()
    )


def claude_block_text(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    return None


def remember_and_build_claude_call(
    line: ClaudeTranscriptLine, block: dict[str, Any], number: int
) -> ImportedEvent:
    call_id, tool, call_input = (
        block.get("id"),
        str(block.get("name") or "tool"),
        wrap_non_object_value(block.get("input")),
    )
    if not isinstance(call_id, str):
        return line.build_line_event("pre_tool", number, tool_name=tool, tool_input=call_input)
    kind = call_input.get("subagent_type") if call_input else None
    line.reader.calls[call_id] = ClaudePendingCall(tool, call_input, kind if isinstance(kind, str) else None)
    begins = make_event_origin(line.claude_session_id, "PreToolUse", call_id)
    return line.build_line_event(
        "pre_tool",
        number,
        also=(begins,),
        claims=(begins,),
        tool_use_id=call_id,
        tool_name=tool,
        tool_input=call_input,
    )


def iterate_user_line_events(line: ClaudeTranscriptLine) -> Iterator[ImportedEvent]:
    if line.text_field("promptId") and line.subagent_label is None:
        line.reader.prompt_id = line.text_field("promptId")
    yield from iterate_claude_user_block_events(line, line.api_message.get("content"))


def iterate_claude_user_block_events(line: ClaudeTranscriptLine, content: Any) -> Iterator[ImportedEvent]:
    """Yield results apart, and what was said in one go, words with pictures, as one message."""
    spoken: list[ImportedEvent] = []
    for number, block in enumerate(content if isinstance(content, list) else [content]):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield pop_call_and_build_result(line, block, number)
        elif (text := claude_block_text(block)) is not None:
            spoken += iterate_claude_user_text_events(line, text, number)
        elif isinstance(block, dict):
            spoken.append(line.build_line_message_event("user", [block], number))
    merged: list[ImportedEvent] = []
    for spoken_block in spoken:
        event = spoken_block.event
        before = next(
            (other.event for other in merged if event.role and other.event.role == event.role), None
        )
        if before is None or before.content is None:
            merged.append(spoken_block)
        else:
            before.content = [*before.content, *(event.content or [])]
            before.claims = (*before.claims, *event.claims)
    yield from merged


def iterate_claude_user_text_events(
    line: ClaudeTranscriptLine, text: str, number: int
) -> Iterator[ImportedEvent]:
    """Yield what a person said, or what Claude Code put in their place, which is the system's."""
    if notices := parse_task_notices(text):
        yield from iterate_background_task_end_events(line, notices, number)
        return
    if (command := split_text_at_xml_tag(text, "command-name")) is not None:
        _, arguments, _ = split_text_at_xml_tag(text, "command-args") or ("", "", "")
        text = f"{command[1].strip()} {arguments.strip()}".strip()
    elif (shell := split_text_at_xml_tag(text, "bash-input")) and not (shell[0].strip() or shell[2].strip()):
        text = f"! {shell[1].strip()}"
    elif line.fields.get("isMeta") is True or _PRINTED.search(text) or text.startswith(INTERRUPTED):
        text = _PRINTED.sub("", text).strip()
        if text:
            yield line.build_line_message_event("system", [make_text_block(text)], number)
        return
    elif line.fields.get("isCompactSummary") is True or is_only_injected_context(text):
        yield line.build_line_message_event("system", [make_text_block(text)], number)
        return
    if text.strip():
        prompt_id = line.text_field("promptId")
        prompt_origins = (
            (make_event_origin(line.claude_session_id, "prompt", prompt_id),)
            if prompt_id and line.subagent_label is None
            else ()
        )
        yield line.build_line_message_event("user", [make_text_block(text)], number, prompt_origins)


def is_only_injected_context(text: str) -> bool:
    """Return whether a text is only context that was added to a person's prompt."""
    position = 0
    while opening := _CONTEXT_OPENING.match(text, position):
        closing = f"</{opening[1]}>"
        end = text.find(closing, opening.end())
        if end < 0:
            return False
        position = end + len(closing)
    return position > 0 and not text[position:].strip()


def iterate_background_task_end_events(
    line: ClaudeTranscriptLine, notices: list[TaskNotice], number: int
) -> Iterator[ImportedEvent]:
    """Yield the ends of calls that went on in the background, in the form that hooks report."""
    for index, notice in enumerate(notices):
        values = notice.background_task_end_values(line.claude_session_id)
        end_origin = values.pop("origin")
        if notice.call_id is None:
            yield line.build_line_message_event(
                "system", [make_text_block(notice.result)], number, (end_origin,)
            )
        else:
            own = make_event_origin(line.line_origin, number, NOTICE, index)
            yield line.build_line_event(
                "post_tool", number, also=(end_origin,), origin=own, claims=(end_origin,), **values
            )


def pop_call_and_build_result(
    line: ClaudeTranscriptLine, block: dict[str, Any], number: int
) -> ImportedEvent:
    call_id, outcome = block.get("tool_use_id"), line.fields.get("toolUseResult")
    begun = line.reader.calls.pop(str(call_id), NOT_BEGUN)
    values: dict[str, Any] = {"tool_name": begun.tool, "tool_input": begun.tool_input}
    if isinstance(call_id, str):
        ends = hook_reported_result_origins(line.claude_session_id, call_id)
        values |= {"tool_use_id": call_id, "claims": ends, "also": ends[:1]}
    structured = outcome if isinstance(outcome, dict | list) else None
    if isinstance(structured, dict):
        agent, took = (
            structured.get("agentId"),
            structured.get("totalDurationMs", structured.get("durationMs")),
        )
        if begun.starts and isinstance(agent, str):
            line.reader.agents[agent] = begun.starts
        values["duration_ms"] = token_count_or_zero(took) or None
    content = block.get("content")
    if block.get("is_error") is True:
        values["error"] = describe_claude_tool_error(content, outcome)
    else:
        values["tool_output"] = content if structured is None else structured
        values["reason"] = IN_BACKGROUND if is_call_running_in_background(structured) else None
    return line.build_line_event("post_tool", number, **values)


def describe_claude_tool_error(content: Any, outcome: Any) -> str:
    blocks = content if isinstance(content, list) else [content]
    error_text = "\n".join(
        text for block in blocks if (text := claude_block_text(block))
    ) or format_value_as_text(content)
    if failed := split_text_at_xml_tag(error_text, "tool_use_error"):
        error_text = failed[0].rstrip() + failed[1] + failed[2].lstrip()
    if outcome == REJECTED:
        return f"Rejected in the terminal. {error_text}".strip()
    return (
        claude_code_refusal_or_none(error_text)
        or error_text
        or format_value_as_text(outcome)
        or "The call failed."
    )


def iterate_attachment_line_events(line: ClaudeTranscriptLine) -> Iterator[ImportedEvent]:
    """Of what Claude Code attached for the model, what a person typed while it worked, and tasks that ended then."""
    attachment = line.fields.get("attachment")
    if not isinstance(attachment, dict) or attachment.get("type") != "queued_command":
        return
    if attachment.get("commandMode") in (None, "prompt"):
        yield from iterate_claude_user_block_events(line, attachment.get("prompt"))
    elif (
        attachment.get("commandMode") == NOTICE
        and (text := claude_block_text(attachment.get("prompt"))) is not None
    ):
        yield from iterate_background_task_end_events(line, parse_task_notices(text), 0)


def iterate_system_line_events(line: ClaudeTranscriptLine) -> Iterator[ImportedEvent]:
    kind = line.text_field("subtype")
    if kind in QUIET_SYSTEM:
        return
    if kind in {"compact_boundary", "microcompact_boundary"}:
        about = line.fields.get("compactMetadata") or line.fields.get("microcompactMetadata")
        yield line.build_line_event("compaction", 0, tool_input=wrap_non_object_value(about))
    elif kind == "api_error":
        status_reason = (
            innermost_api_error_text(line.fields.get("error"))
            or line.text_field("content")
            or "The model could not be asked."
        )
        yield line.build_line_event("api_error", 0, error=status_reason)
    elif text := line.text_field("content"):
        if line.fields.get("level") == "error":
            yield line.build_line_event(kind or "error", 0, error=text)
        else:
            yield from iterate_claude_user_text_events(line, text, 0)


def innermost_api_error_text(error: Any) -> str:
    """Return the text of an error of the Messages API, which is an error within an error."""
    for _ in range(3):
        if not isinstance(error, dict):
            break
        error = error.get("message") or error.get("error") or format_value_as_text(error)
    return format_value_as_text(error)


_MEANINGS = {
    "assistant": iterate_assistant_line_events,
    "user": iterate_user_line_events,
    "system": iterate_system_line_events,
    "attachment": iterate_attachment_line_events,
}


def make_claude_reader(file: TranscriptFile, kinds: dict[str, str]) -> ClaudeTranscriptReader:
    if file.agent and file.agent not in kinds and (kind := file.read_subagent_kind()):
        kinds[file.agent] = kind
    return ClaudeTranscriptReader(file.transcript_session_id, file.agent, kinds, file.changed)


FORMAT = TranscriptFormat(
    name=PROGRAM,
    home_in="CLAUDE_CONFIG_DIR",
    home=".claude",
    folders=("projects",),
    is_one=lambda path: path.suffix == ".jsonl",
    reader=make_claude_reader,
)
