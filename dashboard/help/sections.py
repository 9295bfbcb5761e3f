"""The sections of the help pages, for tables of contents and the search."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from dashboard.help.pages import PAGES, HelpPage
from dashboard.rendering.anchors import heading_anchor, heading_text_without_markup

_HEADING = re.compile(r"(#{1,3}) (.+)")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_MARK_UP = re.compile(
    r"<!--.*?-->|^[ \t]*```\w*$|^[|: -]+$|^[ \t]*(?:[-*]|\d+\.) |\*\*|(?<!\w)\*(?=\S)|(?<=\S)\*(?!\w)|`", re.M
)
_SPACE = re.compile(r"[\s|\\]+")


@dataclass(frozen=True, slots=True)
class Section:
    """The text of one heading, up to the next one.

    `level` is 1 for a page's beginning, whose `anchor` is empty.
    """

    page: HelpPage
    level: int
    heading: str
    anchor: str
    text: str


@cache
def load_help_page_sections(name: str) -> tuple[Section, ...]:
    """Return the sections of a page. They are read once in each process."""
    page = PAGES[name]
    sections: list[tuple[int, str, list[str]]] = []
    in_code = False
    for line in page.read_markdown().splitlines():
        in_code ^= line.lstrip().startswith("```")
        heading = None if in_code else _HEADING.fullmatch(line)
        if heading:
            sections.append((len(heading[1]), heading[2], []))
        elif sections:
            sections[-1][2].append(line)
    return tuple(
        Section(
            page,
            level,
            heading_text_without_markup(heading),
            "" if level == 1 else heading_anchor(heading),
            strip_markdown(lines),
        )
        for level, heading, lines in sections
    )


def list_all_help_sections() -> list[Section]:
    """Return the sections of all pages, in the order of the pages."""
    return [section for name in PAGES for section in load_help_page_sections(name)]


def strip_markdown(lines: list[str]) -> str:
    """Return the lines' text without Markdown, as one line."""
    text = _MARK_UP.sub("", _LINK.sub(r"\1", "\n".join(lines)))
    return _SPACE.sub(" ", text).strip()
