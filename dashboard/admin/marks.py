"""Danger marks on the cards of waiting calls, edited by admins."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils import timezone

from coordinator.actions.policy import marks
from coordinator.identity.actors import Actor
from coordinator.models import DangerMark
from dashboard.admin import columns
from dashboard.admin.options import ActionAdmin


@admin.register(DangerMark)
class DangerMarkAdmin(ActionAdmin):
    """Danger marks: a pattern, and the reason that a card shows if a call matches it."""

    list_display = (
        columns.text_column("reason"),
        columns.text_column("grade"),
        columns.code_column("tool"),
        columns.code_column("pattern"),
        columns.text_column("changed_by"),
        columns.time_column("changed_at"),
    )
    list_filter = ("grade",)
    search_fields = ("reason", "tool", "pattern")
    ordering = ("id",)

    def get_fieldsets(self, request: Any, obj: Any = None) -> Any:
        return [(None, {"fields": [*marks.EDITABLE, "version"]})]

    def compute_row_version(self, row: Any) -> str:
        return marks.compute_danger_mark_version(row)

    def audit_log_target_of_row(self, object_id: str) -> str:
        return f"danger_mark:{object_id}"

    def add_row(self, form: Any, actor: Actor) -> DangerMark:
        return marks.create_danger_mark(
            form.changed_form_values(marks.EDITABLE), actor=actor, now=timezone.now()
        )

    def change_row_from_admin_form(self, row: Any, form: Any, actor: Actor) -> None:
        changed = form.changed_form_values(marks.EDITABLE)
        marks.update_danger_mark(
            row.pk, changed, seen_version=form.cleaned_data["version"], actor=actor, now=timezone.now()
        )

    def delete_row(self, row: Any, actor: Actor) -> None:
        marks.delete_danger_mark(row.pk, actor=actor, now=timezone.now())
