"""Limits of what every database can hold: which texts, and which numbers as ids."""

from __future__ import annotations

MOST_DIGITS = 18  # of an id that certainly fits into eight bytes


def is_storable_text(text: str) -> bool:
    """Say whether a database can hold the text: no NUL character and no lone surrogate is in it."""
    return "\x00" not in text and (text.isascii() or is_utf8_encodable(text))


def is_utf8_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_database_id_or_none(text: str) -> int | None:
    """Return the id of a row that a text names in plain digits; None where it can be none."""
    is_number = text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS
    return int(text) if is_number else None
