"""The marked lines of a long call. A card shows them while the call is folded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dashboard.looks.parts import DisplayPart, Spans

MOST_EXCERPTS = 4
LONGEST_BEFORE_MARK = 40  # characters of the line that are shown before a marked piece
LONGEST_EXCERPT = 200


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A line with a marked piece.

    `label` says where the line is, `text` is its text around the piece, and `spans` the piece's position in
    `text`.
    """

    label: str
    text: str
    spans: Spans


@dataclass(frozen=True, slots=True)
class DangerExcerpts:
    """The first marked lines, and the number of further ones."""

    lines: tuple[Excerpt, ...] = ()
    more_count: int = 0


def build_danger_excerpts(parts: Iterable[DisplayPart]) -> DangerExcerpts:
    excerpts = [excerpt for part in parts for excerpt in iterate_danger_excerpts_of_part(part)]
    return DangerExcerpts(tuple(excerpts[:MOST_EXCERPTS]), len(excerpts[MOST_EXCERPTS:]))


def iterate_danger_excerpts_of_part(part: DisplayPart) -> Iterator[Excerpt]:
    """Yield the marked lines of a part. In a text, each is labelled with its line number."""
    if not isinstance(part.value, str):
        for name, line in part.value:
            if spans := part.line_spans.get(line):
                yield build_excerpt_around_span(
                    name.strip() if part.kind == "facts" else part.label, line, spans[0]
                )
        return
    last_line = 0
    for start, end in part.spans:
        line_start = part.value.rfind("\n", 0, start) + 1
        number = part.value.count("\n", 0, start) + 1
        if number == last_line:
            continue
        last_line = number
        line_end = part.value.find("\n", start)
        line = part.value[line_start : len(part.value) if line_end < 0 else line_end]
        yield build_excerpt_around_span(
            f"line {number}", line, (start - line_start, min(end - line_start, len(line)))
        )


def build_excerpt_around_span(label: str, line: str, span: tuple[int, int]) -> Excerpt:
    """Return the piece of a line around `span`, cut to LONGEST_EXCERPT characters."""
    start = max(0, span[0] - LONGEST_BEFORE_MARK)
    text = line[start : start + LONGEST_EXCERPT]
    return Excerpt(label, text, ((span[0] - start, min(span[1] - start, len(text))),))
