"""Closes the cards of calls for which no hook waits any more.

A hook that waits closes its card itself, whatever ends the wait. This is for what has nobody left to close it: the
server was killed beneath its hooks. Those of calls that are held for certain come again, under the id by which they
asked, and an agent whose call was denied may make it again at once (both have a `repeat_key`): they find their card, or
ask anew where it was closed. Told to wait (`held_at`), an agent may make its call again whenever it likes, so those
cards stay open.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timedelta

from coordinator.actions import approvals
from coordinator.actions.approvals import rows
from coordinator.actions.tool_calls import GONE, went_on
from coordinator.errors import Conflict, Forbidden, NotFound
from coordinator.gateway import workers
from coordinator.identity.actors import system
from coordinator.lib import instants
from coordinator.models import PermissionContext, PermissionRequest
from coordinator.policy import approvals as rules
from coordinator.policy.tool_calls import AskedCall

WENT_ON = "The session went on, or ended, before anybody answered here."
COMES_AGAIN_WITHIN = timedelta(
    seconds=30
)  # a hook that is held tries every two seconds once the server is back
MOST_AT_ONCE = 1_000


def close_due(now: datetime) -> int:
    """Close what nobody waits for; return how many. Safe to run at any time, by anyone."""
    asked = PermissionRequest.objects.filter(
        status="pending", context__waited_by__isnull=False, context__held_at__isnull=True
    )
    waited_by = dict(asked.order_by("id").values_list("pk", "context__waited_by"))
    alive = {one for one in map(_process, set(waited_by.values())) if workers.is_alive(one)}
    left = [pk for pk, one in waited_by.items() if _process(one) not in alive]
    rows_left = PermissionRequest.objects.without_bodies().filter(pk__in=left[:MOST_AT_ONCE])
    return sum(_close_if_unawaited(row, now) for row in rows_left.order_by("id")) if left else 0


def _process(waited_by: str | None) -> str:
    return (waited_by or "").partition(" ")[0]


def _close_if_unawaited(row: PermissionRequest, now: datetime) -> bool:
    process = _process(row.context.waited_by)
    if workers.is_alive(process):  # it came again just now
        return False
    if workers.is_gone(process) and row.context.repeat_key is None:
        return _close(row, GONE, now)
    until = row.context.waits_until
    if isinstance(until, datetime) and until + COMES_AGAIN_WITHIN <= now:
        return _close(row, GONE, now)
    if workers.is_gone(process):
        _expect_again(row, now)
        return False
    # One that the same call may have joined when it was made again says so until its hook is over.
    may_be_joined = row.context.repeat_key is not None
    return not may_be_joined and went_on(_asked(row)) and _close(row, WENT_ON, now)


def _expect_again(row: PermissionRequest, now: datetime) -> None:
    """Have the request be waited for no longer, unless its hook comes again (holding.join)."""
    cut_short = PermissionContext.objects.filter(
        request=row, waited_by=row.context.waited_by, waits_until__gt=now
    )
    if cut_short.update(waits_until=now):
        rows.touch(row)


def _close(row: PermissionRequest, why: str, now: datetime) -> bool:
    """Close the card unless it was decided, joined or told to wait meanwhile; say whether it was closed."""
    with suppress(Conflict, Forbidden, NotFound):
        approvals.withdraw(
            row.request_id,
            by=system("housekeeping"),
            may_all=True,
            unless_held=True,
            reason=why,
            now=now,
        )
        return True
    return False


def _asked(row: PermissionRequest) -> AskedCall:
    """Return the call as its hook asked about it, as far as its end is known by that."""
    told = row.metadata if isinstance(row.metadata, dict) else {}
    subject = rules.subject_of(row)
    return AskedCall(
        asks=str(told.get("hook") or ""),
        session_id=row.context.session_id or "",
        agent_id=row.context.agent_id,
        since_us=instants.to_us(row.created_at) if isinstance(row.created_at, datetime) else 0,
        tool=subject.tool_name or "",
        tool_input=subject.tool_input if isinstance(subject.tool_input, dict) else None,
        about="",
        program=row.plugin_id,
        call_id=told.get("tool_use_id"),
        subagent=told.get("subagent"),
    )
