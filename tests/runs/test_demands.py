from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.models import Blueprint
from coordinator.runs import demands
from tests.runs.fleet import NOON, Fleet

RUNNER: dict[str, Any] = {
    "hostname": "vm",
    "project_dir": "/p",
    "executor_profile": "coding",
    "executor_type": "autonomous",
    "tags": ["e2e", "python"],
    "require_matching_tags": False,
}


@pytest.mark.parametrize(
    ("wanted", "met"),
    [
        (None, True),
        ({"tags": []}, True),
        ({"hostname": "vm"}, True),
        ({"hostname": "VM"}, False),
        ({"project_dir": "/p", "executor_profile": "coding", "tags": ["python"]}, True),
        ({"project_dir": "/p/"}, False),
        ({"executor_profile": "other"}, False),
        ({"tags": ["python", "e2e"]}, True),
        ({"tags": ["python", "gpu"]}, False),
        ("broken", False),
    ],
)
def test_properties_match_exactly_and_tags_all(wanted: Any, met: bool) -> None:
    assert demands.runner_meets_demands(SimpleNamespace(**RUNNER), wanted) is met


@pytest.mark.parametrize(
    ("wanted", "met"),
    [
        (None, False),
        ({"hostname": "vm", "tags": []}, False),
        ({"tags": ["e2e"]}, True),
        ({"tags": ["gpu"]}, False),
    ],
)
def test_a_choosy_runner_takes_only_runs_that_name_one_of_its_tags(wanted: Any, met: bool) -> None:
    assert (
        demands.runner_meets_demands(SimpleNamespace(**{**RUNNER, "require_matching_tags": True}), wanted)
        is met
    )


def test_the_first_to_name_a_property_decides_and_tags_add_up() -> None:
    affinity = {"hostname": "a", "executor_profile": None}
    blueprint = {"hostname": "b", "executor_profile": "coding", "tags": ["x"]}
    extra = {"project_dir": "/p", "executor_profile": "other", "tags": ["y", "x"]}
    assert demands.merge_run_demands_by_precedence(affinity, blueprint, extra) == {
        "hostname": "a",
        "project_dir": "/p",
        "executor_profile": "coding",
        "tags": ["x", "y"],
    }


def test_nothing_demanded_is_no_demands() -> None:
    assert demands.merge_run_demands_by_precedence(None, {}, {"hostname": None, "tags": []}) is None


def test_a_blueprints_demands_bind_its_runs(fleet: Fleet) -> None:
    Blueprint.objects.create(
        name="py", description="", demands={"tags": ["python"]}, created_at=NOON, modified_at=NOON
    )
    run = fleet.start(agent_name="py", additional_demands={"hostname": "vm"})
    assert run.demands == {"hostname": "vm", "tags": ["python"]}
    assert fleet.poll(fleet.runner("vm", tags=["java"])) is None
    assert fleet.poll(fleet.runner("other", tags=["python"])) is None


def test_runs_that_a_runner_cannot_take_do_not_stand_in_its_way(fleet: Fleet) -> None:
    for _ in range(3):
        fleet.start(additional_demands={"tags": ["gpu"]})
    run = fleet.start("for anybody")
    fleet.running(fleet.runner(), run)
