"""What a column holds that is not what the column is for."""

from __future__ import annotations


class UnreadableText(str):
    """A column's value, as text, that is not what the column is for: no instant, JSON or number. Shown as it stands."""

    __slots__ = ()
