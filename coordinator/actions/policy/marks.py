"""Writing of danger marks, by admins only, in Django's admin."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import re2
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.errors import Conflict, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import DangerMark
from coordinator.models.marks import MarkGrade
from coordinator.policy.rules.marks import MOST_MARKS
from coordinator.policy.rules.tool_rules import LONGEST_PATTERN, compile_rule_pattern

EDITABLE = ("reason", "tool", "pattern", "grade")
LONGEST_REASON = 100
CHANGED_MEANWHILE = (
    "Somebody else has changed this mark since you opened it. Nothing was changed. Reload the page."
)


def compute_danger_mark_version(row: DangerMark) -> str:
    return str([getattr(row, name) for name in (*EDITABLE, "changed_by")] + [str(row.changed_at)])


def create_danger_mark(values: dict[str, Any], *, actor: Actor, now: datetime) -> DangerMark:
    """Add a mark. Raises UnprocessableRequest for one that could not be looked for."""
    with transaction.atomic():
        if DangerMark.objects.count() >= MOST_MARKS:
            raise UnprocessableRequest(f"There may be at most {MOST_MARKS} marks. Delete one first.")
        row = DangerMark(**clean_danger_mark(values), changed_at=now, changed_by=str(actor))
        row.save()
        record_danger_mark_event("DANGER_MARK_ADDED", row, actor, now, after=values)
    return row


def update_danger_mark(
    pk: int, values: dict[str, Any], *, seen_version: str, actor: Actor, now: datetime
) -> None:
    """Change a mark. Raises UnprocessableRequest likewise, Conflict where it is not what its editor has seen."""
    with transaction.atomic():
        row = lock_danger_mark(pk, seen_version)
        before = {name: getattr(row, name) for name in EDITABLE}
        for name, value in clean_danger_mark(before | values).items():
            setattr(row, name, value)
        row.changed_at, row.changed_by = now, str(actor)
        row.save()
        record_danger_mark_event("DANGER_MARK_CHANGED", row, actor, now, before=before, after=before | values)


def delete_danger_mark(pk: int, *, actor: Actor, now: datetime) -> None:
    with transaction.atomic():
        row = DangerMark.objects.select_for_update().filter(pk=pk).first()
        if row is None:
            raise Conflict("The mark was already deleted.")
        record_danger_mark_event(
            "DANGER_MARK_DELETED", row, actor, now, before={name: getattr(row, name) for name in EDITABLE}
        )
        row.delete()


def lock_danger_mark(pk: int, seen_version: str) -> DangerMark:
    row = DangerMark.objects.select_for_update().filter(pk=pk).first()
    if row is None or compute_danger_mark_version(row) != seen_version:
        raise Conflict(CHANGED_MEANWHILE)
    return row


def clean_danger_mark(values: dict[str, Any]) -> dict[str, str]:
    reason, tool, pattern, grade = (str(values.get(name) or "").strip() for name in EDITABLE)
    grade = grade or MarkGrade.CAUTION
    if grade not in MarkGrade:
        raise UnprocessableRequest(f"The grade is one of: {', '.join(MarkGrade)}.")
    if not reason or len(reason) > LONGEST_REASON:
        raise UnprocessableRequest(
            f"Enter the reason that cards show, in at most {LONGEST_REASON} characters."
        )
    if not pattern or len(pattern) > LONGEST_PATTERN:
        raise UnprocessableRequest(f"Enter a pattern of at most {LONGEST_PATTERN} characters.")
    try:
        compile_rule_pattern(pattern, matches_whole=False)
    except re2.error:
        raise UnprocessableRequest(
            "The pattern cannot be read. Look-around and back-references do not work."
        ) from None
    return {"reason": reason, "tool": tool or "*", "pattern": pattern, "grade": grade}


def record_danger_mark_event(
    event_type: str, row: DangerMark, actor: Actor, now: datetime, **changes: Any
) -> None:
    audit.record_audit_entry(
        event_type, actor=actor, target=f"danger_mark:{row.pk}", result="success", metadata=changes, now=now
    )
