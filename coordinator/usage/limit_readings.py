"""Limits of subscriptions as agents report them: windows of five hours, a week and others. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeGuard

MAX_WINDOW_MINUTES = 527_040  # a year
MAX_PERCENT = 1000.0
MAX_EPOCH_SECONDS = 253_402_300_799  # the end of the year 9999


@dataclass(frozen=True, slots=True)
class LimitReading:
    """One window of a limit, as it was reported."""

    name: str  # of the limit, where the program has several; "" for its main one
    window_minutes: int
    used_percent: float
    resets_at_us: int


def parse_codex_rate_limits(reported: Any, at: datetime | None) -> list[LimitReading]:
    """Return the windows of a `rate_limits` of Codex; those that cannot be read are left out."""
    if not isinstance(reported, dict):
        return []
    name = reported.get("limit_name") or reported.get("limit_id")
    readings = []
    for window_name in ("primary", "secondary"):
        window = reported.get(window_name)
        if not isinstance(window, dict):
            continue
        used, minutes, resets_at = (
            window.get(key) for key in ("used_percent", "window_minutes", "resets_at")
        )
        seconds_left = window.get("resets_in_seconds")  # of versions of 2025
        if resets_at is None and at is not None and is_finite_number_up_to(seconds_left, MAX_EPOCH_SECONDS):
            resets_at = int(at.timestamp() + seconds_left)
        if (
            is_finite_number_up_to(used, MAX_PERCENT)
            and is_finite_number_up_to(minutes, MAX_WINDOW_MINUTES)
            and minutes >= 1
            and is_finite_number_up_to(resets_at, MAX_EPOCH_SECONDS)
        ):
            label = name if isinstance(name, str) and name != "codex" else ""
            readings.append(LimitReading(label, int(minutes), float(used), int(resets_at) * 1_000_000))
    return readings


def is_finite_number_up_to(value: Any, most: float) -> TypeGuard[float]:
    """Say whether a value is a number from 0 to `most`."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and 0 <= value <= most
