"""Questions of driven agents, which wait as long as the turn lasts and end with it."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from coordinator.actions.approvals import expiry as ending
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import system_actor
from coordinator.models import PermissionRequest
from coordinator.models.permissions import RequestStatus
from coordinator.policy.requests.agent_options import is_driven_agent_request

RUNNER = system_actor("runner")


def find_open_agent_questions(
    session_id: str, call_id: str | None = None, ask: str | None = None
) -> list[PermissionRequest]:
    """Return what the session's driven agent asks just now; with `call_id`, about this call; `ask` names one."""
    pending = PermissionRequest.objects.filter(status=RequestStatus.PENDING, context__session_id=session_id)
    return [
        row
        for row in pending.order_by("id")
        if is_driven_agent_request(row)
        and (call_id is None or row.metadata.get("tool_use_id") == call_id)
        and (ask is None or row.metadata.get("ask") in {None, ask})
    ]


def withdraw_open_questions(
    session_id: str, reason: str, *, now: datetime, call_id: str | None = None, ask: str | None = None
) -> int:
    """Take back the questions that nobody waits for any more, saying why; return how many those were."""
    open_questions = find_open_agent_questions(session_id, call_id, ask)
    for row in open_questions:
        with suppress(Conflict, NotFound):  # a person was faster
            ending.withdraw_request(row.request_id, actor=RUNNER, may_all=True, reason=reason, now=now)
    return len(open_questions)
