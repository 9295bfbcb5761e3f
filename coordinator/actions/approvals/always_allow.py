"""Permanent approval of similar calls: the rule or grant is saved and the request approved, both or neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from coordinator.actions import deciders
from coordinator.actions.approvals import rows
from coordinator.actions.approvals.deciding import decide_request
from coordinator.actions.approvals.rows import Person
from coordinator.actions.policy import grants, tool_rules
from coordinator.errors import Conflict, Forbidden, SignalboxError
from coordinator.identity.roles import APPROVER, has_role
from coordinator.models import PermissionRequest
from coordinator.models.permissions import RequestStatus
from coordinator.policy.deciders import decider_book as who_decides
from coordinator.policy.grants.access_requests import parse_access_request_or_none
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.requests.approvals import Scope, Validity
from coordinator.policy.rules.tool_rules import DecisionRule
from coordinator.policy.suggestions.rules_for_requests import OF_TWO


@dataclass(frozen=True, slots=True)
class PermanentApproval:
    """The `rules` to save (None: unchanged), edited from version `seen_rules`, and edits of grants."""

    rules: Sequence[DecisionRule] | None = None
    seen_rules: str = ""
    edits: Sequence[GrantEdit] = ()


def approve_request_permanently(
    request_id: str, answer: PermanentApproval, *, person: Person, judged: str, now: datetime | None = None
) -> PermissionRequest:
    """Save the rules and the grant, and approve the request that was judged.

    Raises Forbidden for anyone but an approver, what saving rules and grants raises where they changed meanwhile, and
    what deciding raises; then nothing is written but the attempt.
    """
    if not has_role(person, APPROVER):
        raise Forbidden("You need the role approver to write rules and grants.")
    try:
        with transaction.atomic():
            return save_policy_and_approve_request(request_id, answer, person, judged, now)
    except SignalboxError as refusal:
        audit_failed_permanent_approval(request_id, person, refusal, now or timezone.now())
        raise


def save_policy_and_approve_request(
    request_id: str, answer: PermanentApproval, person: Person, judged: str, now: datetime | None
) -> PermissionRequest:
    deciders.lock_decision_rights()  # before the request, as deciding does
    if not who_decides.can_user_edit_policy(person):
        raise Forbidden(who_decides.ADMINS_EDIT)
    row, actor = rows.lock_permission_request(request_id), rows.resolve_decider_actor(person)
    now = now or timezone.now()  # read under the lock: it may have taken a while
    justification = f"Always allowed from request {request_id}"
    if answer.rules is not None:
        tool_rules.replace_tool_rules(
            list(answer.rules), seen_version=answer.seen_rules, actor=actor, now=now
        )
    makes_grant = parse_access_request_or_none(row) is not None  # its approval does
    if answer.edits and not makes_grant:
        grants.apply_grant_edits(
            [replace(edit, justification=justification) for edit in answer.edits], actor=actor, now=now
        )
    decided = decide_request(
        request_id,
        person=person,
        verdict="approved",
        judged=judged,
        reason=justification,
        validity=Validity.UNTIL_REVOKED if makes_grant else Validity.ONCE,
        scope=Scope.EVERYWHERE if makes_grant else Scope.CALL,
        now=now,
    )
    if decided.status == RequestStatus.PENDING:
        raise Conflict(OF_TWO)
    return decided


def audit_failed_permanent_approval(
    request_id: str, person: Person, refusal: SignalboxError, now: datetime
) -> None:
    """Write the attempt down: its own audit row went with what was undone."""
    with transaction.atomic():
        row = PermissionRequest.objects.filter(request_id=request_id).first()
        if row is not None:
            rows.audit_refusal_and_return_error(row, person, "always allowed", refusal, now)
