"""Anchors of headings in Markdown, as GitHub makes them.

The child process of the sandbox uses this module, so it imports no other module of the project.
"""

from __future__ import annotations

import re

_MARK_UP = re.compile(r"\[([^\]]*)\]\([^)]*\)|[`*]")
_LEFT_OUT = re.compile(r"[^\w\- ]")


def heading_text_without_markup(text: str) -> str:
    """Return a heading's text without its mark-up."""
    return _MARK_UP.sub(r"\1", text).strip()


def heading_anchor(text: str) -> str:
    """Return the anchor of a heading: lower case, words joined by hyphens, without other punctuation."""
    return _LEFT_OUT.sub("", heading_text_without_markup(text).lower()).replace(" ", "-")
