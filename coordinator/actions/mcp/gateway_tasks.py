"""Owners of the tasks that servers behind the gateway made of calls: nobody else gets their results or cancels them.

A server often cannot distinguish the gateway's callers, so anyone with a task's id could use it there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from datetime import datetime

from coordinator.actions.approvals.pending_calls import pending_call_lifetime
from coordinator.models import GatewayCall
from coordinator.models.gateway import CallState

CALL_KEY = "task of its server"  # in place of the digest of a call that a person was asked about


@dataclass(frozen=True, slots=True)
class TaskOwner:
    """Who began a task at which server: an agent with a key, within its client's session where it has one."""

    server_id: str
    key_id: int
    agent_id: str
    gateway_session: str | None


def record_upstream_task_owner(owner: TaskOwner, task_id: str, tool: str, *, now: datetime) -> None:
    """Note that a call of the owner's became this task of its server."""
    GatewayCall.objects.get_or_create(
        call_id=build_task_key(owner, task_id),
        defaults={
            "key_id": owner.key_id,
            "agent_id": owner.agent_id,
            "server_id": owner.server_id,
            "gateway_session": owner.gateway_session,
            "tool_name": tool,
            "call_key": CALL_KEY,
            "arguments_digest": "",
            "definition_digest": "",
            "policy_version": "",
            "state": CallState.DONE,
            "created_at": now,
            "started_at": now,
            "ended_at": now,
            "delivered_at": now,
            "expires_at": now + pending_call_lifetime(),
        },
    )


def filter_owned_task_ids(owner: TaskOwner, task_ids: Iterable[str]) -> set[str]:
    """Return those of the ids that are tasks of the owner's."""
    names = {build_task_key(owner, task_id): task_id for task_id in task_ids}
    own_call_ids = GatewayCall.objects.filter(pk__in=names, call_key=CALL_KEY).values_list("pk", flat=True)
    return {names[name] for name in own_call_ids}


def build_task_key(owner: TaskOwner, task_id: str) -> str:
    owner_text = json.dumps([*astuple(owner), task_id])
    return f"task-{hashlib.sha256(owner_text.encode()).hexdigest()}"
