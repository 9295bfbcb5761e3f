"""Patterns that mark calls for a closer check: admins keep them, each with the reason that cards show."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField


class MarkGrade(models.TextChoices):
    """How much a mark says: look twice, or confirm once more."""

    CAUTION = "caution", "Caution"
    DANGER = "danger", "Danger"


class DangerMark(models.Model):
    """One pattern. `tool` names tools as rules do, `pattern` is an RE2 expression on what the call is about."""

    id = models.BigAutoField(primary_key=True)
    reason = models.TextField()
    tool = models.TextField(default="*", db_default="*")
    pattern = models.TextField()
    grade = models.TextField(
        choices=MarkGrade.choices, default=MarkGrade.CAUTION, db_default=MarkGrade.CAUTION
    )
    changed_at = IsoTextField()
    changed_by = models.TextField()

    class Meta:
        db_table = "danger_marks"

    def __str__(self) -> str:
        return self.reason
