"""Names as templates show them, without loading anything: nothing in them can hide or turn round what follows."""

from __future__ import annotations

from django.template import Library

from coordinator.lib.invisible import reveal_invisible_characters

register = Library()


@register.filter(is_safe=True)
def visible(text: object) -> str:
    """Return a name or title with what cannot be seen in it as its code: `[U+202E]`."""
    return reveal_invisible_characters(str(text))
