"""The brake with real agents at work: by their hooks, driven by a runner, and with callers of the gateway beside them.

All work at the same time. What the agents run is real; it writes down when it began. Their models rest after the
first call until every agent has begun, so that those that start slowly have the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import pytest

from tests.agents import programs
from tests.agents.driven import AGENTS as DRIVEN
from tests.agents.driven import ON_PATH, Machine
from tests.agents.real_agents import AGENTS
from tests.agents.test_driven_agents import FIRST, more
from tests.brakes.test_brake import put_on, release
from tests.claude_code.double import Claude
from tests.client.programs import until
from tests.gateway.agents import Wire, furnish, text_of
from tests.gateway.example_server import Example, running
from tests.served import Served

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
# More than an agent can make here, and each another: some agents stop where they see that they repeat themselves.
COMMANDS = tuple(f"date +%s.%N >> log # {number}" for number in range(500))
IN_FLIGHT = 50  # over all: eight real agents, and callers beside them
BY_GATEWAY = 12
PAUSE = 0.5  # seconds between two calls of a caller: the agents need the machine, too
WITHIN = 1.0  # seconds in which everything stops
AT_MOST = 200.0  # seconds, on a busy machine
LOOKED_AT = 2.5  # seconds for which nothing may begin


@pytest.fixture(scope="module", autouse=True)
def agents() -> None:
    programs.needed(*AGENTS, *ON_PATH)


@pytest.fixture
def served(served: Served) -> Served:
    served.sql(
        "INSERT INTO tool_rules (position, tool, pattern, verdict, reason, deny_at_deadline, changed_at, changed_by)"
        " VALUES (1, 'Bash|bash|run_shell_command', 'date .*', 'allow', '', ?, '2026-02-20T00:00:00.000000+00:00',"
        " 'user:admin')",
        (False,),
    )
    return served


@pytest.fixture
def machine(served: Served, tmp_path: Path) -> Iterator[Machine]:
    one = Machine(served, tmp_path / "driven", tuple(DRIVEN))
    one.start()
    yield one
    one.close()


@pytest.fixture
def example() -> Iterator[Example]:
    with running() as found:
        yield found


@dataclass
class Callers:
    """Calls that are made one after the other by many at once: when each that passed was asked for."""

    passed: list[float] = field(default_factory=list)
    over: Event = field(default_factory=Event)

    def go_on(self, call: Callable[[], bool]) -> None:
        """Call again and again."""
        while not self.over.is_set():
            at = time.time()
            if call():
                self.passed.append(at)
            self.over.wait(PAUSE)


def by_hook(served: Served) -> Callable[[], bool]:
    claude = Claude(served, wait="100")
    return lambda: not claude.before(claude.new_call("Read", {"file_path": "/tmp/x"}))


def by_gateway(served: Served) -> Callable[[], bool]:
    wire = Wire(served)
    wire.initialize()
    return lambda: text_of(wire.call("echo", text="x")) == "echo: x"


def begun(log: Path) -> list[float]:
    """Return when the agent's commands began."""
    return [float(line) for line in log.read_text().split()] if log.exists() else []


def test_none_begins_after_the_brake_and_all_go_on_after_its_release(
    served: Served, homes: Any, start: Any, machine: Machine, example: Example
) -> None:
    furnish(served, example.url)
    approver = served.sign_in("approver")
    for script in machine.scripts.values():
        script.commands = COMMANDS
        script.goes_on(up_to=1)
    turns = {agent: machine.order(agent, FIRST) for agent in machine.scripts}
    runs = start(homes(served), *COMMANDS, up_to=1)
    models = [run.home.script for run in runs.values()]
    by_hooks = {name: run.home.work / "log" for name, run in runs.items()}
    driven = {f"driven {agent}": machine.project(agent) / "log" for agent in turns}
    logs = by_hooks | driven
    hooked, at_gateway = Callers(), Callers()
    ready = [(at_gateway, by_gateway(served)) for _ in range(BY_GATEWAY)]
    ready += [(hooked, by_hook(served)) for _ in range(IN_FLIGHT - len(logs) - BY_GATEWAY)]
    with ThreadPoolExecutor(IN_FLIGHT) as pool:
        try:
            have_begun(logs, dict.fromkeys(logs, 1))
            for script in (*models, *machine.scripts.values()):
                script.goes_on()
            for callers, call in ready:
                pool.submit(callers.go_on, call)
            have_begun(logs, dict.fromkeys(logs, 3))
            have_passed(hooked, at_gateway, since=0, count=BY_GATEWAY)
            brake = put_on(approver)
            committed = time.time()
            time.sleep(LOOKED_AT)  # what might begin is looked for, not waited for
            stopped = {name: begun(log) for name, log in logs.items()}
            for name, times in stopped.items():
                assert max(times) <= committed + WITHIN, f"{name} began a call after the brake"
            for callers in (hooked, at_gateway):
                assert max(callers.passed) <= committed
            ended(machine, turns)
            was_put_off(served)
            release(approver, brake)
            released = time.time()
            have_begun(by_hooks, {name: len(stopped[name]) + 1 for name in by_hooks})
            have_passed(hooked, at_gateway, since=released, count=1)
        finally:
            hooked.over.set()
            at_gateway.over.set()
            for script in models:
                script.goes_on(up_to=0)  # they have shown all that they can
            served.sql("DELETE FROM brakes")
    again = {agent: more(machine, agent, session, COMMANDS[0]) for agent, (_, session) in turns.items()}
    for agent, (_, session) in turns.items():
        assert machine.ended(again[agent], session) == "completed", machine.told(again[agent], session)
        assert len(begun(driven[f"driven {agent}"])) == len(stopped[f"driven {agent}"]) + 1


def have_begun(logs: dict[str, Path], least: dict[str, int]) -> None:
    """Wait until each agent has begun so many commands."""
    with until(AT_MOST) as pause:
        while any(len(begun(log)) < least[name] for name, log in logs.items()):
            pause()


def have_passed(*callers: Callers, since: float, count: int) -> None:
    """Wait until so many calls of each kind that were asked for since then have passed."""
    with until(AT_MOST) as pause:
        while any(sum(at >= since for at in one.passed) < count for one in callers):
            pause()


def ended(machine: Machine, turns: dict[str, tuple[str, str]]) -> None:
    """Check that the driven agents' turns were stopped through their runner."""
    for agent, (run, session) in turns.items():
        assert machine.ended(run, session) == "stopped", f"{agent}: {machine.told(run, session)}"


def was_put_off(served: Served) -> None:
    """Check that an order which comes while the brake is on does not begin."""
    order = {"type": "start_session", "prompt": "x", "parameters": {"prompt": "x", "agent": "claude"}}
    client: httpx.Client = served.client("operator")
    answer = client.post("/runs", json=order)
    assert answer.status_code == 201, answer.text
    run = answer.json()["run_id"]
    assert served.sql("SELECT status FROM runs WHERE run_id = ?", (run,)) == [("pending",)]
    client.post(f"/runs/{run}/stop")
