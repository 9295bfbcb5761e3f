"""Concurrency limits that all callers share, so that none of them can use up what the others need.

A caller may take a slot while it holds fewer than are free: one alone gets half of all, and however many slots a
few callers hold, some are left for the next caller.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from coordinator.errors import ServiceBusy, TooManyRequests


class ConcurrencyLimit:
    """`most` places in one process, for `what` (in the plural, for the refusal's words)."""

    def __init__(self, most: int, what: str) -> None:
        self._most = most
        self._label = what
        self._slots_by_caller: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._slots_by_caller.total()

    @contextlib.contextmanager
    def reserve_slot_during_block(self, caller: str) -> Iterator[None]:
        """Hold a place for the length of the block.

        Raises TooManyRequests for a caller that has its share, ServiceBusy where no place is free.
        """
        own_count, free = self._slots_by_caller[caller], self._most - len(self)
        if free <= 0:
            raise ServiceBusy(f"Too many {self._label} are open here. Try again soon.", retry_after=2)
        if own_count >= free:
            raise TooManyRequests(
                f"This caller already holds {own_count} {self._label}, which is its share. Close some first.",
                retry_after=5,
            )
        self._slots_by_caller[caller] += 1
        try:
            yield
        finally:
            self._slots_by_caller[caller] -= 1
            if not self._slots_by_caller[caller]:
                del self._slots_by_caller[caller]
