"""Homes of real agents, connected with a server, and their runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.agents.connected import connect
from tests.agents.real_agents import AGENTS, Home, Run
from tests.served import Served


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[Callable[..., dict[str, Home]]]:
    """Makes a home for each agent, connected with a server."""
    made: list[Home] = []

    def make(served: Served, *, only: str | None = None, deadline: int | None = None) -> dict[str, Home]:
        names = [only] if only else list(AGENTS)
        new = {name: Home(name, tmp_path / f"{name}-{len(made)}") for name in names}
        made.extend(new.values())
        with ThreadPoolExecutor(2) as some:
            list(some.map(lambda home: connect(home, served, deadline=deadline), new.values()))
        return new

    yield make
    for home in made:
        home.close()


@pytest.fixture
def start() -> Iterator[Callable[..., dict[str, Run]]]:
    """Starts agents, whose models want to run these commands, and rest when it is more than `up_to`."""
    started: list[Run] = []

    def start(homes: dict[str, Home], *commands: str, up_to: float = math.inf) -> dict[str, Run]:
        for home in homes.values():
            home.script.goes_on(up_to)
        runs = {name: home.starts(*commands) for name, home in homes.items()}
        started.extend(runs.values())
        return runs

    yield start
    for run in started:
        run.close()
