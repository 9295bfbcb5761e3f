"""Servers whose names agents have to rename are found by the names in their calls; the stricter of two alike counts."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import combinations, product

import pytest

from coordinator.actions.mcp import mcp_servers
from coordinator.actions.policy import grants
from coordinator.errors import UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.mcp.servers.names import (
    find_server_tools_meant_by_call,
    find_shadowing_server,
    server_call_prefix_or_empty,
)
from coordinator.models import Grant, McpServer
from coordinator.operations.doctor import CheckLevel, upkeep
from coordinator.policy.rules import tool_rules
from tests.access.cases import add_server

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SERVERS = ["my", "my__server", "tool.terminal", "claude.ai Gmail", "claude.ai Maps (beta)", "shopdb"]


@pytest.mark.parametrize(
    ("call", "meant"),
    [
        ("mcp__my__server__run", [("my__server", "run")]),
        ("mcp__my__run", [("my", "run")]),
        ("mcp__signalbox__shopdb__read", [("shopdb", "read")]),
        ("mcp__signalbox__my__server__run", [("my__server", "run")]),
        ("mcp__signalbox__ask", []),
        ("mcp__tool_terminal__run", [("tool.terminal", "run")]),
        ("mcp__claude_ai_Gmail__send", [("claude.ai Gmail", "send")]),
        ("mcp__claude_ai_Maps__beta___find", [("claude.ai Maps (beta)", "find")]),
        ("mcp__claude_ai_Maps_beta__find", [("claude.ai Maps (beta)", "find")]),
        ("mcp__plugin_shop_shopdb__read", [("shopdb", "read")]),
        ("mcp__plugin_my_shop_my__server__run", [("my__server", "run")]),
        ("mcp__plugin_evil__x_shopdb__read", []),
        ("mcp__elsewhere__run", []),
        ("mcp__shopdb__", []),
        ("Bash", []),
    ],
)
def test_a_call_means_the_server_of_the_longest_name_that_fits(
    call: str, meant: list[tuple[str, str]]
) -> None:
    assert find_server_tools_meant_by_call(call, SERVERS) == meant


@pytest.mark.parametrize(
    ("call", "begins"),
    [
        ("mcp__my__server__run", "mcp__my__server__"),
        ("mcp__my__run", "mcp__my__"),
        ("mcp__plugin_shop_shopdb__read", "mcp__plugin_shop_shopdb__"),
        ("mcp__plugin_my_shop_my__server__run", "mcp__plugin_my_shop_my__server__"),
        ("mcp__plugin_evil__x_shopdb__read", ""),
        ("mcp__elsewhere__run", ""),
        ("Bash", ""),
    ],
)
def test_a_calls_server_is_known_by_what_the_call_begins_with(call: str, begins: str) -> None:
    assert server_call_prefix_or_empty(call, SERVERS) == begins


def test_a_server_with_our_name_takes_no_call_through_the_gateway_for_its_own() -> None:
    call = "mcp__signalbox__shopdb__read"
    assert find_server_tools_meant_by_call(call, [*SERVERS, "signalbox"]) == [
        ("shopdb", "read"),
        ("signalbox", "shopdb__read"),
    ]
    assert find_server_tools_meant_by_call(call, [*SERVERS, "signalbox__shopdb"]) == [
        ("shopdb", "read"),
        ("signalbox__shopdb", "read"),
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["signalbox", "signalbox__shopdb"])
def test_no_server_can_be_given_our_name_and_one_that_has_it_is_told(name: str) -> None:
    with pytest.raises(UnprocessableRequest, match="Signalbox's own tools"):
        mcp_servers.create_mcp_server(name, command="x", actor=Actor("user", "ann"))
    with pytest.raises(UnprocessableRequest, match="Signalbox's own tools"):
        grants.set_servers_allowed_to_agent("agent.a", [name], actor=Actor("user", "ann"), now=NOW)
    server(name)
    [found] = [one for one in upkeep.iterate_upkeep_checks(NOW, served=False) if one.name == "names"]
    assert (found.level, found.message.endswith(f"own gateway: {name}.")) == (CheckLevel.WARN, True)


def server(name: str, default: str = "opt-in") -> None:
    McpServer.objects.create(name=name, command="x", args=[], default_policy=default, created_at=NOW)


def grant(server_id: str, tool: str, permission: str = "allow") -> None:
    Grant.objects.create(
        entry_type="tool_grant", agent_id="agent.a", server_id=server_id, tool_name=tool, permission=permission,
        granted_by="ann", granted_at=NOW,
    )  # fmt: skip


def decision(call: str) -> str:
    verdict = tool_rules.load_grants_for_calls([(call, "agent.a")], NOW).decide_by_applicable_grants(
        call, "agent.a", NOW
    )
    return tool_rules.stricter_of_ruling_and_grant_verdict(tool_rules.NO_OPINION, verdict).decision


@pytest.mark.django_db
class TestGrants:
    @pytest.mark.parametrize("name", ["my__server", "tool.terminal", "claude.ai Gmail", "plain-ok"])
    def test_what_is_not_granted_is_denied_whatever_the_server_is_called(self, name: str) -> None:
        server(name)
        grant(name, "send.mail")
        called = "".join(letter if letter.isalnum() or letter in "_-" else "_" for letter in name)
        assert decision(f"mcp__{called}__run") == "deny"
        assert decision(f"mcp__{called}__send_mail") == "allow"

    def test_of_two_servers_called_alike_the_stricter_answer_counts(self) -> None:
        server("a.b")
        server("a b")
        grant("a.b", "run")
        assert decision("mcp__a_b__run") == "deny"
        grant("a b", "run")
        assert decision("mcp__a_b__run") == "allow"
        McpServer.objects.filter(name="a b").update(default_policy="opt-out")
        Grant.objects.filter(server_id="a b").delete()
        assert decision("mcp__a_b__run") == "observe"  # the agent's own prompt stays in charge

    def test_of_two_tools_called_alike_the_stricter_answer_counts(self) -> None:
        server("s", "opt-out")
        grant("s", "read.all")
        grant("s", "read/all", "deny")
        assert decision("mcp__s__read_all") == "deny"

    def test_a_server_that_is_not_registered_is_denied_once_any_call_may_be(self) -> None:
        assert decision("mcp__elsewhere__run") == "observe"
        server("open", "opt-out")
        assert decision("mcp__elsewhere__run") == "observe"
        grant("open", "run", "deny")
        assert decision("mcp__elsewhere__run") == "deny"


def test_each_name_in_calls_is_served_by_one_tool_of_one_server_at_most() -> None:
    parts = ["".join(letters) for size in range(1, 5) for letters in product("a_", repeat=size)]
    names = [part for part in parts if part.startswith("a")]
    for servers in combinations(names, 2):
        served: dict[str, set[tuple[str, str]]] = {}
        for server, tool in product(servers, parts):
            if find_shadowing_server(server, tool, servers) is None:
                served.setdefault(f"mcp__{server}__{tool}", set()).add((server, tool))
        for call, meant in served.items():
            assert len(meant) == 1, (call, meant)
            assert find_server_tools_meant_by_call(call, servers) == list(meant)


@pytest.mark.django_db
def test_the_doctor_names_servers_and_tools_that_calls_mistake_for_others() -> None:
    def said() -> tuple[CheckLevel, str]:
        [found] = [one for one in upkeep.iterate_upkeep_checks(NOW, served=False) if one.name == "names"]
        return found.level, found.message

    add_server("a", tools=["b__run", "run"])
    assert said()[0] is CheckLevel.OK
    add_server("a__b", tools=["run"])
    level, message = said()
    assert (level, message.endswith("another MCP server's are not served: b__run of a.")) == (
        CheckLevel.WARN,
        True,
    )
    add_server("a  b")
    level, message = said()
    assert (level, message.endswith("none of their tools: a  b, a__b.")) == (CheckLevel.WARN, True)
