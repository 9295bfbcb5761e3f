"""Answers of the machine endpoints to requesters about their requests: nothing may run while a brake holds them.

An approval stays what it is (policy.requests.approvals, and so the history): it counts again once the brake is
released.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.utils import timezone

from coordinator.models import PermissionRequest
from coordinator.policy.limits import brakes
from coordinator.policy.requests import approval_coverage, approvals
from coordinator.policy.requests.approval_coverage import Requester
from coordinator.policy.requests.judged_content import card_context_fields

MAY_NOT_RUN: dict[str, Any] = {"allowed": False, "edited": False, "edited_input": None}


def serialize_permission_request(request: PermissionRequest, now: datetime) -> dict[str, Any]:
    """Return the request as exports hold it, at `now`.

    `allowed` is about `tool_input`, what was asked for. A person who edited it approved `edited_input` alone.
    """
    state, context, edited = (
        approvals.current_request_state(request, now),
        approvals.request_context(request),
        approvals.approved_edited_input(request),
    )
    return {
        "request_id": request.request_id,
        "status": state.status,
        "allowed": state.allowed and edited is None,
        "edited": edited is not None,
        "edited_input": edited,
        "approved_by": request.approved_by,
        "approved_at": approvals.canonical_instant_or_text(request.approved_at),
        "expires_at": approvals.canonical_instant_or_text(request.expires_at),
        "reason": context.reason if context else None,
        "validity": context.validity if context else None,
        "scope": approvals.approval_scope(request),
        "revoked_at": approvals.canonical_instant_or_text(context.revoked_at) if context else None,
        "created_at": approvals.canonical_instant_or_text(request.created_at),
        "deadline": approvals.canonical_instant_or_text(
            context.deadline if context else request.expires_at if state.waiting else None
        ),
        "plugin_id": request.plugin_id,
        "permission_type": request.permission_type,
        "target_resource": request.target_resource,
        "justification": request.justification,
        "metadata": request.metadata,
        "session_id": context.session_id if context else None,
        "agent_id": context.agent_id if context else None,
        **card_context_fields(request),
        "tool_name": context.tool_name if context else None,
        "tool_input": context.tool_input if context else None,
    }


def build_requester_answer_with_brake(
    request: PermissionRequest, now: datetime, asker: Requester | None = None
) -> dict[str, Any]:
    """Return the request as its requester sees it at `now`; `brake` is the message of the person who holds its calls.

    `asker` is who asks, where that may be another than who asked first: one approval can cover many.
    """
    answer = serialize_permission_request(request, now) | {"brake": None}
    if not approvals.current_request_state(request, now).allowed:
        return answer
    brake_message = find_message_of_requester_brake(
        asker or approval_coverage.request_requester(request), request.plugin_id
    )
    return answer if brake_message is None else answer | MAY_NOT_RUN | {"brake": brake_message}


def list_requester_answers_with_brakes(
    requests: Sequence[PermissionRequest], now: datetime
) -> list[dict[str, Any]]:
    """Return several requests so: no query more for each while no brake is on."""
    if brakes.load_active_brakes():
        return [build_requester_answer_with_brake(request, now) for request in requests]
    return [serialize_permission_request(request, now) | {"brake": None} for request in requests]


def find_message_of_requester_brake(asker: Requester, plugin_id: str) -> str | None:
    """Return the words of the brake that holds what this asker asks for; None where none does."""
    brake = brakes.find_brake_on_request(asker.agent_id, plugin_id, asker.host, asker.session_id)
    return brake.agent_message if brake is not None else None


def find_final_answer(request_id: str, now: datetime | None = None) -> dict[str, Any] | None:
    """Return the answer once it is final (decided, expired or withdrawn, and held by no brake), else None.

    Raises NotFound for an unknown request: nothing would ever free that waiter.
    """
    now, row = now or timezone.now(), approvals.require_permission_request(request_id)
    if approvals.current_request_state(row, now).waiting:
        return None
    requester_answer = build_requester_answer_with_brake(row, now)
    return requester_answer if requester_answer["brake"] is None else None
