"""How a tool's input becomes parts: what acts (a command, changes, a content), then every other field.

A timeline's row draws it at a glance: shortened, and without what its title says. A card draws it exactly, to be
judged: every field and every character, nothing formatted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dashboard.looks.parts import MOST_FACTS, Line, Part, shortened, value_parts
from dashboard.text import diffs, json_text

COMMANDS = ("command", "cmd", "script")
PATHS = ("file_path", "filePath", "path", "notebook_path", "filename", "target_file")
CONTENTS = ("content", "contents", "text")
OLD = ("old_string", "old_str", "old_text", "oldText")
NEW = ("new_string", "new_str", "new_text", "newText", "new_source")
SHORT = 120  # characters of a value that a card shows beside its name

Change = tuple[str, str]  # a text before and after


def judged_parts(value: Any) -> list[Part]:
    """Return a tool's input for the person who judges it."""
    if value is None:
        return []
    if not isinstance(value, Mapping):
        return [*_exact_fields({"Input": value})]
    fields = Fields(value, exact=True)
    acting = [*fields.command(), *exact_changes(fields.changes())]
    if any(name in fields.left for name in PATHS):
        acting += fields.content()
    return [*acting, *fields.others()]


class Fields:
    """The fields of an input. What is drawn, or said elsewhere, is taken out; then what is left is drawn, too."""

    def __init__(self, given: Mapping[str, Any], *, exact: bool = False) -> None:
        self.left = dict(given)
        self.exact = exact

    def take(self, *names: str) -> str:
        """Take out the first of these that is a text with something in it; return an empty one where none is."""
        name = next(
            (name for name in names if isinstance(self.left.get(name), str) and self.left[name]), None
        )
        return "" if name is None else self.left.pop(name)

    def leave_out(self, *names: str) -> None:
        """Take out what is said elsewhere."""
        for name in names:
            self.left.pop(name, None)

    def text(self, text: str, **options: Any) -> list[Part]:
        """Return the part of a text that was taken; none of an empty one."""
        short, cut = (text, False) if self.exact else shortened(text)
        kind = options.pop("kind", "text")
        return [Part(kind, short, cut=cut, exact=self.exact, **options)] if text else []

    def command(self) -> list[Part]:
        """Take out the command of a shell."""
        return self.text(self.take(*COMMANDS), kind="code", language="bash", label="Command")

    def content(self, filename: str = "") -> list[Part]:
        """Take out what is written to a file; its name says in which language."""
        kind = "text" if self.exact else "code"
        return self.text(self.take(*CONTENTS), kind=kind, filename=filename, label="Content")

    def changes(self) -> list[Change]:
        """Take out how texts of a file change: one change, or all of `edits`; none where one cannot be told.

        Exactly, only what holds a text before and one after is a change, and one of `edits` holds nothing else.
        """
        many = self.left.get("edits")
        found = []
        if self.exact or not isinstance(many, list):
            found += [self._change()] if self._is_change(self.left) else []
        if isinstance(many, list) and 0 < len(many) <= MOST_FACTS and all(map(self._is_whole_change, many)):
            found += [Fields(one)._change() for one in self.left.pop("edits")]
        return found

    def _change(self) -> Change:
        texts = ([name for name in names if isinstance(self.left.get(name), str)] for names in (OLD, NEW))
        before, after = (self.left.pop(names[0]) if names else "" for names in texts)
        return before, after

    def _is_change(self, value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        before, after = (
            [value[name] for name in names if isinstance(value.get(name), str)] for names in (OLD, NEW)
        )
        return bool(before and after) if self.exact else bool("".join(before[:1] + after[:1]))

    def _is_whole_change(self, value: Any) -> bool:
        return self._is_change(value) and (len(value) == 2 or not self.exact)

    def others(self) -> list[Part]:
        """Return the parts of all fields that are left; at a glance, of those that say something."""
        if self.exact:
            return [*_exact_fields(self.left)]
        return value_parts(
            {name: one for name, one in self.left.items() if one not in (None, False)}, "Other inputs"
        )


def exact_changes(changes: list[Change]) -> Iterator[Part]:
    """Yield each change line by line, with every line of both texts; or both texts where they are too large."""
    for number, (before, after) in enumerate(changes, start=1):
        label = f"Change {number} of {len(changes)}" if len(changes) > 1 else "Change"
        lines: list[Line] | None = diffs.marked(before.split("\n"), after.split("\n"))
        if lines is not None:
            yield Part("diff", lines, label, exact=True)
        else:
            yield Part("text", before, f"{label}, before (too large to compare)", exact=True)
            yield Part("text", after, f"{label}, after", exact=True)


def _exact_fields(fields: Mapping[str, Any]) -> Iterator[Part]:
    """Yield short values beside their names, then each longer one; as one JSON text where there are very many."""
    if len(fields) > MOST_FACTS:
        yield Part("text", json_text.as_text(fields), f"{len(fields)} fields", exact=True)
        return
    lines = {str(name): json_text.in_one_line(value) for name, value in fields.items()}
    short = [(name, line) for name, line in lines.items() if len(line) <= SHORT and "\n" not in line]
    if short:
        yield Part("facts", short, exact=True)
    shown = dict(short)
    for name, value in fields.items():
        if str(name) not in shown:
            yield Part("text", json_text.as_text(value), str(name), exact=True)
