"""Deciding: a signed-in approver says yes or no, exactly one wins, and some types take two people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from django.contrib.auth.models import User
from django.utils import timezone

from coordinator.actions import access_requests, deciders, notifications, plugin_permissions
from coordinator.actions.approvals import rows
from coordinator.actions.approvals.rows import Person
from coordinator.errors import BadRequest, Conflict, Forbidden, Invalid, SignalboxError
from coordinator.models import PermissionRequest, PermissionVote
from coordinator.policy import approvals as rules
from coordinator.policy import brakes, coverage, in_force
from coordinator.policy import deciders as rights
from coordinator.policy.access_requests import wanted_access_of
from coordinator.policy.approvals import Scope, Validity
from coordinator.policy.deciders import DeciderBook
from coordinator.policy.judged import judged_digest, told_in_audit
from coordinator.secrets.masking import masks_in


def decide(
    request_id: str,
    *,
    by: Person,
    verdict: Literal["approved", "denied"],
    reason: str | None = None,
    validity: Validity = Validity.ONCE,
    scope: Scope = Scope.CALL,
    judged: str | None = None,
    grant: bool = False,
    added: Callable[[PermissionRequest], Mapping[str, Any] | None] | None = None,
    adds_rules: bool = False,
    now: datetime | None = None,
) -> PermissionRequest:
    """Approve or deny a waiting request; with `grant`, also give the plugin the permission for good.

    `scope` is what an approval covers: by itself this call alone; what is wider lasts as long as `validity` says.
    `judged` is the digest of what the person saw (policy.judged.judged_digest): a request that is not that any
    more is not decided. Leave it out only where whoever decides has read the row itself. `added` returns what the
    asker is told beside an approval, such as an edited input, from the row as it is held; `adds_rules` says that this
    lets more calls run than the one.

    Returns the row; it still waits where two people are needed and this was the first. Raises Forbidden for
    anyone who may not decide it at that instant (policy.deciders), NotFound, and Conflict for a request
    that is decided, withdrawn or past its deadline, saying by whom. A refused attempt is audited. Leave `now`
    out but where a clock of its own is wanted: the time that counts is when the row is ours.
    """
    if verdict not in rules.DECIDED:
        raise Invalid("A request can only be approved or denied.")
    if grant and verdict == "denied":
        raise BadRequest("A denial cannot include a grant.")
    reason = (reason or "").strip() or None
    vote = _Vote(
        by.get_username(), verdict, Validity(validity), Scope(scope), judged, reason, grant, added, adds_rules
    )
    return rows.keeping_refusals(lambda: _decide(request_id, by, vote, now))


@dataclass(frozen=True, slots=True)
class _Vote:
    voter: str
    verdict: str
    validity: Validity
    scope: Scope
    judged: str | None
    reason: str | None
    grant: bool
    added: Callable[[PermissionRequest], Mapping[str, Any] | None] | None = None
    adds_rules: bool = False
    right_of: str | None = None  # whose right it is given with; the voter's own, or one handed to them

    @property
    def lent_by(self) -> str | None:
        """Whose right it was, where it is not the voter's own."""
        return None if self.right_of == self.voter else self.right_of


def _decide(
    request_id: str, by: Person, vote: _Vote, at: datetime | None
) -> PermissionRequest | SignalboxError:
    deciders.hold()  # whoever loses the right from here on has decided first
    row = rows.locked(request_id)
    now = at or timezone.now()  # once the row is held: who waited for it past the deadline comes too late
    book, by = rights.load(now), deciders.as_now(by)
    if wanted_access_of(row) is not None:  # a grant is for a time, and for all that its agent does
        hour = vote.validity is Validity.ONCE
        vote = replace(vote, scope=Scope.EVERYWHERE, validity=Validity.HOUR if hour else vote.validity)
    refusal = (
        _may_not_decide(row, by, book)
        or _may_not_allow_for_good(row, by, vote)
        or rows.cannot_be_decided(row, now)
        or _not_as_judged(row, vote)
        or (_held_by_brake(row) if vote.verdict == "approved" else None)
    )
    if refusal is not None:
        return rows.refused(row, by, vote.verdict, refusal, now)
    _require_as_many_as_now(row, book)
    if vote.verdict == "approved" and rules.needed(row) > 1:
        return _vote_to_approve(row, by, vote, book)
    vote = replace(vote, right_of=_right(row, by, book, used=()))
    return _close(row, by, vote, [vote], now)


def _may_not_decide(row: PermissionRequest, by: Person, book: DeciderBook) -> SignalboxError | None:
    why_not = book.why_not(by, row)
    return Forbidden(why_not) if why_not else None


def _may_not_allow_for_good(row: PermissionRequest, by: Person, vote: _Vote) -> SignalboxError | None:
    """Refuse to allow anything for good to whoever may not change grants: others' requests would end with it."""
    if vote.verdict == "denied":
        return None
    makes_grant = vote.validity is Validity.UNTIL_REVOKED and wanted_access_of(row) is not None
    if not (vote.grant or vote.adds_rules or makes_grant):
        return None
    return None if rights.may_edit_policy(by) else Forbidden(rights.ADMINS_EDIT)


def _require_as_many_as_now(row: PermissionRequest, book: DeciderBook) -> None:
    """Write down where rows want more people by now than when it was asked; that they want fewer changes nothing."""
    needed = book.needed(row)
    if needed > rules.needed(row):
        context = rules.context_of(row) or rows.late_context(row)
        context.needed = needed
        context.save(update_fields=["needed"])
        row.context = context


def _right(row: PermissionRequest, by: Person, book: DeciderBook, used: Collection[str]) -> str | None:
    """Return by whose right the person decides: their own where they have it, else one that was handed to them.

    None where each that they have is used for this request already. Without a row every approver has their own.
    """
    own = by.get_username()
    found = book.rights(by, row) if isinstance(by, User) and book.rule_for(row) is not None else [own]
    return next((one for one in found if one not in used), None)


def _held_by_brake(row: PermissionRequest) -> SignalboxError | None:
    """Return why nothing is approved while a brake holds the asker: its calls stay waiting."""
    if not brakes.holds_request(row):
        return None
    return Conflict("Nothing was approved: the brake is on. Release it first, or deny the request.")


def _not_as_judged(row: PermissionRequest, vote: _Vote) -> SignalboxError | None:
    """Return why the vote does not fit the request that is held: it is not what was seen, or has no such scope."""
    if vote.judged is not None and vote.judged != judged_digest(row):
        return Conflict(
            "Nothing was decided: the request differs from what your page showed. Reload the page and "
            "check it again."
        )
    if vote.verdict == "denied":
        return None
    if (vote.scope is Scope.CALL) != (vote.validity is Validity.ONCE):
        return BadRequest("An approval of one call has no validity. An approval that covers more needs one.")
    if vote.scope not in coverage.requester_of(row).scopes:
        return BadRequest(
            "Nothing was decided: the request names no session or folder that the approval could cover."
        )
    return None


def _vote_to_approve(
    row: PermissionRequest, by: Person, vote: _Vote, book: DeciderBook
) -> PermissionRequest | SignalboxError:
    """Count one of several approvals; the last one needed closes the request with all names.

    Approvals by people who have lost the right since do not count, and nobody's right counts twice.
    """
    now = book.now
    earlier = book.counting(row, PermissionVote.objects.filter(request=row).order_by("id"))
    vote = replace(vote, right_of=_right(row, by, book, [one.right_of or one.voter for one in earlier]))
    judged = judged_digest(row)
    refusal = _cannot_join(vote, earlier, judged)
    if refusal is not None:
        return rows.refused(row, by, vote.verdict, refusal, now)
    if vote.added is not None:
        vote.added(row)  # raises for an edit: one vote of several must not lose it unsaid
    PermissionVote.objects.filter(request=row, voter=vote.voter).delete()  # one that does not count any more
    PermissionVote.objects.create(
        request=row,
        voter=vote.voter,
        validity=vote.validity,
        scope=vote.scope,
        judged=judged,
        reason=vote.reason,
        wants_grant=vote.grant,
        right_of=vote.lent_by,
        at=now,
    )
    if len(earlier) + 1 < rules.needed(row):
        rows.touch(row)
        rows.record(
            "PERMISSION_REQUEST_VOTED",
            row,
            rows.actor_of(by),
            "allowed",
            now,
            reason=vote.reason,
            metadata=_evidence(row, now) | _for_whom([vote]),
        )
        return row
    return _close(row, by, _joint(vote, earlier), [*earlier, vote], now)


def _cannot_join(vote: _Vote, earlier: list[PermissionVote], judged: str) -> SignalboxError | None:
    """Return why the vote does not count beside the earlier ones."""
    if any(other.voter == vote.voter for other in earlier):
        return Conflict("You have already approved this. A second person must approve it too.")
    if vote.right_of is None:
        used = next(
            f"{other.voter} has already approved this for {other.right_of or other.voter}"
            for other in earlier
        )
        return Conflict(f"{used}, and each right counts once. Another person must approve it too.")
    if any(other.judged not in (None, judged) for other in earlier):
        return Conflict(
            "The request has changed since it was first approved. Deny it; the agent can ask again."
        )
    return None


def _joint(vote: _Vote, earlier: list[PermissionVote]) -> _Vote:
    """Return what all voters agreed to: the shortest validity, the narrowest scope, a grant if everyone wished it."""
    validity, scope = vote.validity, vote.scope
    for other in earlier:
        validity = rules.shorter(validity, Validity(other.validity))
        scope = rules.narrower(scope, Scope(other.scope or Scope.EVERYWHERE))
    if validity is Validity.ONCE or scope is Scope.CALL:
        validity, scope = Validity.ONCE, Scope.CALL
    said = [f"{other.voter}: {other.reason}" for other in earlier if other.reason]
    reason = (
        "; ".join([*said, *([f"{vote.voter}: {vote.reason}"] if vote.reason else [])])
        if said
        else vote.reason
    )
    return replace(
        vote,
        validity=validity,
        scope=scope,
        reason=reason,
        grant=vote.grant and all(other.wants_grant for other in earlier),
    )


def _close(
    row: PermissionRequest, by: Person, vote: _Vote, votes: Sequence[_Vote | PermissionVote], now: datetime
) -> PermissionRequest | SignalboxError:
    approved, names = vote.verdict == "approved", [one.voter for one in votes]
    added = dict(vote.added(row) or {}) if approved and vote.added is not None else {}
    cover_key = _cover_key(row, vote.scope, added) if approved else None
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
        scope=vote.scope if approved else Scope.CALL,
        cover_key=cover_key,
        granted=vote.grant,
        answer=added or None,
        decided_for=_for_whom(votes).get("decided_for"),
    )
    notifications.settled(row, now=now)
    if approved:
        access_requests.create_grant(row, by=rows.actor_of(by), now=now, reason=vote.reason)
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
        metadata={"before": before, "after": rows.snapshot(row), "decided_by": names}
        | _for_whom(votes)
        | _evidence(row, now)
        | ({"scope": vote.scope.value} if approved else {})
        | ({"answer": added} if added else {}),
    )
    return row


def _for_whom(votes: Sequence[_Vote | PermissionVote]) -> dict[str, str]:
    """Return who decided with another's right, in words: {"decided_for": "bob for anna"}; nothing where nobody did."""
    lent = [(one.voter, one.lent_by if isinstance(one, _Vote) else one.right_of) for one in votes]
    words = ", ".join(f"{voter} for {giver}" for voter, giver in lent if giver)
    return {"decided_for": words} if words else {}


def _evidence(row: PermissionRequest, now: datetime) -> dict[str, Any]:
    """Return what the decision's audit entry says of its grounds: what was judged, and the policy at that time."""
    context = rules.context_of(row)
    agent_id = context.agent_id if context else None
    return told_in_audit(row) | in_force.at_decision(rules.subject_of(row).tool_name, agent_id, now)


def _cover_key(row: PermissionRequest, scope: Scope, added: Mapping[str, Any]) -> str | None:
    """Return the digest by which later requests find this approval. An edited one is of the edited input only."""
    call = rules.call_of(row)
    if "updated_input" in added:
        edited = replace(rules.subject_of(row), tool_input=added["updated_input"])
        if scope is not Scope.CALL and masks_in([edited.target_resource, edited.tool_input]):
            raise BadRequest(
                "An edited call that holds masked secrets can only be approved for this one call."
            )
        call = rules.call_digest(edited)
    return coverage.cover_key(call, coverage.requester_of(row), scope)
