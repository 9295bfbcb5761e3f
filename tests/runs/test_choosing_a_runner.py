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


def runner(
    folder: str, profile: str = "signalbox", host: str = "laptop", offers: dict[str, Any] = OFFERS
) -> Runner:
    registration: Any = runners.RunnerRegistration(host, folder, profile, executor=PERSISTENT, offers=offers)
    return runners.register_runner_and_recover_runs(registration, timezone.now())


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


def test_what_an_agent_with_its_own_command_can_do_is_shown_where_it_is_chosen() -> None:
    abilities = {"images": True, "resumes": True, "audio": False, "logins": ["<Google>", 3]}
    mine = {"name": "mine", "title": "My <agent>", "abilities": abilities}
    missing = {"name": "broken", "title": "Broken", "how": "Broken did not answer.", "is_configured": True}
    other = {"name": "codex", "title": "Codex", "how": "npm install codex"}
    runner("/srv", offers={**OFFERS, "agents": [mine], "missing": [missing, other]})
    browser = signed_in("approver")
    label = "images in prompts, resumes conversations, may ask to sign in (&lt;Google&gt;)"
    form = browser.get(URL).content.decode()
    assert "My &lt;agent&gt; on laptop" in form
    assert label in form
    assert "Broken did not answer." in form
    page = browser.get("/ui/runners/").content.decode()
    assert label in page
    assert "Broken did not answer." in page
    assert "npm install codex" not in page


@pytest.mark.parametrize("abilities", [None, [], "images", {"images": "yes", "logins": {}}, {"logins": [[]]}])
def test_odd_abilities_do_no_harm(abilities: Any) -> None:
    runner("/srv", offers={**OFFERS, "agents": [{"name": "mine", "abilities": abilities}]})
    browser = signed_in("approver")
    assert browser.get(URL).status_code == 200
    assert "mine" in browser.get("/ui/runners/").content.decode()
