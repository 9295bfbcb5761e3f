"""A cache whose values expire after some seconds, whether or not anybody asks for them again."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ExpiringCache(Generic[K, V]):
    """Values by key: each for so many `seconds` from when it was put here, and `most` of them, the newest.

    `now` is on one clock that never goes back, in seconds.
    """

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        self._values: dict[K, tuple[float, V]] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K, now: float) -> V | None:
        """Return the value; None where there is none, or its time is over."""
        until, value = self._values.get(key, (now, None))
        return value if until > now else None

    def put(self, key: K, value: V, now: float) -> None:
        """Keep a value from now on, and let those go whose time is over."""
        self._values.pop(key, None)
        self._values[key] = now + self._seconds, value
        while (oldest := next(iter(self._values))) != key and self._is_expired_or_excess(oldest, now):
            del self._values[oldest]

    def _is_expired_or_excess(self, key: K, now: float) -> bool:
        return len(self._values) > self._most or self._values[key][0] <= now

    def remove_key(self, key: K) -> None:
        self._values.pop(key, None)
