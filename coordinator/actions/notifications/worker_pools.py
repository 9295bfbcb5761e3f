"""Worker pools: the targets to which one process sends in parallel, each in a thread of its own.

Each kind has its own pool: a service that hangs delays no phone. Targets that were slow lately get at most half of
their kind's pool: a chat that hangs for all its people delays no other address for long.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable

from coordinator.notifications.channels import max_parallel_sends_of_kind

SLOW = 3.0  # seconds for one message
REMEMBERED = 600.0  # seconds

busy: dict[int, str] = {}  # target → its kind
_slow: dict[int, float] = {}  # target → until when it counts as slow, on the monotonic clock
_lock = threading.Lock()


def reserve_slots_and_list_targets(waiting: Iterable[tuple[int, str]]) -> list[int]:
    """Reserve slots for as many of `waiting` as are free, and return these targets.

    `waiting` holds targets and their kinds, the most urgent first. `release_delivery_slot` frees each slot.
    """
    entered = []
    with _lock:
        busy_counts = Counter(busy.values())
        taken_by_slow = Counter(
            kind for target_id, kind in busy.items() if check_slow_target_dropping_expired(target_id)
        )
        for target_id, kind in waiting:
            lanes, slow = max_parallel_sends_of_kind(kind), check_slow_target_dropping_expired(target_id)
            is_full = busy_counts[kind] >= lanes or (slow and taken_by_slow[kind] >= max(1, lanes // 2))
            if target_id in busy or is_full:
                continue
            busy[target_id] = kind
            busy_counts[kind] += 1
            taken_by_slow[kind] += slow
            entered.append(target_id)
    return entered


def release_delivery_slot(target_id: int) -> None:
    with _lock:
        busy.pop(target_id, None)


def update_target_slowness(target_id: int, seconds: float) -> None:
    """Remember how long a target took for one message."""
    with _lock:
        if seconds > SLOW:
            _slow[target_id] = time.monotonic() + REMEMBERED
        else:
            _slow.pop(target_id, None)


def check_slow_target_dropping_expired(target_id: int) -> bool:
    until = _slow.get(target_id, 0.0)
    if until and until < time.monotonic():
        del _slow[target_id]
    return until >= time.monotonic()
