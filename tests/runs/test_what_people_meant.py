"""Stops, waits and choices that mean something else than a person saw."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.models import HeldRun, Run, Runner, StopCommand
from dashboard.overview.attention_items import list_things_needing_attention
from tests.driving.recorded import OFFERS, PERSISTENT
from tests.people import signed_in
from tests.runs.fleet import Fleet

pytestmark = pytest.mark.django_db
URL = "/ui/runs/new/"


def driver(fleet: Fleet, host: str = "laptop", folder: str = "/home/dev/shop", **more: object) -> Runner:
    registration = runners.RunnerRegistration(
        host, folder, "signalbox", executor=PERSISTENT, offers={**OFFERS, **more}
    )
    return runners.register_runner_and_recover_runs(registration, fleet.tick())


def test_a_session_is_stopped_though_its_turn_is_being_stopped(fleet: Fleet) -> None:
    runner = driver(fleet)
    first = fleet.running(runner, fleet.start())
    queued = fleet.resume(first.session_id)
    fleet.stop(first)
    assert StopCommand.objects.get().keeps_process
    fleet.stop_session(first.session_id)
    assert fleet.fresh(queued).status == "stopped"
    assert not StopCommand.objects.get(run_id=first.run_id).keeps_process


def test_a_run_behind_a_held_one_does_not_fail_for_want_of_a_runner(fleet: Fleet) -> None:
    runner = fleet.runner()
    first = fleet.start()
    runs.hold_runs([first.run_id], reason="x", now=fleet.now)
    queued = fleet.resume(first.session_id, additional_demands={"hostname": "vm"})
    assert fleet.poll(runner) is None
    for _ in range(4):
        fleet.pass_time(100)
        runners.record_runner_heartbeat(runner.runner_id, fleet.now)
    assert fleet.fresh(queued).status == "pending"


def make_driver(host: str, **more: object) -> Runner:
    registration = runners.RunnerRegistration(
        host, "/srv", "signalbox", executor=PERSISTENT, offers={**OFFERS, **more}
    )
    return runners.register_runner_and_recover_runs(registration, timezone.now())


def test_a_runner_that_went_offline_is_not_replaced_by_another() -> None:
    make_driver("stage")
    production = make_driver("production")
    form = {"agent": "claude", "runner": production.pk, "prompt": "Go.", "project_dir": "/srv"}
    Runner.objects.filter(pk=production.pk).update(gone_at=timezone.now())
    answer = signed_in("approver").post(URL, form)
    assert answer.status_code == 422 or Run.objects.get().demands.get("hostname") == "production"


def test_an_agent_that_went_offline_is_still_chosen() -> None:
    make_driver("laptop")
    form = {"agent": "claude", "prompt": "Go.", "project_dir": "/srv", "worktree": "on"}
    Runner.objects.update(gone_at=timezone.now())
    answer = signed_in("approver").post(URL, form)
    assert answer.status_code == 422 or Run.objects.get().ordered_with.parameters["agent"] == "claude"


def test_a_worktree_that_nobody_can_make_any_more_is_not_left_out() -> None:
    make_driver("stage", worktrees=False)
    able = make_driver("production", worktrees=True)
    form = {"agent": "claude", "prompt": "Go.", "project_dir": "/srv", "worktree": "on"}
    browser = signed_in("approver")
    assert 'name="worktree"' in browser.get(URL).content.decode()
    Runner.objects.filter(pk=able.pk).update(gone_at=timezone.now())
    answer = browser.post(URL, form)
    assert answer.status_code == 422 or Run.objects.get().ordered_with.parameters["worktree"]


def test_a_prompt_queued_behind_a_long_turn_is_no_run_that_nobody_takes(fleet: Fleet) -> None:
    runner = fleet.runner()
    first = fleet.running(runner, fleet.start())
    fleet.resume(first.session_id)
    needs = list_things_needing_attention(fleet.now + timedelta(minutes=10), is_admin=False)
    assert [need.text for need in needs] == []


def test_a_held_run_that_was_cancelled_is_held_no_more(fleet: Fleet) -> None:
    run = fleet.start()
    runs.hold_runs([run.run_id], reason="x", now=fleet.now)
    fleet.stop(run)
    assert HeldRun.objects.exists()
    assert [need.text for need in list_things_needing_attention(fleet.now, is_admin=False)] == []


def test_removing_a_queued_prompt_stops_no_turn_that_has_just_begun(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = driver(fleet)
    run = fleet.start()
    stop = runs.request_run_stop

    def begin_first(*args: object, **fields: object) -> object:
        fleet.running(runner, run)
        return stop(*args, **fields)

    monkeypatch.setattr(runs, "request_run_stop", begin_first)
    signed_in("approver").post(f"/ui/sessions/{run.session_id}/-/unqueue/", {"run": run.run_id})
    assert fleet.fresh(run).status == "running"
