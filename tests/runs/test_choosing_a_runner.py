"""Two runners on one host are two choices, and the run that a person starts there is for the one that was chosen."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions.agents import runners
from coordinator.models import Run, Runner
from coordinator.runs.demands import runner_meets_demands
from tests.driving.recorded import OFFERS, PERSISTENT
from tests.people import signed_in

pytestmark = pytest.mark.django_db
URL = "/ui/runs/new/"


def runner(folder: str, profile: str = "signalbox", host: str = "laptop") -> Runner:
    registration: Any = runners.RunnerRegistration(host, folder, profile, executor=PERSISTENT, offers=OFFERS)
    return runners.enroll_runner(registration, timezone.now())


def test_each_runner_is_a_choice_named_by_what_tells_it_from_the_others() -> None:
    shop, tools = runner("/home/dev/shop"), runner("/home/dev/tools")
    twin, alone = runner("/home/dev/tools", "other"), runner("/srv", host="build-7")
    body = signed_in("approver").get(URL).content.decode()
    for one, name in (
        (shop, "laptop in /home/dev/shop"),
        (tools, "laptop in /home/dev/tools (signalbox)"),
        (twin, "laptop in /home/dev/tools (other)"),
        (alone, "build-7"),
    ):
        assert f'<option value="{one.pk}">{name}</option>' in body


def test_the_run_is_for_the_chosen_runner_alone() -> None:
    shop, tools = runner("/home/dev/shop"), runner("/home/dev/tools")
    form = {"agent": "claude", "runner": tools.pk, "prompt": "Go.", "project_dir": "/home/dev/shop"}
    assert signed_in("approver").post(URL, form).status_code == 302
    demands = Run.objects.get().demands
    assert [runner_meets_demands(one, demands) for one in (shop, tools)] == [False, True]


def test_any_runner_takes_the_run_where_none_is_chosen_and_a_gone_one_is_refused() -> None:
    shop, tools = runner("/home/dev/shop"), runner("/home/dev/tools")
    form = {"agent": "claude", "runner": "", "prompt": "Go.", "project_dir": "/home/dev/shop"}
    browser = signed_in("approver")
    assert browser.post(URL, form).status_code == 302
    assert all(runner_meets_demands(one, Run.objects.get().demands) for one in (shop, tools))
    assert browser.post(URL, form | {"runner": "lnch_gone"}).status_code == 422


def test_one_runner_is_no_choice() -> None:
    runner("/home/dev/shop")
    assert "Any runner" not in signed_in("approver").get(URL).content.decode()
