"""Preview of what a change set would do, by the same rule that will enforce it once saved (policy/grants/access.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from coordinator.identity.actors import Actor
from coordinator.mcp.servers import calls
from coordinator.mcp.servers import tools as mcp_tools
from coordinator.mcp.servers.calls import ToolCallCount
from coordinator.policy.grants import access
from coordinator.policy.grants.access import ALLOW, ASK, DENY, Verdict
from coordinator.policy.grants.edits import GrantEdit, build_policy_after_edits

LOOKS_BACK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class VerdictChange:
    agent_id: str
    server_id: str
    tool_name: str
    before: Verdict
    after: Verdict


@dataclass(frozen=True, slots=True)
class AgentVerdictChanges:
    agent_id: str
    opened: list[VerdictChange]
    approval_needed: list[VerdictChange]
    closed: list[VerdictChange]


@dataclass(frozen=True, slots=True)
class AccessPreview:
    """What turns, and which recorded calls of the last seven days would get another answer."""

    turns: list[VerdictChange]
    lost_calls: list[ToolCallCount]
    approval_calls: list[ToolCallCount]
    won_calls: list[ToolCallCount]

    @property
    def lost_call_count(self) -> int:
        """How many calls of the last seven days the change set would have denied."""
        return sum(call.count for call in self.lost_calls)

    @property
    def ask_call_count(self) -> int:
        """How many calls of the last seven days would wait for a person that do not now."""
        return sum(call.count for call in self.approval_calls)

    @property
    def gained_call_count(self) -> int:
        """How many calls of the last seven days would be allowed that are denied or asked now."""
        return sum(call.count for call in self.won_calls)

    def agent_verdict_changes(self) -> list[AgentVerdictChanges]:
        agents = dict.fromkeys(turn.agent_id for turn in self.turns)
        return [
            AgentVerdictChanges(
                agent, *(self.changes_to_decision(agent, word) for word in (ALLOW, ASK, DENY))
            )
            for agent in agents
        ]

    def changes_to_decision(self, agent_id: str, decision: str) -> list[VerdictChange]:
        return [turn for turn in self.turns if turn.agent_id == agent_id and turn.after.decision == decision]


def load_preview_of_grant_edits(edits: Sequence[GrantEdit], *, actor: Actor, now: datetime) -> AccessPreview:
    """Return what `edits` would change for every tool that is known, granted or was recently called."""
    agents = list(dict.fromkeys(edit.agent_id for edit in edits))
    servers = list(dict.fromkeys(edit.server_id for edit in edits))
    tools = mcp_tools.collect_tool_names_by_server(servers, seen_by=now)
    for edit in edits:
        if edit.tool_name and edit.tool_name not in tools[edit.server_id]:
            tools[edit.server_id].append(edit.tool_name)
    policy = access.load_policy_for_agents(agents, servers, now)
    before = access.build_verdict_matrix(policy, agents, tools, now)
    after = access.build_verdict_matrix(
        build_policy_after_edits(policy, edits, actor=actor, now=now), agents, tools, now
    )
    verdict_changes = [
        VerdictChange(agent, server, tool, verdict, after[agent, server][tool])
        for (agent, server), row in before.items()
        for tool, verdict in row.items()
        if verdict.decision != after[agent, server][tool].decision
    ]
    return build_preview_with_affected_calls(verdict_changes, servers, now)


def build_preview_with_affected_calls(
    verdict_changes: list[VerdictChange], servers: list[str], now: datetime
) -> AccessPreview:
    turned = {
        (turn.agent_id, turn.server_id, turn.tool_name): turn.after.decision for turn in verdict_changes
    }
    by_word: dict[str | None, list[ToolCallCount]] = {}
    for call_count in calls.list_tool_call_counts_since(now - LOOKS_BACK, servers) if verdict_changes else []:
        tool = call_count.server_id, call_count.tool_name
        # A grant counts for the id that a call came with, which may be either.
        word = turned.get((call_count.agent_name, *tool)) or turned.get((call_count.agent_id or "", *tool))
        by_word.setdefault(word, []).append(call_count)
    return AccessPreview(verdict_changes, *(by_word.get(word, []) for word in (DENY, ASK, ALLOW)))
