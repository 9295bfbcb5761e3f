"""Answers of upstream servers while they are received: bounded for each caller, for each server and in all.

A server chooses how much it answers and how slowly, and a caller how often it asks: eighty answers of 16 MB that
never end would take the memory of the whole process.
"""

from __future__ import annotations

from coordinator.lib.byte_budget import ByteBudget

MAX_BYTES = 192 * 1024 * 1024  # of all answers in hand in one process


class AnswerLimitExceeded(Exception):
    """The answer's next bytes are more than its caller, its server or all may hold. The text says which."""


class AnswerByteLimits:
    """What the answers in hand hold, by caller and by server. One a process."""

    def __init__(self) -> None:
        self.by_caller = ByteBudget()
        self.by_server = ByteBudget()

    def create_answer_reservation(self, caller: str, server: str) -> AnswerReservation:
        return AnswerReservation(self, caller, server)


class AnswerReservation:
    """What one answer holds: `size` bytes of its caller's share and of its server's."""

    __slots__ = ("_byte_limits", "caller", "server", "size")

    def __init__(self, shares: AnswerByteLimits, caller: str, server: str) -> None:
        self._byte_limits = shares
        self.caller = caller
        self.server = server
        self.size = 0

    def grow_answer_reservation(self, more: int) -> None:
        """Count `more` bytes. Raises AnswerLimitExceeded."""
        by_caller, by_server = self._byte_limits.by_caller, self._byte_limits.by_server
        if not by_caller.try_reserve_sender_bytes(self.caller, more, size=self.size, total=MAX_BYTES):
            raise AnswerLimitExceeded("the caller already receives other large answers")
        if not by_server.try_reserve_sender_bytes(self.server, more, size=self.size, total=MAX_BYTES):
            by_caller.release_bytes_of_sender(self.caller, more)
            raise AnswerLimitExceeded("other large answers of this server are being received")
        self.size += more

    def release_answer_bytes(self, count: int) -> None:
        """Count `count` bytes as handed on."""
        count = min(count, self.size)
        self._byte_limits.by_caller.release_bytes_of_sender(self.caller, count)
        self._byte_limits.by_server.release_bytes_of_sender(self.server, count)
        self.size -= count

    def release_answer_reservation(self) -> None:
        """Give all back."""
        self.release_answer_bytes(self.size)
