"""The timeline's own words in templates."""

from __future__ import annotations

from django.template import Library
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString

from dashboard.looks import Part
from dashboard.templatetags.approvals import reveal_with
from dashboard.text import markdown
from dashboard.timeline.rows import ShownRow
from dashboard.timeline.spans import Span, span_of

register = Library()


@register.filter
def coloured(part: Part) -> SafeString:
    return markdown.colour(part.value, language=part.language, filename=part.filename)


@register.filter
def as_markdown(part: Part) -> SafeString:
    return markdown.render(part.value)


@register.simple_tag
def part_text(part: Part, text: str) -> SafeString:
    """Draw a text of a part: exactly, for whoever judges it, or as it stands."""
    return reveal_with(text, part.line_spans.get(text, ())) if part.exact else conditional_escape(text)


@register.filter
def span(shown: ShownRow) -> Span:
    return span_of(shown)


@register.filter
def urlize_plain(text: object) -> SafeString | str:
    """Draw a text that is one web address as a link, anything else as it stands."""
    words = str(text)
    if words.startswith(("https://", "http://")) and not any(character.isspace() for character in words):
        return format_html('<a href="{}" rel="noopener noreferrer nofollow">{}</a>', words, words)
    return words
