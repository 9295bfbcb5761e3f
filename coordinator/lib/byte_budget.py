"""Bytes in hand that all share: each may hold at most half of what the others leave free, so the next finds room."""

from __future__ import annotations

from collections import Counter

SMALL = 64 * 1024  # bytes that still find room where a large body or answer is refused


class ByteBudget:
    """How many bytes each sender holds in this process, and all together. Used on the event loop."""

    def __init__(self) -> None:
        self._bytes_by_sender: Counter[str] = Counter()
        self._all = 0

    def try_reserve_sender_bytes(self, sender: str, more: int, *, size: int, total: int) -> bool:
        """Count `more` bytes of what has `size` by now; False where the sender, or all together, would hold too much.

        `total` is how many bytes there are for all.
        """
        count = self._bytes_by_sender[sender] + more
        free_bytes = total - self._all + self._bytes_by_sender[sender]
        if count > (free_bytes * 3 // 4 if size + more <= SMALL else free_bytes // 2):
            self.release_bytes_of_sender(sender, 0)
            return False
        self._bytes_by_sender[sender] = count
        self._all += more
        return True

    def release_bytes_of_sender(self, sender: str, count: int) -> None:
        """Count `count` bytes of the sender's as held no more."""
        self._all -= count
        self._bytes_by_sender[sender] -= count
        if not self._bytes_by_sender[sender]:
            del self._bytes_by_sender[sender]

    def __bool__(self) -> bool:
        return bool(self._bytes_by_sender or self._all)
