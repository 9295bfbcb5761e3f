"""Words of the approvals pages' own: text in which nothing can hide."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from django.template import Library
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

from coordinator.lib.invisible import is_invisible
from coordinator.policy.approvals import Validity
from coordinator.secrets.masking import short
from dashboard.looks.parts import Part

register = Library()

_UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")


@register.filter
def reveal(text: object) -> SafeString:
    """Draw text with every invisible or direction-changing character as a visible mark, so that none deceives.

    Masks of secrets are drawn with the first eight of their digits.
    """
    return SafeString(_UNUSUAL.sub(lambda match: _mark(match[0]), str(escape(short(str(text))))))


@register.filter
def reveal_part(part: Part) -> SafeString:
    """Draw a part's text as `reveal` does, with the pieces marked that a person should see first."""
    pieces, last = [], 0
    for start, end in part.spans:
        pieces += [
            reveal(part.value[last:start]),
            format_html("<mark>{}</mark>", reveal(part.value[start:end])),
        ]
        last = end
    return SafeString("".join([*pieces, reveal(part.value[last:])]))


@lru_cache(maxsize=4096)  # a text may hold nothing but such characters
def _mark(char: str) -> str:
    if not is_invisible(char):
        return char
    name = unicodedata.name(char, "control character")
    return format_html('<span class="revealed" title="{}">U+{}</span>', name, f"{ord(char):04X}")


@register.filter
def reveals(text: object) -> bool:
    """Say whether the text has characters that `reveal` marks: worth a warning above it."""
    return any(is_invisible(match) for match in _UNUSUAL.findall(str(text)))


@register.filter
def event_words(event_type: str) -> str:
    """Return an audit event as words: `PERMISSION_REQUEST_APPROVED` gives `Permission request approved`."""
    return event_type.replace("_", " ").capitalize()


@register.filter
def validity_words(validity: str) -> str:
    """Return what a validity is called; one that is not ours as it stands."""
    return dict(Validity.choices).get(validity, validity)
