"""An agent's questions: they wait as long as it takes, and are answered in the agent's own options."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.policy.requests import agent_options
from tests.runner.driving import runner_here
from tests.runner.small_coordinator import SmallCoordinator

pytestmark = pytest.mark.one_engine


def test_a_question_waits_over_a_restart_and_is_answered(coordinator: SmallCoordinator, work: Path) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: ask git push; ask git push")
        question = coordinator.wait(lambda: coordinator.questions)[0]
        assert question["known"][0]["rawInput"] == {"command": "git push"}
        assert [one["kind"] for one in question["options"]] == ["allow_always", "allow_once", "reject_once"]
        coordinator.go_away()
        coordinator.come_back()
        coordinator.verdicts["git push"] = {"outcome": {"optionId": "always"}}
        coordinator.report("r")
    assert coordinator.said("s") == "git push: alwaysgit push: always"
    assert len(coordinator.questions) == 2, "each question is one, however often it was posted"


def test_what_was_said_before_a_question_is_told_before_it(coordinator: SmallCoordinator, work: Path) -> None:
    said_before: list[str] = []
    usual = coordinator.for_session

    def for_session(session_id: str, door: str, body: dict[str, object]) -> object:
        if door == "permission":
            said_before.append(coordinator.said(session_id))
        return usual(session_id, door, body)

    coordinator.for_session = for_session  # type: ignore[method-assign]
    coordinator.verdicts["git push"] = {"outcome": {"optionId": "once"}}
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: count 300; ask git push")
        coordinator.report("r")
    assert said_before[0].endswith("299 ")


def test_why_a_person_said_no_is_the_next_instruction(coordinator: SmallCoordinator, work: Path) -> None:
    coordinator.verdicts["rm -rf"] = {"outcome": {"optionId": "no"}, "reason": "Use the trash."}
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: ask rm -rf")
        coordinator.report("r")
    started = coordinator.kinds("s", "signalbox/turn_started")
    assert [one["runId"] for one in started] == ["r", "r"]
    assert "rm -rf\nThe reason: Use the trash." in started[1]["prompt"][0]["text"]
    assert "I was told: This was denied: rm -rf" in coordinator.said("s")


def test_a_question_is_taken_back_when_its_turn_is_stopped_or_the_runner_ends(
    coordinator: SmallCoordinator, work: Path
) -> None:
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: ask one")
        coordinator.wait(lambda: coordinator.questions)
        coordinator.tell({"cancel_runs": ["r"]})
        coordinator.report("r")
        assert coordinator.withdrawn[0]["why"] == "The turn was stopped."
        coordinator.order("s", "r2", "do: ask two", kind="resume_session")
        coordinator.wait(lambda: len(coordinator.questions) == 2)
    assert coordinator.withdrawn[1]["ask"] == coordinator.questions[1]["ask"]
    assert coordinator.report("r2")[1] == "stopped"


def test_a_server_that_will_not_hear_the_question_means_no(coordinator: SmallCoordinator, work: Path) -> None:
    coordinator.for_session = _without_the_door(coordinator)  # type: ignore[method-assign]
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: ask one")
        coordinator.report("r")
    assert coordinator.said("s").startswith("one: no")


def _without_the_door(coordinator: SmallCoordinator):  # type: ignore[no-untyped-def]
    usual = coordinator.for_session

    def for_session(session_id: str, door: str, body: dict[str, object]) -> object:
        if door == "permission":
            raise KeyError(door)
        return usual(session_id, door, body)

    return for_session


def test_a_plain_yes_is_never_one_that_lasts() -> None:
    always, once = {"optionId": "a", "kind": "allow_always"}, {"optionId": "o", "kind": "allow_once"}
    assert agent_options.build_allow_outcome_or_cancel([always, once]) == {"optionId": "o"}
    assert agent_options.build_allow_outcome_or_cancel([always], [always]) == {"optionId": "a"}, (
        "a person chose it"
    )
    outcome = agent_options.build_allow_outcome_or_cancel([always])
    assert outcome["cancelled"]
    assert "only one that lets more calls run" in outcome["why"]


def test_why_a_yes_came_to_nothing_is_told_to_the_agent(coordinator: SmallCoordinator, work: Path) -> None:
    coordinator.verdicts["one"] = {"outcome": {"cancelled": True, "why": "It offers no yes for once."}}
    with runner_here(coordinator.url, work):
        coordinator.order("s", "r", "do: ask one")
        coordinator.report("r")
    assert "The reason: It offers no yes for once." in coordinator.said("s")


def test_an_option_that_shares_its_id_with_another_is_never_chosen() -> None:
    offered = [
        {"optionId": "a", "name": "Deny", "kind": "allow_once"},
        {"optionId": "c", "name": "Only this call", "kind": "allow_always"},
        {"optionId": "a", "name": "Twice", "kind": "allow_always"},
    ]
    options = agent_options.parse_agent_answer_options(offered)
    assert [option["optionId"] for option in options] == ["c"]
    assert agent_options.build_allow_outcome_or_cancel(options)["cancelled"]
