"""Lines of Claude Code's transcripts as events. Pure translation: no clock, no database.

The format is Claude Code's own affair and changes with its releases, so a line is read for what it holds and
nothing is taken for granted: what has no meaning here is named by its type and left out. Each event names, beside
its line, the origins under which hooks or telemetry may have reported the same, as the other two dialects name them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, NamedTuple

from coordinator.dialects.claude_code import NOTICE, TaskNotice, between, refused, runs_on, task_notices
from coordinator.dialects.claude_code import SOURCE as PROGRAM
from coordinator.dialects.hooks import (
    TYPED,
    as_object,
    decoded,
    in_words,
    origin,
    said,
    told_results,
    told_then,
    words_origin_of,
)
from coordinator.dialects.transcript_formats import TranscriptFormat, text_of
from coordinator.errors import Invalid
from coordinator.importing.lines import BROKEN, SOURCE, ImportedEvent, ImportedLine, NotUnderstood
from coordinator.importing.transcripts import Transcript
from coordinator.lib import instants
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import IN_BACKGROUND, MODEL_REQUEST

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
SYNTHETIC = "<synthetic>"  # the "model" of messages that Claude Code wrote itself
REJECTED = "User rejected tool use"
INTERRUPTED = "[Request interrupted by user"
# A request whose answer is still being written has not all its tokens yet; after so long it has ended all the same.
ANSWERED_WITHIN = timedelta(minutes=10)

_PRINTED = re.compile(r"</?(?:local-command-(?:stdout|stderr|caveat)|bash-std(?:out|err))>")


@dataclass(slots=True)
class _Request:
    """A request to a model, as far as its lines were read. Each line repeats the tokens; the last ones are right."""

    message_id: str
    line: _Line
    tokens: dict[str, int]
    model: str | None
    done: bool


class _Begun(NamedTuple):
    """A call that has no result yet: its tool and input, and which kind of sub-agent it starts."""

    tool: str
    given: dict[str, Any] | None
    starts: str | None


NOT_BEGUN = _Begun("tool", None, None)


@dataclass(slots=True)
class Reader:
    """Reads one file's lines in order. `agents` is shared by all files: sub-agents' kinds, by their ids."""

    session: str
    agent: str | None
    agents: dict[str, str]
    changed: datetime
    prompt_id: str | None = None
    at: str = ""
    requests: dict[str | None, _Request] = field(default_factory=dict)
    calls: dict[str, _Begun] = field(default_factory=dict)
    titles: dict[str, tuple[int, str]] = field(default_factory=dict)
    # By the last line of the conversation that they sum up.
    summaries: dict[str, str] = field(default_factory=dict)
    uuids: set[str] = field(default_factory=set)
    # Of the line before.
    told_facts: tuple[list[Any], dict[str, str]] = field(default_factory=lambda: ([], {}))

    def read(self, body: bytes) -> list[ImportedLine]:
        """Return a line's events; none for bookkeeping. Raises NotUnderstood."""
        try:
            fields = decoded(body)
        except Invalid:
            raise NotUnderstood(BROKEN) from None
        if not isinstance(fields, dict):
            raise NotUnderstood("no object")
        line = _Line(fields, self, body)
        kind = line.text("type")
        if kind is not None and kind in BOOKKEEPING:
            self._note_title(line, kind)
            return []
        if uuid := line.text("uuid"):
            self.uuids.add(uuid)
        meaning = _MEANINGS.get(kind or "")
        if meaning is None:
            raise NotUnderstood(f"type {kind:.60}" if kind else "no type")
        self.at = line.at or self.at
        finished = list(self._note_request(line)) if kind == "assistant" else []
        return [*finished, *([line.with_events(events)] if (events := list(meaning(line))) else [])]

    def rest(self, now: datetime) -> list[ImportedLine]:
        """Return what is left at the file's end: titles, and the last requests, unless their answers are being written.

        A summary may stand in the file of the session that came after: it counts where its conversation does.
        """
        for leaf, title in self.summaries.items():
            if leaf in self.uuids and self.titles.get(self.session, (0, ""))[0] <= TITLES["summary"][1]:
                self.titles[self.session] = (TITLES["summary"][1], title)
        named = [] if self.agent else self.titles.items()
        old = now - self.changed > ANSWERED_WITHIN
        return [
            *(ImportedLine(session, "", "", {}, [], title) for session, (_, title) in named),
            *(_usage(one) for one in self.requests.values() if one.done or old),
        ]

    def _note_title(self, line: _Line, kind: str) -> None:
        """Keep the session's title from a line; of two with the same weight the later one counts."""
        name, weight = TITLES.get(kind, ("", 0))
        title = line.text(name) if name else None
        if title is None:
            return
        if kind == "summary":
            self.summaries[line.text("leafUuid") or ""] = title
        elif weight >= self.titles.get(line.session, (0, ""))[0]:
            self.titles[line.session] = (weight, title)

    def _note_request(self, line: _Line) -> Iterator[ImportedLine]:
        """Note a line's tokens; yield the request before it, which is complete now."""
        usage, message_id = line.message.get("usage"), line.message.get("id")
        if not isinstance(usage, dict) or not isinstance(message_id, str) or line.model is None:
            return
        before = self.requests.get(line.subagent)
        tokens = {name: _number(usage.get(theirs)) for name, theirs in _TOKENS.items()}
        if before is not None and before.message_id == message_id:
            tokens = {name: max(number, before.tokens[name]) for name, number in tokens.items()}
        elif before is not None:
            yield _usage(before)
        done = line.message.get("stop_reason") is not None
        self.requests[line.subagent] = _Request(message_id, line, tokens, line.model, done)


_TOKENS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_tokens": "cache_read_input_tokens",
    "cache_write_tokens": "cache_creation_input_tokens",
}


def _number(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


@dataclass
class _Line:
    """A line that is understood; makes events of it."""

    fields: dict[str, Any]
    reader: Reader
    body: bytes

    def text(self, name: str) -> str | None:
        """Return a field that is a text with something in it, else None."""
        value = self.fields.get(name)
        return value if isinstance(value, str) and value.strip() else None

    @cached_property
    def message(self) -> dict[str, Any]:
        """The message of the Messages API that the line wraps."""
        found = self.fields.get("message")
        return found if isinstance(found, dict) else {}

    @property
    def session(self) -> str:
        """Claude's id of the session."""
        return self.text("sessionId") or self.reader.session

    @cached_property
    def at(self) -> str:
        """When it happened, in canonical form; unchanged where it cannot be read."""
        text = self.text("timestamp") or self.reader.at
        moment = instants.parse(text)
        return instants.canonical(moment) if moment else text

    @property
    def subagent(self) -> str | None:
        """Which sub-agent speaks, named as hooks name it; the lines of older versions do not say which."""
        agent = self.text("agentId") or self.reader.agent
        if agent is None:
            return "sub-agent" if self.fields.get("isSidechain") is True else None
        kind = self.reader.agents.get(agent)
        return f"{kind} {agent}" if kind else agent

    @cached_property
    def model(self) -> str | None:
        """The model that wrote the message, if one did."""
        model = self.message.get("model")
        return model if isinstance(model, str) and model.strip() and model != SYNTHETIC else None

    @cached_property
    def key(self) -> str:
        """The origin of the whole line; a copy of it in another session's file has the same."""
        return origin("line", self.text("uuid") or hashlib.sha256(self.body.strip()).hexdigest())

    @cached_property
    def left(self) -> dict[str, Any]:
        """What has no column; all of the line's events keep it."""
        left = {
            name: one
            for name, one in self.fields.items()
            if name not in ENVELOPE and one not in (None, False)
        }
        return {"uuid": self.text("uuid")} | left

    def with_events(self, events: list[ImportedEvent]) -> ImportedLine:
        """Return the line with its events."""
        reader, raw = self.reader, [self.fields.get(name) for name in FACTS]
        if raw != reader.told_facts[0]:  # seldom: lines of one file say the same
            facts = {name: self.text(name) for name in FACTS}
            reader.told_facts = raw, {name: one for name, one in facts.items() if one}
        return ImportedLine(self.session, self.key, self.at, reader.told_facts[1], events)

    def event(
        self, event_type: str, number: int, *, also: tuple[str, ...] = (), **values: Any
    ) -> ImportedEvent:
        """Return the line's event `number`; `also` are the origins under which others report the same."""
        values.setdefault("origin", origin(self.key, number))
        values.setdefault("subagent", self.subagent)
        event = DedupedEvent(
            event_type=event_type,
            session_id="",
            timestamp=self.at,
            prompt_id=self.text("promptId") or self.reader.prompt_id,
            source=SOURCE,
            late=True,
            everywhere=True,  # a resumed session's file repeats the lines of the one before
            extra=self.left,
            **values,
        )
        return ImportedEvent(event, also)

    def message_of(
        self, role: str, content: list[Any], number: int, also: tuple[str, ...] = ()
    ) -> ImportedEvent:
        """Return what somebody said."""
        shown = [block if isinstance(block, dict) else said(str(block)) for block in content]
        model = self.model if role == "assistant" else None
        typed = role == "user" and self.subagent is None
        claims = told_then(TYPED, self.session, text_of(shown), self.at) if typed else ()
        return self.event("message", number, also=also, role=role, content=shown, model=model, claims=claims)


def _usage(request: _Request) -> ImportedLine:
    """Return a request to the model from the last of its lines."""
    line, name = request.line, request.line.text("requestId") or request.message_id
    also = (origin(line.session, "request", name), origin("request", request.message_id))
    event = line.event(
        MODEL_REQUEST,
        0,
        also=also,
        origin=also[1],
        claims=also[:1],
        model=request.model,
        **request.tokens,
    )
    return ImportedLine(line.session, also[1], line.at, {}, [event])


# --- who says what ----------------------------------------------------------------------------------------


def _assistant(line: _Line) -> Iterator[ImportedEvent]:
    content = line.message.get("content")
    for number, block in enumerate(content if isinstance(content, list) else [content]):
        kind = str(block.get("type")) if isinstance(block, dict) else ""
        if kind in {"tool_use", "server_tool_use", "mcp_tool_use"}:
            yield _call(line, block, number)
        elif kind.endswith("tool_result"):
            yield _result(line, block, number)
        elif (text := _text_of(block)) is not None:
            if not text.strip():
                continue
            if line.fields.get("isApiErrorMessage") is True:
                yield line.event("api_error", number, error=text)
                continue
            prompt_id = line.text("promptId") or line.reader.prompt_id
            words = words_origin_of(line.session, line.subagent, prompt_id, text)
            yield line.message_of("assistant", [said(text)], number, (words,))
        elif isinstance(block, dict) and not _says_nothing(block):
            yield line.message_of("assistant", [block], number)


def _says_nothing(block: dict[str, Any]) -> bool:
    """Say whether a block holds thoughts that nobody may read."""
    return block.get("type") == "redacted_thinking" or (
        block.get("type") == "thinking" and not str(block.get("thinking") or "").strip()
    )


def _text_of(block: Any) -> str | None:
    if isinstance(block, str):
        return block
    if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    return None


def _call(line: _Line, block: dict[str, Any], number: int) -> ImportedEvent:
    call_id, tool, given = block.get("id"), str(block.get("name") or "tool"), as_object(block.get("input"))
    if not isinstance(call_id, str):
        return line.event("pre_tool", number, tool_name=tool, tool_input=given)
    kind = given.get("subagent_type") if given else None
    line.reader.calls[call_id] = _Begun(tool, given, kind if isinstance(kind, str) else None)
    begins = origin(line.session, "PreToolUse", call_id)
    return line.event(
        "pre_tool",
        number,
        also=(begins,),
        claims=(begins,),
        tool_use_id=call_id,
        tool_name=tool,
        tool_input=given,
    )


def _user(line: _Line) -> Iterator[ImportedEvent]:
    if line.text("promptId") and line.subagent is None:
        line.reader.prompt_id = line.text("promptId")
    yield from _blocks(line, line.message.get("content"))


def _blocks(line: _Line, content: Any) -> Iterator[ImportedEvent]:
    """Yield results apart, and what was said in one go, words with pictures, as one message."""
    spoken: list[ImportedEvent] = []
    for number, block in enumerate(content if isinstance(content, list) else [content]):
        if isinstance(block, dict) and block.get("type") == "tool_result":
            yield _result(line, block, number)
        elif (text := _text_of(block)) is not None:
            spoken += _words(line, text, number)
        elif isinstance(block, dict):
            spoken.append(line.message_of("user", [block], number))
    for one in spoken[1:]:
        before = spoken[0].event
        if one.event.role == before.role and before.content is not None:
            before.content = [*before.content, *(one.event.content or [])]
            before.claims = (*before.claims, *one.event.claims)
        else:
            yield one
    yield from spoken[:1]


def _words(line: _Line, text: str, number: int) -> Iterator[ImportedEvent]:
    """Yield what a person said, or what Claude Code put in their place, which is the system's."""
    if notices := task_notices(text):
        yield from _task_ends(line, notices, number)
        return
    if (command := between(text, "command-name")) is not None:
        text = f"{command[1].strip()} {(between(text, 'command-args') or ('', '', ''))[1].strip()}".strip()
    elif (shell := between(text, "bash-input")) and not (shell[0].strip() or shell[2].strip()):
        text = f"! {shell[1].strip()}"
    elif line.fields.get("isMeta") is True or _PRINTED.search(text) or text.startswith(INTERRUPTED):
        text = _PRINTED.sub("", text).strip()
        if text:
            yield line.message_of("system", [said(text)], number)
        return
    elif line.fields.get("isCompactSummary") is True:
        yield line.message_of("system", [said(text)], number)
        return
    if text.strip():
        prompt_id = line.text("promptId")
        known = (origin(line.session, "prompt", prompt_id),) if prompt_id and line.subagent is None else ()
        yield line.message_of("user", [said(text)], number, known)


def _task_ends(line: _Line, notices: list[TaskNotice], number: int) -> Iterator[ImportedEvent]:
    """Yield the ends of calls that went on in the background, as hooks tell them."""
    for place, notice in enumerate(notices):
        values = notice.event_values(line.session)
        told = values.pop("origin")
        if notice.call_id is None:
            yield line.message_of("system", [said(notice.result)], number, (told,))
        else:
            own = origin(line.key, number, NOTICE, place)
            yield line.event("post_tool", number, also=(told,), origin=own, claims=(told,), **values)


def _result(line: _Line, block: dict[str, Any], number: int) -> ImportedEvent:
    call_id, outcome = block.get("tool_use_id"), line.fields.get("toolUseResult")
    begun = line.reader.calls.pop(str(call_id), NOT_BEGUN)
    values: dict[str, Any] = {"tool_name": begun.tool, "tool_input": begun.given}
    if isinstance(call_id, str):
        ends = told_results(line.session, call_id)
        values |= {"tool_use_id": call_id, "claims": ends, "also": ends[:1]}
    structured = outcome if isinstance(outcome, dict | list) else None
    if isinstance(structured, dict):
        agent, took = (
            structured.get("agentId"),
            structured.get("totalDurationMs", structured.get("durationMs")),
        )
        if begun.starts and isinstance(agent, str):
            line.reader.agents[agent] = begun.starts
        values["duration_ms"] = _number(took) or None
    content = block.get("content")
    if block.get("is_error") is True:
        values["error"] = _error(content, outcome)
    else:
        values["tool_output"] = content if structured is None else structured
        values["reason"] = IN_BACKGROUND if runs_on(structured) else None
    return line.event("post_tool", number, **values)


def _error(content: Any, outcome: Any) -> str:
    blocks = content if isinstance(content, list) else [content]
    words = "\n".join(text for block in blocks if (text := _text_of(block))) or in_words(content)
    if failed := between(words, "tool_use_error"):
        words = failed[0].rstrip() + failed[1] + failed[2].lstrip()
    if outcome == REJECTED:
        return f"Rejected in the terminal. {words}".strip()
    return refused(words) or words or in_words(outcome) or "The call failed."


def _attachment(line: _Line) -> Iterator[ImportedEvent]:
    """Of what Claude Code attached for the model, what a person typed while it worked, and tasks that ended then."""
    held = line.fields.get("attachment")
    if not isinstance(held, dict) or held.get("type") != "queued_command":
        return
    if held.get("commandMode") in (None, "prompt"):
        yield from _blocks(line, held.get("prompt"))
    elif held.get("commandMode") == NOTICE and (text := _text_of(held.get("prompt"))) is not None:
        yield from _task_ends(line, task_notices(text), 0)


def _system(line: _Line) -> Iterator[ImportedEvent]:
    kind = line.text("subtype")
    if kind in QUIET_SYSTEM:
        return
    if kind in {"compact_boundary", "microcompact_boundary"}:
        about = line.fields.get("compactMetadata") or line.fields.get("microcompactMetadata")
        yield line.event("compaction", 0, tool_input=as_object(about))
    elif kind == "api_error":
        why = _innermost(line.fields.get("error")) or line.text("content") or "The model could not be asked."
        yield line.event("api_error", 0, error=why)
    elif text := line.text("content"):
        if line.fields.get("level") == "error":
            yield line.event(kind or "error", 0, error=text)
        else:
            yield from _words(line, text, 0)


def _innermost(error: Any) -> str:
    """Return the text of an error of the Messages API, which is an error within an error."""
    for _ in range(3):
        if not isinstance(error, dict):
            break
        error = error.get("message") or error.get("error") or in_words(error)
    return in_words(error)


_MEANINGS = {"assistant": _assistant, "user": _user, "system": _system, "attachment": _attachment}


def _reader(one: Transcript, kinds: dict[str, str]) -> Reader:
    if one.agent and one.agent not in kinds and (kind := one.agent_kind()):
        kinds[one.agent] = kind
    return Reader(one.session, one.agent, kinds, one.changed)


FORMAT = TranscriptFormat(
    name=PROGRAM,
    home_in="CLAUDE_CONFIG_DIR",
    home=".claude",
    folders=("projects",),
    is_one=lambda path: path.suffix == ".jsonl",
    reader=_reader,
)
