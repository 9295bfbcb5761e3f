"""Decisions on requests: a signed-in approver approves or denies, exactly one wins, some types need two people."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from django.contrib.auth.models import User
from django.utils import timezone

from coordinator.actions import deciders, notifications
from coordinator.actions.approvals import rows
from coordinator.actions.approvals.rows import Person
from coordinator.actions.plugins import plugin_permissions
from coordinator.actions.policy import access_requests, known_hosts
from coordinator.errors import BadRequest, Conflict, Forbidden, SignalboxError, UnprocessableRequest
from coordinator.models import PermissionRequest, PermissionVote
from coordinator.policy.deciders import decider_book as rights
from coordinator.policy.deciders.decider_book import DeciderBook
from coordinator.policy.grants.access_requests import parse_access_request_or_none
from coordinator.policy.limits import brakes
from coordinator.policy.requests import approval_coverage, policy_in_force, question_requests
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.approvals import Scope, Validity
from coordinator.policy.requests.judged_content import judged_card_digest, judged_content_for_audit
from coordinator.policy.requests.questions import copy_without_secret_answers
from coordinator.policy.requests.tool_calls import STOPS_TURN
from coordinator.secrets.masking import find_masks_in_value

UNANSWERED = "Nothing was approved: this is a question. Open it and answer it, or deny it."
STOPS_NO_TURN = (
    "Nothing was decided: this agent's turn cannot be ended with a denial. Deny the request alone."
)
LONGEST_ACCESS = timedelta(days=7)  # the longest that people who may not change grants can give
ANSWERS_ONCE = "An answer counts for this one question alone."


def decide_request(
    request_id: str,
    *,
    person: Person,
    verdict: Literal["approved", "denied"],
    reason: str | None = None,
    validity: Validity = Validity.ONCE,
    scope: Scope = Scope.CALL,
    judged: str | None = None,
    grant: bool = False,
    added: Callable[[PermissionRequest], Mapping[str, Any] | None] | None = None,
    adds_rules: bool = False,
    is_answer: bool = False,
    stops_turn: bool = False,
    until: datetime | None = None,
    now: datetime | None = None,
) -> PermissionRequest:
    """Approve or deny a waiting request; with `grant`, also give the plugin the permission permanently.

    `scope` is what an approval covers: by default this call alone. A wider one lasts as long as `validity` says, or
    until the time `until` that the person entered (Validity.UNTIL).

    `judged` is the digest of what the person saw (policy.requests.judged_content.judged_card_digest): a request that
    has changed since is not decided. Leave it out only where the caller has read the row itself. `added` returns what
    the asker receives in addition to an approval, such as an edited input, from the locked row. `adds_rules` means that
    this lets more calls run than the one, `is_answer` that it holds the answer to a question, which no other approval
    does. A denial that `stops_turn` also ends the turn of an agent that can be stopped; BadRequest for any other.

    Returns the row; it still waits where two people are needed and this was the first. Raises Forbidden for anyone who
    may not decide it at that time (policy.deciders), NotFound, and Conflict, with the person's name, for a request that
    is decided, withdrawn or past its deadline. A refused attempt is audited. Pass `now` only where another clock is
    wanted: the time that counts is when the row is locked.
    """
    if verdict not in rules.DECIDED:
        raise UnprocessableRequest("A request can only be approved or denied.")
    if grant and verdict == "denied":
        raise BadRequest("A denial cannot include a grant.")
    reason = (reason or "").strip() or None
    vote = DecisionVote(
        person.get_username(),
        verdict,
        Validity(validity),
        Scope(scope),
        judged,
        reason,
        grant,
        added,
        adds_rules,
        is_answer,
        stops_turn,
        until=until,
    )
    return rows.run_transaction_then_raise_refusal(
        lambda: decide_request_or_return_error(request_id, person, vote, now)
    )


@dataclass(frozen=True, slots=True)
class DecisionVote:
    voter: str
    verdict: str
    validity: Validity
    scope: Scope
    judged: str | None
    reason: str | None
    grant: bool
    added: Callable[[PermissionRequest], Mapping[str, Any] | None] | None = None
    adds_rules: bool = False
    is_answer: bool = False
    stops_turn: bool = False
    right_of: str | None = None  # whose right it is given with; the voter's own, or one handed to them
    until: datetime | None = None

    @property
    def delegator_name_or_none(self) -> str | None:
        """Whose right it was, where it is not the voter's own."""
        return None if self.right_of == self.voter else self.right_of


def decide_request_or_return_error(
    request_id: str, person: Person, vote: DecisionVote, at: datetime | None
) -> PermissionRequest | SignalboxError:
    deciders.lock_decision_rights()  # a person who loses the right after this has decided before
    row = rows.lock_permission_request(request_id)
    now = at or timezone.now()  # once the row is held: who waited for it past the deadline comes too late
    book, person = rights.load_decider_book(now), deciders.reload_person(person)
    if (
        parse_access_request_or_none(row) is not None
    ):  # a grant is for a time, and for all that its agent does
        hour = vote.validity is Validity.ONCE
        vote = replace(vote, scope=Scope.EVERYWHERE, validity=Validity.HOUR if hour else vote.validity)
    refusal = (
        find_decider_permission_error(row, person, book)
        or find_policy_edit_permission_error(row, person, vote, now)
        or rows.find_closed_request_error(row, now)
        or find_vote_mismatch_error(row, vote)
        or find_missing_answer_error(row, vote)
        or find_turn_stop_error(row, vote)
        or (find_brake_error_for_approval(row) if vote.verdict == "approved" else None)
    )
    if refusal is not None:
        return rows.audit_refusal_and_return_error(row, person, vote.verdict, refusal, now)
    increase_required_vote_count(row, book)
    if vote.verdict == "approved" and rules.required_approver_count(row) > 1:
        return add_vote_closing_when_complete(row, person, vote, book)
    vote = replace(vote, right_of=find_decision_right_owner_name(row, person, book, used=()))
    return close_decision_or_return_error(row, person, vote, [vote], now)


def find_decider_permission_error(
    row: PermissionRequest, person: Person, book: DeciderBook
) -> SignalboxError | None:
    why_not = book.cannot_decide_reason_or_empty(person, row)
    return Forbidden(why_not) if why_not else None


def find_policy_edit_permission_error(
    row: PermissionRequest, person: Person, vote: DecisionVote, now: datetime
) -> SignalboxError | None:
    """Return an error if a person who may not change grants allows something permanently: others' requests would end.

    Access for longer than the longest length that cards offer counts as permanent.
    """
    if vote.verdict == "denied":
        return None
    end = rules.approval_end(vote.validity, now, vote.until)
    is_lasting = end is None or end > now + LONGEST_ACCESS
    makes_grant = is_lasting and parse_access_request_or_none(row) is not None
    if not (vote.grant or vote.adds_rules or makes_grant):
        return None
    return None if rights.can_user_edit_policy(person) else Forbidden(rights.ADMINS_EDIT)


def increase_required_vote_count(row: PermissionRequest, book: DeciderBook) -> None:
    """Write down where rows want more people by now than when it was asked; that they want fewer changes nothing."""
    needed = book.required_approval_count(row)
    if needed > rules.required_approver_count(row):
        context = rules.request_context(row) or rows.create_missing_request_context(row)
        context.needed = needed
        context.save(update_fields=["needed"])
        row.context = context


def find_decision_right_owner_name(
    row: PermissionRequest, person: Person, book: DeciderBook, used: Collection[str]
) -> str | None:
    """Return by whose right the person decides: their own where they have it, else one that was handed to them.

    None where each that they have is used for this request already. Without a row every approver has their own.
    """
    own = person.get_username()
    rights = (
        book.names_user_decides_for(person, row)
        if isinstance(person, User) and book.find_deciding_rule(row) is not None
        else [own]
    )
    return next((right for right in rights if right not in used), None)


def find_brake_error_for_approval(row: PermissionRequest) -> SignalboxError | None:
    """Return why nothing is approved while a brake holds the asker: its calls stay waiting."""
    if not brakes.is_request_braked(row):
        return None
    return Conflict("Nothing was approved: the brake is on. Release it first, or deny the request.")


def find_vote_mismatch_error(row: PermissionRequest, vote: DecisionVote) -> SignalboxError | None:
    """Return why the vote does not fit the request that is held: it is not what was seen, or has no such scope."""
    if vote.judged is not None and vote.judged != judged_card_digest(row):
        return Conflict(
            "Nothing was decided: the request differs from what your page showed. Reload the page and "
            "check it again."
        )
    if vote.verdict == "denied":
        return None
    if (vote.scope is Scope.CALL) != (vote.validity is Validity.ONCE):
        return BadRequest("An approval of one call has no validity. An approval that covers more needs one.")
    if (vote.validity is Validity.UNTIL) is (vote.until is None):
        return BadRequest(
            "Nothing was decided: an approval until a time needs that time, and no other has one."
        )
    if vote.scope not in approval_coverage.request_requester(row).possible_scopes:
        return BadRequest(
            "Nothing was decided: the request names no session or folder that the approval could cover."
        )
    return None


def find_missing_answer_error(row: PermissionRequest, vote: DecisionVote) -> SignalboxError | None:
    """Return why a question is not approved: it has no answer yet, or one that would count for more than itself."""
    if vote.verdict == "denied" or not question_requests.is_question_request(row):
        return None
    if not vote.is_answer:
        return BadRequest(UNANSWERED)
    return BadRequest(ANSWERS_ONCE) if vote.scope is not Scope.CALL or vote.grant else None


def find_turn_stop_error(row: PermissionRequest, vote: DecisionVote) -> SignalboxError | None:
    """Return why the vote does not end the agent's turn: only a denial does, of an agent that can be stopped."""
    if not vote.stops_turn or (vote.verdict == "denied" and rules.can_stop_turn(row)):
        return None
    return BadRequest(STOPS_NO_TURN)


def add_vote_closing_when_complete(
    row: PermissionRequest, person: Person, vote: DecisionVote, book: DeciderBook
) -> PermissionRequest | SignalboxError:
    """Count one of several approvals; the last one needed closes the request with all names.

    Approvals by people who have lost the right since do not count, and nobody's right counts twice.
    """
    now = book.now
    earlier = book.filter_valid_votes(row, PermissionVote.objects.filter(request=row).order_by("id"))
    vote = replace(
        vote,
        right_of=find_decision_right_owner_name(
            row, person, book, [earlier_vote.right_of or earlier_vote.voter for earlier_vote in earlier]
        ),
    )
    judged = judged_card_digest(row)
    refusal = find_conflicting_vote_error(vote, earlier, judged)
    if refusal is not None:
        return rows.audit_refusal_and_return_error(row, person, vote.verdict, refusal, now)
    if vote.added is not None:
        vote.added(row)  # raises for an edit: one vote of several must not lose it unsaid
    PermissionVote.objects.filter(request=row, voter=vote.voter).delete()  # one that does not count any more
    PermissionVote.objects.create(
        request=row,
        voter=vote.voter,
        validity=vote.validity,
        until=vote.until,
        scope=vote.scope,
        judged=judged,
        reason=vote.reason,
        wants_grant=vote.grant,
        right_of=vote.delegator_name_or_none,
        at=now,
    )
    if len(earlier) + 1 < rules.required_approver_count(row):
        rows.notify_request_changed(row)
        rows.audit_request_event(
            "PERMISSION_REQUEST_VOTED",
            row,
            rows.resolve_decider_actor(person),
            "allowed",
            now,
            reason=vote.reason,
            metadata=build_decision_audit_evidence(row, now) | build_decided_for_metadata([vote]),
        )
        return row
    return close_decision_or_return_error(
        row, person, build_narrowest_combined_vote(vote, earlier, now), [*earlier, vote], now
    )


def find_conflicting_vote_error(
    vote: DecisionVote, earlier: list[PermissionVote], judged: str
) -> SignalboxError | None:
    """Return the error for a vote that does not count in addition to the earlier ones."""
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


def build_narrowest_combined_vote(
    vote: DecisionVote, earlier: list[PermissionVote], now: datetime
) -> DecisionVote:
    """Return what all voters agreed to: the shortest validity, the narrowest scope, a grant if everyone wished it."""
    choices = [(Validity(other.validity), other.until) for other in earlier]
    validity, until = rules.shortest_validity([(vote.validity, vote.until), *choices], now)
    scope = vote.scope
    for other in earlier:
        scope = rules.narrower_scope(scope, Scope(other.scope or Scope.EVERYWHERE))
    if validity is Validity.ONCE or scope is Scope.CALL:
        validity, until, scope = Validity.ONCE, None, Scope.CALL
    reasons = [f"{other.voter}: {other.reason}" for other in earlier if other.reason]
    reason = (
        "; ".join([*reasons, *([f"{vote.voter}: {vote.reason}"] if vote.reason else [])])
        if reasons
        else vote.reason
    )
    return replace(
        vote,
        validity=validity,
        until=until,
        scope=scope,
        reason=reason,
        grant=vote.grant and all(other.wants_grant for other in earlier),
    )


def close_decision_or_return_error(
    row: PermissionRequest,
    person: Person,
    vote: DecisionVote,
    votes: Sequence[DecisionVote | PermissionVote],
    now: datetime,
) -> PermissionRequest | SignalboxError:
    approved, names = vote.verdict == "approved", [voter_row.voter for voter_row in votes]
    # A driven agent has several ways of saying no, too: then the answer names one.
    is_sent = approved or vote.is_answer
    added = dict(vote.added(row) or {}) if vote.added is not None and is_sent else {}
    if vote.stops_turn:
        added[STOPS_TURN] = True
    cover_key = compute_approval_reuse_key(row, vote.scope, added) if approved else None
    before = rows.snapshot_request(row)
    won = rows.update_request_if_pending(
        row,
        status=vote.verdict,
        approved_by=", ".join(names),
        approved_at=now,
        expires_at=rules.approval_end(vote.validity, now, vote.until) if approved else None,
    )
    if not won:
        return rows.audit_refusal_and_return_error(
            row,
            person,
            vote.verdict,
            Conflict(f"Nothing was changed: {rules.describe_request_outcome(row, now)}"),
            now,
        )
    rows.close_permission_request_context(
        row,
        closed_at=now,
        closed_by=str(rows.resolve_decider_actor(person)),
        reason=vote.reason,
        validity=vote.validity if approved else None,
        scope=vote.scope if approved else Scope.CALL,
        cover_key=cover_key,
        granted=vote.grant,
        answer=added or None,
        decided_for=build_decided_for_metadata(votes).get("decided_for"),
    )
    notifications.announce_request_end(row, now=now)
    if approved:
        known_hosts.save_hosts_of_approved_request(row, now)
        access_requests.create_grant_for_access_request(
            row, actor=rows.resolve_decider_actor(person), now=now, reason=vote.reason
        )
    if vote.grant:
        plugin_permissions.add_plugin_permission(
            row.plugin_id,
            row.permission_type,
            actor=rows.resolve_decider_actor(person),
            now=now,
            reason=vote.reason,
        )
    rows.audit_request_event(
        f"PERMISSION_REQUEST_{vote.verdict.upper()}",
        row,
        rows.resolve_decider_actor(person),
        "allowed" if approved else "denied",
        now,
        reason=vote.reason,
        metadata={"before": before, "after": rows.snapshot_request(row), "decided_by": names}
        | build_decided_for_metadata(votes)
        | build_decision_audit_evidence(row, now)
        | ({"scope": vote.scope.value} if approved else {})
        | ({"answer": copy_without_secret_answers(added)} if added else {}),
    )
    return row


def build_decided_for_metadata(votes: Sequence[DecisionVote | PermissionVote]) -> dict[str, str]:
    """Return who decided with another's right, in words: {"decided_for": "bob for anna"}; nothing where nobody did."""
    lent = [
        (vote.voter, vote.delegator_name_or_none if isinstance(vote, DecisionVote) else vote.right_of)
        for vote in votes
    ]
    delegation_list = ", ".join(f"{voter} for {giver}" for voter, giver in lent if giver)
    return {"decided_for": delegation_list} if delegation_list else {}


def build_decision_audit_evidence(row: PermissionRequest, now: datetime) -> dict[str, Any]:
    """Return what the decision's audit entry says of its grounds: what was judged, and the policy at that time."""
    context = rules.request_context(row)
    agent_id = context.agent_id if context else None
    return judged_content_for_audit(row) | policy_in_force.load_policy_state_for_audit(
        rules.request_subject(row).tool_name, agent_id, now
    )


def compute_approval_reuse_key(row: PermissionRequest, scope: Scope, added: Mapping[str, Any]) -> str | None:
    """Return the digest by which later requests find this approval. An edited one is of the edited input only."""
    call = rules.request_call_digest(row)
    if "updated_input" in added:
        edited = replace(rules.request_subject(row), tool_input=added["updated_input"])
        if scope is not Scope.CALL and find_masks_in_value([edited.target_resource, edited.tool_input]):
            raise BadRequest(
                "An edited call that holds masked secrets can only be approved for this one call."
            )
        call = rules.call_digest(edited)
    return approval_coverage.hash_approval_coverage(call, approval_coverage.request_requester(row), scope)
