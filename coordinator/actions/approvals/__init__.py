"""Creation, decision, withdrawal, expiry and revocation of permission requests, each audited.

Each is one compare-and-swap. Only a signed-in person with the role approver decides; an API key never does. The loser
of a race gets an error that names the winner. Reading the state of a request, or what an approval covers, is in
`coordinator.policy.requests.approvals` and `coordinator.policy.requests.approval_coverage`.
"""

from __future__ import annotations

from coordinator.actions.approvals.always_allow import approve_request_permanently
from coordinator.actions.approvals.answering import RequestAnswer, answer_request
from coordinator.actions.approvals.deciding import decide_request
from coordinator.actions.approvals.expiry import (
    expire_due_requests,
    limit_approvals_to_own_request,
    record_requests_seen,
    revoke_approval,
    revoke_unused_single_use_approvals,
    withdraw_request,
)
from coordinator.actions.approvals.pending_calls import (
    mark_request_deferred_or_none,
    try_consume_request_verdict,
)
from coordinator.actions.approvals.requesting import (
    NewPermissionRequest,
    PermissionRequestResult,
    find_request_by_idempotency_key,
    get_or_create_denied_request,
    request_permission,
)
from coordinator.actions.approvals.triage import (
    assign_requests,
    snooze_requests_for_person,
    unassign_requests,
    unsnooze_requests_for_person,
)
from coordinator.policy.requests.approval_coverage import is_call_approved
from coordinator.policy.requests.verdicts import find_final_answer

__all__ = [
    "NewPermissionRequest",
    "PermissionRequestResult",
    "RequestAnswer",
    "answer_request",
    "approve_request_permanently",
    "assign_requests",
    "decide_request",
    "expire_due_requests",
    "find_final_answer",
    "find_request_by_idempotency_key",
    "get_or_create_denied_request",
    "is_call_approved",
    "limit_approvals_to_own_request",
    "mark_request_deferred_or_none",
    "record_requests_seen",
    "request_permission",
    "revoke_approval",
    "revoke_unused_single_use_approvals",
    "snooze_requests_for_person",
    "try_consume_request_verdict",
    "unassign_requests",
    "unsnooze_requests_for_person",
    "withdraw_request",
]
