"""How long a test waits for what must happen: it matters only where the test fails, so a busy machine is given time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 60.0  # seconds
AT_ONCE = 10.0  # seconds: less than what would end by a timer takes
T = TypeVar("T")


def until(
    check: Callable[[], T],
    what: str | Callable[[], object] = "it did not happen",
    *,
    rest: Callable[[], object] = lambda: time.sleep(0.02),
    within: float = PATIENCE,
) -> T:
    """Return what `check` gives once that is true; fail with `what` after `within` seconds.

    `rest` lets time pass between two looks. A test that drives a browser lets the browser speak meanwhile.
    """
    deadline = time.monotonic() + within
    while not (found := check()):
        assert time.monotonic() < deadline, what() if callable(what) else what
        rest()
    return found
