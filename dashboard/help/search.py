"""Search in the help pages. They are small, so each search reads all sections."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from dashboard.help.sections import Section, list_all_help_sections

MAX_QUERY_LENGTH, MAX_TERMS, MAX_RESULTS = 200, 10, 40
EXCERPT_LENGTH = 220  # characters
IN_TITLE, IN_HEADING = (
    100,
    30,
)  # score of a term in a title or heading; each occurrence in the text scores 1, up to MAX_IN_TEXT
MAX_IN_TEXT = 5


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A section that contains all terms, with its heading and an excerpt. `<mark>` is around each term."""

    section: Section
    heading: SafeString
    excerpt: SafeString


def search_terms(query: str) -> list[str]:
    """Return the query's words in lower case."""
    return query[:MAX_QUERY_LENGTH].casefold().split()[:MAX_TERMS]


def search_help(query: str) -> list[SearchResult]:
    """Return the sections that contain every term in their page's title, heading or text, best first."""
    terms = search_terms(query)
    if not terms:
        return []
    scored = [
        (score, section) for section in list_all_help_sections() if (score := score_section(section, terms))
    ]
    scored.sort(key=lambda pair: -pair[0])  # the sort is stable: equal scores keep the order of the pages
    return [
        SearchResult(
            section,
            highlight_search_terms_as_html(section.heading, terms),
            highlight_search_terms_as_html(cut_excerpt(section.text, terms), terms),
        )
        for _, section in scored[:MAX_RESULTS]
    ]


def score_section(section: Section, terms: list[str]) -> int:
    """Return the score of a section; 0 if a term is missing, or if all terms are only in the page's title."""
    title, heading, text = (
        section_text.casefold() for section_text in (section.page.title, section.heading, section.text)
    )
    in_title = title if section.level == 1 else ""
    score = 0
    for term in terms:
        own = (
            IN_TITLE * (term in in_title)
            + IN_HEADING * (term in heading)
            + min(text.count(term), MAX_IN_TEXT)
        )
        if not own and term not in title:
            return 0
        score += own
    return score


def cut_excerpt(text: str, terms: list[str]) -> str:
    """Return an excerpt of the text around the first term, cut between words."""
    folded = text.casefold()
    positions = [position for term in terms if (position := folded.find(term)) >= 0]
    start = max(0, min(positions, default=0) - EXCERPT_LENGTH // 4)
    if start:
        start = text.find(" ", start) + 1
    piece = text[start : start + EXCERPT_LENGTH]
    if start + EXCERPT_LENGTH < len(text):
        piece = piece.rpartition(" ")[0] + " …"
    return f"… {piece}" if start else piece


def highlight_search_terms_as_html(text: str, terms: list[str]) -> SafeString:
    """Return the text as HTML with `<mark>` around each term."""
    pattern = re.compile(
        "|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True)), re.IGNORECASE
    )
    pieces: list[tuple[str, str]] = []
    end = 0
    for term_match in pattern.finditer(text):
        pieces.append((text[end : term_match.start()], term_match[0]))
        end = term_match.end()
    return format_html_join("", "{}<mark>{}</mark>", pieces) + format_html("{}", text[end:])
