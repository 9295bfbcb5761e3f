"""Passkeys, which an administrator can remove; challenges, recovery codes and invitations, read-only."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from coordinator.actions.people import passkeys
from coordinator.errors import NotFound
from coordinator.identity.actors import Actor
from coordinator.models import Invitation, Passkey, PasskeyChallenge, RecoveryCode
from dashboard.admin import columns
from dashboard.admin.options import DeleteOnlyAdmin, ViewOnlyAdmin


@admin.display(description="person")
def person_cell(row: Any) -> Any:
    """Return the name of the person to whom the row belongs, with a link to their page."""
    if row.person is None:
        return f"deleted ({row.user_id})"
    return format_html(
        '<a href="{}">{}</a>', reverse("admin:auth_user_change", args=[row.user_id]), row.person
    )


class WithPersonMixin:
    """Annotates each row with the username of its person."""

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        names = User.objects.filter(pk=OuterRef("user_id")).values("username")[:1]
        rows: QuerySet[Any] = super().get_queryset(request)  # type: ignore[misc]
        with_person: QuerySet[Any] = rows.annotate(person=Subquery(names))
        return with_person


@admin.register(Passkey)
class PasskeyAdmin(WithPersonMixin, DeleteOnlyAdmin):
    """Passkeys, which can be deleted. Only the person themselves adds passkeys; they never change."""

    list_display = (
        columns.text_column("name"),
        person_cell,
        columns.text_column("rp_id", label="host"),
        columns.time_column("made_at", label="added"),
        columns.time_column("last_used_at"),
    )
    search_fields = ("name", "rp_id")
    list_filter = ("rp_id",)
    ordering = ("-pk",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [*self.list_display]

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        return lookup == "user_id" or super().lookup_allowed(lookup, value, request)

    def delete_row(self, row: Any, actor: Actor) -> None:
        user = User.objects.filter(pk=row.user_id).first()
        if user is None:
            raise NotFound("This person no longer exists.")
        passkeys.remove_passkey(user, row.pk, actor=actor, now=timezone.now())


@admin.register(PasskeyChallenge)
class PasskeyChallengeAdmin(ViewOnlyAdmin):
    list_display = (
        columns.text_column("purpose"),
        columns.text_column("source", label="network"),
        columns.time_column("expires_at"),
    )
    never_read = ("digest", "browser")
    ordering = ("-expires_at",)


@admin.register(RecoveryCode)
class RecoveryCodeAdmin(WithPersonMixin, ViewOnlyAdmin):
    list_display = (person_cell, columns.time_column("made_at"), columns.time_column("used_at"))
    never_read = ("code_hash",)
    ordering = ("-pk",)


@admin.register(Invitation)
class InvitationAdmin(ViewOnlyAdmin):
    """Invitations, read-only. They are created and revoked on the page People."""

    list_display = (
        columns.text_column("label", label="for"),
        columns.text_column("role"),
        "made_by",
        columns.time_column("made_at"),
        columns.time_column("expires_at"),
        columns.time_column("used_at"),
        columns.time_column("revoked_at"),
    )
    never_read = ("token_hash",)
    ordering = ("-pk",)
