"""Forms that take a name of an agent, host or person ask once more about one that nothing has."""

from __future__ import annotations

import pytest

from coordinator.models import Agent, Brake, Budget
from tests.people import signed_in
from tests.timelines import make_session

pytestmark = pytest.mark.django_db

BUDGET = {"measure": "calls", "span": "day", "amount": "10", "at_limit": "ask"}


@pytest.mark.parametrize("reach", ["agent", "host"])
def test_a_brake_on_a_name_that_nothing_has_is_asked_about_and_then_taken(reach: str) -> None:
    client, form = signed_in("approver"), {"reach": reach, "name": "cod3x", "reason": "Odd calls."}
    answer = client.post("/ui/brake/put-on/", form)
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "“cod3x”" in page
    assert "Odd calls." in page  # what was typed stays
    assert 'type="checkbox" name="is_meant"' in page
    assert not Brake.objects.exists()
    client.post("/ui/brake/put-on/", form | {"is_meant": "on"})
    assert Brake.objects.get().name == "cod3x"


@pytest.mark.parametrize("reach", ["agent", "person"])
def test_a_budget_for_a_name_that_nothing_has_is_asked_about_and_then_taken(reach: str) -> None:
    client, form = signed_in("admin"), BUDGET | {"reach": reach, "name": "adn"}
    answer = client.post("/ui/budgets/add/", form)
    assert answer.status_code == 422
    assert "“adn”" in answer.content.decode()
    assert not Budget.objects.exists()
    client.post("/ui/budgets/add/", form | {"is_meant": "on"})
    assert Budget.objects.get().name == "adn"


@pytest.mark.parametrize(
    ("reach", "name"),
    [
        ("agent", "codex"),
        ("agent", "agent.reviewer"),
        ("agent", "reviewer"),
        ("host", "build-7"),
        ("everything", ""),
    ],
)
def test_a_known_name_is_taken_at_once(reach: str, name: str) -> None:
    Agent.objects.create(id="agent.reviewer", name="R", description="", default_engine_id="e")
    make_session()
    signed_in("approver").post("/ui/brake/put-on/", {"reach": reach, "name": name})
    assert Brake.objects.get().name == name
