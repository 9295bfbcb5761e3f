"""Values that do not fit their column's type."""

from __future__ import annotations


class UnreadableText(str):
    """A value that does not fit its column (no instant, JSON or number), as text. It is shown unchanged."""

    __slots__ = ()
