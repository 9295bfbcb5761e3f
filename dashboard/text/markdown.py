"""Agents' Markdown and code as HTML. If rendering takes too long, they are plain text with a note."""

from __future__ import annotations

import re

from django.utils.html import escape
from django.utils.safestring import SafeString

from dashboard.rendering import COLOUR_UP_TO, MARKDOWN_UP_TO, rendering_cache

TOO_LARGE = "Shown as plain text: too large to colour."
TOO_SLOW = "Shown as plain text: this takes too long to format."
NOT_YET = "Shown as plain text for now: reload the page to see it formatted."

_SPECIAL = re.compile(r"[*_`#\[\]<>|~&\\]|^[ \t]*(?:[-+=]|\d+[.)]\s)|^(?: {4}|\t)|://| {2}$", re.MULTILINE)


class RenderedHtml(SafeString):
    """HTML, and a note to show below it if it is not formatted completely."""

    note: str = ""


def render_markdown(text: str) -> RenderedHtml:
    if not _SPECIAL.search(text):
        return render_plain_paragraphs(text)
    text = text[:MARKDOWN_UP_TO]
    try:
        body = rendering_cache.render_in_sandbox("markdown", encode_for_sandbox(text))
    except rendering_cache.RenderingUnavailable as problem:
        return set_note_of_rendered_html(render_plain_paragraphs(text), problem)
    return RenderedHtml((body or b"").decode())


def render_documentation_page(text: str, *, base: str, pages: str, scheme: str) -> RenderedHtml:
    """Return a page of the documentation as HTML. `run_documentation_page_job` describes the arguments."""
    try:
        body = rendering_cache.render_in_sandbox(
            "document", encode_for_sandbox(text), base=base, pages=pages, scheme=scheme
        )
    except rendering_cache.RenderingUnavailable as problem:
        return set_note_of_rendered_html(render_plain_paragraphs(text), problem)
    return RenderedHtml((body or b"").decode())


def render_plain_paragraphs(text: str) -> RenderedHtml:
    """Return the paragraphs of a text without Markdown as HTML. This is the common case for typed texts."""
    paragraphs = (part for part in re.split(r"\n\s*\n", text.strip()) if part)
    return RenderedHtml("".join(f"<p>{escape(part)}</p>" for part in paragraphs))


def highlight_code(code: str, *, language: str = "", filename: str = "") -> RenderedHtml:
    """Return code with its tokens in spans with Pygments' classes (`hl-…`), by language or file name."""
    if not (language or filename) or not code:
        return RenderedHtml(escape(code))
    if len(code) > COLOUR_UP_TO:
        drawn = RenderedHtml(escape(code))
        drawn.note = TOO_LARGE
        return drawn
    try:
        body = rendering_cache.render_in_sandbox(
            "colour", encode_for_sandbox(code), language=language[:100], filename=filename[-200:]
        )
    except rendering_cache.RenderingUnavailable as problem:
        return set_note_of_rendered_html(RenderedHtml(escape(code)), problem)
    return RenderedHtml(escape(code) if body is None else body.decode())


def set_note_of_rendered_html(
    drawn: RenderedHtml, problem: rendering_cache.RenderingUnavailable
) -> RenderedHtml:
    drawn.note = TOO_SLOW if isinstance(problem, rendering_cache.RenderingTooExpensive) else NOT_YET
    return drawn


def encode_for_sandbox(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
