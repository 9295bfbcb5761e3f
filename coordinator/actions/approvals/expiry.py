"""The end of a request without a decision, and the early end of an approval."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from coordinator.actions import notifications
from coordinator.actions.approvals import rows
from coordinator.actions.approvals.rows import Person
from coordinator.actions.plugins import plugin_permissions
from coordinator.actions.policy import access_requests, known_hosts
from coordinator.errors import Conflict, Forbidden, NotFound, SignalboxError
from coordinator.identity.actors import Actor, system_actor
from coordinator.identity.roles import APPROVER, has_role
from coordinator.models import PermissionContext, PermissionRequest
from coordinator.models.permissions import RequestStatus
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.requests import approvals as rules
from coordinator.secrets.masking import mask_secrets_in_value

MADE_WAY = "Its agent had moved on, and newer calls of the same key needed the space. It can ask again."


def withdraw_request(
    request_id: str,
    *,
    actor: Actor,
    may_all: bool = False,
    unless_deferred: bool = False,
    reason: str | None = None,
    now: datetime | None = None,
) -> PermissionRequest:
    """Withdraw a waiting request whose asker disconnected or was answered elsewhere.

    Only the asker may, or, with `may_all`, an operator. Withdrawing twice is harmless. With `unless_deferred`, a
    request whose asker was asked to wait stays open. Raises NotFound, Forbidden, and Conflict for a request that was
    decided or has expired.
    """
    now = now or timezone.now()
    reason = mask_secrets_in_value(reason)
    return rows.run_transaction_then_raise_refusal(
        lambda: withdraw_request_or_return_error(
            request_id, actor, may_all, reason, now, unless_deferred=unless_deferred
        )
    )


def withdraw_oldest_unawaited_requests(
    waiting: QuerySet[PermissionRequest], number: int, actor: Actor, now: datetime
) -> bool:
    """Withdraw so many of an asker's requests by which no hook waits any more, the oldest first; say whether so many
    were found. To be called inside a transaction.
    """
    oldest_waiting = waiting.filter(
        context__repeat_key__isnull=False, context__waits_until__lte=now
    ).order_by("id")
    ids = list(oldest_waiting.values_list("request_id", flat=True)[:number])
    if len(ids) < number:
        return False
    for request_id in ids:
        with suppress(NotFound):  # it was deleted meanwhile, and has made way so
            withdraw_request_or_return_error(request_id, actor, False, MADE_WAY, now, unless_deferred=False)
    return True


def withdraw_request_or_return_error(
    request_id: str, actor: Actor, may_all: bool, reason: str | None, now: datetime, *, unless_deferred: bool
) -> PermissionRequest | SignalboxError:
    row = rows.lock_permission_request(request_id)
    context = rules.request_context(row)
    if not may_all and (context is None or context.requested_by != str(actor)):
        refusal: SignalboxError = Forbidden(
            "Only the key that asked, or a key of scope operator, may withdraw a request."
        )
        return rows.audit_refusal_and_return_error(row, actor, "withdrawn", refusal, now)
    if row.status == RequestStatus.WITHDRAWN or (
        unless_deferred and context is not None and context.held_at is not None
    ):
        return row
    if (conflict := rows.find_closed_request_error(row, now)) is not None:
        return rows.audit_refusal_and_return_error(row, actor, "withdrawn", conflict, now)
    before = rows.snapshot_request(row)
    if not rows.update_request_if_pending(row, status=RequestStatus.WITHDRAWN):
        return Conflict(f"Nothing was changed: {rules.describe_request_outcome(row, now)}")
    rows.close_permission_request_context(row, closed_at=now, closed_by=str(actor), reason=reason)
    notifications.announce_request_end(row, now=now)
    changes = {"before": before, "after": rows.snapshot_request(row)}
    rows.audit_request_event(
        "PERMISSION_REQUEST_WITHDRAWN", row, actor, "success", now, reason=reason, metadata=changes
    )
    return row


def expire_due_requests(now: datetime | None = None) -> int:
    """Close every request whose deadline has passed; return how many. Safe to run at any time, by anyone."""
    now = now or timezone.now()
    due_requests = PermissionRequest.objects.filter(status=RequestStatus.PENDING, expires_at__lte=now)
    return sum(
        expire_request_if_due(request_id, now)
        for request_id in due_requests.values_list("request_id", flat=True)
    )


def expire_request_if_due(request_id: str, now: datetime) -> bool:
    # Gone meanwhile, or another program's row whose id no text equals: the next has its turn all the same.
    with suppress(NotFound), transaction.atomic():
        row = rows.lock_permission_request(request_id)
        return (
            row.status == RequestStatus.PENDING
            and not rules.current_request_state(row, now).waiting
            and expire_request(row, now)
        )
    return False


def expire_request(row: PermissionRequest, now: datetime) -> bool:
    """Close one request past its deadline; false where somebody else closed it first."""
    before = rows.snapshot_request(row)
    if not rows.update_request_if_pending(row, status=RequestStatus.EXPIRED):
        return False
    rows.close_permission_request_context(
        row, closed_at=row.expires_at, closed_by=str(system_actor("housekeeping"))
    )
    notifications.announce_request_end(row, now=now)
    changes = {"before": before, "after": rows.snapshot_request(row)}
    rows.audit_request_event(
        "PERMISSION_REQUEST_EXPIRED", row, system_actor("housekeeping"), "expired", now, metadata=changes
    )
    return True


def revoke_approval(
    request_id: str, *, person: Person, reason: str | None = None, now: datetime | None = None
) -> PermissionRequest:
    """End an approval now, and take back the plugin's permission where this decision had granted it.

    Raises Forbidden for anyone but an approver, NotFound, and Conflict for what is not in force.
    """
    now = now or timezone.now()
    return rows.run_transaction_then_raise_refusal(
        lambda: revoke_approval_or_return_error(request_id, person, (reason or "").strip() or None, now)
    )


def revoke_approval_or_return_error(
    request_id: str, person: Person, reason: str | None, now: datetime
) -> PermissionRequest | SignalboxError:
    row = rows.lock_permission_request(request_id)
    if not has_role(person, APPROVER):
        return rows.audit_refusal_and_return_error(
            row, person, "revoked", Forbidden("You need the role approver to revoke approvals."), now
        )
    if not rules.has_revocable_approval(row, now):
        story = rules.describe_request_outcome(row, now)
        return rows.audit_refusal_and_return_error(
            row, person, "revoked", Conflict(f"There is nothing to revoke: {story}"), now
        )
    before = rows.snapshot_request(row)
    if rules.current_request_state(row, now).in_force:
        row.expires_at = now
        row.save(update_fields=["expires_at"])
    context = revoke_context_and_delete_hosts(row, person.get_username(), reason, now)
    access_requests.end_grant_of_access_request(
        row, actor=rows.resolve_decider_actor(person), now=now, reason=reason
    )
    if context.granted and plugin_permissions.has_plugin_permission(row.plugin_id, row.permission_type):
        plugin_permissions.remove_plugin_permission(
            row.plugin_id,
            row.permission_type,
            actor=rows.resolve_decider_actor(person),
            now=now,
            reason=reason,
        )
    changes = {"before": before, "after": rows.snapshot_request(row)}
    rows.audit_request_event(
        "PERMISSION_APPROVAL_REVOKED",
        row,
        rows.resolve_decider_actor(person),
        "success",
        now,
        reason=reason,
        metadata=changes,
    )
    return row


def revoke_context_and_delete_hosts(
    row: PermissionRequest, by: str, reason: str | None, now: datetime
) -> PermissionContext:
    context = rules.request_context(row) or rows.create_missing_request_context(row)
    context.revoked_at, context.revoked_by, context.revoke_reason = now, by, reason
    context.save(update_fields=["revoked_at", "revoked_by", "revoke_reason"])
    known_hosts.delete_hosts_of_revoked_request(row)
    return context


def revoke_unused_single_use_approvals(*, actor: Actor, reason: str, now: datetime) -> int:
    """End the approvals for one call that no call has used yet; return how many."""
    unused_requests = PermissionRequest.objects.filter(
        status=RequestStatus.APPROVED,
        context__repeat_key__isnull=False,
        context__validity=rules.Validity.ONCE,
        context__used_at__isnull=True,
        context__revoked_at__isnull=True,
    )
    with transaction.atomic():
        unused_approvals = [
            rows.lock_permission_request(request_id)
            for request_id in unused_requests.values_list("request_id", flat=True)
        ]
        usable = [row for row in unused_approvals if rules.single_use_valid_until(row, now) is not None]
        for row in usable:
            before = rows.snapshot_request(row)
            revoke_context_and_delete_hosts(row, str(actor), reason, now)
            changes = {"before": before, "after": rows.snapshot_request(row)}
            rows.audit_request_event(
                "PERMISSION_APPROVAL_REVOKED", row, actor, "success", now, reason=reason, metadata=changes
            )
    return len(usable)


def record_requests_seen(request_ids: list[str], *, person: Person, now: datetime | None = None) -> None:
    """Note that a person who could decide has had these requests on their screen, the first time only."""
    if has_role(person, APPROVER):
        now = now or timezone.now()
        requests, book = (
            PermissionRequest.objects.filter(request_id__in=request_ids),
            deciders.load_decider_book(now),
        )
        visible_rows = (
            [
                row.request_id
                for row in deciders.iterate_requests_without_inputs(requests)
                if book.can_decide_request(person, row)
            ]
            if book.differs_by_person
            else request_ids
        )
        seen_rows = requests.filter(request_id__in=visible_rows).values("request_id")
        unseen = PermissionContext.objects.filter(pk__in=seen_rows, seen_at__isnull=True)
        unseen.update(seen_at=now, seen_by=person.get_username())


def limit_approvals_to_own_request(request_ids: Sequence[str]) -> None:
    """Have approvals that another program wrote count for their own request alone."""
    for row in PermissionRequest.objects.filter(request_id__in=request_ids, context=None):
        rows.create_missing_request_context(row)
