"""The state shared by all sessions of a runner: the server, the guard, the agents and directories of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.runner.directories import AllowedDirectories
from coordinator.runner.errors import RunnerRefused
from coordinator.runner.guarded_processes import ProcessGuard
from coordinator.runner.options import RunnerOptions
from coordinator.runner.outbox import OutboxCapacity
from coordinator.runner.server import SignalboxServer
from coordinator.runner.session_records import SessionRecordStore
from coordinator.runner.startable import StartableAgent


@dataclass(slots=True)
class RunnerContext:
    """The server, the guard, what was found on the machine. `patience`: seconds for the last words, once it ends."""

    options: RunnerOptions
    server: SignalboxServer
    guard: ProcessGuard
    directories: AllowedDirectories
    memory: SessionRecordStore
    capacity: OutboxCapacity
    environ: Mapping[str, str]
    agents: Sequence[StartableAgent]
    missing: Sequence[Mapping[str, Any]]
    patience: float | None = None

    def require_startable_agent(self, name: str) -> StartableAgent:
        """Return an agent by name, the first one for no name. Raises RunnerRefused."""
        for agent in self.agents:
            if name in ("", agent.name):
                return agent
        how = next(
            (
                f" To get it: {missing_agent['how']}"
                for missing_agent in self.missing
                if missing_agent["name"] == name
            ),
            "",
        )
        has = ", ".join(agent.name for agent in self.agents) or "none"
        raise RunnerRefused(f"This runner has no agent {name!r} (it has: {has}).{how}")
