"""Permission requests: asked, decided, withdrawn, expired, revoked. Each is one compare-and-swap, audited.

Only a signed-in person with the role approver decides; an API key never does. Who loses a race is told who won.
What merely reads (where a request stands, what an approval covers)
is `coordinator.policy.approvals` and `coordinator.policy.coverage`.
"""

from __future__ import annotations

from coordinator.actions.approvals.always import always_allow
from coordinator.actions.approvals.asking import AskResult, NewRequest, asked_as, request
from coordinator.actions.approvals.deciding import decide
from coordinator.actions.approvals.ending import (
    end_unused,
    expire_due,
    keep_to_their_requests,
    mark_seen,
    revoke,
    withdraw,
)
from coordinator.actions.approvals.holding import hold, take
from coordinator.actions.approvals.triage import assign, release, snooze, wake
from coordinator.policy.coverage import is_approved
from coordinator.policy.verdicts import verdict

__all__ = [
    "AskResult",
    "NewRequest",
    "always_allow",
    "asked_as",
    "assign",
    "decide",
    "end_unused",
    "expire_due",
    "hold",
    "is_approved",
    "keep_to_their_requests",
    "mark_seen",
    "release",
    "request",
    "revoke",
    "snooze",
    "take",
    "verdict",
    "wake",
    "withdraw",
]
