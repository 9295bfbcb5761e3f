"""Tests of options of an agent, its mode among them: they outlive its process, and can be set while it does not run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.runner.driving import runner_here
from tests.runner.small_coordinator import SmallCoordinator

pytestmark = pytest.mark.one_engine

ASK = "do: mode; effort"  # the scripted agent says its mode and its effort


def set_option(coordinator: SmallCoordinator, command_id: str, option: str, value: Any) -> dict[str, Any]:
    """Have a session's option set, and return the report of the command."""
    config = {"configId": option, "value": value}
    return report_command(coordinator, {"id": command_id, "set_config": config})


def report_command(coordinator: SmallCoordinator, command: dict[str, Any]) -> dict[str, Any]:
    coordinator.tell({"commands": [{"session_id": "s", **command}]})

    def find_report() -> dict[str, Any] | None:
        reports = coordinator.kinds("s", "signalbox/command_done")
        return next((report for report in reports if report["id"] == command["id"]), None)

    return dict(coordinator.wait(find_report))


def ask_again(coordinator: SmallCoordinator, run_id: str, **parameters: Any) -> str:
    """Have the session's next prompt answered, and return what the agent says."""
    before = len(coordinator.said("s"))
    coordinator.order("s", run_id, ASK, kind="resume_session", **parameters)
    assert coordinator.report(run_id)[1] == "completed", coordinator.report(run_id)
    return coordinator.said("s")[before:].removeprefix("what was said before").strip()


def end_session(coordinator: SmallCoordinator) -> None:
    """End the session's agent, as after thirty idle minutes."""
    before = len(coordinator.statuses)
    coordinator.tell({"stop_sessions": ["s"]})
    coordinator.wait(lambda: len(coordinator.statuses) > before)


def begin_session(coordinator: SmallCoordinator, **parameters: Any) -> None:
    coordinator.order("s", "r", ASK, **parameters)
    assert coordinator.report("r")[1] == "completed"


def test_options_that_were_set_while_the_agent_ran_outlive_its_process_and_the_runner(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(coordinator.url, work, "options"):
        begin_session(coordinator)
        assert coordinator.said("s") == "mode buildeffort low "
        assert "error" not in set_option(coordinator, "a", "permission", "plan")
        assert "error" not in set_option(coordinator, "b", "effort", "high")
        assert ask_again(coordinator, "r2") == "mode planeffort high"
        end_session(coordinator)
        assert ask_again(coordinator, "r3") == "mode planeffort high"
    coordinator.go_away()  # else the poll of the runner that ended takes the next order
    coordinator.come_back()
    with runner_here(coordinator.url, work, "options"):
        assert ask_again(coordinator, "r4") == "mode planeffort high"


def test_options_that_are_set_while_the_agent_does_not_run_hold_from_its_next_start(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(coordinator.url, work, "options"):
        begin_session(coordinator)
        end_session(coordinator)
        assert "error" not in set_option(coordinator, "a", "permission", "plan")
        assert "error" not in set_option(coordinator, "b", "effort", "high")
        assert ask_again(coordinator, "r2") == "mode planeffort high"
        assert coordinator.kinds("s", "signalbox/agent")[-1]["configOptions"][0]["currentValue"] == "plan"


def test_the_last_choice_of_a_mode_holds_whichever_way_it_was_made(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(coordinator.url, work, "options"):
        begin_session(coordinator, config={"permission": "plan"})
        end_session(coordinator)
        assert ask_again(coordinator, "r2").startswith("mode plan")
        end_session(coordinator)
        set_option(coordinator, "p", "permission", "plan")
        report_command(coordinator, {"id": "a", "set_mode": "build"})
        assert ask_again(coordinator, "r3").startswith("mode build")
        end_session(coordinator)
        set_option(coordinator, "b", "permission", "build")
        assert ask_again(coordinator, "r4", mode="plan").startswith("mode plan")
        end_session(coordinator)
        assert ask_again(coordinator, "r5").startswith("mode plan")


def test_a_value_that_the_running_agent_refuses_is_not_remembered(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(coordinator.url, work, "options"):
        begin_session(coordinator)
        assert set_option(coordinator, "a", "effort", "endless")["error"] == "no value endless"
        end_session(coordinator)
        assert ask_again(coordinator, "r2") == "mode buildeffort low"
        assert not coordinator.kinds("s", "signalbox/unknown")


def test_a_remembered_value_that_the_agent_no_longer_takes_is_reported_once_and_the_run_goes_on(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(coordinator.url, work, "options"):
        begin_session(coordinator)
        end_session(coordinator)
        set_option(coordinator, "a", "effort", "endless")
        for run_id in ("r2", "r3"):
            assert ask_again(coordinator, run_id) == "mode buildeffort low"
            end_session(coordinator)
        (report,) = coordinator.kinds("s", "signalbox/unknown")
        assert report["message"] == (
            "Scripted does not take 'endless' for its option effort any more: no value endless"
        )


@pytest.mark.parametrize("parameters", [{"config": {"effort": "endless"}}, {"mode": "endless"}])
def test_a_value_that_the_run_orders_must_be_taken(
    coordinator: SmallCoordinator, work: Path, parameters: dict[str, Any]
) -> None:
    with runner_here(coordinator.url, work, "options"):
        coordinator.order("s", "r", ASK, **parameters)
        _, outcome, report = coordinator.report("r")
    assert outcome == "failed"
    assert "endless" in report["error"]


def test_a_remembered_mode_that_the_agent_does_not_have_fails_the_run(
    coordinator: SmallCoordinator, work: Path
) -> None:
    """Another mode may allow more than the one that a person chose."""
    with runner_here(coordinator.url, work, "options"):
        begin_session(coordinator)
        end_session(coordinator)
        set_option(coordinator, "a", "permission", "endless")
        coordinator.order("s", "r2", ASK, kind="resume_session")
        assert "has no mode 'endless'" in coordinator.report("r2", "failed")[2]["error"]
        set_option(coordinator, "b", "permission", "plan")
        assert ask_again(coordinator, "r3").startswith("mode plan")
