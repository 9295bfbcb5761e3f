"""Steps shared by all changes of a request: the locked row, the compare-and-swap, its context, its audit row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.contrib.auth.models import AnonymousUser, User
from django.db import transaction
from django.db.models import F

from coordinator.actions.audit import audit
from coordinator.errors import Conflict, NotFound, SignalboxError
from coordinator.identity.actors import Actor, person_actor
from coordinator.lib import process_metrics as meters
from coordinator.models import PermissionContext, PermissionRequest
from coordinator.models.permissions import RequestStatus
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.approval_coverage import UNKNOWN

Person = User | AnonymousUser
T = TypeVar("T")


def find_closed_request_error(row: PermissionRequest, now: datetime) -> SignalboxError | None:
    """Return the Conflict that describes how the request ended, or None while it waits."""
    return (
        None
        if rules.current_request_state(row, now).waiting
        else Conflict(f"Nothing was changed: {rules.describe_request_outcome(row, now)}")
    )


def lock_permission_request(request_id: str) -> PermissionRequest:
    """Return the row with its context, held until the transaction ends. (On SQLite the transaction holds all.)"""
    row = PermissionRequest.objects.select_for_update().filter(request_id=request_id).first()
    if row is None:
        raise NotFound("No such permission request.")
    context = PermissionContext.objects.select_for_update().filter(request=row).first()
    if context is not None:
        row.context = context
    return row


def update_request_if_pending(row: PermissionRequest, **values: Any) -> bool:
    """The compare-and-swap: change the row only if it still is as it was read; say whether it was."""
    changed = PermissionRequest.objects.filter(pk=row.pk, status=RequestStatus.PENDING).update(**values)
    row.refresh_from_db()
    if changed == 1 and "status" in values:
        verdict, took = row.status, rules.time_waited_for_decision(row)
        transaction.on_commit(lambda: record_decision_metrics(verdict, took))
    return changed == 1


def notify_request_changed(row: PermissionRequest) -> None:
    """Publish the row's current state to every open card; the request may be decided by now."""
    PermissionRequest.objects.filter(pk=row.pk).update(status=F("status"))


def record_decision_metrics(verdict: str, took: timedelta | None) -> None:
    meters.DECISIONS.add(verdict)
    if took is not None:
        meters.DECIDING.observe(took.total_seconds(), verdict)


def close_permission_request_context(row: PermissionRequest, **values: Any) -> None:
    """Write how the request ended; its pending key is freed, so that the next one is a new request."""
    context = rules.request_context(row) or create_missing_request_context(row)
    context.pending_key = None
    for name, value in values.items():
        setattr(context, name, value)
    context.save(update_fields=["pending_key", *values])
    row.context = context


def create_missing_request_context(row: PermissionRequest) -> PermissionContext:
    """Give a row that another program wrote the context it lacks."""
    deadline = (
        row.expires_at
        if isinstance(row.expires_at, datetime) and row.status == RequestStatus.PENDING
        else None
    )
    return PermissionContext.objects.create(
        request=row,
        requested_by=UNKNOWN,
        subject_key=rules.request_call_digest(row),
        scope=rules.Scope.CALL,
        deadline=deadline,
    )


def snapshot_request(row: PermissionRequest) -> dict[str, Any]:
    """Return the columns that a decision changes, as the audit log keeps them before and after."""
    return {
        "status": row.status,
        "approved_by": row.approved_by,
        "approved_at": rules.canonical_instant_or_text(row.approved_at),
        "expires_at": rules.canonical_instant_or_text(row.expires_at),
    }


def audit_request_event(
    event: str,
    row: PermissionRequest,
    actor: Actor,
    result: str,
    now: datetime,
    *,
    reason: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Write the audit row of one step."""
    about = {"plugin_id": row.plugin_id, "target_resource": row.target_resource}
    audit.record_audit_entry(
        event,
        actor=actor,
        target=row.request_id,
        permission=row.permission_type,
        result=result,
        reason=reason,
        metadata=about | (metadata or {}),
        now=now,
    )


def resolve_decider_actor(decider: Person | Actor) -> Actor:
    """Return who to write in the audit log, for somebody who is not signed in as well."""
    if isinstance(decider, Actor):
        return decider
    return person_actor(decider) if isinstance(decider, User) else Actor("user", "nobody")


def audit_refusal_and_return_error(
    row: PermissionRequest,
    decider: Person | Actor,
    wanted_status: str,
    refusal: SignalboxError,
    now: datetime,
) -> SignalboxError:
    """Audit an attempt that came to nothing and return the error to raise once that is committed."""
    metadata = {"wanted": wanted_status, "status": row.status, "error": refusal.status}
    audit_request_event(
        "PERMISSION_REQUEST_REFUSED",
        row,
        resolve_decider_actor(decider),
        "failure",
        now,
        reason=refusal.detail,
        metadata=metadata,
    )
    return refusal


def run_transaction_then_raise_refusal(work: Callable[[], T | SignalboxError]) -> T:
    """Run `work` in a transaction and raise what it refuses after the commit, so that its audit row stays."""
    with transaction.atomic():
        outcome = work()
    if isinstance(outcome, SignalboxError):
        raise outcome
    return outcome
