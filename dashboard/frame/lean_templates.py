"""Loads templates without their indentation: what is broken into lines to be read is sent to nobody.

One space stands for a line break and the spaces around it, nothing at the edges of a paragraph, a cell and the
like. A browser shows it all alike, but for <pre> and <textarea>, which are kept. Rows and live fragments are drawn
for many people many times a second.
"""

from __future__ import annotations

import re

from django.template import Origin
from django.template.loaders import filesystem

EDGED = r"(?:h[1-6]|p|td|th|li|dt|dd|div)\b"
BREAK = re.compile(
    r"<(?P<kept>pre|textarea)\b.*?</(?P=kept)>"
    rf"|(?P<opened><{EDGED}[^<>]*>)\s*\n\s*"
    rf"|(?P<edge>\s*\n\s*(?=>|</{EDGED}))"
    r"|\s*\n\s*",
    re.DOTALL,
)


class Loader(filesystem.Loader):
    """Django's loader of the folders in TEMPLATES' DIRS. A debug page has line numbers of the lean text."""

    def get_contents(self, origin: Origin) -> str:
        return strip_template_indentation(super().get_contents(origin))


def strip_template_indentation(source: str) -> str:
    """Return a template without the line breaks that only its reader needs."""
    return BREAK.sub(replace_line_break, source)


def replace_line_break(match: re.Match[str]) -> str:
    if match["kept"]:
        return match[0]
    if match["opened"]:
        return " ".join(match["opened"].split()).replace(" >", ">")
    return "" if match["edge"] else " "
