"""Closing of the cards of calls for which no hook waits any more.

A hook that waits closes its card itself, whatever ends the wait. This is for cards that nobody else closes: the server
was killed while hooks waited. Hooks of calls that are pending for certain come again, under the id by which they asked,
and an agent whose call was denied may make it again at once (both have a `repeat_key`): they find their card, or ask
again where it was closed. An agent that was asked to wait (`held_at`) may make its call again at any time, so those
cards stay open.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from coordinator.actions import approvals
from coordinator.actions.approvals import rows
from coordinator.actions.sessions.tool_calls import GONE, has_session_moved_past_call
from coordinator.errors import Conflict, Forbidden, NotFound
from coordinator.identity.actors import system_actor
from coordinator.lib import instants
from coordinator.mcp.gateway import workers
from coordinator.models import PermissionContext, PermissionRequest
from coordinator.models.permissions import RequestStatus
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.tool_calls import ToolCallRequest

WENT_ON = "The session went on, or ended, before anybody answered here."
COMES_AGAIN_WITHIN = timedelta(
    seconds=30
)  # a hook that is held tries every two seconds once the server is back
MOST_AT_ONCE = 1_000


def close_abandoned_requests(now: datetime) -> int:
    """Close what nobody waits for; return how many. Safe to run at any time, by anyone."""
    open_requests = PermissionRequest.objects.filter(
        status=RequestStatus.PENDING, context__waited_by__isnull=False, context__held_at__isnull=True
    )
    waited_by = dict(open_requests.order_by("id").values_list("pk", "context__waited_by"))
    alive = {
        waiting_process
        for waiting_process in map(parse_waited_by_process, set(waited_by.values()))
        if workers.is_worker_known_to_run(waiting_process)
    }
    abandoned_ids = [pk for pk, one in waited_by.items() if parse_waited_by_process(one) not in alive]
    rows_left = PermissionRequest.objects.defer_large_columns().filter(pk__in=abandoned_ids[:MOST_AT_ONCE])
    return (
        sum(close_request_if_abandoned(row, now) for row in rows_left.order_by("id")) if abandoned_ids else 0
    )


def parse_waited_by_process(waited_by: str | None) -> str:
    return (waited_by or "").partition(" ")[0]


def close_request_if_abandoned(row: PermissionRequest, now: datetime) -> bool:
    process = parse_waited_by_process(row.context.waited_by)
    if workers.is_worker_known_to_run(process):  # it came again just now
        return False
    if workers.is_worker_known_to_have_ended(process) and row.context.repeat_key is None:
        return withdraw_abandoned_request(row, GONE, now)
    until = row.context.waits_until
    if isinstance(until, datetime) and until + COMES_AGAIN_WITHIN <= now:
        return withdraw_abandoned_request(row, GONE, now)
    if workers.is_worker_known_to_have_ended(process):
        end_hook_wait(row, now)
        return False
    # One that the same call may have joined when it was made again says so until its hook is over.
    may_be_joined = row.context.repeat_key is not None
    return (
        not may_be_joined
        and has_session_moved_past_call(rebuild_call_from_permission_request(row))
        and withdraw_abandoned_request(row, WENT_ON, now)
    )


def end_hook_wait(row: PermissionRequest, now: datetime) -> None:
    """Have the request be waited for no longer, unless its hook comes again (holding.join)."""
    cut_short = PermissionContext.objects.filter(
        request=row, waited_by=row.context.waited_by, waits_until__gt=now
    )
    if cut_short.update(waits_until=now):
        rows.notify_request_changed(row)


def withdraw_abandoned_request(row: PermissionRequest, reason: str, now: datetime) -> bool:
    """Close the card unless it was decided, joined or asked to wait meanwhile; return whether it was closed."""
    with suppress(Conflict, Forbidden, NotFound):
        approvals.withdraw_request(
            row.request_id,
            actor=system_actor("housekeeping"),
            may_all=True,
            unless_deferred=True,
            reason=reason,
            now=now,
        )
        return True
    return False


def rebuild_call_from_permission_request(row: PermissionRequest) -> ToolCallRequest:
    """Return the call as its hook asked about it, as far as its end is known by that."""
    metadata = row.metadata if isinstance(row.metadata, dict) else {}
    subject = rules.request_subject(row)
    return ToolCallRequest(
        hook_name=str(metadata.get("hook") or ""),
        session_id=row.context.session_id or "",
        agent_id=row.context.agent_id,
        since_us=instants.instant_to_microseconds(row.created_at)
        if isinstance(row.created_at, datetime)
        else 0,
        tool=subject.tool_name or "",
        tool_input=subject.tool_input if isinstance(subject.tool_input, dict) else None,
        about="",
        program=row.plugin_id,
        call_id=metadata.get("tool_use_id"),
        subagent=metadata.get("subagent"),
    )
