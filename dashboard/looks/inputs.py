"""Turns a tool's input into parts: first what acts (a command, changes, a content), then every other field.

A timeline shows a short form, without what the title already says. A card shows the exact input for a
decision: every field and every character, without formatting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dashboard.looks.parts import MOST_FACTS, DisplayPart, Line, build_value_parts, shorten_text_with_cut_flag
from dashboard.text import diffs, json_text

COMMANDS = ("command", "cmd", "script")
PATHS = ("file_path", "filePath", "path", "notebook_path", "filename", "target_file")
CONTENTS = ("content", "contents", "text")
OLD = ("old_string", "old_str", "old_text", "oldText")
NEW = ("new_string", "new_str", "new_text", "newText", "new_source")
SHORT = 120  # characters of a value that a card shows next to its name

Change = tuple[str, str]  # the text before and after


def build_exact_input_parts_for_approver(value: Any) -> list[DisplayPart]:
    """Return the parts of a tool's input in the exact form, for an approver."""
    if value is None:
        return []
    if not isinstance(value, Mapping):
        return [*iterate_exact_field_parts({"Input": value})]
    fields = InputFields(value, exact=True)
    acting = [*fields.pop_command_as_parts(), *iterate_exact_change_parts(fields.pop_text_changes())]
    if any(name in fields.left for name in PATHS):
        acting += fields.pop_file_content_as_parts()
    return [*acting, *fields.build_remaining_parts()]


class InputFields:
    """The fields of an input.

    Those that are drawn or mentioned elsewhere are removed; the rest is drawn at the end.
    """

    def __init__(self, tool_input: Mapping[str, Any], *, exact: bool = False) -> None:
        self.left = dict(tool_input)
        self.exact = exact

    def pop_first_text_field(self, *names: str) -> str:
        """Remove and return the first of these fields that is a nonempty text.

        Return an empty text if there is none.
        """
        name = next(
            (name for name in names if isinstance(self.left.get(name), str) and self.left[name]), None
        )
        return "" if name is None else self.left.pop(name)

    def remove_fields(self, *names: str) -> None:
        """Remove fields that are shown elsewhere."""
        for name in names:
            self.left.pop(name, None)

    def build_parts_of_popped_text(self, text: str, **options: Any) -> list[DisplayPart]:
        """Return the part of a text that was removed; no part if it is empty."""
        short, cut = (text, False) if self.exact else shorten_text_with_cut_flag(text)
        kind = options.pop("kind", "text")
        return [DisplayPart(kind, short, cut=cut, exact=self.exact, **options)] if text else []

    def pop_command_as_parts(self) -> list[DisplayPart]:
        """Remove the shell command and return its part."""
        return self.build_parts_of_popped_text(
            self.pop_first_text_field(*COMMANDS), kind="code", language="bash", label="Command"
        )

    def pop_file_content_as_parts(self, filename: str = "") -> list[DisplayPart]:
        """Remove the content that is written to a file and return its part.

        `filename` selects the language.
        """
        kind = "text" if self.exact else "code"
        return self.build_parts_of_popped_text(
            self.pop_first_text_field(*CONTENTS), kind=kind, filename=filename, label="Content"
        )

    def pop_text_changes(self) -> list[Change]:
        """Remove and return the changes of a file's texts: one change, or those in `edits`.

        Return an empty list if no change can be recognised. In the exact form, a change needs both a text
        before and one after, and an item of `edits` must have no other field.
        """
        many = self.left.get("edits")
        changes = []
        if self.exact or not isinstance(many, list):
            changes += [self.pop_before_and_after_texts()] if self.is_text_change(self.left) else []
        if (
            isinstance(many, list)
            and 0 < len(many) <= MOST_FACTS
            and all(map(self.has_only_text_change_fields, many))
        ):
            changes += [InputFields(edit).pop_before_and_after_texts() for edit in self.left.pop("edits")]
        return changes

    def pop_before_and_after_texts(self) -> Change:
        texts = ([name for name in names if isinstance(self.left.get(name), str)] for names in (OLD, NEW))
        before, after = (self.left.pop(names[0]) if names else "" for names in texts)
        return before, after

    def is_text_change(self, value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        before, after = (
            [value[name] for name in names if isinstance(value.get(name), str)] for names in (OLD, NEW)
        )
        return bool(before and after) if self.exact else bool("".join(before[:1] + after[:1]))

    def has_only_text_change_fields(self, value: Any) -> bool:
        return self.is_text_change(value) and (len(value) == 2 or not self.exact)

    def build_remaining_parts(self) -> list[DisplayPart]:
        """Return the parts of the remaining fields.

        The short form leaves out fields that are None or false.
        """
        if self.exact:
            return [*iterate_exact_field_parts(self.left)]
        return build_value_parts(
            {
                name: field_value
                for name, field_value in self.left.items()
                if field_value not in (None, False)
            },
            "Other inputs",
        )


def iterate_exact_change_parts(changes: list[Change]) -> Iterator[DisplayPart]:
    """Yield each change as a diff with all lines of both texts, or as both texts if they are too large."""
    for number, (before, after) in enumerate(changes, start=1):
        label = f"Change {number} of {len(changes)}" if len(changes) > 1 else "Change"
        lines: list[Line] | None = diffs.diff_all_lines_or_none(before.split("\n"), after.split("\n"))
        if lines is not None:
            yield DisplayPart("diff", lines, label, exact=True)
        else:
            yield DisplayPart("text", before, f"{label}, before (too large to compare)", exact=True)
            yield DisplayPart("text", after, f"{label}, after", exact=True)


def iterate_exact_field_parts(fields: Mapping[str, Any]) -> Iterator[DisplayPart]:
    """Yield short values as one table, then a part for each longer value.

    If there are too many fields, yield all of them as one JSON text.
    """
    if len(fields) > MOST_FACTS:
        yield DisplayPart("text", json_text.format_json(fields), f"{len(fields)} fields", exact=True)
        return
    lines = {str(name): json_text.format_json_line(value) for name, value in fields.items()}
    short = [(name, line) for name, line in lines.items() if len(line) <= SHORT and "\n" not in line]
    if short:
        yield DisplayPart("facts", short, exact=True)
    shown_fields = dict(short)
    for name, value in fields.items():
        if str(name) not in shown_fields:
            yield DisplayPart("text", json_text.format_json(value), str(name), exact=True)
