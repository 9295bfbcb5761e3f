"""What a person chose in the form that starts a run beside a blueprint."""

from __future__ import annotations

import pytest
from django.utils import timezone

from coordinator.models import Blueprint, Run
from tests.people import signed_in
from tests.runs.test_what_people_meant import URL, make_driver

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def reviewer() -> Blueprint:
    now = timezone.now()
    return Blueprint.objects.create(
        name="reviewer", description="", system_prompt="Review.", created_at=now, modified_at=now
    )


def order(**more: str) -> Run | None:
    """Send the form; return what was ordered, None where it was refused."""
    make_driver("laptop", worktrees=True)
    form = {"prompt": "Go.", "project_dir": "/srv", "agent_name": "reviewer", **more}
    answer = signed_in("approver").post(URL, form)
    assert answer.status_code in {302, 422}
    return Run.objects.select_related("ordered_with").first()


@pytest.mark.parametrize(
    ("name", "chosen", "value"),
    [("worktree", "on", True), ("agent", "codex", "codex"), ("fork_of", "ses_1", "ses_1")],
)
def test_a_choice_beside_a_blueprint_is_not_left_out(name: str, chosen: str, value: object) -> None:
    run = order(**{name: chosen})
    assert run is None or run.ordered_with.parameters[name] == value
