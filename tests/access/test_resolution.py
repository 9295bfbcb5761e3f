"""One rule decides whether an agent may call a tool; what is unclear denies."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from coordinator.actions.mcp import mcp_servers
from coordinator.errors import Forbidden
from coordinator.identity.actors import Actor, key_actor_by_name
from coordinator.policy.grants import access, managed
from coordinator.policy.grants.access import resolve_tool_access
from tests.access.cases import CASES, NOW, add_agents, add_grants, add_server, add_tool, grant, named

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("case", named(CASES["access_resolution"]["cases"]))
def test_recorded_resolutions_hold(case: dict[str, Any]) -> None:
    for server in CASES["access_resolution"]["servers"]:
        add_server(**server)
    add_grants(case["grants"])
    verdict = resolve_tool_access(**case["query"], now=NOW)
    assert {"decision": verdict.decision, "source": verdict.source} == case["expected"]


def test_the_recorded_matrix_holds_and_takes_three_queries(django_assert_num_queries: Any) -> None:
    recorded = CASES["access_matrix"]
    tools = {server["name"]: server["tools"] for server in recorded["servers"]}
    for server in recorded["servers"]:
        add_server(server["name"], server["default_policy"])
    add_grants(recorded["grants"])
    with django_assert_num_queries(3):
        matrix = access.resolve_access_matrix(recorded["agents"], tools, NOW)
    told = [
        {
            "agent_id": agent,
            "server_id": server,
            "tool_name": tool,
            "decision": verdict.decision,
            "source": verdict.source,
        }
        for (agent, server), row in matrix.items()
        for tool, verdict in row.items()
    ]
    assert sorted(told, key=str) == sorted(recorded["expected"], key=str)


@pytest.mark.parametrize("case", named(CASES["access_summary"]))
def test_recorded_summaries_hold(case: dict[str, Any]) -> None:
    add_server("srv.in", tools=["t1"])
    add_grants(case["grants"])
    expected = case["expected"]
    if isinstance(expected, str):  # "one row per known tool, inherited=1"
        expected = [{"tool": "t1", "allowed": 0, "denied": 0, "inherited": 1}]
    told = [
        {"tool": line.tool, "allowed": line.allowed, "denied": line.denied, "inherited": line.inherited}
        for line in access.summarize_grants_of_server_tools("srv.in", NOW)
    ]
    assert told == expected


def test_a_verdict_says_which_row_decided_and_until_when() -> None:
    add_server("s")
    end = NOW + timedelta(hours=1)
    row = grant("a", "s", "t", expires_at=end, granted_by="user:alice", justification="For the release.")
    verdict = resolve_tool_access("a", "s", "t", NOW)
    assert (verdict.grant.id, verdict.expires_at) == (row.pk, end) if verdict.grant else False
    assert verdict.reason == "Allowed for this tool by user:alice: For the release."


def test_a_grant_ends_by_the_clock() -> None:
    add_server("s")
    grant("a", "s", "t", expires_at=NOW + timedelta(seconds=1))
    assert resolve_tool_access("a", "s", "t", NOW).is_allowed
    assert not resolve_tool_access("a", "s", "t", NOW + timedelta(seconds=1)).is_allowed


def test_a_grant_that_is_kept_in_memory_ends_by_the_clock() -> None:
    add_server("s")
    grant("a", "s", "t", expires_at=NOW + timedelta(seconds=1))
    policy = access.load_policy_for_agents(["a"], ["s"], NOW)
    assert policy.decide_tool_access("a", "s", "t", NOW).is_allowed
    assert not policy.decide_tool_access("a", "s", "t", NOW + timedelta(seconds=1)).is_allowed


def test_the_past_knows_only_what_was_given_then() -> None:
    add_server("s")
    grant("a", "s", granted_at=NOW - timedelta(days=2), expires_at=NOW - timedelta(days=1))
    days_ago = [
        resolve_tool_access("a", "s", "t", NOW, at=NOW - timedelta(hours=hours)).is_allowed
        for hours in (60, 36, 12)
    ]
    assert days_ago == [False, True, False]


def test_the_future_is_told_by_what_will_have_ended() -> None:
    add_server("s", "opt-out")
    grant("a", "s", permission="deny", expires_at=NOW + timedelta(days=1))
    assert not resolve_tool_access("a", "s", "t", NOW).is_allowed
    assert resolve_tool_access("a", "s", "t", NOW, at=NOW + timedelta(days=2)).source == "default_policy"


def test_a_denial_whose_end_cannot_be_read_stays() -> None:
    add_server("s", "opt-out")
    grant("a", "s", permission="deny", expires_at="soon")
    assert not resolve_tool_access("a", "s", "t", NOW).is_allowed


def test_an_allowing_row_whose_end_cannot_be_read_does_not_hide_a_denying_one() -> None:
    add_server("s", "opt-out")
    grant("a", "s", "t", expires_at="soon")
    grant("a", "s", permission="deny")
    assert resolve_tool_access("a", "s", "t", NOW).source == "server_grant"


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"permission": "perhaps"}, "denies: 'perhaps' is not a known permission"),
        ({"expires_at": "never"}, "ignored: its end cannot be read"),
        ({"expires_at": "never", "permission": "deny"}, "denies permanently: its end cannot be read"),
        ({"granted_at": "t"}, "counts as the oldest: its time cannot be read"),
        (
            {"entry_type": "server_grant", "tool_name": "t"},
            "ignored: a server grant must not name a tool",
        ),
        (
            {"entry_type": "tool_grant", "tool_name": None},
            "ignored: a tool grant must name a tool",
        ),
    ],
)
def test_odd_rows_are_flagged(row: dict[str, Any], fault: str) -> None:
    written = grant("a", "s", **row)
    written.refresh_from_db()
    assert access.find_grant_field_problems(written) == [fault]


def test_a_sound_row_has_no_fault() -> None:
    written = grant("a", "s", "t", expires_at=NOW)
    written.refresh_from_db()
    assert access.find_grant_field_problems(written) == []


def changed_tool(at: datetime) -> None:
    add_server("s")
    add_tool("s", "t", definition_hash="2", changed_at=at)


def test_a_changed_tool_is_marked(settings: Any) -> None:
    changed_tool(NOW - timedelta(days=1))
    grant("a", "s", "t")
    verdict = resolve_tool_access("a", "s", "t", NOW)
    assert (verdict.is_allowed, verdict.changed_at) == (True, NOW - timedelta(days=1))


def test_a_changed_tool_is_denied_where_the_setting_says_so(settings: Any) -> None:
    settings.DENY_CHANGED_TOOLS = True
    changed_tool(NOW - timedelta(days=1))
    grant("a", "s", "t")
    verdict = resolve_tool_access("a", "s", "t", NOW)
    assert (verdict.decision, verdict.source) == ("deny", "tool_grant")
    assert "changed after it was granted" in verdict.reason


def test_a_changed_tool_of_a_server_that_serves_accepted_ones_only_is_denied() -> None:
    changed_tool(NOW - timedelta(days=1))
    mcp_servers.set_accepted_tools_only("s", True, actor=Actor("user", "ann"), now=NOW)
    grant("a", "s", "t", granted_at=NOW)
    verdict = resolve_tool_access("a", "s", "t", NOW)
    assert (verdict.decision, verdict.changed_at) == ("deny", NOW - timedelta(days=1))
    with pytest.raises(Forbidden):
        mcp_servers.set_accepted_tools_only("s", False, actor=key_actor_by_name("ci"), now=NOW)
    mcp_servers.set_accepted_tools_only("s", False, actor=Actor("user", "ann"), now=NOW)
    assert resolve_tool_access("a", "s", "t", NOW).is_allowed


def test_a_grant_given_after_the_change_covers_it(settings: Any) -> None:
    settings.DENY_CHANGED_TOOLS = True
    changed_tool(NOW - timedelta(days=1))
    grant("a", "s", "t", granted_at=NOW)
    assert resolve_tool_access("a", "s", "t", NOW).is_allowed


def test_resolving_needs_no_agent_row() -> None:
    add_agents("agent.known")
    add_server("s", "opt-out")
    assert resolve_tool_access("agent.unheard-of", "s", "t", NOW).is_allowed


def test_a_grant_decides_before_its_server_is_registered() -> None:
    row = grant("a", "srv.none", "t", granted_by="user:alice")
    grant("a", "srv.none", permission="deny")
    verdict, other = (resolve_tool_access("a", "srv.none", tool, NOW) for tool in ("t", "u"))
    assert (verdict.decision, verdict.source, verdict.is_unknown) == ("allow", "tool_grant", True)
    assert verdict.grant is not None
    assert verdict.grant.id == row.pk
    assert verdict.reason == "Allowed for this tool by user:alice. There is no MCP server 'srv.none' here."
    assert (other.decision, other.source, other.is_unknown) == ("deny", "server_grant", True)
    assert verdict.verdict_as_json()["unknown_server"] is True


def test_an_unknown_server_without_a_grant_denies() -> None:
    grant("somebody else", "srv.none")
    grant("a", "srv.none", expires_at=NOW - timedelta(days=1))
    verdict = resolve_tool_access("a", "srv.none", "t", NOW)
    assert (verdict.decision, verdict.source, verdict.is_unknown) == ("deny", "unknown_server", True)


def test_a_registered_server_is_not_called_unknown() -> None:
    add_server("s")
    grant("a", "s")
    assert not resolve_tool_access("a", "s", "t", NOW).is_unknown


def test_servers_that_only_live_grants_name_are_listed_too() -> None:
    add_server("s", "opt-out")
    grant("a", "srv.none")
    grant("b", "srv.other")
    grant("a", "srv.over", expires_at=NOW)
    assert access.load_default_policies_by_server(NOW) == {
        "s": "opt-out",
        "srv.none": None,
        "srv.other": None,
    }
    assert access.load_default_policies_by_server(NOW, "a") == {"s": "opt-out", "srv.none": None}


@pytest.mark.parametrize(
    ("agent", "call", "decision"),
    [
        ("a", "mcp__srv_none__t", "allow"),
        ("b", "mcp__srv_none__t", "deny"),  # a live grant of somebody else's
        ("b", "mcp__elsewhere__t", "deny"),  # once any grant is in force, what is not registered is denied
    ],
)
def test_a_grant_without_a_server_decides_about_hooks_too(agent: str, call: str, decision: str) -> None:
    grant("a", "srv.none")
    known = managed.load_managed_servers(NOW)
    verdict = known.decide_call_by_grants(access.load_policy_for_agents(), call, agent, NOW)
    assert verdict is not None
    assert (verdict.decision, verdict.is_unknown) == (decision, True)
