"""Which invitations can still be used, and the audit of what becomes of them."""

from __future__ import annotations

from datetime import datetime

from django.db.models import QuerySet

from coordinator.actions.audit import audit
from coordinator.identity.actors import Actor
from coordinator.models import Invitation


def list_open_invitations(now: datetime) -> QuerySet[Invitation]:
    """Return the invitations that can still be used, the newest first."""
    return Invitation.objects.filter(used_at=None, revoked_at=None, expires_at__gt=now).order_by("-id")


def record_invitation_event(
    event_type: str, row: Invitation, actor: Actor, now: datetime, reason: str | None = None
) -> None:
    audit.record_audit_entry(
        event_type,
        actor=actor,
        target=f"invitation:{row.pk}",
        result="success",
        reason=reason,
        metadata={"for": row.label, "role": row.role, "expires_at": row.expires_at.isoformat()},
        now=now,
    )
