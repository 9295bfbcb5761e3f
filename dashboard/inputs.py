"""A tool's input as a person judges it: commands in full, edits as diffs, every other field too. Nothing is cut."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

SHORT = 120  # characters of a value that read well beside their name
COMPARABLE = 4_000_000  # pairs of lines; finding what two longer texts share would take seconds
TALL = 24  # lines that fit a card without scrolling inside it


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a diff: `sign` is `+`, `-` or a blank."""

    sign: str
    text: str

    @property
    def kind(self) -> str:
        """Return the class that colours the line; the sign stands beside it for whom colours say nothing."""
        return {"+": "added", "-": "removed"}.get(self.sign, "same")


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of an input. `field` is short and stands in a row; the others are blocks with all their lines."""

    kind: Literal["command", "diff", "text", "field"]
    label: str
    text: str = ""
    lines: tuple[Line, ...] = ()

    @property
    def height(self) -> int:
        """Return how many lines there are to read."""
        return len(self.lines) if self.kind == "diff" else self.text.count("\n") + 1

    @property
    def tall(self) -> bool:
        """Say whether the block scrolls, so that the card must tell how much there is to read."""
        return self.height > TALL or len(self.text) > TALL * SHORT


def parts_of(value: Any) -> list[Part]:
    """Return the pieces of a tool's input, what acts first: command, edits, content, then the other fields."""
    if value is None:
        return []
    if not isinstance(value, Mapping):
        return [_piece("Input", value)]
    rest = dict(value)
    acting = [*_commands(rest), *_edits(rest), *_contents(rest)]
    others = [_piece(str(name), one) for name, one in rest.items()]
    return [*acting, *sorted(others, key=lambda part: part.kind != "field")]


def _commands(rest: dict[str, Any]) -> Iterator[Part]:
    if isinstance(rest.get("command"), str):
        yield Part("command", "Command", rest.pop("command"))


def _edits(rest: dict[str, Any]) -> Iterator[Part]:
    if _is_edit(rest):
        yield _diff("Change", rest.pop("old_string"), rest.pop("new_string"))
    many = rest.get("edits")
    # An edit with further fields (replace_all) is shown as it came, so that no field is lost.
    if isinstance(many, list) and many and all(_is_edit(one) and len(one) == 2 for one in many):
        for number, one in enumerate(rest.pop("edits"), start=1):
            yield _diff(f"Change {number} of {len(many)}", one["old_string"], one["new_string"])


def _is_edit(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(name), str) for name in ("old_string", "new_string")
    )


def _contents(rest: dict[str, Any]) -> Iterator[Part]:
    if isinstance(rest.get("content"), str) and "file_path" in rest:
        yield Part("text", "Content", rest.pop("content"))


def _diff(label: str, old: str, new: str) -> Part:
    """Return both texts in one, line by line, with every line of each."""
    before, after = old.split("\n"), new.split("\n")
    if len(before) * len(after) > COMPARABLE:
        lines = [Line("-", text) for text in before] + [Line("+", text) for text in after]
        return Part("diff", label, lines=tuple(lines))
    lines = []
    for step, start, end, other_start, other_end in difflib.SequenceMatcher(
        None, before, after, autojunk=False
    ).get_opcodes():
        if step == "equal":
            lines += [Line(" ", text) for text in before[start:end]]
        else:
            lines += [Line("-", text) for text in before[start:end]]
            lines += [Line("+", text) for text in after[other_start:other_end]]
    return Part("diff", label, lines=tuple(lines))


def _piece(label: str, value: Any) -> Part:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= SHORT and "\n" not in text:
        return Part("field", label, text)
    if not isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False, indent=2)
    return Part("text", label, text)
