"""Permission requests: asked, decided, withdrawn, lapsed, revoked. Each is one compare-and-swap, audited.

Only a signed-in person with the role approver decides; an API key never does. Who loses a race is told who won.
What merely reads (where a request stands, what an approval covers) is `coordinator.approvals`.
"""

from __future__ import annotations

from coordinator.actions.approvals.asking import Ask, Asked, request
from coordinator.actions.approvals.deciding import decide
from coordinator.actions.approvals.ending import lapse_due, mark_seen, revoke, withdraw
from coordinator.approvals import is_approved, verdict

__all__ = [
    "Ask",
    "Asked",
    "decide",
    "is_approved",
    "lapse_due",
    "mark_seen",
    "request",
    "revoke",
    "verdict",
    "withdraw",
]
