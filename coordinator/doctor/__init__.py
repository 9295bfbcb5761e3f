"""Looks into whether things work, step by step, for `manage.py doctor` and the test buttons on pages."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One step that was tried: what it is, whether it works, how long it took, and what to do where it does not."""

    step: str
    works: bool
    says: str = ""
    ms: float | None = None
