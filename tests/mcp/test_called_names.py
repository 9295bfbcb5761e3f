"""Servers whose names agents have to rename are found by the names in their calls; the stricter of two alike counts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from coordinator.mcp.names import places
from coordinator.models import Grant, McpServer
from coordinator.policy import tool_rules

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
    assert places(call, SERVERS) == meant


def server(name: str, default: str = "opt-in") -> None:
    McpServer.objects.create(name=name, command="x", args=[], default_policy=default, created_at=NOW)


def grant(server_id: str, tool: str, permission: str = "allow") -> None:
    Grant.objects.create(
        entry_type="tool_grant", agent_id="agent.a", server_id=server_id, tool_name=tool, permission=permission,
        granted_by="ann", granted_at=NOW,
    )  # fmt: skip


def decision(call: str) -> str:
    verdict = tool_rules.grants_for([(call, "agent.a")], NOW).verdict(call, "agent.a", NOW)
    return tool_rules.together(tool_rules.NO_OPINION, verdict).decision


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
