"""The timeline's own words in templates."""

from __future__ import annotations

from django.http import QueryDict
from django.template import Library
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dashboard import markdown
from dashboard.looks import Part

register = Library()


@register.filter
def coloured(part: Part) -> SafeString:
    """Draw a code part with its words coloured by class."""
    return markdown.colour(part.value, language=part.language, filename=part.filename)


@register.filter
def as_markdown(part: Part) -> SafeString:
    """Draw a Markdown part."""
    return markdown.render(part.value)


@register.filter
def urlize_plain(text: object) -> SafeString | str:
    """Draw a text that is one web address as a link, anything else as it stands."""
    words = str(text)
    if words.startswith(("https://", "http://")) and not any(character.isspace() for character in words):
        return format_html('<a href="{}" rel="noopener noreferrer nofollow">{}</a>', words, words)
    return words


@register.filter
def words(text: str) -> list[str]:
    """Return a text's words, to loop over."""
    return text.split()


@register.simple_tag
def with_value(query: QueryDict, name: str) -> str:
    """Return what a query string says of `name`, or nothing."""
    return query.get(name, "")
