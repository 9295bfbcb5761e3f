"""Commands to a living session other than prompts: a new mode, model or setting, the removal of its work tree."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from coordinator.actions.audit import audit
from coordinator.errors import BadRequest, NotFound
from coordinator.identity.actors import Actor
from coordinator.models import DrivenCommand, DrivenSession
from coordinator.secrets.masking import mask_secrets_in_value

AGAIN_AFTER = timedelta(seconds=15)  # a command that was sent and not done is sent again
KINDS = frozenset({"set_mode", "set_model", "set_config", "remove_worktree"})


def queue_session_command(
    session_id: str, command: dict[str, Any], *, actor: Actor, now: datetime
) -> DrivenCommand:
    """Queue a command for a session's runner. Raises NotFound, and BadRequest for an unknown command."""
    if len(command) != 1 or not KINDS & command.keys():
        raise BadRequest(f"A command is one of: {', '.join(sorted(KINDS))}.")
    with transaction.atomic():
        driven = DrivenSession.objects.filter(pk=session_id).first()
        if driven is None:
            raise NotFound("No runner drives this session.")
        ordered = DrivenCommand.objects.create(
            command_id=f"cmd_{uuid.uuid4().hex[:12]}",
            session_id=session_id,
            runner_id=driven.runner_id,
            command=command,
            ordered_by=str(actor),
            ordered_at=now,
        )
        audit.record_audit_entry(
            "SESSION_COMMANDED",
            actor=actor,
            target=session_id,
            result="success",
            metadata=command,
            now=now,
        )
    return ordered


def claim_due_session_commands(runner_id: str, now: datetime) -> list[dict[str, Any]]:
    """Return the open commands that were not sent to the runner lately, and mark them as sent."""
    due_filter = Q(delivered_at__isnull=True) | Q(delivered_at__lte=now - AGAIN_AFTER)
    waiting = DrivenCommand.objects.filter(due_filter, runner_id=runner_id, done_at__isnull=True)
    rows = list(waiting.order_by("ordered_at", "command_id"))
    if rows:
        DrivenCommand.objects.filter(pk__in=[row.pk for row in rows]).update(delivered_at=now)
    return [{"id": row.command_id, "session_id": row.session_id, **row.command} for row in rows]


def mark_session_command_done(
    session_id: str, command_id: str, error: str | None, now: datetime
) -> DrivenCommand | None:
    """Mark a command as done, or failed with `error`. Return it; None where it was done before."""
    command = DrivenCommand.objects.filter(pk=command_id, session_id=session_id, done_at__isnull=True).first()
    if command is not None:
        command.done_at, command.error = now, mask_secrets_in_value(error)
        command.save(update_fields=["done_at", "error"])
    return command
