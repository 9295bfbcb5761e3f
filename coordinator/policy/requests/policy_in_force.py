"""The rules and grants in force for one call, as recorded in audit entries and signed with them."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from coordinator.lib import instants
from coordinator.mcp.servers.names import ServerTool, name_in_calls
from coordinator.policy.grants import access
from coordinator.policy.grants.access import AccessPolicy, GrantRow
from coordinator.policy.limits.budgets import BudgetRow
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import DecisionRule, Ruling


def ruling_source_as_json(ruling: Ruling) -> dict[str, Any]:
    """Return what a ruling follows: {"rule": {…}}, {"grant": {…}}, {"budget": {…}}, or nothing by default."""
    if isinstance(ruling.ground, DecisionRule):
        return {"rule": asdict(ruling.ground)}
    if isinstance(ruling.ground, BudgetRow):
        return {"budget": serialize_budget_for_audit(ruling.ground)}
    if ruling.ground is not None:
        return {"grant": serialize_grant_for_audit(ruling.ground)}
    return {}


def load_policy_state_for_audit(tool: str | None, agent_id: str | None, now: datetime) -> dict[str, Any]:
    """Return what a person's decision on a call found in force.

    `rules_version` names the whole list of rules (tool_rules.version). Where the tool is one of an MCP server,
    `grants_in_force` are the agent's live grants on the tool and on the whole server, and `default_policies` says for
    each server that is meant what holds without a grant.
    """
    policy_state: dict[str, Any] = {
        "rules_version": tool_rules.digest_tool_rules(tool_rules.load_saved_tool_rules())
    }
    if tool and agent_id:
        grants = tool_rules.load_grants_for_calls([(tool, agent_id)], now)
        server_tools = grants.managed.find_server_tools_of_call(tool)
        if server_tools:
            rows = [
                row
                for place in server_tools
                for row in grant_rows_for_tool(grants.policy, agent_id, place)
                if row.is_live(now)
            ]
            policy_state["grants_in_force"] = [serialize_grant_for_audit(row) for row in rows]
            policy_state["default_policies"] = {
                server: grants.policy.servers.get(server) for server, _ in server_tools
            }
    return policy_state


def grant_rows_for_tool(policy: AccessPolicy, agent_id: str, server_tool: ServerTool) -> list[GrantRow]:
    server_id, tool = server_tool
    slots = policy.slots.get((agent_id, server_id), {})
    return [
        row for slot, rows in slots.items() for row in rows if slot is None or name_in_calls(slot) == tool
    ]


def serialize_budget_for_audit(budget: BudgetRow) -> dict[str, Any]:
    """Return a budget as an audit entry records it."""
    return {name: value for name, value in asdict(budget).items() if name != "allowed_until"}


def serialize_grant_for_audit(row: GrantRow) -> dict[str, Any]:
    """Return a grant as an audit entry records it; an end that cannot be read is recorded as its text."""
    values = {**row._asdict(), "permission": row.effective_permission}
    del values["asks"], values["metadata"]
    if beneath := access.grant_ids_overridden_by_row(row):
        values[access.ON_TOP_OF] = beneath
    return {
        name: instants.format_canonical_instant(value) if isinstance(value, datetime) else value
        for name, value in values.items()
    }
