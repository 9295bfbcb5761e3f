"""Every cell of a matrix equals `resolve`, and `resolve` equals the rule told in the plainest words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.lib import instants
from coordinator.models import Grant, McpServer
from coordinator.policy.grants import access
from tests.access.cases import NOW, add_grants, add_server

AGENTS, SERVERS, TOOLS = ("a", "b"), ("in", "out", "odd", "none"), ("t", "T", "u")
ENDS = (
    None,
    "2026-02-23T12:00:00Z",
    "2026-02-23 12:00:01",
    "2026-02-23T13:00:00+02:00",
    "2026-02-24T00:00:00.5-05:00",
    "",
    "never",
    "2026-02-30T00:00:00Z",
)
rows = st.fixed_dictionaries(
    {
        "entry_type": st.sampled_from(["capability", "server_grant", "tool_grant"]),
        "agent_id": st.sampled_from(AGENTS),
        "server_id": st.sampled_from(SERVERS),
        "tool_name": st.sampled_from([None, *TOOLS]),
        "permission": st.sampled_from(["allow", "allow", "deny", "ask", "ALLOW", ""]),
        "granted_at": st.sampled_from(["2026-02-20T00:00:00Z", "2026-02-21 00:00:00", "t"]),
        "expires_at": st.sampled_from(ENDS),
    }
)


def plainly(given_rows: list[dict[str, Any]], agent: str, server: str, tool: str) -> tuple[str, str]:
    """The rule once more, as slowly and simply as it can be written."""
    policies = {"in": "opt-in", "out": "opt-out", "odd": "OPT-OUT"}
    for kind, name in (("tool_grant", tool), ("server_grant", None)):
        live = []
        for row in given_rows:
            if (row["entry_type"], row["agent_id"], row["server_id"], row["tool_name"]) != (
                kind,
                agent,
                server,
                name,
            ):
                continue
            end = row["expires_at"]
            moment: datetime | None = instants.parse_instant_or_none(end) if end is not None else None
            if end is None or (moment is not None and moment > NOW):
                live.append(row["permission"])
            elif moment is None and row["permission"] != "allow":
                live.append("deny")
        if live:
            return ("allow" if all(word == "allow" for word in live) else "deny"), kind
    if server not in policies:
        return "deny", "unknown_server"
    return ("allow" if policies[server] == "opt-out" else "deny"), "default_policy"


@pytest.mark.django_db
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(given_rows=st.lists(rows, max_size=12))
def test_every_cell_is_resolve_and_resolve_is_the_rule(given_rows: list[dict[str, Any]]) -> None:
    Grant.objects.all().delete()
    McpServer.objects.all().delete()
    for name, policy in (("in", "opt-in"), ("out", "opt-out"), ("odd", "OPT-OUT")):
        add_server(name, policy)
    add_grants(given_rows)
    matrix = access.resolve_access_matrix(AGENTS, dict.fromkeys(SERVERS, TOOLS), NOW)
    everything = (
        access.load_policy_for_agents()
    )  # ended rows among them: leaving those out in SQL must not matter
    for (agent, server), cells in matrix.items():
        for tool, verdict in cells.items():
            assert verdict == access.resolve_tool_access(agent, server, tool, NOW)
            assert verdict == everything.decide_tool_access(agent, server, tool, NOW)
            assert (verdict.decision, verdict.source) == plainly(given_rows, agent, server, tool)


@pytest.mark.django_db
def test_rows_of_later_days_do_not_reach_into_the_past() -> None:
    add_server("in")
    add_grants(
        [
            {
                "entry_type": "server_grant",
                "agent_id": "a",
                "server_id": "in",
                "tool_name": None,
                "permission": "allow",
                "granted_at": "2026-02-22T00:00:00Z",
                "expires_at": None,
            }
        ]
    )
    matrix = access.resolve_access_matrix(["a"], {"in": ["t"]}, NOW, at=NOW - timedelta(days=3))
    assert not matrix["a", "in"]["t"].is_allowed
