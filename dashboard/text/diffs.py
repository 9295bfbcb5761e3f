"""Line-by-line differences between two texts. Larger texts are compared in the sandbox.

difflib may take minutes for a few kilobytes.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Sequence

from dashboard.rendering import rendering_cache

MOST_LINES = 2_000  # of both texts together; more is not compared
SMALL = 400  # pairs of lines that are compared in this process, in at most a millisecond
# `equal`, `replace`, `delete` or `insert`; start and end in the old lines; start and end in the new lines.
Opcode = tuple[str, int, int, int, int]
Marked = tuple[str, str]  # ` `, `-`, `+` or `@`, and a line


def line_diff_opcodes_or_none(before: Sequence[str], after: Sequence[str]) -> list[Opcode] | None:
    """Return difflib's opcodes, or None if comparing the texts would take too long."""
    if before == after:
        return [("equal", 0, len(before), 0, len(after))] if before else []
    if not before or not after:
        return [("replace", 0, len(before), 0, len(after))]
    if len(before) + len(after) > MOST_LINES:
        return None
    if len(before) * len(after) <= SMALL:
        return [*difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()]
    try:
        codes = rendering_cache.render_in_sandbox("diff", json.dumps([list(before), list(after)]).encode())
    except rendering_cache.RenderingUnavailable:
        return None
    return [(str(code[0]), *map(int, code[1:])) for code in json.loads(codes or b"[]")]  # type: ignore[misc]


def diff_all_lines_or_none(before: Sequence[str], after: Sequence[str]) -> list[Marked] | None:
    """Return all lines of both texts with their signs, or None if the texts are too large to compare."""
    codes = line_diff_opcodes_or_none(before, after)
    return None if codes is None else list(iterate_diff_lines_of_opcodes(codes, before, after))


def diff_texts_with_context(before: Sequence[str], after: Sequence[str]) -> Iterator[Marked]:
    """Yield the changed lines with three lines of context, and an `@` between distant changes.

    If the texts are too large to compare, yield all old lines as removed, then all new lines as added.
    """
    codes = line_diff_opcodes_or_none(before, after)
    if codes is None:
        codes = [("replace", 0, len(before), 0, len(after))]
    matcher = difflib.SequenceMatcher(None, "", "")
    matcher.opcodes = codes  # type: ignore[attr-defined] # what get_opcodes would work out
    for number, group in enumerate(matcher.get_grouped_opcodes(3) if codes else ()):
        if number:
            yield "@", "…"
        yield from iterate_diff_lines_of_opcodes(group, before, after)


def iterate_diff_lines_of_opcodes(
    codes: Sequence[Opcode], before: Sequence[str], after: Sequence[str]
) -> Iterator[Marked]:
    for step, start, end, other_start, other_end in codes:
        if step == "equal":
            yield from ((" ", line) for line in before[start:end])
        else:
            yield from (("-", line) for line in before[start:end])
            yield from (("+", line) for line in after[other_start:other_end])
