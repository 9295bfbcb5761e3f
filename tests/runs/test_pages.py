"""The pages of runs and runners: the queue with its reasons, stopping, sending a runner away."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from coordinator.actions import runs
from coordinator.models import Run, Runner
from coordinator.runs.waits import RunQueueState
from tests.people import signed_in
from tests.timelines import make_session

pytestmark = pytest.mark.django_db


def order(session, **fields):
    fields = {
        "run_id": f"run_{Run.objects.count()}",
        "type": "start_session",
        "prompt": "Do it",
        "created_at": timezone.now(),
    } | fields
    return Run.objects.create(session=session, **fields)


def runner(name="build-7", *, heard=timedelta(0), **fields):
    now = timezone.now()
    fields = {"project_dir": "/srv", "executor_profile": "coding", "tags": ["linux"]} | fields
    return Runner.objects.create(
        runner_id=f"lnch_{name}", hostname=name, registered_at=now, last_heartbeat=now - heard, **fields
    )


def why(run):
    return RunQueueState.load_queue_state(timezone.now()).explain_waiting_run(run)


def test_why_a_run_waits():
    session = make_session()
    run = order(session)
    assert why(run) == "No runner is online."
    runner(heard=timedelta(hours=1))
    assert why(run) == "No runner is online."
    runner("build-8")
    assert why(run) == "One of these runners takes it with its next poll: build-8."
    assert (
        why(order(make_session("ses_b"), demands={"hostname": "mars", "tags": ["gpu"]}))
        == "No online runner has host mars, tag gpu."
    )
    runner("mars", tags=[])
    assert "all of this at once: host mars, tag linux" in why(
        order(make_session("ses_c"), demands={"hostname": "mars", "tags": ["linux"]})
    )
    order(session, status="running", runner_id="lnch_mars")
    assert why(run) == "Its session is busy with an earlier run."
    assert why(order(session, status="completed")) == ""


@pytest.mark.parametrize("is_held", [True, False])
def test_a_run_behind_a_waiting_one_of_its_session_waits_for_that(is_held: bool):
    session, now = make_session(), timezone.now()
    runner()
    first = order(session, created_at=now - timedelta(minutes=1))
    if is_held:
        runs.hold_runs([first.pk], reason="Imported.", now=now)
    assert why(order(session, created_at=now)) == "An earlier run of its session waits, and comes first."
    assert why(first).startswith("On hold until" if is_held else "One of these runners takes it")
    assert why(order(make_session("ses_b"))).startswith("One of these runners takes it")


def test_a_run_that_names_no_tag_is_not_for_a_runner_that_needs_one():
    runner(require_matching_tags=True)
    assert (
        why(order(make_session()))
        == "No online runner has the setting to take runs without tags, and this run has none."
    )


def test_the_list_shows_runs_and_filters_them():
    order(make_session("ses_a"), prompt="first <thing>")
    order(make_session("ses_b"), prompt="second", status="failed", error="It broke")
    body = signed_in("viewer").get("/ui/runs/").content.decode()
    assert "first &lt;thing&gt;" in body
    assert "It broke" in body
    body = signed_in("approver").get("/ui/runs/?status=failed").content.decode()
    assert "first" not in body


@pytest.mark.parametrize("query", ["?page=x", "?sort=none", "?status=x", "?runner=x&session=y"])
def test_an_odd_query_is_no_error(query):
    assert signed_in("viewer").get(f"/ui/runs/{query}").status_code == 200


def test_stop_a_run():
    run = order(make_session())
    url = reverse("runs:stop", args=[run.pk])
    assert signed_in("viewer").post(url).status_code == 403
    assert signed_in("approver").post(url).status_code == 302
    assert Run.objects.get(pk=run.pk).status == "stopped"


def test_the_runners_page_tells_who_is_there_and_what_they_do():
    session = make_session(agent_name="weaver")
    runner()
    runner("old-1", heard=timedelta(hours=1))
    order(session, status="running", runner_id="lnch_build-7", agent_name="weaver", started_at=timezone.now())
    body = signed_in("viewer").get("/ui/runners/").content.decode()
    for words in ("Online", "Stale", "build-7", "weaver", "idle", "linux"):
        assert words in body


def test_only_an_admin_sends_a_runner_away():
    url = reverse("runners:deregister", args=[runner().pk])
    assert signed_in("approver").post(url).status_code == 403
    assert signed_in("admin").post(url).status_code == 302
    assert Runner.objects.get().deregistered_at is not None
    assert signed_in("viewer").get("/ui/runners/").content.decode().count("Deregistering") == 1


def test_the_start_form_counts_the_runners_that_the_list_shows() -> None:
    client = signed_in("approver")
    assert "No runner is online." in client.get("/ui/runs/new/").content.decode()
    runner("build-1")
    runner("build-2")
    html = " ".join(client.get("/ui/runs/new/").content.decode().split())
    assert "2 runners are online, but none that drives agents by name." in html
    assert "No runner is online." not in html


def test_a_prompt_is_listed_without_the_marks_of_markdown():
    order(make_session(), prompt="**ALERT** `gateway` is slow.\n\n- since noon")
    page = signed_in("viewer").get(reverse("runs:list")).content.decode()
    assert "ALERT gateway is slow. since noon" in page
    assert "**ALERT**" not in page
