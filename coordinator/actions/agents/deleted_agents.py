"""Ids of deleted agents, which are not reused while any row still refers to them.

An id comes from a name, so a later agent could get the id of a deleted one. It would then own the rows stored under
that id: approvals until revoked, rules, sessions that its key may read. So an id is refused until no such row is left.
Grants, keys and messages are deleted with the agent (actions.agents.agents). The refusal lists the other rows and how
to remove them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from coordinator.errors import Conflict
from coordinator.models import (
    ApiKey,
    Blueprint,
    Brake,
    Budget,
    ChatMessage,
    ConnectCode,
    DecidingRule,
    DeletedAgent,
    GatewaySession,
    Grant,
    PermissionContext,
    Run,
    Session,
    SessionKey,
)
from coordinator.models.brakes import BrakeReach
from coordinator.models.budgets import BudgetReach
from coordinator.policy.rules import tool_rules


def require_no_deleted_agent_references(agent_id: str | None) -> None:
    """Raise Conflict where a deleted agent had this id and anything names it still, saying what."""
    deleted = DeletedAgent.objects.filter(pk=agent_id).first()
    if deleted is None or agent_id is None:
        return
    reference_counts = {
        label: count for label, count in count_agent_references_by_label(agent_id).items() if count
    }
    if not reference_counts:
        return
    reference_list = "; ".join(f"{referrer}: {count}" for referrer, count in reference_counts.items())
    when = deleted.deleted_at  # text where another program wrote what cannot be read
    day = when.strftime("%Y-%m-%d") if isinstance(when, datetime) else when
    raise Conflict(
        f"The agent {agent_id} was deleted on {day}, and something names it still ({reference_list}). A new one with "
        "its id would get all that. Choose another id, or first clear what is listed."
    )


def is_agent_deleted(agent_id: str) -> bool:
    """Return whether the id is that of a deleted agent that no other has taken since."""
    return DeletedAgent.objects.filter(pk=agent_id).exists()


def reclaim_deleted_agent_id(agent_id: str) -> None:
    """Let a new agent have the id of a deleted one, in the transaction that makes it. Raises Conflict as above."""
    require_no_deleted_agent_references(agent_id)
    DeletedAgent.objects.filter(pk=agent_id).delete()


def count_agent_references_by_label(agent_id: str) -> dict[str, int]:
    """Return how often what is kept names an agent, each with the place where it can be cleared."""
    requests = PermissionContext.objects.filter(agent_id=agent_id)
    return {
        "rules, edit them under Rules": sum(
            agent_id in (rule.agents or ()) for rule in tool_rules.load_saved_tool_rules()
        ),
        "rows of “Who decides”": sum(
            is_agent_in_name_list(agent_id, row)
            for row in DecidingRule.objects.values_list("agent", flat=True)
        ),
        "permission requests and approvals, revoke them, and they go with signalbox manage prune --requests": (
            requests.count()
        ),
        "sessions, delete them, or use signalbox manage prune --sessions": Session.objects.filter(
            agent_name=agent_id
        ).count(),
        "runs, which go with their sessions": Run.objects.filter(agent_name=agent_id).count(),
        "budgets": Budget.objects.filter(
            reach=BudgetReach.AGENT, name=agent_id, ended_at__isnull=True
        ).count(),
        "brakes": Brake.objects.filter(
            reach=BrakeReach.AGENT, name=agent_id, released_at__isnull=True
        ).count(),
        "grants, revoke them under MCP": Grant.objects.filter(agent_id=agent_id).count(),
        "API keys, revoke them": ApiKey.objects.filter(agent_id=agent_id, revoked_at__isnull=True).count(),
        "connect codes, which end by themselves": ConnectCode.objects.filter(
            agent_id=agent_id, used_at__isnull=True
        ).count(),
        "keys of driven sessions, which end with their agents": SessionKey.objects.filter(
            agent_id=agent_id
        ).count(),
        "sessions at the gateway, which end by themselves": GatewaySession.objects.filter(
            agent_id=agent_id
        ).count(),
        "chat messages": ChatMessage.objects.filter(agent=agent_id).count(),
        "blueprints": Blueprint.objects.filter(pk=agent_id).count(),
    }


def is_agent_in_name_list(agent_id: str, pattern: str) -> bool:
    return agent_id in {name.strip() for name in re.split(r"[|,]", pattern or "")}


def reservation_reasons_by_agent_id(agent_ids: Iterable[str]) -> dict[str, str]:
    """Return which of the ids no new agent may have, each with the reason."""
    refused = {}
    for agent_id in DeletedAgent.objects.filter(pk__in=list(agent_ids)).values_list("pk", flat=True):
        try:
            require_no_deleted_agent_references(agent_id)
        except Conflict as refusal:
            refused[agent_id] = str(refusal.detail)
    return refused
