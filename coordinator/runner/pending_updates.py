"""Updates that an agent sends while its session opens: held back, within bounds, until the server knows the agent."""

from __future__ import annotations

from typing import Any

from coordinator.runner.outbox import OutboxCapacity, estimate_update_size

# It counts in the room of all, where it cannot drain: what one agent may hold there is little.
MAX_PENDING_BYTES = 512 << 10
TOO_MUCH = "The agent reported too much before its session was open: the rest was dropped."


class PendingUpdates:
    """The updates of one opening, in order."""

    def __init__(self, capacity: OutboxCapacity) -> None:
        self._capacity = capacity
        self._updates: list[dict[str, Any]] = []
        self._size = 0
        self._is_cut = False

    def add_update_or_cut_note(self, update: dict[str, Any]) -> None:
        size = estimate_update_size(update)
        if self._size + size <= MAX_PENDING_BYTES:
            self._reserve_bytes_and_append_update(update, size)
        elif not self._is_cut:
            self._is_cut = True
            self._reserve_bytes_and_append_update(
                {"sessionUpdate": "signalbox/unknown", "message": TOO_MUCH}, 0
            )

    def take_out_pending_updates(self) -> list[dict[str, Any]]:
        """Return what was held, and give its room back."""
        self._capacity.release_outbox_bytes(self._size)
        updates, self._updates, self._size = self._updates, [], 0
        return updates

    def _reserve_bytes_and_append_update(self, update: dict[str, Any], size: int) -> None:
        self._capacity.reserve_bytes_even_if_full(size)
        self._size += size
        self._updates.append(update)
