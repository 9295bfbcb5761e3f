"""An agent's transcripts: where they are, how their lines are read, and the events of a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coordinator.dialects.hooks import (
    SPENT,
    TYPED,
    assistant_text_origin,
    build_text_dedup_origins,
    build_token_counts_key,
    hook_reported_result_origins,
    make_event_origin,
    make_text_block,
)
from coordinator.importing.lines import SOURCE, ImportedEvent, ImportedLine, LineReader
from coordinator.importing.transcripts import TranscriptFile, TranscriptLine, iterate_transcript_lines
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import MODEL_REQUEST
from coordinator.usage.amounts import UsageDetail


@dataclass(frozen=True, kw_only=True)
class TranscriptFormat:
    """How one agent stores its sessions.

    They are in `folders` of its home folder: what the environment variable `home_in` names, else `home` in the
    person's own. `is_one` says of a file in there whether it is one; `lines` are a file's lines; `reader` reads those
    of one file. Its second argument is kept for all files of an import: kinds of sub-agents by id.
    """

    name: str
    home_in: str
    home: str
    folders: tuple[str, ...]
    is_one: Callable[[Path], bool]
    reader: Callable[[TranscriptFile, dict[str, str]], LineReader]
    lines: Callable[[TranscriptFile], Iterator[TranscriptLine]] = iterate_transcript_lines


@dataclass(frozen=True, slots=True)
class TranscriptRecord:
    """A record of a transcript that is understood; makes events of it.

    `key` is the record's own origin within its session; its events are written once, under that and their part's name.
    """

    session: str
    key: str
    at: str
    turn: str | None = None
    subagent: str | None = None
    model: str | None = None

    def build_imported_line(
        self, events: list[ImportedEvent], facts: Mapping[str, str], title: str | None = None
    ) -> ImportedLine:
        """Return the record with its events."""
        return ImportedLine(self.session, self.key, self.at, facts, events, title)

    def build_imported_event(
        self,
        event_type: str,
        part: str | int,
        *,
        at: str | None = None,
        also: tuple[str, ...] = (),
        by_figures: bool = False,
        **values: Any,
    ) -> ImportedEvent:
        """Return the record's event named `part`; `also` are the origins under which others report the same."""
        event = DedupedEvent(
            event_type=event_type,
            session_id="",
            timestamp=at or self.at,
            prompt_id=self.turn,
            subagent=self.subagent,
            source=SOURCE,
            late=True,
            origin=make_event_origin(self.key, part),
            **values,
        )
        return ImportedEvent(event, also, by_figures)

    def build_imported_message(
        self,
        role: str,
        content: list[dict[str, Any]],
        part: str | int,
        *,
        also: tuple[str, ...] = (),
        **values: Any,
    ) -> ImportedEvent:
        """Return what somebody said."""
        model = self.model if role == "assistant" else None
        if role == "user" and self.subagent is None:
            typed = build_text_dedup_origins(TYPED, self.session, join_block_texts(content), self.at)
            values["claims"] = (*values.get("claims", ()), *typed)
        return self.build_imported_event(
            "message", part, also=also, role=role, content=content, model=model, **values
        )

    def build_assistant_message(
        self, text: str, part: str | int, *, so_far: tuple[str, ...] = (), is_piece: bool = False
    ) -> ImportedEvent:
        """Return what the agent said; of a piece of a turn's words, `so_far` are the origins of all until then."""
        text_origin = assistant_text_origin(self.session, self.subagent, self.turn, text)
        imported_message = self.build_imported_message(
            "assistant", [make_text_block(text)], part, also=(text_origin,), claims=(text_origin, *so_far)
        )
        return replace(imported_message, is_piece=is_piece)

    def build_thought_message(self, text: str, part: str | int) -> ImportedEvent:
        """Return what the agent thought."""
        return self.build_imported_message("assistant", [{"type": "thinking", "thinking": text}], part)

    def build_imported_call(
        self,
        call_id: str,
        tool: str,
        tool_input: dict[str, Any] | None,
        hook_origins: tuple[str, ...] = (),
        **values: Any,
    ) -> ImportedEvent:
        """Return a call's beginning; `hook_origins` are the origins of its hooks' events, which have no such id."""
        begins = make_event_origin(self.session, "PreToolUse", call_id)
        return self.build_imported_event(
            "pre_tool",
            f"{call_id} begins",
            also=(begins,),
            claims=(begins, *hook_origins),
            tool_use_id=call_id,
            tool_name=tool,
            tool_input=tool_input,
            **values,
        )

    def build_imported_call_result(
        self,
        call_id: str,
        tool: str,
        tool_input: dict[str, Any] | None,
        hook_origins: tuple[str, ...] = (),
        **values: Any,
    ) -> ImportedEvent:
        """Return a call's result; `hook_origins` as of its beginning."""
        ends = hook_reported_result_origins(self.session, call_id)
        return self.build_imported_event(
            "post_tool",
            f"{call_id} ends",
            also=ends[:1],
            claims=(*ends, *hook_origins),
            tool_use_id=call_id,
            tool_name=tool,
            tool_input=tool_input,
            **values,
        )

    def build_imported_model_request(
        self,
        part: str,
        tokens: Mapping[str, Any],
        also: tuple[str, ...] = (),
        *,
        detail: UsageDetail | None = None,
    ) -> ImportedEvent:
        """Return the tokens of a request to the model. Input tokens are counted without those read from a cache."""
        spent = build_text_dedup_origins(SPENT, self.session, build_token_counts_key(tokens), self.at)
        return self.build_imported_event(
            MODEL_REQUEST,
            part,
            also=also,
            by_figures=True,
            model=self.model,
            claims=spent,
            usage=detail,
            **tokens,
        )


def join_block_texts(content: list[dict[str, Any]]) -> str:
    """Return the text of a message's blocks."""
    return "\n\n".join(
        text_block["text"] for text_block in content if isinstance(text_block.get("text"), str)
    )


def nonnegative_integer_or_zero(value: Any) -> int:
    """Return a count of tokens or milliseconds; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def get_nonblank_text_field(holder: Any, name: str) -> str | None:
    """Return a field that is a text with something in it, else None."""
    value = holder.get(name) if isinstance(holder, dict) else None
    return value if isinstance(value, str) and value.strip() else None
