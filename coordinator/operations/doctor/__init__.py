"""Checks whether things work, step by step, for `manage.py doctor` and the test buttons on pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step of a test: what it is, whether it works, how long it took, and what to do where it does not."""

    step: str
    works: bool
    message: str = ""
    ms: float | None = None


class CheckLevel(StrEnum):
    """The result of a check; only a failure makes the command fail."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check: its result, and what to do about it."""

    name: str
    level: CheckLevel
    message: str
    remedy: str = ""


def passed_check(name: str, message: str) -> CheckResult:
    """Return a check that found nothing wrong."""
    return CheckResult(name, CheckLevel.OK, message)


def warning_check(name: str, message: str, remedy: str) -> CheckResult:
    """Return a check that found a lesser problem."""
    return CheckResult(name, CheckLevel.WARN, message, remedy)


def failed_check(name: str, message: str, remedy: str) -> CheckResult:
    """Return a check that found something broken."""
    return CheckResult(name, CheckLevel.FAIL, message, remedy)


def join_names_up_to_limit(names: Sequence[object]) -> str:
    """Name the first of them; an id that another program stored may be anything."""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(map(str, names[:MOST_NAMED])) + more
