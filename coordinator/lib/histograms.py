"""Counts by upper bound: how long calls took, in a few numbers that can be added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def find_quantile_bound(counts: Sequence[int], bounds: Sequence[float], share: float) -> float | None:
    """Return the bound below which this share of the counts is; infinity beyond the last, None for no counts.

    `counts` holds one for each of `bounds`, and one for what is above the last.
    """
    wanted_count, counted = share * sum(counts), 0
    if not wanted_count:
        return None
    for bound, count in zip((*bounds, float("inf")), counts, strict=True):
        counted += count
        if counted >= wanted_count:
            return bound
    return None


def add_stored_counts(sums: list[int], stored: Any) -> None:
    """Add stored counts to sums of the same length; counts that cannot be read are left out."""
    if isinstance(stored, list) and [type(count) for count in stored] == [int] * len(sums):
        sums[:] = [total + count for total, count in zip(sums, stored, strict=True)]
