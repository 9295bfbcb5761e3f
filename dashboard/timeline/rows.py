"""Makes timeline rows ready to be drawn: looks for calls, HTML for messages, words for milestones.

A row is the same for every viewer, so that page, htmx and stream may share it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.text import slugify

from coordinator.models import Session
from coordinator.policy import approvals
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.events import JSON_COLUMNS
from coordinator.sessions.list_facts import began_us
from coordinator.sessions.timeline import (
    ApprovalRow,
    CallRow,
    ChildRow,
    MessageRow,
    MilestoneRow,
    Row,
    StoredValue,
    TimelineEvent,
)
from dashboard.looks import Look, Part, look_of
from dashboard.looks.milestones import is_known, milestone_of
from dashboard.looks.parts import (
    MOST_FACTS,
    is_image,
    is_whole,
    json_part,
    output_parts,
    shortened,
    text_part,
)
from dashboard.text import markdown

MESSAGE_CHARACTERS = 6_000
# The bar beside a duration is logarithmic: 10 ms is nothing, ten minutes fill it.
BAR_WIDTH = 48
BAR_FULL_MS = 600_000


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a message: its `text` for what was said, a part for everything else, `title` where it is folded."""

    text: str | None = None
    part: Part | None = None
    title: str = ""
    cut: bool = False

    @property
    def html(self) -> SafeString | None:
        return None if self.text is None else markdown.render(self.text)


def offset(at_us: int, began_us: int) -> str:
    """Return how long after the beginning: `0:04`, `12:30`, `1:02:09`; nothing where it is out of all reason."""
    hours, rest = divmod((at_us - began_us) // 1_000_000, 3600)
    if not 0 <= hours < 1000:
        return ""
    clock = f"{rest // 60}:{rest % 60:02}"
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else clock


@dataclass(frozen=True)
class ShownRow:
    """One row with everything its template draws. `base` is the session's path."""

    row: Row
    base: str
    began_us: int

    @property
    def row_type(self) -> str:
        return self.row.row_type

    @property
    def classes(self) -> str:
        """Return what the look of the row goes by: its type, its state or speaker, and whether a subagent's."""
        words = [self.row_type]
        if isinstance(self.row, CallRow):
            words.append(slugify(self.row.state))
        elif isinstance(self.row, MessageRow):
            words.append(f"from-{slugify(self.speaker)}")
        return " ".join([*words, "nested"] if self.subagent else words)

    @property
    def dom_id(self) -> str:
        if isinstance(self.row, ApprovalRow):
            return f"request-{self.row.request.pk}"
        return (
            f"child-{self.row.child.pk}" if isinstance(self.row, ChildRow) else f"event-{self.row.event_id}"
        )

    @property
    def url(self) -> str:
        if isinstance(self.row, ChildRow):
            return reverse("sessions:detail", args=[self.row.child.pk])
        if isinstance(self.row, ApprovalRow):
            return reverse("approvals:detail", args=[self.row.request.request_id])
        return f"{self.base}?event={self.row.event_id}#event-{self.row.event_id}"

    @property
    def event(self) -> TimelineEvent:
        if isinstance(self.row, CallRow):
            return self.row.either
        assert isinstance(self.row, MessageRow | MilestoneRow)
        return self.row.event

    @property
    def offset(self) -> str:
        return offset(self.row.place.at_us, self.began_us)

    @property
    def subagent(self) -> str | None:
        return None if isinstance(self.row, ChildRow | ApprovalRow) else self.event.subagent

    @property
    def masked(self) -> int:
        if isinstance(self.row, CallRow):
            return sum(half.masked for half in (self.row.start, self.row.end) if half)
        return 0 if isinstance(self.row, ChildRow | ApprovalRow) else self.event.masked

    @cached_property
    def look(self) -> Look:
        assert isinstance(self.row, CallRow)
        half, end = self.row.either, self.row.end
        given = end.tool_input if end and self.edited else half.tool_input
        return look_of(half.tool_name, given, end.tool_output if end else None, end.error if end else None)

    @property
    def edited(self) -> bool:
        """Say whether the call ran with another input than it was begun with: somebody edited it."""
        if not isinstance(self.row, CallRow) or self.row.start is None or self.row.end is None:
            return False
        begun, ran = self.row.start.tool_input, self.row.end.tool_input
        return bool(begun and ran and begun.whole and ran.whole and begun.value != ran.value)

    @property
    def end_anchor(self) -> str:
        """Return the id by which links know the call's end, where it is another event than its beginning."""
        assert isinstance(self.row, CallRow)
        end = self.row.end
        return f"event-{end.id}" if end and end.id != self.row.event_id else ""

    @property
    def may_ask_access(self) -> bool:
        """Say whether access to an MCP tool is worth asking for: the call failed, or was never answered."""
        assert isinstance(self.row, CallRow)
        return bool(self.look.server) and self.row.state in {"failed", "refused", "no result"}

    @property
    def agent(self) -> str:
        """Who made the call, as people call the program."""
        return AGENT_TITLES.get(self.event.source or "", "Its agent")

    @property
    def input_id(self) -> int:
        assert isinstance(self.row, CallRow)
        return self.row.end.id if self.row.end and self.edited else self.row.either.id

    @property
    def output_id(self) -> int:
        assert isinstance(self.row, CallRow)
        return (self.row.end or self.row.either).id

    @property
    def bar(self) -> int:
        ms = self.row.duration_ms if isinstance(self.row, CallRow) else None
        if not ms or ms < 10:
            return 1
        return max(1, min(BAR_WIDTH, round(BAR_WIDTH * math.log(ms / 10) / math.log(BAR_FULL_MS / 10))))

    @property
    def took_ms(self) -> float:
        """How long a child's session went on, in milliseconds."""
        return (self.row.ends_us - self.row.place.at_us) / 1000

    @property
    def asked_for(self) -> Look:
        """What a permission request is about, as the call would look."""
        assert isinstance(self.row, ApprovalRow)
        context = self.row.request.context
        tool_input = approvals.listed_input(self.row.request)
        given = StoredValue(tool_input, 0) if tool_input is not None else None
        return look_of(context.tool_name or self.row.request.permission_type, given, None, None)

    @property
    def speaker(self) -> str:
        return self.event.role or ("result" if self.event.event_type == "result" else "message")

    @cached_property
    def blocks(self) -> list[Block]:
        """What a message says, block by block."""
        event = self.event
        if event.event_type == "result" and event.content is None:
            value = event.tool_output.value if event.tool_output else None
            return list(_of_result(value))
        content = event.content
        if content is None:
            return [_said(event.error)] if event.error else []
        if not content.whole:
            return [Block(part=text_part(str(content.value), label="A long message, shown as stored"))]
        return list(_blocks(content.value))

    @cached_property
    def milestone(self) -> tuple[str, str, str]:
        return milestone_of(self.event)

    @cached_property
    def parts(self) -> list[Part]:
        """What an event of a type that we do not know holds."""
        event = self.event
        held: dict[str, Any] = {"tool": event.tool_name, "reason": event.reason, "error": event.error}
        if is_known(event):
            held = {}
        elif self.milestone[1] != event.event_type:
            held["event"] = event.event_type
        for name in JSON_COLUMNS:
            stored = getattr(event, name)
            if stored is not None:
                held[name] = stored.value
        held = {name: value for name, value in held.items() if value is not None}
        return [json_part(held)] if held else []


def _of_result(kept: Any) -> Iterable[Block]:
    """What an agent gave at its end: words, data, or both. What is kept otherwise is shown as it is."""
    if not isinstance(kept, dict) or not {"result_text", "result_data"} & set(kept):
        yield from (Block(part=part) for part in output_parts(kept, "Result"))
        return
    text, data = kept.get("result_text"), kept.get("result_data")
    if isinstance(text, str):
        yield _said(text)
    if data is not None:
        yield from (Block(part=part) for part in output_parts(data, "Result"))


def _blocks(content: Any) -> Iterable[Block]:
    if isinstance(content, str):
        yield _said(content)
        return
    blocks = content if isinstance(content, list) else [content]
    for number, block in enumerate(blocks[:MOST_FACTS]):
        block_type = block.get("type") if isinstance(block, dict) else None
        if block_type == "text" and isinstance(block.get("text"), str):
            yield _said(block["text"])
        elif block_type == "thinking" and isinstance(block.get("thinking"), str):
            yield Block(part=text_part(block["thinking"], kind="markdown"), title="Thinking")
        elif is_image(block):
            yield Block(part=Part("image", number))
        elif isinstance(block, str):
            yield _said(block)
        else:
            yield Block(part=json_part(block), title=str(block_type or "Unknown block"))
    if len(blocks) > MOST_FACTS:
        yield Block(part=json_part(blocks[MOST_FACTS:]), title="Further blocks")


def _said(text: str) -> Block:
    short = text if is_whole() or len(text) <= MESSAGE_CHARACTERS else shortened(text)[0]
    return Block(text=short, cut=len(short) < len(text))


def shown(rows: Iterable[Row], session: Session, began: int | None = None) -> list[ShownRow]:
    """Return rows ready to be drawn; who draws them one by one says when the session began (`began_us`)."""
    base = reverse("sessions:detail", args=[session.pk])
    began = began_us(session) if began is None else began
    return [ShownRow(row, base, began) for row in rows]
