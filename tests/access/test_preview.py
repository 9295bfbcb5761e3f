"""A preview says exactly what `resolve` says once the change set is saved, and counts recorded calls by it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.actions.policy import grants
from coordinator.identity.actors import Actor
from coordinator.mcp.servers import calls
from coordinator.policy.grants import access
from coordinator.policy.grants.access_preview import load_preview_of_grant_edits
from coordinator.policy.grants.edits import GrantEdit
from tests.access.cases import add_agents, add_grants, add_server, call, grant

ALICE = Actor("user", "alice")
NOW = timezone.now()
AGENTS, SERVERS, TOOLS = ("agent.a", "agent.b"), ("in", "out"), ("t", "u")

edits = st.lists(
    st.builds(
        GrantEdit,
        agent_id=st.sampled_from(AGENTS),
        server_id=st.sampled_from(SERVERS),
        tool_name=st.sampled_from([None, *TOOLS]),
        permission=st.sampled_from(["allow", "ask", "deny", "inherit"]),
        expires_at=st.sampled_from([None, NOW + timedelta(hours=1)]),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda edit: edit.grant_slot,
)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "entry_type": st.sampled_from(["server_grant", "tool_grant"]),
            "agent_id": st.sampled_from(AGENTS),
            "server_id": st.sampled_from(SERVERS),
            "tool_name": st.sampled_from([None, *TOOLS]),
            "permission": st.sampled_from(["allow", "deny", "perhaps"]),
            "granted_at": st.just("2026-02-20T00:00:00Z"),
            "expires_at": st.sampled_from([None, "2026-02-20 00:00:00", "never", "2999-01-01T00:00:00Z"]),
        }
    ),
    max_size=8,
)


def decisions() -> dict[tuple[str, str, str], str]:
    return {
        (agent, server, tool): access.resolve_tool_access(agent, server, tool, NOW).decision
        for agent in AGENTS
        for server in SERVERS
        for tool in TOOLS
    }


@pytest.mark.django_db
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=rows, chosen=edits)
def test_a_preview_turns_what_saving_turns(
    stored: list[dict[str, object]], chosen: Sequence[GrantEdit]
) -> None:
    with transaction.atomic():
        add_agents(*AGENTS)
        add_server("in", "opt-in", TOOLS)
        add_server("out", "opt-out", TOOLS)
        add_grants(stored)
        before = decisions()
        told = {
            (turn.agent_id, turn.server_id, turn.tool_name): turn.after.decision
            for turn in load_preview_of_grant_edits(chosen, actor=ALICE, now=NOW).turns
        }
        grants.apply_grant_edits(chosen, actor=ALICE, now=NOW)
        after = decisions()
        assert told == {cell: verdict for cell, verdict in after.items() if verdict != before[cell]}
        transaction.set_rollback(True)


@pytest.mark.django_db
def test_ending_a_grant_of_a_server_that_is_not_registered_is_previewed() -> None:
    grant("agent.a", "srv.none", "t")
    (turn,) = load_preview_of_grant_edits(
        [GrantEdit("agent.a", "srv.none", "t", "inherit")], actor=ALICE, now=NOW
    ).turns
    assert (turn.before.is_allowed, turn.after.is_allowed, turn.after.source) == (
        True,
        False,
        "unknown_server",
    )


@pytest.mark.django_db
class TestCalls:
    @pytest.fixture(autouse=True)
    def _world(self) -> None:
        add_agents("agent.a", "agent.b")
        add_server("srv.dotted", "opt-out", ["t"])

    def test_recorded_calls_that_would_have_been_denied_are_counted(self) -> None:
        for days_ago in (1, 6, 8):
            call("mcp__srv_dotted__t", days_ago=days_ago)
        call("mcp__srv_dotted__t", agent="b")
        shown = load_preview_of_grant_edits(
            [GrantEdit("agent.a", "srv.dotted", None, "deny")], actor=ALICE, now=NOW
        )
        assert (shown.lost_call_count, shown.gained_call_count) == (2, 0)

    def test_a_call_told_at_both_ends_is_one(self) -> None:
        call("mcp__srv_dotted__t", event_type="pre_tool")
        call("mcp__srv_dotted__t", event_type="post_tool")
        (found,) = calls.list_tool_call_counts_since(NOW - timedelta(days=7), ["srv.dotted"])
        assert (found.agent_id, found.tool_name, found.count) == ("agent.a", "t", 1)

    def test_calls_that_are_denied_already_are_not_lost(self) -> None:
        grant("agent.a", "srv.dotted", permission="deny")
        call("mcp__srv_dotted__t")
        shown = load_preview_of_grant_edits(
            [GrantEdit("agent.a", "srv.dotted", "t", "deny")], actor=ALICE, now=NOW
        )
        assert (shown.turns, shown.lost_call_count) == ([], 0)

    def test_a_tool_only_seen_in_calls_is_previewed_too(self) -> None:
        call("mcp__srv_dotted__unlisted")
        shown = load_preview_of_grant_edits(
            [GrantEdit("agent.a", "srv.dotted", None, "deny")], actor=ALICE, now=NOW
        )
        assert {turn.tool_name for turn in shown.turns} == {"t", "unlisted"}


@pytest.mark.parametrize(
    ("spoken", "meant"),
    [
        ("mcp__github__merge", ("github", "merge")),
        ("mcp__github__a__b", ("github", "a__b")),
        ("mcp__github__x__y", ("github__x", "y")),
        ("mcp__other__t", None),
        ("mcp__github__", None),
        ("Bash", None),
    ],
)
def test_names_of_calls_are_read(spoken: str, meant: tuple[str, str] | None) -> None:
    servers = ["github"] if meant is None or meant[0] == "github" else ["github", "github__x"]
    assert calls.find_called_server_and_tool(spoken, servers) == meant
