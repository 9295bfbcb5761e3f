"""Tests that no agent is started without the instructions and MCP servers of a blueprint that cannot be resolved."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.errors import BadRequest
from coordinator.models import Blueprint, Capability, Run, Session
from coordinator.runner.errors import RunnerRefused
from coordinator.runner.orders import parse_run_order
from tests.driving.recorded import OFFERS, PERSISTENT
from tests.runs.fleet import Fleet

pytestmark = pytest.mark.django_db

SERVERS = {"shop": {"type": "stdio", "command": "shop"}}


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def write_blueprint(fleet: Fleet, **fields: Any) -> Blueprint:
    times = {"created_at": fleet.now, "modified_at": fleet.now}
    return Blueprint.objects.create(
        name="careful", description="", system_prompt="Never touch production.", **fields, **times
    )


def write_capability(fleet: Fleet, name: str, **fields: Any) -> Capability:
    return Capability.objects.create(
        name=name, description="", created_at=fleet.now, modified_at=fleet.now, **fields
    )


def poll_run(fleet: Fleet, runner: Any) -> dict[str, Any]:
    answer = fleet.poll(runner)
    assert answer is not None
    return dict(answer["run"])


@pytest.mark.parametrize(
    ("capabilities", "reason"),
    [
        (["misspelt"], "Capability resolution failed: misspelt not found"),
        (["shop"], "MCP server name conflict: 'shop' comes from capability shop and agent careful"),
    ],
)
def test_a_run_of_a_blueprint_that_cannot_be_resolved_is_refused(
    fleet: Fleet, capabilities: list[str], reason: str
) -> None:
    write_capability(fleet, "shop", mcp_servers=SERVERS)
    write_blueprint(fleet, capabilities=capabilities, mcp_servers=SERVERS)
    with pytest.raises(BadRequest) as refusal:
        fleet.start("Deploy.", agent_name="careful")
    assert refusal.value.detail == (
        f"The blueprint 'careful' cannot be resolved: {reason}. Correct it before a run uses it."
    )
    assert not Run.objects.exists()
    assert not Session.objects.exists()


def test_a_resume_is_refused_too_as_its_agent_may_be_started_again(fleet: Fleet) -> None:
    runner = fleet.runner("laptop", executor=PERSISTENT, offers=OFFERS)
    write_capability(fleet, "shop", text="Sell.")
    write_blueprint(fleet, capabilities=["shop"])
    run = fleet.start("Deploy.", agent_name="careful")
    assert parse_run_order(poll_run(fleet, runner)).instructions == "Never touch production.\n\n---\n\nSell."
    Capability.objects.all().delete()
    with pytest.raises(BadRequest, match="shop not found"):
        fleet.resume(run.session_id)


def test_a_blueprint_that_breaks_while_its_run_waits_fails_the_run_at_its_runner(fleet: Fleet) -> None:
    runner = fleet.runner("laptop", executor=PERSISTENT, offers=OFFERS)
    write_capability(fleet, "shop", text="Sell.")
    write_blueprint(fleet, capabilities=["shop"])
    fleet.start("Deploy.", agent_name="careful")
    Capability.objects.all().delete()
    run = poll_run(fleet, runner)
    assert run["resolved_agent_blueprint"] is None
    with pytest.raises(RunnerRefused) as refusal:
        parse_run_order(run)
    assert str(refusal.value) == (
        "The run's blueprint cannot be resolved: Capability resolution failed: shop not found"
    )


def test_a_name_that_is_no_blueprint_goes_on_working(fleet: Fleet) -> None:
    runner = fleet.runner("laptop", executor=PERSISTENT, offers=OFFERS)
    fleet.start("Deploy.", agent_name="nobody-knows")
    run = poll_run(fleet, runner)
    assert run["resolved_agent_blueprint"] is None
    assert "blueprint_error" not in run
    assert parse_run_order(run).prompt == "Deploy."
