"""Answers of upstream servers while they are received: bounded for each caller, for each server and in all.

A server chooses how much it answers and how slowly, and a caller how often it asks: eighty answers of 16 MB that
never end would take the memory of the whole process.
"""

from __future__ import annotations

from coordinator.lib.byte_shares import ByteShares

MAX_BYTES = 192 * 1024 * 1024  # of all answers in hand in one process


class NoRoom(Exception):
    """The answer's next bytes are more than its caller, its server or all may hold. The text says which."""


class AnswerShares:
    """What the answers in hand hold, by caller and by server. One a process."""

    def __init__(self) -> None:
        self.by_caller = ByteShares()
        self.by_server = ByteShares()

    def hold(self, caller: str, server: str) -> AnswerShare:
        return AnswerShare(self, caller, server)


class AnswerShare:
    """What one answer holds: `size` bytes of its caller's share and of its server's."""

    __slots__ = ("_shares", "caller", "server", "size")

    def __init__(self, shares: AnswerShares, caller: str, server: str) -> None:
        self._shares = shares
        self.caller = caller
        self.server = server
        self.size = 0

    def grow(self, more: int) -> None:
        """Count `more` bytes. Raises NoRoom."""
        by_caller, by_server = self._shares.by_caller, self._shares.by_server
        if not by_caller.take(self.caller, more, size=self.size, total=MAX_BYTES):
            raise NoRoom("the caller already receives other large answers")
        if not by_server.take(self.server, more, size=self.size, total=MAX_BYTES):
            by_caller.give_back(self.caller, more)
            raise NoRoom("other large answers of this server are being received")
        self.size += more

    def shrink(self, count: int) -> None:
        """Count `count` bytes as handed on."""
        count = min(count, self.size)
        self._shares.by_caller.give_back(self.caller, count)
        self._shares.by_server.give_back(self.server, count)
        self.size -= count

    def close(self) -> None:
        """Give all back."""
        self.shrink(self.size)
