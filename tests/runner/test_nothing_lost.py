"""Servers that go and come, answers that are lost, runners that are killed: nothing is lost and nothing left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.processes import is_gone, until_gone
from tests.runner.driving import runner_apart, runner_here
from tests.runner.small_coordinator import SmallCoordinator

pytestmark = pytest.mark.one_engine

TWENTY = [f"s{number}" for number in range(20)]


def test_twenty_sessions_lose_nothing_over_lost_answers_and_a_restart(
    coordinator: SmallCoordinator, work: Path
) -> None:
    coordinator.loses_every = 7
    with runner_here(coordinator.url, work):
        for name in TWENTY:
            coordinator.order(name, f"r-{name}", f"do: ask {name}; steps 100; count 30")
        coordinator.wait(lambda: len(coordinator.questions) == 20)
        coordinator.verdicts = {name: {"outcome": {"optionId": "yes"}} for name in TWENTY[:10]}
        coordinator.wait(lambda: len(coordinator.updates["s0"]) > 30)
        coordinator.go_away()
        coordinator.come_back()
        coordinator.verdicts = {name: {"outcome": {"optionId": "yes"}} for name in TWENTY}
        for name in TWENTY:
            assert coordinator.report(f"r-{name}")[1] == "completed"
    for name in TWENTY:
        steps = [one["title"] for one in coordinator.kinds(name, "tool_call")]
        assert steps == [name, *map(str, range(100))]
        assert coordinator.said(name) == f"{name}: yes" + "".join(f"{n} " for n in range(30))
        assert [one["n"] for one in coordinator.updates[name]] == list(
            range(1, len(coordinator.updates[name]) + 1)
        )
    assert len({one["ask"] for one in coordinator.questions}) == 20


def test_a_killed_runner_leaves_no_process_and_the_next_one_goes_on(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_apart(coordinator.url, work) as program:
        coordinator.order("s", "r", "do: pid; orphan; hang")
        coordinator.wait(lambda: "hanging" in coordinator.said("s"))
        words = coordinator.said("s").split()
        agent, orphan = int(words[1]), int(words[3])
        assert not is_gone(agent)
        assert not is_gone(orphan)
        program.kill()
        coordinator.go_away()
        coordinator.come_back()
        until_gone(agent, orphan)
    known = coordinator.kinds("s", "signalbox/agent")[0]["agentSessionId"]
    counted = len(coordinator.updates["s"])
    with runner_apart(coordinator.url, work):
        coordinator.order("s", "r2", "hello again", kind="resume_session")
        assert coordinator.report("r2")[1] == "completed"
    agents = coordinator.kinds("s", "signalbox/agent")
    assert [one["agentSessionId"] for one in agents] == [known, known]
    assert "what was said before" not in coordinator.said("s"), "the old conversation is not told twice"
    assert coordinator.said("s").endswith("I was told: hello again")
    assert len(coordinator.updates["s"]) > counted


def test_sigterm_ends_turns_properly(coordinator: SmallCoordinator, work: Path) -> None:
    with runner_apart(coordinator.url, work) as program:
        coordinator.order("s", "r", "do: pid; orphan; hang")
        coordinator.wait(lambda: "hanging" in coordinator.said("s"))
        program.send_signal(signal.SIGTERM)
        assert program.wait(PATIENCE) == 0
    assert coordinator.report("r")[1] == "stopped"
    assert coordinator.left
    words = coordinator.said("s").split()
    assert is_gone(int(words[1]))
    assert is_gone(int(words[3]))


def test_agents_cannot_read_the_runners_key_out_of_its_process(
    coordinator: SmallCoordinator, work: Path
) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    with runner_apart(coordinator.url, work) as program:
        coordinator.order("s", "r", "hi")
        coordinator.report("r")
        with pytest.raises(PermissionError):
            Path(f"/proc/{program.pid}/environ").read_bytes()


def test_an_agent_that_nobody_hears_any_more_is_ended(coordinator: SmallCoordinator, work: Path) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: pid; ask go on; count 5; hang")
        coordinator.wait(lambda: coordinator.questions and coordinator.said("s"))
        coordinator.refuses = {"updates"}
        coordinator.verdicts["go on"] = {"outcome": {"optionId": "yes"}}
        assert "held by another runner" in coordinator.report("r")[2]["error"]
        assert is_gone(int(coordinator.said("s").split()[1]))


def test_a_run_that_was_given_to_another_runner_meanwhile_is_not_begun(
    coordinator: SmallCoordinator, work: Path
) -> None:
    coordinator.refuses = {"started"}
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "hello")
        coordinator.report("r", "failed")
    assert coordinator.said("s") == ""


def test_no_more_agents_live_than_may(coordinator: SmallCoordinator, work: Path) -> None:
    with runner_here(coordinator.url, work, at_once=1):
        coordinator.order("s", "r1", "do: pid; ask wait")
        coordinator.wait(lambda: coordinator.questions)
        coordinator.order("t", "r2", "do: pid")
        coordinator.wait(lambda: coordinator.polled_free == 0)
        assert not coordinator.said("t")
        coordinator.verdicts["wait"] = {"outcome": {"optionId": "yes"}}
        coordinator.report("r2")
        assert is_gone(int(coordinator.said("s").split()[1])), "the idle agent made room"
        assert not is_gone(int(coordinator.said("t").split()[1]))
        assert coordinator.statuses == [("s", "finished")]


def test_an_update_that_the_server_does_not_take_holds_up_no_other(
    coordinator: SmallCoordinator, work: Path
) -> None:
    coordinator.largest = 10_000
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: say before; big 20000; say after; output 300")
        assert coordinator.report("r")[1] == "completed"
    assert coordinator.said("s") == "beforeafter"
    assert "could not be kept (413" in coordinator.kinds("s", "signalbox/unknown")[0]["message"]
    outputs = coordinator.kinds("s", "tool_call_update")
    assert outputs[-1]["content"][0]["content"]["text"] == "line\n" * 300
    assert len(outputs) < 100, "what is told again, and more, is sent once"
