"""Agents' Markdown and code as HTML. Where drawing it takes too long it is plain text, with a note that says so."""

from __future__ import annotations

import re

from django.utils.html import escape
from django.utils.safestring import SafeString

from dashboard.rendering import COLOUR_UP_TO, MARKDOWN_UP_TO, answers

TOO_LARGE = "Shown as plain text: too large to colour."
TOO_SLOW = "Shown as plain text: this takes too long to format."
NOT_YET = "Shown as plain text for now: reload the page to see it formatted."

_SPECIAL = re.compile(r"[*_`#\[\]<>|~&\\]|^[ \t]*(?:[-+=]|\d+[.)]\s)|^(?: {4}|\t)|://| {2}$", re.MULTILINE)


class RenderedHtml(SafeString):
    """HTML, and a note to stand below it where it is plainer than it should be."""

    note: str = ""


def render(text: str) -> RenderedHtml:
    if not _SPECIAL.search(text):
        return _plain(text)
    text = text[:MARKDOWN_UP_TO]
    try:
        body = answers.ask("markdown", _bytes(text))
    except answers.NoAnswer as problem:
        return _with_note(_plain(text), problem)
    return RenderedHtml((body or b"").decode())


def render_document(text: str, *, base: str, pages: str, scheme: str) -> RenderedHtml:
    """Return a page of the documentation as HTML (dashboard.rendering.jobs.document says what the facts are)."""
    try:
        body = answers.ask("document", _bytes(text), base=base, pages=pages, scheme=scheme)
    except answers.NoAnswer as problem:
        return _with_note(_plain(text), problem)
    return RenderedHtml((body or b"").decode())


def _plain(text: str) -> RenderedHtml:
    """Return paragraphs for a text without any mark-up; most of what people type is such."""
    paragraphs = (part for part in re.split(r"\n\s*\n", text.strip()) if part)
    return RenderedHtml("".join(f"<p>{escape(part)}</p>" for part in paragraphs))


def colour(code: str, *, language: str = "", filename: str = "") -> RenderedHtml:
    """Return code with its words in spans of Pygments' classes (`hl-…`), by language or file name."""
    if not (language or filename) or not code:
        return RenderedHtml(escape(code))
    if len(code) > COLOUR_UP_TO:
        drawn = RenderedHtml(escape(code))
        drawn.note = TOO_LARGE
        return drawn
    try:
        body = answers.ask("colour", _bytes(code), language=language[:100], filename=filename[-200:])
    except answers.NoAnswer as problem:
        return _with_note(RenderedHtml(escape(code)), problem)
    return RenderedHtml(escape(code) if body is None else body.decode())


def _with_note(drawn: RenderedHtml, problem: answers.NoAnswer) -> RenderedHtml:
    drawn.note = TOO_SLOW if isinstance(problem, answers.TooMuch) else NOT_YET
    return drawn


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
