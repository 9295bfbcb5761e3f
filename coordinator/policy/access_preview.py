"""What a change set would do, told before it is saved: by the same rule that will enforce it (policy/access.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from coordinator.identity.actors import Actor
from coordinator.mcp import calls
from coordinator.mcp import tools as mcp_tools
from coordinator.mcp.calls import Calls
from coordinator.policy import access
from coordinator.policy.access import ALLOW, ASK, DENY, Verdict
from coordinator.policy.edits import Edit, policy_after

LOOKS_BACK = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class VerdictChange:
    agent_id: str
    server_id: str
    tool_name: str
    before: Verdict
    after: Verdict


@dataclass(frozen=True, slots=True)
class AgentChanges:
    agent_id: str
    opened: list[VerdictChange]
    asked: list[VerdictChange]
    closed: list[VerdictChange]


@dataclass(frozen=True, slots=True)
class Preview:
    """What turns, and which recorded calls of the last seven days would get another answer."""

    turns: list[VerdictChange]
    lost_calls: list[Calls]
    asked_calls: list[Calls]
    won_calls: list[Calls]

    @property
    def lost(self) -> int:
        """How many calls of the last seven days the change set would have denied."""
        return sum(one.count for one in self.lost_calls)

    @property
    def asked(self) -> int:
        """How many calls of the last seven days would wait for a person that do not now."""
        return sum(one.count for one in self.asked_calls)

    @property
    def won(self) -> int:
        """How many calls of the last seven days would be allowed that are denied or asked now."""
        return sum(one.count for one in self.won_calls)

    def by_agent(self) -> list[AgentChanges]:
        agents = dict.fromkeys(turn.agent_id for turn in self.turns)
        return [
            AgentChanges(agent, *(self._turned(agent, word) for word in (ALLOW, ASK, DENY)))
            for agent in agents
        ]

    def _turned(self, agent_id: str, decision: str) -> list[VerdictChange]:
        return [turn for turn in self.turns if turn.agent_id == agent_id and turn.after.decision == decision]


def preview(edits: Sequence[Edit], *, by: Actor, now: datetime) -> Preview:
    """Return what `edits` would change for every tool that is known, granted or was recently called."""
    agents = list(dict.fromkeys(edit.agent_id for edit in edits))
    servers = list(dict.fromkeys(edit.server_id for edit in edits))
    tools = mcp_tools.names_by_server(servers, seen_by=now)
    for edit in edits:
        if edit.tool_name and edit.tool_name not in tools[edit.server_id]:
            tools[edit.server_id].append(edit.tool_name)
    policy = access.load(agents, servers, now)
    before = access.verdicts(policy, agents, tools, now)
    after = access.verdicts(policy_after(policy, edits, by=by, now=now), agents, tools, now)
    turns = [
        VerdictChange(agent, server, tool, verdict, after[agent, server][tool])
        for (agent, server), row in before.items()
        for tool, verdict in row.items()
        if verdict.decision != after[agent, server][tool].decision
    ]
    return _with_calls(turns, servers, now)


def _with_calls(turns: list[VerdictChange], servers: list[str], now: datetime) -> Preview:
    turned = {(turn.agent_id, turn.server_id, turn.tool_name): turn.after.decision for turn in turns}
    by_word: dict[str | None, list[Calls]] = {}
    for one in calls.since(now - LOOKS_BACK, servers) if turns else []:
        word = turned.get((one.agent_id or "", one.server_id, one.tool_name))
        by_word.setdefault(word, []).append(one)
    return Preview(turns, *(by_word.get(word, []) for word in (DENY, ASK, ALLOW)))
