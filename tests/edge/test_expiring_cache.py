"""What is kept for a while is let go when its time is over, though nobody asks for it again."""

from __future__ import annotations

from coordinator.lib.expiring_cache import ExpiringCache


def test_a_value_is_there_until_its_time_is_over() -> None:
    cache: ExpiringCache[str, int] = ExpiringCache(5.0, 10)
    cache.put("a", 1, 100.0)
    assert [cache.get("a", now) for now in (100.0, 104.9, 105.0)] == [1, 1, None]
    cache.put("a", 2, 104.0)
    assert cache.get("a", 105.0) == 2
    cache.remove_key("a")
    cache.remove_key("a")
    assert cache.get("a", 105.0) is None


def test_what_is_over_takes_no_room_though_nobody_asks_for_it() -> None:
    cache: ExpiringCache[str, int] = ExpiringCache(5.0, 10)
    for number in range(8):
        cache.put(f"client {number}", number, 100.0 + number)
    cache.put("another", 0, 109.0)
    assert len(cache) == 4, "those from 105 on, and this one"


def test_of_too_many_the_newest_are_kept() -> None:
    cache: ExpiringCache[int, int] = ExpiringCache(5.0, 3)
    for number in range(10):
        cache.put(number, number, 100.0)
    assert [number for number in range(10) if cache.get(number, 100.0) is not None] == [7, 8, 9]
