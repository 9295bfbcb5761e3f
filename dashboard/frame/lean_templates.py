"""Loads templates without their indentation, so that responses are smaller.

A line break with the spaces around it becomes one space, or nothing at the edges of a paragraph, a cell and
the like. Browsers show the same. The contents of `<pre>` and `<textarea>` are not changed. This is done when
the template is loaded, because rows and live fragments are rendered for many people many times a second.
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
    """Django's loader for the folders in DIRS.

    Line numbers in debug pages are those of the stripped template.
    """

    def get_contents(self, origin: Origin) -> str:
        return strip_template_indentation(super().get_contents(origin))


def strip_template_indentation(source: str) -> str:
    """Return the template with its line breaks and indentation replaced, as the module describes."""
    return BREAK.sub(replace_line_break, source)


def replace_line_break(match: re.Match[str]) -> str:
    if match["kept"]:
        return match[0]
    if match["opened"]:
        return " ".join(match["opened"].split()).replace(" >", ">")
    return "" if match["edge"] else " "
