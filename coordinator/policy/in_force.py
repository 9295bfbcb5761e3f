"""Which rules and grants were in force for one call, as audit entries say it: so it is signed with the entry."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

from coordinator.lib import instants
from coordinator.mcp.names import ServerTool, name_in_calls
from coordinator.policy import access, tool_rules
from coordinator.policy.access import GrantRow, Policy
from coordinator.policy.budgets import BudgetRow
from coordinator.policy.tool_rules import Rule, Ruling


def that_decided(ruling: Ruling) -> dict[str, Any]:
    """Return what a ruling follows: {"rule": {…}}, {"grant": {…}}, {"budget": {…}}, or nothing by default."""
    if isinstance(ruling.ground, Rule):
        return {"rule": asdict(ruling.ground)}
    if isinstance(ruling.ground, BudgetRow):
        return {"budget": budget_as_json(ruling.ground)}
    if ruling.ground is not None:
        return {"grant": grant_as_json(ruling.ground)}
    return {}


def at_decision(tool: str | None, agent_id: str | None, now: datetime) -> dict[str, Any]:
    """Return what a person's decision on a call found in force.

    `rules_version` names the whole list of rules (tool_rules.version). Where the tool is one of an MCP server,
    `grants_in_force` are the agent's live grants on the tool and on the whole server, and `default_policies` says for
    each server that is meant what holds without a grant.
    """
    found: dict[str, Any] = {"rules_version": tool_rules.version(tool_rules.saved())}
    if tool and agent_id:
        grants = tool_rules.grants_for([(tool, agent_id)], now)
        places = grants.managed.places(tool)
        if places:
            rows = [
                row for place in places for row in _rows(grants.policy, agent_id, place) if row.is_live(now)
            ]
            found["grants_in_force"] = [grant_as_json(row) for row in rows]
            found["default_policies"] = {server: grants.policy.servers.get(server) for server, _ in places}
    return found


def _rows(policy: Policy, agent_id: str, place: ServerTool) -> list[GrantRow]:
    server_id, tool = place
    slots = policy.slots.get((agent_id, server_id), {})
    return [
        row for slot, rows in slots.items() for row in rows if slot is None or name_in_calls(slot) == tool
    ]


def budget_as_json(budget: BudgetRow) -> dict[str, Any]:
    """Return a budget as it stands in an audit entry."""
    return {name: value for name, value in asdict(budget).items() if name != "allowed_until"}


def grant_as_json(row: GrantRow) -> dict[str, Any]:
    """Return a grant as it stands in an audit entry; an end that cannot be read stands as its text."""
    values = {**row._asdict(), "permission": row.says}
    del values["asks"], values["metadata"]
    if beneath := access.ids_beneath(row):
        values[access.ON_TOP_OF] = beneath
    return {
        name: instants.canonical(value) if isinstance(value, datetime) else value
        for name, value in values.items()
    }
