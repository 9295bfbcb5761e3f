"""Sizes in bytes, as people read them."""

from __future__ import annotations

from django.template.defaultfilters import filesizeformat


def format_byte_count(count: int) -> str:
    """Return a number of bytes as people read it, `1.5 MB`; in plain blanks, for terminals and files."""
    return filesizeformat(count).replace("\xa0", " ")
