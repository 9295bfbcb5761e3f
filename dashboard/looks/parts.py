"""The parts of which displays consist, and how any value becomes parts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from coordinator.models import UnreadableText
from dashboard.text import diffs, json_text
from dashboard.text.terminal import (
    TerminalSpan,
    has_terminal_codes,
    list_terminal_spans,
    render_text_to_terminal_screen,
)

# What a row shows at first. The rest is loaded on demand, so that pages stay small.
SHOW_LINES = 40
SHOW_CHARACTERS = 4_000
MOST_LINES = 5_000  # lines of a diff that are drawn one by one
MOST_FACTS = 100  # rows or blocks that are drawn one by one; more are shown as JSON

Kind = Literal["text", "code", "diff", "json", "markdown", "facts", "error", "todos", "image"]


TALL = 24  # lines that fit on a card without scrolling
WIDE = 120  # characters of a line on a card

Line = diffs.Marked
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class DisplayPart:
    """One part of an input or output.

    Attributes:
        kind: How it is drawn.
        value: A text; for facts and todos a list of pairs; for a diff a list of (sign, line); for an image a
            number.
        label: The heading above it.
        language, filename: Select the language for highlighting.
        cut: Whether there is more than `value`.
        exact: Whether it is drawn for a decision: without formatting, with invisible characters marked.
        spans: Positions in the text to highlight.
        line_spans: Positions to highlight in each line or value, by its text.
        terminal: The formatting that terminal codes give the text; empty if it has none.
    """

    kind: Kind
    value: Any
    label: str = ""
    language: str = ""
    filename: str = ""
    cut: bool = False
    exact: bool = False
    spans: Spans = ()
    line_spans: Mapping[str, Spans] = field(default_factory=dict)
    terminal: tuple[TerminalSpan, ...] = ()  # the text as a terminal formats it

    @property
    def drawn_texts(self) -> list[str]:
        """Return all texts that are drawn of the part."""
        drawn_values = (
            [self.value] if isinstance(self.value, str) else [text for pair in self.value for text in pair]
        )
        return [self.label, *drawn_values]

    @property
    def line_count(self) -> int:
        """Return the number of lines."""
        return len(self.value) if self.kind == "diff" else self.value.count("\n") + 1

    @property
    def is_block_scrollable(self) -> bool:
        """Return whether the block scrolls, so that a card must show how much there is to read."""
        if not self.exact or self.kind == "facts":
            return False
        return self.line_count > TALL or (self.kind != "diff" and len(self.value) > TALL * WIDE)


@dataclass(frozen=True, slots=True)
class CallDisplay:
    """A call in short and in full. `title` is what it was for, `note` its result."""

    icon: str
    name: str
    title: str = ""
    note: str = ""
    server: str = ""
    mono: bool = False
    path: str = ""  # the file that the call is about
    added: int | None = None
    removed: int | None = None
    inputs: list[DisplayPart] = field(default_factory=list)
    outputs: list[DisplayPart] = field(default_factory=list)


_whole: ContextVar[bool] = ContextVar("whole", default=False)


@contextmanager
def disable_shortening_in_block() -> Iterator[None]:
    """Draw all texts in full within this block, because somebody asked to see everything."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


def is_shortening_disabled() -> bool:
    return _whole.get()


def shorten_text_with_cut_flag(text: str) -> tuple[str, bool]:
    """Return the beginning of `text` that a row shows, and whether there is more."""
    if is_shortening_disabled():
        return text, False
    lines = text.splitlines(keepends=True)
    short = "".join(lines[:SHOW_LINES])[:SHOW_CHARACTERS]
    return short, len(short) < len(text)


def build_text_part(text: str, **options: Any) -> DisplayPart:
    short, cut = shorten_text_with_cut_flag(text)
    return DisplayPart(options.pop("kind", "text"), short, cut=cut, **options)


def build_program_output_part(text: str, **options: Any) -> DisplayPart:
    """Return the part of a program's output, formatted as a terminal would show it."""
    if not has_terminal_codes(text):
        return build_text_part(text, **options)
    screen = render_text_to_terminal_screen(text)
    lines, characters_left = [], SHOW_CHARACTERS
    for line in screen.lines if is_shortening_disabled() else screen.lines[:SHOW_LINES]:
        if characters_left <= 0:
            break
        lines.append(line if is_shortening_disabled() else line[:characters_left])
        characters_left -= 0 if is_shortening_disabled() else len(line)
    spans = tuple(list_terminal_spans(lines))
    return DisplayPart(
        options.pop("kind", "text"),
        "".join(span.text for span in spans),
        cut=len(lines) < len(screen.lines)
        or characters_left < 0
        or (screen.is_full and not is_shortening_disabled()),
        terminal=spans,
        **options,
    )


def build_diff_part(lines: list[Line], label: str = "Change") -> DisplayPart:
    """Return a diff, shortened to what a row shows. In full, a very long one is a single text."""
    if len(lines) > MOST_LINES and is_shortening_disabled():
        return DisplayPart("text", "\n".join(f"{sign} {line}" for sign, line in lines), label=label)
    if is_shortening_disabled():
        return DisplayPart("diff", lines, label=label)
    shown_lines: list[Line] = []
    characters_left = SHOW_CHARACTERS
    for sign, line in lines[:SHOW_LINES]:
        if characters_left <= 0:
            break
        shown_lines.append((sign, line[:characters_left]))
        characters_left -= len(line)
    cut = len(shown_lines) < len(lines) or characters_left < 0
    return DisplayPart("diff", shown_lines, label=label, cut=cut)


def build_error_part(text: str) -> DisplayPart:
    return build_program_output_part(text, kind="error", label="Error")


def extract_output_text_or_none(value: Any) -> str | None:
    """Return the text of a tool's output; None if it is more than text."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        if (
            set(value) <= {"content", "isError", "is_error", "structuredContent", "_meta"}
            and "content" in value
        ):
            return extract_output_text_or_none(value["content"])
        for key in ("text", "output", "result", "stdout"):
            if isinstance(value.get(key), str) and len(value) <= 2:
                return str(value[key])
        return None
    if isinstance(value, list) and value and all(is_text_block(block) for block in value):
        return "\n".join(block["text"] for block in value)
    return None


def is_text_block(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def build_output_parts(value: Any, label: str = "Output", **options: Any) -> list[DisplayPart]:
    if value is None:
        return []
    text = extract_output_text_or_none(value)
    if text is not None:
        return (
            [build_program_output_part(text, label=label, **options)]
            if text.strip()
            else [DisplayPart("text", "", label=f"{label}: empty")]
        )
    blocks = extract_content_blocks(value)
    if any(isinstance(block, dict) and "type" in block for block in blocks):
        return list(iterate_content_block_parts(blocks, label))
    return build_value_parts(value, label)


def extract_content_blocks(value: Any) -> list[Any]:
    """Return the content blocks of a value, or an empty list.

    An image that was read as a file is one block.
    """
    file = value.get("file") if isinstance(value, dict) else None
    if isinstance(file, dict) and value.get("type") == "image" and isinstance(file.get("base64"), str):
        return [{"type": "image", "data": file["base64"]}]
    blocks = value.get("content") if isinstance(value, dict) else value
    return blocks if isinstance(blocks, list) else []


def iterate_content_block_parts(blocks: Iterable[Any], label: str) -> Iterator[DisplayPart]:
    blocks = list(blocks)
    for number, block in enumerate(blocks[:MOST_FACTS]):
        if is_text_block(block):
            yield build_program_output_part(block["text"], label=label)
        elif is_image_block(block):
            yield DisplayPart("image", number, label=label)
        else:
            yield build_json_part(block, label)
    if len(blocks) > MOST_FACTS:
        yield build_json_part(blocks[MOST_FACTS:], f"{label}: further blocks")


def is_image_block(block: Any) -> bool:
    """Return whether a content block is an image with its bytes, in the format of MCP or Anthropic."""
    if not isinstance(block, dict) or block.get("type") != "image":
        return False
    source = block.get("source")
    return isinstance(block.get("data"), str) or (
        isinstance(source, dict) and isinstance(source.get("data"), str)
    )


def hide_base64_in_json_value(value: Any) -> Any:
    """Return the JSON value with long base64 texts replaced by their size."""
    return json_text.replace_long_base64(value)


def build_value_parts(value: Any, label: str = "Input") -> list[DisplayPart]:
    """Return the parts of any value.

    The short values of a flat object become facts and its long texts a part each. Any other value is shown as
    JSON.
    """
    if value is None or value in ({}, []):
        return []
    if isinstance(value, str):
        return [
            build_text_part(value, label="Not valid JSON" if isinstance(value, UnreadableText) else label)
        ]
    if not isinstance(value, dict) or len(value) > MOST_FACTS or not all(map(is_json_scalar, value.values())):
        return [build_json_part(value, label)]
    value = hide_base64_in_json_value(value)
    long = {
        key: text
        for key, text in value.items()
        if isinstance(text, str) and (len(text) > 160 or "\n" in text)
    }
    short = [(key, format_json_scalar(inner)) for key, inner in value.items() if key not in long]
    parts = [DisplayPart("facts", short, label=label)] if short else []
    return parts + [build_text_part(text, label=key) for key, text in long.items()]


def is_json_scalar(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def format_json_scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def build_json_part(value: Any, label: str = "") -> DisplayPart:
    if is_shortening_disabled():
        text, complete = json_text.format_json(hide_base64_in_json_value(value)), True
    else:
        text, complete = json_text.format_json_beginning_and_completeness(value, most=SHOW_CHARACTERS)
    part = build_text_part(text, kind="code", label=label, language="json")
    return part if complete else replace(part, cut=True)


def first_string_field_or_empty(fields: dict[str, Any], *names: str) -> str:
    """Return the first of these fields that is a text, else an empty text."""
    return next((fields[name] for name in names if isinstance(fields.get(name), str)), "")


def build_other_input_parts(tool_input: dict[str, Any], *shown_values: str) -> list[DisplayPart]:
    return build_value_parts(
        {
            key: value
            for key, value in tool_input.items()
            if key not in shown_values and value not in (None, False)
        },
        "Other inputs",
    )


def format_line_count(text: str) -> str:
    """Return the number of lines with its noun: `1 line`, `14 lines`."""
    count = len(text.splitlines())
    return f"{count:,} line" if count == 1 else f"{count:,} lines"
