"""Words of the approvals pages' own: text in which nothing can hide."""

from __future__ import annotations

import re
import unicodedata

from django.template import Library
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

from coordinator.approvals import Validity

register = Library()

# Control, format (bidi, zero width), surrogate, private and odd-space characters: what an eye misses.
HIDING = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


_UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")


@register.filter
def reveal(text: object) -> SafeString:
    """Draw text with every invisible or direction-changing character as a visible mark, so that none deceives."""
    return SafeString(_UNUSUAL.sub(lambda match: _mark(match[0]), str(escape(str(text)))))


def _mark(char: str) -> str:
    if not _hides(char):
        return char
    name = unicodedata.name(char, "control character")
    return format_html('<span class="revealed" title="{}">U+{}</span>', name, f"{ord(char):04X}")


def _hides(char: str) -> bool:
    return unicodedata.category(char) in HIDING or char.isspace()


@register.filter
def reveals(text: object) -> bool:
    """Say whether the text has characters that `reveal` marks: worth a warning above it."""
    return any(_hides(match) for match in _UNUSUAL.findall(str(text)))


@register.filter
def event_words(event_type: str) -> str:
    """Return an audit event as words: `PERMISSION_REQUEST_APPROVED` gives `Permission request approved`."""
    return event_type.replace("_", " ").capitalize()


@register.filter
def validity_words(validity: str) -> str:
    """Return what a validity is called; one that is not ours as it stands."""
    return dict(Validity.choices).get(validity, validity)
