"""Makes timeline rows ready to be drawn: looks for calls, HTML for messages, words for milestones.

A row is the same for every viewer, so that page, htmx and stream may share it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from django.urls import reverse
from django.utils.safestring import SafeString

from coordinator import instants
from coordinator.actions.transcripts import READ_FROM
from coordinator.models import Session
from coordinator.timeline import (
    ApprovalRow,
    CallRow,
    ChildRow,
    MarkerRow,
    MessageRow,
    Row,
    Stored,
    TimelineEvent,
)
from dashboard import markdown
from dashboard.looks import Look, Part, look_of
from dashboard.looks.parts import (
    is_image,
    is_whole,
    json_part,
    output_parts,
    shortened,
    text_part,
    without_base64,
)

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
        """What was said, as HTML."""
        return None if self.text is None else markdown.render(self.text)


def offset(at_us: int, began_us: int) -> str:
    """Return how long after the beginning: `0:04`, `12:30`, `1:02:09`; nothing where it is out of all reason."""
    seconds = (at_us - began_us) // 1_000_000
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    hours, rest = divmod(seconds, 3600)
    if hours >= 1000:
        return ""
    clock = f"{rest // 60}:{rest % 60:02}"
    return f"{sign}{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{sign}{clock}"


@dataclass(frozen=True)
class Shown:
    """One row with everything its template draws. `base` is the session's path."""

    row: Row
    base: str
    began_us: int

    @property
    def kind(self) -> str:
        """Which template draws it."""
        return self.row.kind

    @property
    def dom_id(self) -> str:
        """The row's id in the page, which permalinks name."""
        if isinstance(self.row, ApprovalRow):
            return f"request-{self.row.request.pk}"
        return (
            f"child-{self.row.child.pk}" if isinstance(self.row, ChildRow) else f"event-{self.row.event_id}"
        )

    @property
    def url(self) -> str:
        """The row's permalink."""
        if isinstance(self.row, ChildRow):
            return reverse("sessions:detail", args=[self.row.child.pk])
        if isinstance(self.row, ApprovalRow):
            return reverse("approvals:detail", args=[self.row.request.request_id])
        return f"{self.base}?event={self.row.event_id}#event-{self.row.event_id}"

    @property
    def event(self) -> TimelineEvent:
        """The event that the row stands for."""
        if isinstance(self.row, CallRow):
            return self.row.either
        assert isinstance(self.row, MessageRow | MarkerRow)
        return self.row.event

    @property
    def offset(self) -> str:
        """How long after the session's beginning."""
        return offset(self.row.place.at_us, self.began_us)

    @property
    def subagent(self) -> str | None:
        """Which sub-agent did it, if one did."""
        return None if isinstance(self.row, ChildRow | ApprovalRow) else self.event.subagent

    @property
    def masked(self) -> int:
        """How many secrets were masked in what the row shows."""
        if isinstance(self.row, CallRow):
            return sum(half.masked for half in (self.row.start, self.row.end) if half)
        return 0 if isinstance(self.row, ChildRow | ApprovalRow) else self.event.masked

    # --- calls ----------------------------------------------------------------------------------------------

    @cached_property
    def look(self) -> Look:
        """How a call looks."""
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
    def input_id(self) -> int:
        """The event that holds a call's input."""
        assert isinstance(self.row, CallRow)
        return self.row.end.id if self.row.end and self.edited else self.row.either.id

    @property
    def output_id(self) -> int:
        """The event that holds a call's output."""
        assert isinstance(self.row, CallRow)
        return (self.row.end or self.row.either).id

    @property
    def bar(self) -> int:
        """How long the duration's bar is."""
        ms = self.row.duration_ms if isinstance(self.row, CallRow) else None
        if not ms or ms < 10:
            return 1
        return max(1, min(BAR_WIDTH, round(BAR_WIDTH * math.log(ms / 10) / math.log(BAR_FULL_MS / 10))))

    @property
    def took_ms(self) -> float:
        """How long a child's session went on, in milliseconds."""
        return (self.row.ends_us - self.row.place.at_us) / 1000

    # --- approvals ------------------------------------------------------------------------------------------

    @property
    def asked_for(self) -> Look:
        """What a permission request is about, as the call would look."""
        assert isinstance(self.row, ApprovalRow)
        context = self.row.request.context
        given = Stored(context.tool_input, 0) if context.tool_input is not None else None
        return look_of(context.tool_name or self.row.request.permission_type, given, None, None)

    # --- messages -------------------------------------------------------------------------------------------

    @property
    def speaker(self) -> str:
        """Who speaks: user, assistant, or whatever role the executor gave."""
        return self.event.role or ("result" if self.event.event_type == "result" else "message")

    @cached_property
    def blocks(self) -> list[Block]:
        """What a message says, block by block."""
        event = self.event
        if event.event_type == "result" and event.content is None:
            value = event.tool_output.value if event.tool_output else None
            text = value.get("result_text") if isinstance(value, dict) else None
            return (
                [_said(text)]
                if isinstance(text, str)
                else [Block(part=part) for part in output_parts(value, "Result")]
            )
        content = event.content
        if content is None:
            return [_said(event.error)] if event.error else []
        if not content.whole:
            return [Block(part=text_part(str(content.value), label="A long message, as it is stored"))]
        return list(_blocks(content.value))

    # --- milestones -----------------------------------------------------------------------------------------

    @cached_property
    def milestone(self) -> tuple[str, str, str]:
        """A milestone's icon, words and tone."""
        return _milestone(self.event)

    @cached_property
    def parts(self) -> list[Part]:
        """What an event of a type that we do not know holds."""
        event = self.event
        held: dict[str, Any] = {"tool": event.tool_name, "reason": event.reason, "error": event.error}
        if self.milestone[1] != event.event_type:
            held = {}
        for name in ("tool_input", "tool_output", "content"):
            stored = getattr(event, name)
            if stored is not None:
                held[name] = stored.value
        held = {name: value for name, value in held.items() if value is not None}
        return [json_part(held)] if held else []


def _blocks(content: Any) -> Iterable[Block]:
    if isinstance(content, str):
        yield _said(content)
        return
    for number, block in enumerate(content if isinstance(content, list) else [content]):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text" and isinstance(block.get("text"), str):
            yield _said(block["text"])
        elif kind == "thinking" and isinstance(block.get("thinking"), str):
            yield Block(part=text_part(block["thinking"], kind="markdown"), title="Thinking")
        elif is_image(block):
            yield Block(part=Part("image", number))
        elif isinstance(block, str):
            yield _said(block)
        else:
            yield Block(part=json_part(without_base64(block)), title=str(kind or "Unknown block"))


def _said(text: str) -> Block:
    short = text if is_whole() or len(text) <= MESSAGE_CHARACTERS else shortened(text)[0]
    return Block(text=short, cut=len(short) < len(text))


_MILESTONES = {
    "session_start": ("play", "Session started", "busy"),
    "run_start": ("play", "Run started", "busy"),
    "compaction": ("st-info", "Conversation compacted", "calm"),
    "api_error": ("st-warning", "The model did not answer", "bad"),
    "hooks_lost": ("st-warning", "Some hooks before this one could not be written", "bad"),
}


def _asked(event: TimelineEvent) -> str:
    """Return which model was asked, and the tokens that it read and wrote."""
    words = [f"Asked {event.model or 'a model'}"]
    if event.tokens_in is not None:
        words.append(f"{event.tokens_in:,} tokens in")
    if event.tokens_out is not None:
        words.append(f"{event.tokens_out:,} out")
    return " · ".join(words)


def _read_from(facts: Stored | None) -> str:
    """Return where a history comes from, in words: with Claude Code's version and the branch."""
    held = facts.value if facts is not None and isinstance(facts.value, dict) else {}
    version, branch = held.get("version"), held.get("gitBranch")
    words = ["Read from a transcript", f"Claude Code {version}" if version else "", str(branch or "")]
    return " · ".join(word for word in words if word)


# Icon, words, and tone where it does not follow from whether it failed.
_WORDS: dict[str, tuple[str, Callable[[TimelineEvent], str], str]] = {
    "turn_end": ("st-check", lambda _: "Turn ended", ""),
    "model_request": ("st-dot", _asked, ""),
    "permission_request": ("approvals", lambda event: f"Asked for permission: {event.tool_name}", "warn"),
    READ_FROM: ("st-info", lambda event: _read_from(event.tool_input), "calm"),
}


def _milestone(event: TimelineEvent) -> tuple[str, str, str]:
    spoken = _WORDS.get(event.event_type)
    if spoken is not None:
        icon, word, tone = spoken
        return icon, word(event), tone or ("bad" if event.error else "calm")
    if event.event_type in _MILESTONES:
        return _MILESTONES[event.event_type]
    if event.event_type not in {"session_stop", "run_completed"}:
        return "st-info", event.event_type, "bad" if event.error else "calm"
    what = "Session" if event.event_type == "session_stop" else "Run"
    words = [event.reason or "", f"exit {event.exit_code}" if event.exit_code else ""]
    tail = " · ".join(word for word in words if word)
    bad = (
        bool(event.exit_code)
        or event.error is not None
        or (event.reason or "") in {"error", "failed", "crashed"}
    )
    icon, tone = (
        ("st-cross", "bad")
        if bad
        else ("st-stop", "calm")
        if event.reason == "stopped"
        else ("st-check", "good")
    )
    return icon, f"{what} ended{f' · {tail}' if tail else ''}", tone


def shown(rows: Iterable[Row], session: Session) -> list[Shown]:
    """Return rows ready to be drawn."""
    base = reverse("sessions:detail", args=[session.pk])
    return [Shown(row, base, began_us(session)) for row in rows]


def began_us(session: Session) -> int:
    """Return when the session began, in microseconds; 0 where that cannot be read."""
    return instants.to_us(session.created_at) if isinstance(session.created_at, datetime) else 0
