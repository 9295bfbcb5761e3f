"""The admins' marks that a call bears: reasons for a person to look twice, never a verdict and never a score."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from typing import Any

import re2

from coordinator.calls.descriptions import CallDescription, describe_call
from coordinator.lib.invisible import has_invisible_character
from coordinator.lib.lookalikes import has_lookalike_characters
from coordinator.models import DangerMark, PermissionRequest
from coordinator.models.marks import MarkGrade
from coordinator.policy.requests.approvals import request_context, request_subject
from coordinator.policy.rules import tool_kinds
from coordinator.policy.rules.terms import Match, assess_restricting_terms_match, parse_rule_terms
from coordinator.policy.rules.tool_rules import compile_rule_pattern, matches_tool_name

READ_UP_TO = 200_000  # characters of a call
MOST_MARKS = 200
MOST_SPANS = 50  # of one mark in one text
PATHS = ("file_path", "path", "notebook_path", "filePath", "filepath")
OUTSIDE = "Writes outside its directory"
UNREADABLE = "Part of it cannot be read"
WITHOUT_GUARD = "Leaves its sandbox or asks nobody"
# What a call writes for a moment, or to a device, is no reason to look twice.
WRITES_OUTSIDE = parse_rule_terms("", "writes|deletes outside\n!/tmp\n!/var/tmp\n!/dev", "")
HIDDEN = "Holds characters that cannot be seen"
LOOKALIKES = "Holds letters that look like others"
TOO_LONG = f"Too long: only its first {READ_UP_TO:,} characters were checked for marks"
WRITING = frozenset(tool_kinds.KINDS["write"].tools)


@dataclass(frozen=True, slots=True)
class CallMark:
    """A pattern as it is looked for."""

    reason: str
    tool: str
    pattern: str
    grade: str = MarkGrade.CAUTION

    def does_pattern_match_tool_call(self, tool: str, text: str) -> bool:
        """Say whether a call bears it. A pattern that cannot be read, which another program wrote, is on none."""
        try:
            return (
                self.can_pattern_apply_to_tool(tool)
                and compile_rule_pattern(self.pattern, matches_whole=False).search(text) is not None
            )
        except re2.error:
            return False

    def matches_any_shell_command(self, tool: str, commands: Sequence[str]) -> bool:
        """Say whether one of a call's commands bears it as the shell would run it, however it is written."""
        return any(self.does_pattern_match_tool_call(tool, command) for command in commands)

    def find_pattern_spans_in_call(self, tool: str, text: str) -> list[tuple[int, int]]:
        """Return where in a text of a call it is, as places of characters."""
        try:
            if not self.can_pattern_apply_to_tool(tool):
                return []
            pattern_matches = compile_rule_pattern(self.pattern, matches_whole=False).finditer(
                text[:READ_UP_TO]
            )
            return [
                trim_blanks_from_span(text, *match.span())
                for match in islice(pattern_matches, MOST_SPANS)
                if match[0].strip()
            ]
        except re2.error:
            return []

    def can_pattern_apply_to_tool(self, tool: str) -> bool:
        """Say whether it is looked for in calls of a tool. A request that names none may be of any."""
        return not tool or matches_tool_name(self.tool, tool)


def trim_blanks_from_span(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without the blanks around it."""
    piece = text[start:end]
    return start + len(piece) - len(piece.lstrip()), end - len(piece) + len(piece.rstrip())


def find_merged_mark_spans(marks: Sequence[CallMark], tool: str, text: str) -> list[tuple[int, int]]:
    """Return which pieces of a call's text made its marks, in order and apart from each other."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted(span for mark in marks for span in mark.find_pattern_spans_in_call(tool, text)):
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def load_danger_marks() -> tuple[CallMark, ...]:
    rows = DangerMark.objects.order_by("id").values_list("reason", "tool", "pattern", "grade")[:MOST_MARKS]
    return tuple(CallMark(*row) for row in rows)


def find_call_review_reasons(
    marks: Sequence[CallMark],
    tool: str,
    tool_input: Any,
    target: str,
    folder: str | None,
    *,
    reason_text: str = "",
) -> list[str]:
    """Return the reasons to look twice at a call, each once.

    `target` is what a request without an input names, `reason_text` what its asker says of it.
    """
    text = searchable_input_text(tool_input, target)
    read = text[:READ_UP_TO]
    call = describe_call(tool, tool_input, folder) if tool else CallDescription()
    commands = call.command_texts
    reasons = [
        mark.reason
        for mark in marks
        if mark.does_pattern_match_tool_call(tool, read) or mark.matches_any_shell_command(tool, commands)
    ]
    if marks and len(text) > READ_UP_TO:
        reasons.append(TOO_LONG)
    if folder and (
        (tool in WRITING and has_path_outside_folder(tool_input, folder))
        or assess_restricting_terms_match(WRITES_OUTSIDE, call).match == Match.YES
    ):
        reasons.append(OUTSIDE)
    if call.lifted_guards:
        reasons.append(WITHOUT_GUARD)
    if any(map(has_invisible_character, (text, target, reason_text, *iterate_field_names(tool_input)))):
        reasons.append(HIDDEN)
    if any(map(has_lookalike_characters, (read, target, *iterate_field_names(tool_input)))):
        reasons.append(LOOKALIKES)
    if call.unreadable and not {TOO_LONG, HIDDEN} & set(reasons):  # which say why
        reasons.append(UNREADABLE)
    return list(dict.fromkeys(reasons))


def select_danger_grade_reasons(marks: Sequence[CallMark], reasons: Collection[str]) -> frozenset[str]:
    """Return those of the reasons that a mark of grade danger gives."""
    return frozenset(
        mark.reason for mark in marks if mark.grade == MarkGrade.DANGER and mark.reason in reasons
    )


def find_request_review_reasons(request: PermissionRequest, marks: Sequence[CallMark]) -> list[str]:
    """Return the reasons to look twice at what `request` asks for."""
    subject, context = request_subject(request), request_context(request)
    folder = context.folder if context else None
    tool, target = subject.tool_name or "", subject.target_resource or ""
    return find_call_review_reasons(
        marks, tool, subject.tool_input, target, folder, reason_text=request.justification
    )


def searchable_input_text(tool_input: Any, target: str) -> str:
    """Return what a call is about: every text of its input, else its target."""
    if tool_input is None:
        return target
    texts: list[str] = []
    waiting = [tool_input]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value)
        else:
            texts.append(json.dumps(value, default=str))
    return "\n".join(texts)


def iterate_field_names(tool_input: Any) -> Iterator[str]:
    """Yield the names of all fields of an input."""
    waiting = [tool_input]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def has_path_outside_folder(tool_input: Any, folder: str) -> bool:
    named_paths = [tool_input.get(name) for name in PATHS] if isinstance(tool_input, dict) else []
    return any(isinstance(path, str) and not is_path_in_folder(path, folder) for path in named_paths)


def is_path_in_folder(path: str, folder: str) -> bool:
    """Say whether a path is in a folder, as they are written: where links lead is known on the agent's host alone."""
    if path.startswith("~"):
        return False
    steps: list[str] = []
    for step in (PurePosixPath(folder) / path).parts:
        if step == "..":
            steps[1:] = steps[1:-1]
        else:
            steps.append(step)
    return tuple(steps[: len(PurePosixPath(folder).parts)]) == PurePosixPath(folder).parts
