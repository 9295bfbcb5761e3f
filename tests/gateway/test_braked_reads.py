"""While a brake is on, resources are not read and prompts not got for its agent, and it is told so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from coordinator.mcp.protocol.messages import BRAKED
from tests.gateway.agents import AGENT, LONG_AGO, OTHER, Wire
from tests.gateway.example_server import Example
from tests.served import Served

pytestmark = pytest.mark.served

READS: list[tuple[str, dict[str, Any]]] = [
    ("resources/read", {"uri": "example://note"}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
]
AUDITED = (
    "SELECT count(*) FROM audit_logs WHERE event_type = 'ACCESS_DENIED' AND reason LIKE '%put the brake on%'"
)


@pytest.fixture
def braked(box: Served) -> Iterator[Served]:
    yield box
    box.sql("DELETE FROM brakes")


def put_on(box: Served, reach: str = "everything", name: str = "") -> None:
    box.sql(
        "INSERT INTO brakes (reach, name, reason, set_at, set_by) VALUES (?, ?, 'Odd.', ?, 'user:ann')",
        (reach, name, LONG_AGO),
    )


@pytest.mark.parametrize("stateless", [False, True])
def test_nothing_is_read_while_the_brake_is_on_and_all_of_it_after(
    braked: Served, example: Example, stateless: bool
) -> None:
    wire = Wire(braked, stateless=stateless)
    if not stateless:
        wire.initialize()
    put_on(braked)
    before = braked.sql(AUDITED)[0][0]
    for method, params in READS:
        error = wire.response(wire.send(method, params))["error"]
        assert error["code"] == BRAKED
        assert (
            f"{method} was not sent to the server example. ann put the brake on everything: Odd."
            in error["message"]
        )
    assert not example.calls
    assert braked.sql(AUDITED)[0][0] == before + 1, "one row a minute for each key and server"
    assert wire.ask("resources/list")["resources"], "what there is may be seen"
    braked.sql("DELETE FROM brakes")
    for method, params in READS:
        wire.ask(method, params)
    assert example.calls == {"note": 1, "greet Ada": 1}


@pytest.mark.parametrize(("agent", "is_held"), [(AGENT, True), (OTHER, False)])
def test_a_brake_on_one_agent_holds_its_reads_alone(braked: Served, agent: str, is_held: bool) -> None:
    wire = Wire(braked)
    wire.initialize()
    put_on(braked, "agent", agent)
    assert ("error" in wire.response(wire.send(*READS[0]))) == is_held
