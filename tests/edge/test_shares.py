"""No caller uses up the places that others need."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from coordinator.edge.http.concurrency import ConcurrencyLimit
from coordinator.errors import ServiceBusy, TooManyRequests


def taken(shares: ConcurrencyLimit, caller: str, stack: ExitStack) -> int:
    """Take places until one is refused; return how many there were."""
    for number in range(10_000):
        try:
            stack.enter_context(shares.reserve_slot_during_block(caller))
        except TooManyRequests:
            return number
    raise AssertionError("nothing was refused")


def test_one_caller_gets_half_and_the_next_always_finds_room() -> None:
    shares = ConcurrencyLimit(1_000, "polls")
    with ExitStack() as stack:
        held = [taken(shares, caller, stack) for caller in "abcd"]
        assert held == [500, 250, 125, 63]
        with shares.reserve_slot_during_block("somebody else"):
            pass


def test_places_come_back_when_they_are_left() -> None:
    shares = ConcurrencyLimit(10, "polls")
    with ExitStack() as stack:
        taken(shares, "a", stack)
    assert len(shares) == 0
    with shares.reserve_slot_during_block("a"):
        pass


def test_where_no_place_is_left_everybody_is_told_to_come_again() -> None:
    shares = ConcurrencyLimit(1, "polls")
    with (
        shares.reserve_slot_during_block("a"),
        pytest.raises(ServiceBusy),
        shares.reserve_slot_during_block("b"),
    ):
        pass
