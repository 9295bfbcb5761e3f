"""The jobs of the sandbox that renders untrusted texts.

This module runs in the child process, so it imports neither Django nor our data. Markdown becomes HTML that
is safe to show: no raw HTML, no scripts, no styles, no external images. Code is coloured with classes,
because the content security policy forbids inline styles and scripts.
"""

from __future__ import annotations

import difflib
import encodings.punycode  # noqa: F401 # host names of links need it, and load it only then
import json
import pkgutil
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from importlib import import_module

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from pygments import highlight, lexers
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name, get_lexer_for_filename
from pygments.util import ClassNotFound

from coordinator.sandbox.limits import JobTimeout, limit_cpu_time_during_block
from dashboard.rendering import COLOUR_UP_TO
from dashboard.rendering.anchors import heading_anchor

# Processor time, in seconds. Ordinary messages and files take milliseconds.
MARKDOWN_SECONDS, COLOUR_SECONDS, DIFF_SECONDS = 1.0, 0.2, 0.2

PLAIN_CODE = "Shown as plain text: this code takes too long to colour."
# Lexers of these languages are loaded at the start, so that the first job does not wait for them.
USUAL = (
    "bash console css diff go html java javascript json jsx kotlin markdown php powershell python ruby rust "
    "sql swift toml tsx typescript xml yaml"
)
USUAL_FILES = (
    "a.bash a.c a.cpp a.cs a.css a.go a.h a.html a.ini a.java a.js a.json a.jsx a.kt a.md a.php a.py a.rb a.rs "
    "a.scss a.sh a.sql a.swift a.toml a.ts a.tsx a.txt a.vue a.xml a.yaml a.yml Dockerfile Makefile"
)

_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p",
    "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
_ATTRIBUTES = {
    "a": {"href", "title"},
    "span": {"class"},
    "code": {"class"},
    "p": {"class"},
    "pre": {"class"},
    "ol": {"start"},
    "th": {"align"},
    "td": {"align"},
}
# Pages of the documentation may also have these tags and attributes.
_DOCUMENT_TAGS = _TAGS | {"div", "img", "picture", "source"}
_DOCUMENT_ATTRIBUTES = _ATTRIBUTES | {
    "div": {"class", "tabindex"},
    "h2": {"id"},
    "h3": {"id"},
    "h4": {"id"},
    "img": {"src", "alt", "loading"},
    "source": {"srcset", "media"},
}
_formatter = HtmlFormatter(nowrap=True, classprefix="hl-")
Facts = dict[str, object]
Answer = tuple[Facts, bytes]


def run_markdown_job(_facts: Facts, body: bytes) -> Answer:
    with limit_cpu_time_during_block(MARKDOWN_SECONDS):
        clean = nh3.clean(
            build_markdown_parser().render(decode_utf8_passing_surrogates(body)),
            tags=_TAGS,
            attributes=_ATTRIBUTES,
            set_tag_attribute_values={"pre": {"tabindex": "0"}},  # a keyboard scrolls what is wide
            url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer nofollow",
        )
    return {}, encode_text_replacing_surrogates(clean)


def run_documentation_page_job(facts: Facts, body: bytes) -> Answer:
    """Return a page of the documentation as HTML, with anchors at its headings.

    Keys of `facts`:
    - `base`: The address of the help.
    - `pages`: The names of its pages, separated by spaces. Relative links to other files become plain text.
    - `scheme`: The reader's colour scheme, which selects the pictures.
    """
    environment = {name: str(facts[name]) for name in ("base", "pages", "scheme")}
    with limit_cpu_time_during_block(MARKDOWN_SECONDS):
        clean = nh3.clean(
            build_documentation_parser().render(decode_utf8_passing_surrogates(body), environment),
            tags=_DOCUMENT_TAGS,
            attributes=_DOCUMENT_ATTRIBUTES,
            set_tag_attribute_values={"pre": {"tabindex": "0"}},
            url_schemes={"http", "https", "mailto"},
            link_rel="noopener noreferrer",
        )
    return {}, encode_text_replacing_surrogates(clean)


def run_syntax_highlighting_job(facts: Facts, body: bytes) -> Answer:
    """Return code as HTML with its tokens in spans, or an empty answer for an unknown language.

    Keys of `facts`: `language` or `filename`.
    """
    lexer = find_lexer(str(facts["language"]), str(facts["filename"]))
    if lexer is None:
        return {"known": False}, b""
    with limit_cpu_time_during_block(COLOUR_SECONDS):
        return {"known": True}, encode_text_replacing_surrogates(
            highlight_with_pygments(decode_utf8_passing_surrogates(body), lexer)
        )


def run_diff_opcodes_job(_facts: Facts, body: bytes) -> Answer:
    """Return difflib's opcodes between two lists of lines. Input and output are JSON."""
    before, after = json.loads(body)
    with limit_cpu_time_during_block(DIFF_SECONDS):
        codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    return {}, json.dumps(codes).encode()


def run_no_op_job(_facts: Facts, _body: bytes) -> Answer:
    """Do nothing. The answer shows that the child process takes jobs."""
    return {}, b""


def decode_utf8_passing_surrogates(body: bytes) -> str:
    return body.decode("utf-8", "surrogatepass")


def encode_text_replacing_surrogates(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def highlight_with_pygments(code: str, lexer: Lexer) -> str:
    return str(highlight(code, lexer, _formatter))


@lru_cache(maxsize=1)
def build_markdown_parser() -> MarkdownIt:
    # An image would disclose to another server who reads what, and the content security policy blocks it.
    # A link is shown instead.
    options = {"html": False, "linkify": False, "highlight": highlight_fence}
    parser = MarkdownIt("commonmark", options).enable("table").enable("strikethrough").disable("image")
    parser.core.ruler.push("aligned_cells", set_table_cell_alignment)
    return parser


def set_table_cell_alignment(state: StateCore) -> None:
    """Set a column's alignment as an attribute, because the sanitizer removes styles."""
    for token in state.tokens:
        style = token.attrGet("style") if token.type in ("th_open", "td_open") else None
        if isinstance(style, str) and style.startswith("text-align:"):
            token.attrs = {"align": style.removeprefix("text-align:")}


@lru_cache(maxsize=1)
def build_documentation_parser() -> MarkdownIt:
    options = {"html": False, "linkify": False, "highlight": highlight_fence}
    parser = MarkdownIt("commonmark", options).enable("table").enable("strikethrough")
    parser.core.ruler.push("aligned_cells", set_table_cell_alignment)
    parser.core.ruler.push("heading_anchors", _set_heading_anchors)
    parser.core.ruler.push("document_links", _rewrite_links_to_help_pages)
    parser.add_render_rule("image", _render_picture_in_scheme)
    # A wide table scrolls inside this element, also with the keyboard.
    parser.add_render_rule("table_open", lambda *_: '<div class="help-table" tabindex="0"><table>')
    parser.add_render_rule("table_close", lambda *_: "</table></div>")
    return parser


def _set_heading_anchors(state: StateCore) -> None:
    for opening, inline in zip(state.tokens, state.tokens[1:], strict=False):
        if opening.type == "heading_open":
            opening.attrSet("id", heading_anchor("".join(child.content for child in inline.children or [])))


def _rewrite_links_to_help_pages(state: StateCore) -> None:
    """Point links between files to pages of the help. A link to any other file becomes plain text."""
    pages = set(state.env["pages"].split())
    for inline in state.tokens:
        opened: list[Token] = []
        for token in inline.children or []:
            if token.type == "link_open":
                opened.append(token)
                file, _, anchor = str(token.attrGet("href")).partition("#")
                if "://" in file or not file:
                    continue
                name = file.removesuffix(".md")
                if name in pages and file.endswith(".md"):
                    token.attrSet("href", f"{state.env['base']}{name}/" + (f"#{anchor}" if anchor else ""))
                else:
                    token.tag, token.attrs = "span", {}
            elif token.type == "link_close":
                token.tag = opened.pop().tag


def _render_picture_in_scheme(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, env: EnvType
) -> str:
    """Return a picture in the reader's colour scheme. Each `pictures/NAME-light.webp` has a dark variant."""
    light = env["base"] + str(tokens[index].attrGet("src")).removesuffix(".webp") + "/"
    dark = light.replace("-light/", "-dark/")
    chosen_colors = dark if env["scheme"] == "dark" else light
    alt = escape(tokens[index].content)
    picture = f'<img src="{escape(chosen_colors)}" alt="{alt}" loading="lazy">'
    if env["scheme"] != "light dark":
        return picture
    source = f'<source srcset="{escape(dark)}" media="(prefers-color-scheme: dark)">'
    return f"<picture>{source}{picture}</picture>"


def highlight_fence(code: str, language: str, _attributes: str) -> str:
    """Return a fence's code coloured, or plain with a note if it is too long or takes too long."""
    lexer = find_lexer(language, "")
    if lexer is None:
        return escape(code)
    try:
        if len(code) > COLOUR_UP_TO:
            raise JobTimeout
        with limit_cpu_time_during_block(COLOUR_SECONDS):
            return highlight_with_pygments(code, lexer)
    except JobTimeout:
        return f'<pre><code>{escape(code)}</code></pre><p class="shown-plain">{PLAIN_CODE}</p>'


@lru_cache(maxsize=256)
def find_lexer(language: str, filename: str) -> Lexer | None:
    try:
        if language:
            return get_lexer_by_name(language, stripnl=False, ensurenl=False)
        if filename:
            return get_lexer_for_filename(filename, stripnl=False, ensurenl=False)
    except (ClassNotFound, ImportError):
        pass
    return None


# For each unknown name, Pygments searches all installed packages for plugins. We have none.
lexers.find_plugin_lexers = lambda: iter(())
for _module in pkgutil.iter_modules(lexers.__path__):  # the sandbox cannot open files later
    import_module(f"{lexers.__name__}.{_module.name}")
for _name in USUAL.split():
    find_lexer(_name, "")
for _name in USUAL_FILES.split():
    find_lexer("", _name)
build_markdown_parser()
build_documentation_parser()

JOBS = {
    "markdown": run_markdown_job,
    "document": run_documentation_page_job,
    "colour": run_syntax_highlighting_job,
    "diff": run_diff_opcodes_job,
    "ready": run_no_op_job,
}
