"""Deciding: a signed-in approver says yes or no, exactly one wins, and some types take two people."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from django.conf import settings
from django.utils import timezone

from coordinator import approvals as rules
from coordinator.access_requests import wish_of
from coordinator.actions import access_requests, plugin_permissions
from coordinator.actions.approvals import rows
from coordinator.actions.approvals.rows import Person
from coordinator.approvals import Validity
from coordinator.errors import BadRequest, Conflict, Forbidden, Invalid, SignalboxError
from coordinator.models import PermissionRequest, PermissionVote
from coordinator.roles import APPROVER, has_role


def decide(
    request_id: str,
    *,
    by: Person,
    verdict: Literal["approved", "denied"],
    reason: str | None = None,
    validity: Validity = Validity.ONCE,
    grant: bool = False,
    answer: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> PermissionRequest:
    """Approve or deny a waiting request; with `grant`, also give the plugin the permission for good.

    `answer` is what the asker is told beside the verdict, such as an edited input; whoever asks knows its form.

    Returns the row; it still waits where two people are needed and this was the first. Raises Forbidden for
    anyone but an approver (and, where so set, for the one who asked), NotFound, and Conflict for a request
    that is decided, withdrawn or past its deadline, saying by whom. A refused attempt is audited. Leave `now`
    out but where a clock of its own is wanted: the time that counts is when the row is ours.
    """
    if verdict not in ("approved", "denied"):
        raise Invalid("A request is approved or denied, nothing else.")
    if grant and verdict == "denied":
        raise BadRequest("A denied request cannot grant anything.")
    vote = _Vote(
        by.get_username(), verdict, Validity(validity), (reason or "").strip() or None, grant, answer
    )
    return rows.keeping_refusals(lambda: _decide(request_id, by, vote, now))


@dataclass(frozen=True, slots=True)
class _Vote:
    voter: str
    verdict: str
    validity: Validity
    reason: str | None
    grant: bool
    answer: Mapping[str, Any] | None = None


def _decide(
    request_id: str, by: Person, vote: _Vote, at: datetime | None
) -> PermissionRequest | SignalboxError:
    row = rows.locked(request_id)
    now = at or timezone.now()  # once the row is held: who waited for it past the deadline comes too late
    if vote.validity is Validity.ONCE and wish_of(row) is not None:
        vote = replace(vote, validity=Validity.HOUR)  # a grant is for a time: once would be over as it begins
    refusal = _may_not_decide(row, by) or rows.cannot_be_decided(row, now)
    if refusal is not None:
        return rows.refused(row, by, vote.verdict, refusal, now)
    if vote.verdict == "approved" and rules.needed(row) > 1:
        return _vote_to_approve(row, by, vote, now)
    return _close(row, by, vote, (vote.voter,), now)


def _may_not_decide(row: PermissionRequest, by: Person) -> SignalboxError | None:
    if not has_role(by, APPROVER):
        return Forbidden("Deciding takes the role approver.")
    context = rules.context_of(row)
    if not settings.DECIDE_OWN_REQUESTS and context is not None and context.owner == by.get_username():
        return Forbidden("You asked for this yourself (or your key did): somebody else must decide.")
    return None


def _vote_to_approve(
    row: PermissionRequest, by: Person, vote: _Vote, now: datetime
) -> PermissionRequest | SignalboxError:
    """Count one of several approvals; the last one needed closes the request with all names."""
    earlier = list(PermissionVote.objects.filter(request=row).order_by("id"))
    if any(other.voter == vote.voter for other in earlier):
        refusal = Conflict("You have approved this already. It takes somebody else as well.")
        return rows.refused(row, by, vote.verdict, refusal, now)
    PermissionVote.objects.create(
        request=row,
        voter=vote.voter,
        validity=vote.validity,
        reason=vote.reason,
        wants_grant=vote.grant,
        at=now,
    )
    if len(earlier) + 1 < rules.needed(row):
        # The row is touched so that every open card is told that one approval is in.
        PermissionRequest.objects.filter(pk=row.pk).update(status="pending")
        rows.record("PERMISSION_REQUEST_VOTED", row, rows.actor_of(by), "allowed", now, reason=vote.reason)
        return row
    return _close(row, by, _joint(vote, earlier), (*(other.voter for other in earlier), vote.voter), now)


def _joint(vote: _Vote, earlier: list[PermissionVote]) -> _Vote:
    """Return what all voters agreed to: the shortest validity, a grant only if everyone wished it."""
    validity = vote.validity
    for other in earlier:
        validity = rules.shorter(validity, Validity(other.validity))
    said = [f"{other.voter}: {other.reason}" for other in earlier if other.reason]
    reason = (
        "; ".join([*said, *([f"{vote.voter}: {vote.reason}"] if vote.reason else [])])
        if said
        else vote.reason
    )
    return replace(
        vote,
        validity=validity,
        reason=reason,
        grant=vote.grant and all(other.wants_grant for other in earlier),
    )


def _close(
    row: PermissionRequest, by: Person, vote: _Vote, names: tuple[str, ...], now: datetime
) -> PermissionRequest | SignalboxError:
    approved = vote.verdict == "approved"
    before = rows.snapshot(row)
    won = rows.swap(
        row,
        status=vote.verdict,
        approved_by=", ".join(names),
        approved_at=now,
        expires_at=rules.end_of(vote.validity, now) if approved else None,
    )
    if not won:
        return rows.refused(
            row, by, vote.verdict, Conflict(f"Nothing was changed: {rules.story(row, now)}"), now
        )
    rows.close_context(
        row,
        closed_at=now,
        closed_by=str(rows.actor_of(by)),
        reason=vote.reason,
        validity=vote.validity if approved else None,
        granted=vote.grant,
        answer=vote.answer,
    )
    if approved:
        access_requests.give(row, by=rows.actor_of(by), now=now, reason=vote.reason)
    if vote.grant:
        plugin_permissions.grant(
            row.plugin_id, row.permission_type, by=rows.actor_of(by), now=now, reason=vote.reason
        )
    rows.record(
        f"PERMISSION_REQUEST_{vote.verdict.upper()}",
        row,
        rows.actor_of(by),
        "allowed" if approved else "denied",
        now,
        reason=vote.reason,
        metadata={"before": before, "after": rows.snapshot(row), "decided_by": list(names)}
        | ({"answer": dict(vote.answer)} if vote.answer else {}),
    )
    return row
