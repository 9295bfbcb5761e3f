"""The pieces that looks are made of, and how any value becomes pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from coordinator.models import UnreadableText
from dashboard.text import diffs, json_text

# What a row shows at once; the rest is fetched on demand, so that a page stays light whatever an agent reads.
SHOW_LINES = 40
SHOW_CHARACTERS = 4_000
MOST_LINES = 5_000  # of a diff that are drawn one by one
MOST_FACTS = 100  # rows, or blocks, that are drawn one by one; more is shown as JSON

Kind = Literal["text", "code", "diff", "json", "markdown", "facts", "error", "todos", "image"]


TALL = 24  # lines that fit a card without scrolling inside it
WIDE = 120  # characters of a line in a card

Line = diffs.Marked
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of an input or output.

    `kind` chooses how it is drawn; `label` stands above it; `value` is a text, for facts a list of pairs, for a
    diff a list of (sign, line); `cut` says that there is more; `language` or `filename` colour code. An `exact` part
    is drawn for somebody who judges it: not formatted, and with marks for what an eye misses; `spans` are the places in
    its text that a person should see first, `line_spans` those in each line or value, by its text.
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

    @property
    def texts(self) -> list[str]:
        """Return every text that is drawn of it."""
        held = [self.value] if isinstance(self.value, str) else [text for pair in self.value for text in pair]
        return [self.label, *held]

    @property
    def height(self) -> int:
        """Return how many lines it has."""
        return len(self.value) if self.kind == "diff" else self.value.count("\n") + 1

    @property
    def tall(self) -> bool:
        """Say whether the block scrolls, so that a card must tell how much there is to read."""
        if not self.exact or self.kind == "facts":
            return False
        return self.height > TALL or (self.kind != "diff" and len(self.value) > TALL * WIDE)


@dataclass(frozen=True, slots=True)
class Look:
    """A call at a glance and in full: `title` says what it was for, `note` what came of it."""

    icon: str
    name: str
    title: str = ""
    note: str = ""
    server: str = ""
    mono: bool = False
    path: str = ""  # the file that it is about
    added: int | None = None
    removed: int | None = None
    inputs: list[Part] = field(default_factory=list)
    outputs: list[Part] = field(default_factory=list)


_whole: ContextVar[bool] = ContextVar("whole", default=False)


@contextmanager
def whole() -> Iterator[None]:
    """Draw everything in full within this block: somebody asked to see all of it."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


def is_whole() -> bool:
    return _whole.get()


def shortened(text: str) -> tuple[str, bool]:
    """Return as much of `text` as a row shows, and whether that is not all."""
    if is_whole():
        return text, False
    lines = text.splitlines(keepends=True)
    short = "".join(lines[:SHOW_LINES])[:SHOW_CHARACTERS]
    return short, len(short) < len(text)


def text_part(text: str, **options: Any) -> Part:
    short, cut = shortened(text)
    return Part(options.pop("kind", "text"), short, cut=cut, **options)


def diff_part(lines: list[Line], label: str = "Change") -> Part:
    """Return a diff, shortened to what a row shows. Of a very long one all is shown, but as one text."""
    if len(lines) > MOST_LINES and is_whole():
        return Part("text", "\n".join(f"{sign} {line}" for sign, line in lines), label=label)
    if is_whole():
        return Part("diff", lines, label=label)
    shown: list[Line] = []
    room = SHOW_CHARACTERS
    for sign, line in lines[:SHOW_LINES]:
        if room <= 0:
            break
        shown.append((sign, line[:room]))
        room -= len(line)
    cut = len(shown) < len(lines) or room < 0
    return Part("diff", shown, label=label, cut=cut)


def error_part(text: str) -> Part:
    return text_part(text, kind="error", label="Error")


def text_of(value: Any) -> str | None:
    """Return the text that a tool's output amounts to, or None where it is more than text."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        if (
            set(value) <= {"content", "isError", "is_error", "structuredContent", "_meta"}
            and "content" in value
        ):
            return text_of(value["content"])
        for key in ("text", "output", "result", "stdout"):
            if isinstance(value.get(key), str) and len(value) <= 2:
                return str(value[key])
        return None
    if isinstance(value, list) and value and all(_is_text_block(block) for block in value):
        return "\n".join(block["text"] for block in value)
    return None


def _is_text_block(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def output_parts(value: Any, label: str = "Output", **options: Any) -> list[Part]:
    if value is None:
        return []
    text = text_of(value)
    if text is not None:
        return (
            [text_part(text, label=label, **options)]
            if text.strip()
            else [Part("text", "", label=f"{label}: empty")]
        )
    blocks = blocks_of(value)
    if any(isinstance(block, dict) and "type" in block for block in blocks):
        return list(_block_parts(blocks, label))
    return value_parts(value, label)


def blocks_of(value: Any) -> list[Any]:
    """Return a value's content blocks, if it has any; a picture that was read as a file is one."""
    file = value.get("file") if isinstance(value, dict) else None
    if isinstance(file, dict) and value.get("type") == "image" and isinstance(file.get("base64"), str):
        return [{"type": "image", "data": file["base64"]}]
    blocks = value.get("content") if isinstance(value, dict) else value
    return blocks if isinstance(blocks, list) else []


def _block_parts(blocks: Iterable[Any], label: str) -> Iterator[Part]:
    blocks = list(blocks)
    for number, block in enumerate(blocks[:MOST_FACTS]):
        if _is_text_block(block):
            yield text_part(block["text"], label=label)
        elif is_image(block):
            yield Part("image", number, label=label)
        else:
            yield json_part(block, label)
    if len(blocks) > MOST_FACTS:
        yield json_part(blocks[MOST_FACTS:], f"{label}: further blocks")


def is_image(block: Any) -> bool:
    """Say whether a content block is an image that holds its bytes (MCP's form or Anthropic's)."""
    if not isinstance(block, dict) or block.get("type") != "image":
        return False
    source = block.get("source")
    return isinstance(block.get("data"), str) or (
        isinstance(source, dict) and isinstance(source.get("data"), str)
    )


def without_base64(value: Any) -> Any:
    """Return a JSON value whose long base64 texts are replaced by their size: nobody reads those."""
    return json_text.without_base64(value)


def value_parts(value: Any, label: str = "Input") -> list[Part]:
    """Return a value of any shape: short flat objects as facts, long texts in them apart, the rest as JSON."""
    if value is None or value in ({}, []):
        return []
    if isinstance(value, str):
        return [text_part(value, label="Not valid JSON" if isinstance(value, UnreadableText) else label)]
    if not isinstance(value, dict) or len(value) > MOST_FACTS or not all(map(_is_flat, value.values())):
        return [json_part(value, label)]
    value = without_base64(value)
    long = {
        key: text
        for key, text in value.items()
        if isinstance(text, str) and (len(text) > 160 or "\n" in text)
    }
    short = [(key, _shown(inner)) for key, inner in value.items() if key not in long]
    parts = [Part("facts", short, label=label)] if short else []
    return parts + [text_part(text, label=key) for key, text in long.items()]


def _is_flat(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | bool)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def json_part(value: Any, label: str = "") -> Part:
    if is_whole():
        text, complete = json_text.as_text(without_base64(value)), True
    else:
        text, complete = json_text.for_reading(value, most=SHOW_CHARACTERS)
    part = text_part(text, kind="code", label=label, language="json")
    return part if complete else replace(part, cut=True)


def string(given: dict[str, Any], *names: str) -> str:
    """Return the first of these values that is a text, else an empty one."""
    return next((given[name] for name in names if isinstance(given.get(name), str)), "")


def rest(given: dict[str, Any], *shown: str) -> list[Part]:
    return value_parts(
        {key: value for key, value in given.items() if key not in shown and value not in (None, False)},
        "Other inputs",
    )


def lines_of(text: str) -> str:
    """Return `1 line`, `14 lines`."""
    count = len(text.splitlines())
    return f"{count:,} line" if count == 1 else f"{count:,} lines"
