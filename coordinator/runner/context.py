"""What all sessions of a runner share: the server, the guard, the agents and directories of the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coordinator.runner.directories import AllowedDirectories
from coordinator.runner.errors import RunnerRefused
from coordinator.runner.guarding import Guard
from coordinator.runner.memory import Memory
from coordinator.runner.options import Options
from coordinator.runner.outbox import Room
from coordinator.runner.server import Server
from coordinator.runner.startable import Agent


@dataclass(slots=True)
class RunnerContext:
    """The server, the guard, what was found on the machine. `patience`: seconds for the last words, once it ends."""

    options: Options
    server: Server
    guard: Guard
    places: AllowedDirectories
    memory: Memory
    room: Room
    environ: Mapping[str, str]
    agents: Sequence[Agent]
    missing: Sequence[Mapping[str, str]]
    patience: float | None = None

    def agent(self, name: str) -> Agent:
        """Return an agent by name, the first one for no name. Raises RunnerRefused."""
        for agent in self.agents:
            if name in ("", agent.name):
                return agent
        how = next((f" To get it: {one['how']}" for one in self.missing if one["name"] == name), "")
        has = ", ".join(agent.name for agent in self.agents) or "none"
        raise RunnerRefused(f"This runner has no agent {name!r} (it has: {has}).{how}")
