"""Prepares timeline rows for templates: display parts for calls, HTML for messages, labels for milestones.

A row is the same for every viewer, so the page, htmx responses and the stream share it.
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
from coordinator.policy.requests import approvals
from coordinator.sessions.agent_programs import AGENT_TITLES
from coordinator.sessions.events import JSON_COLUMNS
from coordinator.sessions.list_facts import session_start_microseconds
from coordinator.sessions.timeline import (
    ApprovalRow,
    CallRow,
    ChildRow,
    MessageRow,
    MilestoneRow,
    StoredValue,
    TimelineEvent,
    TimelineRow,
)
from dashboard.looks import CallDisplay, DisplayPart, build_call_display
from dashboard.looks.milestones import has_label_for_milestone_type, milestone_icon_text_and_tone
from dashboard.looks.parts import (
    MOST_FACTS,
    build_json_part,
    build_output_parts,
    build_text_part,
    is_image_block,
    is_shortening_disabled,
    shorten_text_with_cut_flag,
)
from dashboard.text import markdown

MESSAGE_CHARACTERS = 6_000
# The bar of a duration is logarithmic: it is empty at 10 ms and full at ten minutes.
BAR_WIDTH = 48
BAR_FULL_MS = 600_000


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """A block of a message."""

    text: str | None = None  # Markdown, for a block of text
    part: DisplayPart | None = None  # for any other block
    title: str = ""  # of a folded block
    cut: bool = False  # whether the text is shortened

    @property
    def html(self) -> SafeString | None:
        return None if self.text is None else markdown.render_markdown(self.text)


def format_time_offset(at_us: int, began_us: int) -> str:
    """Return the time since the beginning: `0:04`, `12:30`, `1:02:09`.

    A negative time, or one of 1000 hours or more, returns an empty text.
    """
    hours, rest = divmod((at_us - began_us) // 1_000_000, 3600)
    if not 0 <= hours < 1000:
        return ""
    clock = f"{rest // 60}:{rest % 60:02}"
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else clock


@dataclass(frozen=True)
class TimelineRowDisplay:
    """A row with everything that its template shows. `base` is the path of the session's page."""

    row: TimelineRow
    base: str
    began_us: int

    @property
    def row_type(self) -> str:
        return self.row.row_type

    @property
    def css_classes(self) -> str:
        """The CSS classes of the row: its type, its state or speaker, `nested` (subagent) and `rewound`."""
        class_names = [self.row_type]
        if isinstance(self.row, CallRow):
            class_names.append(slugify(self.row.call_state))
        elif isinstance(self.row, MessageRow):
            class_names.append(f"from-{slugify(self.speaker_role)}")
        class_names += ["nested"] if self.subagent else []
        class_names += ["rewound"] if self.row.is_rewound else []
        return " ".join(class_names)

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
            return self.row.event_with_tool_name_and_input
        assert isinstance(self.row, MessageRow | MilestoneRow)
        return self.row.event

    @property
    def time_offset(self) -> str:
        return format_time_offset(self.row.place.at_us, self.began_us)

    @property
    def subagent(self) -> str | None:
        return None if isinstance(self.row, ChildRow | ApprovalRow) else self.event.subagent

    @property
    def model_change(self) -> str:
        """A sentence about the change of model with this answer, or "" if the model did not change."""
        before = self.row.model_before if isinstance(self.row, MessageRow) else ""
        return f"Model changed from {before} to {self.event.model}" if before else ""

    @property
    def masked_count(self) -> int:
        if isinstance(self.row, CallRow):
            return sum(half.masked for half in (self.row.start, self.row.end) if half)
        return 0 if isinstance(self.row, ChildRow | ApprovalRow) else self.event.masked

    @cached_property
    def call_display(self) -> CallDisplay:
        assert isinstance(self.row, CallRow)
        half, end = self.row.event_with_tool_name_and_input, self.row.end
        tool_input = end.tool_input if end and self.was_call_input_edited else half.tool_input
        return build_call_display(
            half.tool_name, tool_input, end.tool_output if end else None, end.error if end else None
        )

    @property
    def was_call_input_edited(self) -> bool:
        """Return whether the call ran with another input than it started with, because somebody edited it."""
        if not isinstance(self.row, CallRow) or self.row.start is None or self.row.end is None:
            return False
        begun, ran = self.row.start.tool_input, self.row.end.tool_input
        return bool(begun and ran and begun.whole and ran.whole and begun.value != ran.value)

    @property
    def end_anchor(self) -> str:
        """The HTML id of the call's end for links, or "" if the call has only one event."""
        assert isinstance(self.row, CallRow)
        end = self.row.end
        return f"event-{end.id}" if end and end.id != self.row.event_id else ""

    @property
    def can_request_access(self) -> bool:
        """Return whether to offer an access request.

        It is offered if the call of an MCP tool failed, was refused or has no result.
        """
        assert isinstance(self.row, CallRow)
        return bool(self.call_display.server) and self.row.call_state in {"failed", "refused", "no result"}

    @property
    def calling_program_title(self) -> str:
        """The title of the agent program that made the call."""
        return AGENT_TITLES.get(self.event.source or "", "Its agent")

    @property
    def call_input_event_id(self) -> int:
        assert isinstance(self.row, CallRow)
        return (
            self.row.end.id
            if self.row.end and self.was_call_input_edited
            else self.row.event_with_tool_name_and_input.id
        )

    @property
    def call_output_event_id(self) -> int:
        assert isinstance(self.row, CallRow)
        return (self.row.end or self.row.event_with_tool_name_and_input).id

    @property
    def duration_bar_width(self) -> int:
        ms = self.row.duration_ms if isinstance(self.row, CallRow) else None
        if not ms or ms < 10:
            return 1
        return max(1, min(BAR_WIDTH, round(BAR_WIDTH * math.log(ms / 10) / math.log(BAR_FULL_MS / 10))))

    @property
    def child_duration_ms(self) -> float:
        """The duration of a child's session, in milliseconds."""
        return (self.row.row_end_us - self.row.place.at_us) / 1000

    @property
    def requested_call_display(self) -> CallDisplay:
        """The call that a permission request is about, in the form of a call's display."""
        assert isinstance(self.row, ApprovalRow)
        context = self.row.request.context
        tool_input = approvals.already_loaded_tool_input(self.row.request)
        stored_value = StoredValue(tool_input, 0) if tool_input is not None else None
        return build_call_display(
            context.tool_name or self.row.request.permission_type, stored_value, None, None
        )

    @property
    def speaker_role(self) -> str:
        return self.event.role or ("result" if self.event.event_type == "result" else "message")

    @cached_property
    def blocks(self) -> list[MessageBlock]:
        """The blocks of a message or result."""
        event = self.event
        if event.event_type == "result" and event.content is None:
            value = event.tool_output.value if event.tool_output else None
            return list(iterate_result_blocks(value))
        content = event.content
        if content is None:
            return [build_message_text_block(event.error)] if event.error else []
        if not content.whole:
            return [
                MessageBlock(
                    part=build_text_part(str(content.value), label="A long message, shown as stored")
                )
            ]
        return list(iterate_message_blocks(content.value))

    @cached_property
    def milestone_display(self) -> tuple[str, str, str]:
        return milestone_icon_text_and_tone(self.event)

    @cached_property
    def unknown_event_parts(self) -> list[DisplayPart]:
        """The fields of an event whose type is unknown, as JSON."""
        event = self.event
        event_fields: dict[str, Any] = {"tool": event.tool_name, "reason": event.reason, "error": event.error}
        if has_label_for_milestone_type(event):
            event_fields = {}
        elif self.milestone_display[1] != event.event_type:
            event_fields["event"] = event.event_type
        for name in JSON_COLUMNS:
            stored = getattr(event, name)
            if stored is not None:
                event_fields[name] = stored.value
        event_fields = {name: value for name, value in event_fields.items() if value is not None}
        return [build_json_part(event_fields)] if event_fields else []


def iterate_result_blocks(stored: Any) -> Iterable[MessageBlock]:
    """Yield the blocks of an agent's final result: its text, its data, or both.

    Any other value is shown as output.
    """
    if not isinstance(stored, dict) or not {"result_text", "result_data"} & set(stored):
        yield from (MessageBlock(part=part) for part in build_output_parts(stored, "Result"))
        return
    text, data = stored.get("result_text"), stored.get("result_data")
    if isinstance(text, str):
        yield build_message_text_block(text)
    if data is not None:
        yield from (MessageBlock(part=part) for part in build_output_parts(data, "Result"))


def iterate_message_blocks(content: Any) -> Iterable[MessageBlock]:
    if isinstance(content, str):
        yield build_message_text_block(content)
        return
    blocks = content if isinstance(content, list) else [content]
    for number, block in enumerate(blocks[:MOST_FACTS]):
        block_type = block.get("type") if isinstance(block, dict) else None
        if block_type == "text" and isinstance(block.get("text"), str):
            yield build_message_text_block(block["text"])
        elif block_type == "thinking" and isinstance(block.get("thinking"), str):
            yield MessageBlock(part=build_text_part(block["thinking"], kind="markdown"), title="Thinking")
        elif is_image_block(block):
            yield MessageBlock(part=DisplayPart("image", number))
        elif isinstance(block, str):
            yield build_message_text_block(block)
        else:
            yield MessageBlock(part=build_json_part(block), title=str(block_type or "Unknown block"))
    if len(blocks) > MOST_FACTS:
        yield MessageBlock(part=build_json_part(blocks[MOST_FACTS:]), title="Further blocks")


def build_message_text_block(text: str) -> MessageBlock:
    short = (
        text
        if is_shortening_disabled() or len(text) <= MESSAGE_CHARACTERS
        else shorten_text_with_cut_flag(text)[0]
    )
    return MessageBlock(text=short, cut=len(short) < len(text))


def build_timeline_row_displays(
    rows: Iterable[TimelineRow], session: Session, began: int | None = None
) -> list[TimelineRowDisplay]:
    """Return rows ready for their template.

    Pass `began` (from `session_start_microseconds`) when calling this for single rows, so that it is loaded
    only once.
    """
    base = reverse("sessions:detail", args=[session.pk])
    began = session_start_microseconds(session) if began is None else began
    return [TimelineRowDisplay(row, base, began) for row in rows]
