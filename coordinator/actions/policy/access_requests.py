"""Grants made from approved requests for access; each ends with its approval."""

from __future__ import annotations

from datetime import datetime

from coordinator.actions.policy import grants
from coordinator.identity.actors import Actor
from coordinator.models import Grant, PermissionRequest
from coordinator.policy.grants.access import ALLOW, topmost_grants_of_slot
from coordinator.policy.grants.access_requests import RequestedAccess, parse_access_request_or_none
from coordinator.policy.grants.edits import GrantEdit


def create_grant_for_access_request(
    row: PermissionRequest, *, actor: Actor, now: datetime, reason: str | None
) -> None:
    """Grant what an approved request asks for, until the approval ends; nothing for any other request.

    The grant lies on top of the existing grants of that agent and tool: a permanent denial, or a grant that asks, is in
    force again once the approval is over. Where policy already allows it for as long, nothing is granted. Raises what
    `grants.apply` raises: without the grant there must be no approval either, so call it in the transaction of the
    decision.
    """
    wish = parse_access_request_or_none(row)
    if wish is None:
        return
    until = row.expires_at if isinstance(row.expires_at, datetime) else None
    top = topmost_grants_of_slot(find_grants_for_access_request(wish, now))
    if (
        top
        and all(row.effective_permission == ALLOW for row in top)
        and any(is_allow_grant_until(row, until) for row in top)
    ):
        return
    justification = f"{row.justification} (request {row.request_id}{f': {reason}' if reason else ''})"
    edit = GrantEdit(
        wish.agent_id,
        wish.server_id,
        wish.tool_name,
        ALLOW,
        until,
        justification[: grants.LONGEST_TEXT],
        gives_way=True,
    )
    grants.apply_grant_edits([edit], actor=actor, now=now)


def find_grants_for_access_request(wish: RequestedAccess, now: datetime) -> list[Grant]:
    slots = grants.load_grant_slots([wish.agent_id], [wish.server_id])
    rows = slots.get((wish.agent_id, wish.server_id, wish.tool_name), [])
    return [row for row in rows if grants.is_grant_current(row, now)]


def is_allow_grant_until(row: Grant, until: datetime | None) -> bool:
    if row.effective_permission != ALLOW:
        return False
    end = row.expires_at
    return end is None or (isinstance(end, datetime) and until is not None and end >= until)


def end_grant_of_access_request(
    row: PermissionRequest, *, actor: Actor, now: datetime, reason: str | None
) -> None:
    """End the grant that this approval made, if it is still in force."""
    wish = parse_access_request_or_none(row)
    if wish is None:
        return
    for current_grant in find_grants_for_access_request(wish, now):
        if current_grant.effective_permission == ALLOW and current_grant.granted_at == row.approved_at:
            grants.revoke_grant(
                current_grant.pk,
                actor=actor,
                now=now,
                reason=reason or f"Request {row.request_id} was revoked.",
            )
