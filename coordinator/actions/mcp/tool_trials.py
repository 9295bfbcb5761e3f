"""Trial calls of MCP tools by a person: whether they are allowed now, and their audit entries."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.errors import Conflict, Forbidden, NotFound, SignalboxError
from coordinator.identity.actors import Actor
from coordinator.identity.roles import ADMIN, has_role
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.gateway.tool_trials import ToolTrial, TrialOutcome
from coordinator.models import McpTool
from coordinator.policy.grants.access import ALLOW, Verdict
from coordinator.policy.limits import brakes
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import DENY

TRIED, ENDED = "MCP_TOOL_TRIED", "MCP_TOOL_TRIAL_ENDED"
MAX_AUDITED_ARGUMENTS = 20_000  # bytes as JSON
ONLY_ADMINS = "Only administrators try tools."


def authorize_and_audit_tool_trial(trial: ToolTrial, server: UpstreamServer, now: datetime) -> None:
    """Write who tries what, before it is sent. Raises Forbidden, NotFound or Conflict where it may not be."""
    problem: SignalboxError | None = None
    with transaction.atomic():
        try:
            require_trial_allowed(trial, server)
        except SignalboxError as refusal:
            problem = refusal
        audit.record_audit_entry(
            TRIED,
            actor=trial_actor(trial),
            target=f"{trial.server_id} {trial.tool}",
            result="denied" if problem else "allowed",
            reason=str(problem.detail) if problem else None,
            metadata={
                "arguments": limit_trial_arguments_for_audit(trial.arguments),
                "definition": trial.definition,
            },
            now=now,
        )
    if problem is not None:
        raise problem


def require_trial_allowed(trial: ToolTrial, server: UpstreamServer) -> None:
    """Raise what refuses the call at this instant: the person's role, the brake, a rule, another definition."""
    user = User.objects.filter(pk=trial.user_id, is_active=True).first()
    if user is None or not has_role(user, ADMIN):
        raise Forbidden(ONLY_ADMINS)
    tool = McpTool.objects.filter(server_id=trial.server_id, name=trial.tool, gone_at=None).first()
    if tool is None:
        raise NotFound(f"{trial.server_id} lists no tool {trial.tool} any more.")
    if tool.definition_hash != trial.definition:
        raise Conflict("The tool's definition changed meanwhile. Read the new one, then run the call.")
    caller = str(trial_actor(trial))
    if (brake := brakes.find_brake_on_call([caller], None)) is not None:
        raise Forbidden(brake.agent_message)
    if server.target is None:
        raise Forbidden(f"The MCP server {server.name} {server.failure}.")
    ruling = deciding.judge_by_rules_and_grants(
        tool_rules.load_saved_tool_rules(),
        Verdict(ALLOW, "the administrator who tries it", server.name),
        server,
        trial.tool,
        caller=GatewayCaller(caller),
        arguments=trial.arguments,
    )
    if ruling.decision == DENY:
        raise Forbidden(f"Denied: {ruling.reason.rstrip('.')} ({ruling.by}).")


def audit_tool_trial_outcome(trial: ToolTrial, outcome: TrialOutcome, now: datetime) -> None:
    """Write what came of a trial."""
    audit.record_audit_entry(
        ENDED,
        actor=trial_actor(trial),
        target=f"{trial.server_id} {trial.tool}",
        result="success" if outcome.outcome == "ok" else "failure",
        reason=outcome.problem or None,
        metadata={
            "outcome": outcome.outcome,
            "sent": outcome.is_sent,
            "upstream_ms": round(outcome.upstream_ms, 1),
        },
        now=now,
    )


def trial_actor(trial: ToolTrial) -> Actor:
    return Actor("user", trial.username)


def limit_trial_arguments_for_audit(arguments: dict[str, Any]) -> Any:
    size = len(json.dumps(arguments))
    return arguments if size <= MAX_AUDITED_ARGUMENTS else {"bytes": size}
