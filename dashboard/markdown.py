"""Turns agents' Markdown into HTML that is safe to show: no raw HTML, no scripts, no styles, no foreign images.

Parsing costs milliseconds, and the same message is shown to many people many times, so results are kept by
content. Code is coloured here, by class, because the policy forbids inline styles and scripts.
"""

from __future__ import annotations

import re
from functools import lru_cache

import nh3
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

# Colouring is linear but slow (about 1 MB/s); nobody reads further than this in a timeline.
COLOUR_UP_TO = 30_000
LONGEST = 200_000
KEPT_UP_TO = (
    10_000  # characters of a message whose HTML is kept: thousands of long ones would fill the memory
)

_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p",
    "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {
    "a": {"href", "title"},
    "span": {"class"},
    "code": {"class"},
    "pre": {"class"},
    "ol": {"start"},
    "th": {"align"},
    "td": {"align"},
}
_SPECIAL = re.compile(r"[*_`#\[\]<>|~&\\]|^[ \t]*(?:[-+=]|\d+[.)]\s)|^(?: {4}|\t)|://| {2}$", re.MULTILINE)
_formatter = HtmlFormatter(nowrap=True, classprefix="hl-")


def render(text: str) -> SafeString:
    """Return the HTML of a Markdown text."""
    if not _SPECIAL.search(text):
        return _plain(text)
    render_it = _render if len(text) <= KEPT_UP_TO else _render.__wrapped__
    return render_it(text[:LONGEST])


def _plain(text: str) -> SafeString:
    """Return paragraphs for a text without any mark-up; most of what people type is such."""
    paragraphs = (part for part in re.split(r"\n\s*\n", text.strip()) if part)
    return mark_safe("".join(f"<p>{escape(part)}</p>" for part in paragraphs))  # noqa: S308 # escaped


@lru_cache(maxsize=4096)
def _render(text: str) -> SafeString:
    clean = nh3.clean(
        _parser().render(text),
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        set_tag_attribute_values={"pre": {"tabindex": "0"}},  # a keyboard scrolls what is wide
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    return mark_safe(clean)  # noqa: S308 # nh3 has just cleaned it


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    # An image would tell a foreign server who reads what; the policy refuses it anyway: show its link.
    options = {"html": False, "linkify": False, "highlight": _highlight_fence}
    parser = MarkdownIt("commonmark", options).enable("table").enable("strikethrough").disable("image")
    parser.core.ruler.push("aligned_cells", _align_cells)
    return parser


def _align_cells(state: StateCore) -> None:
    """Say a column's alignment as an attribute: a style would be dropped."""
    for token in state.tokens:
        style = token.attrGet("style") if token.type in ("th_open", "td_open") else None
        if isinstance(style, str) and style.startswith("text-align:"):
            token.attrs = {"align": style.removeprefix("text-align:")}


def _highlight_fence(code: str, language: str, _attributes: str) -> str:
    return colour(code, language=language)


def colour(code: str, *, language: str = "", filename: str = "") -> SafeString:
    """Return code with its words in spans of Pygments' classes (`hl-…`), by language or file name."""
    lexer = _lexer(language, filename)
    if lexer is None or len(code) > COLOUR_UP_TO:
        return format_html("{}", code)  # not kept: tool outputs of megabytes would fill the memory
    return _coloured(code, lexer)


@lru_cache(maxsize=512)
def _coloured(code: str, lexer: Lexer) -> SafeString:
    return mark_safe(str(highlight(code, lexer, _formatter)))  # noqa: S308 # Pygments escapes what it wraps


@lru_cache(maxsize=256)
def _lexer(language: str, filename: str) -> Lexer | None:
    try:
        if language:
            return get_lexer_by_name(language, stripnl=False, ensurenl=False)
        if filename:
            return get_lexer_for_filename(filename, stripnl=False, ensurenl=False)
    except ClassNotFound:
        pass
    return None
