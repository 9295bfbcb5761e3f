"""What askers are told of their requests by the machine doors: nothing may run while a brake holds them.

An approval stays what it is (policy.approvals, and so the history): it counts again once the brake is released.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone

from coordinator.models import PermissionRequest
from coordinator.policy import approvals, brakes, coverage
from coordinator.policy.coverage import Requester

MAY_NOT_RUN: dict[str, Any] = {"allowed": False, "edited": False, "edited_input": None}


def answer(request: PermissionRequest, now: datetime, asker: Requester | None = None) -> dict[str, Any]:
    """Return the request as its asker is told it, at `now`; `brake` is what a person says who holds its calls.

    `asker` is who asks, where that may be another than who asked first: one approval can cover many.
    """
    told = approvals.answer(request, now) | {"brake": None}
    if not approvals.standing(request, now).allowed:
        return told
    held = held_by(asker or coverage.requester_of(request), request.plugin_id)
    return told if held is None else told | MAY_NOT_RUN | {"brake": held}


def answers(requests: Sequence[PermissionRequest], now: datetime) -> list[dict[str, Any]]:
    """Return several requests so: no query more for each while no brake is on."""
    if brakes.in_force():
        return [answer(one, now) for one in requests]
    return [approvals.answer(one, now) | {"brake": None} for one in requests]


def held_by(asker: Requester, plugin_id: str) -> str | None:
    """Return the words of the brake that holds what this asker asks for; None where none does."""
    held = brakes.holding_asked(asker.agent_id, plugin_id, asker.host, asker.session_id)
    return held.words if held is not None else None


def verdict(request_id: str, now: datetime | None = None) -> dict[str, Any] | None:
    """Return the answer once it stands (decided, expired or withdrawn, and held by no brake), else None.

    Raises NotFound for an unknown request: nothing would ever free that waiter.
    """
    now, row = now or timezone.now(), approvals.find(request_id)
    if approvals.standing(row, now).waiting:
        return None
    told = answer(row, now)
    return told if told["brake"] is None else None
