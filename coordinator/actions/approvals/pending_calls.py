"""Pending calls: denied for now, decided later, and run once when exactly the same call is made again.

An agent's hook waits for minutes, a person may need a day. So such a request outlives the hook that made it, and its
verdict answers one call: the first that takes it (a compare-and-swap), be it the hook that still waits or the same call
made again. All state is in the database: neither a restart nor another worker changes which call may take it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Case, Q, Value, When

from coordinator.actions.approvals import rows
from coordinator.identity.actors import Actor
from coordinator.mcp.gateway import workers
from coordinator.models import PermissionContext, PermissionRequest, Session
from coordinator.models.permissions import RequestStatus
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.approval_coverage import Requester
from coordinator.policy.requests.approvals import Validity
from coordinator.policy.requests.tool_calls import GATEWAY
from coordinator.secrets.digests import keyed_digest

# How long a verdict that was sent for a call also answers its agent's other requests about that call, by id.
ANSWERS_AGAIN = timedelta(minutes=2)
MOST_CANDIDATES = 20  # requests looked at for one call


def compute_repeated_call_key(actor: Actor, requester: Requester, call: str) -> str:
    """Return the digest that a call shares with itself made again: the same key, agent, call, folder and host."""
    return keyed_digest("repeat", str(actor), requester.agent_id, requester.folder, requester.host, call)


def find_request_for_call(
    key: str, requester: Requester, now: datetime, *, waited_by: str | None = None
) -> PermissionRequest | None:
    """Return the request that answers a call with this key: the newest unsent verdict, else one that waits.

    `key` comes from `compute_repeated_call_key`. The request is one of the same session or, where the folder and the
    host are known, of a session that is over because the agent was restarted. A request for which an equal call waits
    now belongs to that call: `waited_by` identifies the call that asks.
    """
    same_session = Q(context__session_id=requester.session_id)
    if requester.folder and requester.host:
        over = Session.objects.filter(status=Session.Status.FINISHED)
        same_session |= Q(context__session_id__in=over.values("session_id"))
    # A client of the gateway has a session of its own for each time that it connects.
    same_session |= Q(plugin_id=GATEWAY)
    requests = PermissionRequest.objects.defer_large_columns().filter(
        same_session,
        Q(status=RequestStatus.PENDING, expires_at__gt=now)
        | Q(status__in=rules.DECIDED, context__closed_at__gt=now - pending_call_lifetime()),
        context__repeat_key=key,
        context__used_at__isnull=True,
        context__revoked_at__isnull=True,
    )
    verdicts_first = Case(When(status=RequestStatus.PENDING, then=Value(1)), default=Value(0))
    candidates = list(requests.order_by(verdicts_first, "-id")[:MOST_CANDIDATES])
    decided = [
        row for row in candidates if row.status != RequestStatus.PENDING and is_single_use_verdict(row)
    ]
    if decided:
        return max(decided, key=lambda row: row.context.closed_at)
    waiting = (row for row in candidates if row.status == RequestStatus.PENDING)
    return next((row for row in waiting if not is_request_awaited_by_other_call(row, waited_by, now)), None)


def is_request_awaited_by_other_call(row: PermissionRequest, waited_by: str | None, now: datetime) -> bool:
    """Return whether another call than that of `waited_by` waits by the request just now, as far as both are known."""
    process, _, call_id = (row.context.waited_by or "").partition(" ")
    own_id = (waited_by or "").partition(" ")[2]
    until = row.context.waits_until
    if not call_id or not own_id or call_id == own_id or workers.is_worker_known_to_have_ended(process):
        return False
    return isinstance(until, datetime) and until > now


def pending_call_lifetime() -> timedelta:
    """Return for how long a request stays open beyond its hook, and then its approval."""
    return timedelta(seconds=settings.HELD_FOR)


def is_single_use_verdict(row: PermissionRequest) -> bool:
    """Return whether its verdict is for one call; an approval that lasts is found by what it covers."""
    return row.status == RequestStatus.DENIED or row.context.validity == Validity.ONCE


def record_hook_wait_deadline(
    row: PermissionRequest, waits_until: datetime | None, waited_by: str | None
) -> None:
    """Note that a hook waits by the request until then, and have its cards say so."""
    rows.notify_request_changed(row)  # first, as a decision locks the request before its context
    PermissionContext.objects.filter(request=row).update(waits_until=waits_until, waited_by=waited_by)


def mark_request_deferred_or_none(
    request_id: str, *, actor: Actor, reason: str, now: datetime
) -> PermissionRequest | None:
    """Record that the asker was asked to wait; return the request, or None if no person can decide it any more."""
    with transaction.atomic():
        row = rows.lock_permission_request(request_id)
        context = rules.request_context(row)
        if context is None or context.repeat_key is None or not rules.current_request_state(row, now).waiting:
            return None
        if context.held_at is None:
            context.held_at = now
            context.save(update_fields=["held_at"])
            rows.audit_request_event("PERMISSION_REQUEST_HELD", row, actor, "success", now, reason=reason)
        rows.notify_request_changed(row)
    return row


def try_consume_request_verdict(
    request_id: str,
    *,
    actor: Actor,
    call: str,
    session_id: str,
    call_id: str | None,
    now: datetime,
    waiter: str | None = None,
) -> bool:
    """Take a request's verdict for one call, `call` being its digest; return whether this call may have it.

    Of all calls that try, one gets it, and the audit log records which call did, unless it is the one that asked.
    `waiter` identifies the call where its id is not certain. A denial of a request that was never meant to outlive its
    hook applies to all calls that wait.
    """
    with transaction.atomic():
        row = rows.lock_permission_request(request_id)
        context = rules.request_context(row)
        if context is None:
            return True
        if context.repeat_key is None:
            return consume_single_approval(
                row, context, " ".join(filter(None, (session_id, call_id, waiter))), now
            )
        if row.status not in rules.DECIDED or not is_single_use_verdict(row):
            return rules.current_request_state(row, now).in_force
        return try_consume_late_verdict(
            row, actor=actor, call=call, session_id=session_id, call_id=call_id, now=now
        )


def try_consume_late_verdict(
    row: PermissionRequest, *, actor: Actor, call: str, session_id: str, call_id: str | None, now: datetime
) -> bool:
    """Take the verdict of a request that outlives its hook."""
    context = row.context
    user = f"{session_id} {call_id or ''}".strip()
    if context.used_at is not None:
        return call_id is not None and context.used_by == user and context.used_at > now - ANSWERS_AGAIN
    if context.subject_key != call or is_verdict_expired(context, now):
        return False
    free = PermissionContext.objects.filter(pk=context.pk, used_at__isnull=True, revoked_at__isnull=True)
    if free.update(used_at=now, used_by=user) == 0:
        return False
    requesting_call_id = row.metadata.get("tool_use_id") if isinstance(row.metadata, dict) else None
    if context.held_at is not None or (context.session_id, requesting_call_id) != (session_id, call_id):
        audit_verdict_use(row, actor, session_id, call_id, now)
    rows.notify_request_changed(row)
    return True


def consume_single_approval(
    row: PermissionRequest, context: PermissionContext, user: str, now: datetime
) -> bool:
    """Take the approval of one call for `user`; who has it already keeps it. Any other verdict is everybody's."""
    if row.status != PermissionRequest.Status.APPROVED or not is_single_use_verdict(row):
        return True
    free = PermissionContext.objects.filter(pk=context.pk, used_at__isnull=True)
    if context.used_at is None and free.update(used_at=now, used_by=user):
        rows.notify_request_changed(row)
        return True
    return context.used_by == user and context.used_at > now - ANSWERS_AGAIN


def is_verdict_expired(context: PermissionContext, now: datetime) -> bool:
    return not isinstance(context.closed_at, datetime) or context.closed_at <= now - pending_call_lifetime()


def audit_verdict_use(
    row: PermissionRequest, actor: Actor, session_id: str, call_id: str | None, now: datetime
) -> None:
    used = {
        "agent_id": row.context.agent_id,
        "session_id": session_id,
        "tool_use_id": call_id,
        "tool": row.context.tool_name,
    }
    approved = row.status in rules.APPROVED
    event = "PERMISSION_APPROVAL_USED" if approved else "PERMISSION_DENIAL_TOLD"
    rows.audit_request_event(event, row, actor, "allowed" if approved else "denied", now, metadata=used)
