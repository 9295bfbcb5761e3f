"""Template tags of the timeline."""

from __future__ import annotations

from django.template import Library
from django.utils.html import conditional_escape, format_html, format_html_join
from django.utils.safestring import SafeString

from dashboard.looks import DisplayPart
from dashboard.templatetags.approvals import reveal_text_and_highlight_spans
from dashboard.text import markdown
from dashboard.text.terminal import TerminalSpan

register = Library()


@register.filter
def coloured(part: DisplayPart) -> SafeString:
    return markdown.highlight_code(part.value, language=part.language, filename=part.filename)


@register.filter
def terminal_html(part: DisplayPart) -> SafeString:
    """Render a program's output as a terminal shows it: as spans with classes, and links."""
    return format_html_join("", "{}", ((draw_terminal_span(span),) for span in part.terminal))


def draw_terminal_span(span: TerminalSpan) -> SafeString:
    if span.link:
        return format_html(
            '<a class="{}" href="{}" rel="noopener noreferrer nofollow">{}</a>',
            span.classes,
            span.link,
            span.text,
        )
    if span.classes:
        return format_html('<span class="{}">{}</span>', span.classes, span.text)
    return conditional_escape(span.text)


@register.filter
def as_markdown(part: DisplayPart) -> SafeString:
    return markdown.render_markdown(part.value)


@register.simple_tag
def part_text(part: DisplayPart, text: str) -> SafeString:
    """Render a text of a part. If the part is shown to judge a request, invisible characters are revealed."""
    return (
        reveal_text_and_highlight_spans(text, part.line_spans.get(text, ()))
        if part.exact
        else conditional_escape(text)
    )


@register.filter
def link_single_web_address(text: object) -> SafeString | str:
    """Render a text that is a single web address as a link, and any other text unchanged."""
    plain_text = str(text)
    if plain_text.startswith(("https://", "http://")) and not any(
        character.isspace() for character in plain_text
    ):
        return format_html('<a href="{}" rel="noopener noreferrer nofollow">{}</a>', plain_text, plain_text)
    return plain_text
