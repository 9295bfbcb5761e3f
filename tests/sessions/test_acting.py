"""Starting, resuming, stopping, deleting: who may, what happens, what the audit log keeps."""

from __future__ import annotations

import pytest
from django.urls import reverse

from coordinator.models import AuditLog, Blueprint, LivingExecutor, Run, Session
from dashboard.sessions.changes import TurnChoice
from dashboard.sessions.steering import QueuedPrompt
from tests.people import signed_in
from tests.timelines import BEGAN, add_events, make_session, said

pytestmark = pytest.mark.django_db
ORDER = {
    "prompt": "Do it",
    "hostname": "",
    "executor_profile": "",
    "tags": "",
    "agent_name": "",
    "project_dir": "",
    "parent_session_id": "",
}


@pytest.fixture
def session():
    return make_session(status="running")


def act(name, session):
    return reverse(f"sessions:{name}", args=[session.pk])


def told(event_type):
    return list(AuditLog.objects.filter(event_type=event_type).values_list("actor_id", "target_id", "result"))


@pytest.mark.parametrize(
    ("name", "least"), [("stop", "approver"), ("resume", "approver"), ("delete", "admin")]
)
def test_a_lesser_role_is_refused(session, name, least):
    lesser = {"approver": "viewer", "admin": "approver"}[least]
    assert signed_in(lesser).post(act(name, session), {"typed": session.pk, "prompt": "x"}).status_code == 403
    assert Session.objects.get(pk=session.pk).status == "running"
    assert not Run.objects.exists()


@pytest.mark.parametrize("name", ["stop", "delete", "resume"])
def test_csrf_is_asked_for(session, name):
    client = signed_in("admin", enforce_csrf_checks=True)
    assert client.post(act(name, session), {"typed": session.pk, "prompt": "x"}).status_code == 403
    assert Session.objects.get(pk=session.pk).status == "running"


def test_stopping_is_not_a_get(session):
    assert signed_in("admin").get(act("stop", session)).status_code == 302  # to the session's page
    session.refresh_from_db()
    assert session.status == "running"


def test_stop(session):
    answer = signed_in("approver").post(act("stop", session))
    assert answer.headers["Location"] == reverse("sessions:detail", args=[session.pk])
    assert Session.objects.get(pk=session.pk).status == "stopped"
    assert told("SESSION_STOPPED") == [("user:approver", session.pk, "success")]


def test_stop_of_nothing_is_404():
    assert signed_in("approver").post("/ui/sessions/ses_none/-/stop/").status_code == 404


def test_delete_asks_for_the_id_to_be_typed(session):
    add_events(session, [said("user", "x")])
    client = signed_in("admin")
    assert "1 event" in client.get(act("delete", session)).content.decode()
    assert client.post(act("delete", session), {"typed": "yes"}).status_code == 422
    assert Session.objects.filter(pk=session.pk).exists()
    assert client.post(act("delete", session), {"typed": session.pk}).status_code == 302
    assert not Session.objects.filter(pk=session.pk).exists()
    assert told("SESSION_DELETED") == [("user:admin", session.pk, "success")]


def test_a_session_whose_run_is_at_work_is_not_deleted(session):
    Run.objects.create(
        run_id="run_1", session=session, type="start_session", prompt="x", status="running", created_at=BEGAN
    )
    answer = signed_in("admin").post(act("delete", session), {"typed": session.pk})
    assert answer.status_code == 422
    assert "Stop session first" in answer.content.decode()


def test_start_a_run_with_all_that_it_demands():
    Blueprint.objects.create(name="builder", description="b", created_at=BEGAN, modified_at=BEGAN)
    order = ORDER | {
        "agent_name": "builder",
        "tags": "gpu, linux",
        "hostname": "build-7",
        "project_dir": "/srv",
    }
    answer = signed_in("approver").post(reverse("runs:new"), order)
    run = Run.objects.get()
    assert answer.headers["Location"] == reverse("sessions:detail", args=[run.session_id])
    assert run.demands == {"hostname": "build-7", "tags": ["gpu", "linux"]}
    assert (run.agent_name, run.project_dir, run.prompt) == ("builder", "/srv", "Do it")


@pytest.mark.parametrize("odd", [{"prompt": ""}, {"parent_session_id": "ses_none"}, {"agent_name": "nobody"}])
def test_a_run_that_cannot_be_is_said_in_the_form(odd):
    answer = signed_in("approver").post(reverse("runs:new"), ORDER | odd)
    assert answer.status_code == 422
    assert not Run.objects.exists()


def test_resume():
    session = make_session(status="finished")
    answer = signed_in("approver").post(act("resume", session), ORDER | {"prompt": "Go on"})
    assert answer.status_code == 302
    run = Run.objects.get()
    assert (run.session_id, run.type, run.prompt) == (session.pk, "resume_session", "Go on")


def test_prompts_that_wait_and_prompts_of_turns_are_previewed_without_marks_of_markdown():
    run = Run(run_id="run_1", prompt="# Publish\n\n- run the `tests`\n- **push**")
    assert QueuedPrompt(run, run.prompt, 0, "").text_preview == "Publish · run the tests · push"
    assert TurnChoice(1, 1, BEGAN, run.prompt, 0).prompt_preview == "Publish · run the tests · push"


def page_of(session, role="approver"):
    return signed_in(role).get(reverse("sessions:detail", args=[session.pk])).content.decode()


def give_run(session, status):
    Run.objects.create(
        run_id="run_1", session=session, type="start_session", prompt="x", status=status, created_at=BEGAN
    )


@pytest.mark.parametrize("status", ["pending", "claimed", "running"])
def test_stop_is_offered_where_a_runner_can_be_told(session, status):
    give_run(session, status)
    body = page_of(session)
    assert f'formaction="{act("stop", session)}"' in body
    assert 'id="no-stop"' not in body


@pytest.mark.parametrize("status", [None, "completed", "failed"])
def test_a_session_that_is_only_reported_says_why_it_cannot_be_stopped(session, status):
    if status:
        give_run(session, status)
    body = page_of(session)
    assert "No runner runs this session" in body
    assert "build-7" in body.partition('id="no-stop"')[2].partition("</div>")[0]
    assert "Stop this session?" not in body
    assert "Mark this session as stopped? Its agent is not notified and may continue." in body


def test_an_idle_sessions_process_can_be_stopped(session):
    Session.objects.filter(pk=session.pk).update(status="idle")
    assert 'id="no-stop"' in page_of(session)
    LivingExecutor.objects.create(session=session, runner_id="lnch_1", run_id="run_1", since=BEGAN)
    body = page_of(session, "admin")
    assert "Stop this session? Its process is waiting" in body
    assert 'id="no-stop"' not in body


def test_what_is_being_stopped_is_not_stopped_again(session):
    give_run(session, "stopping")
    body = page_of(session)
    assert "Stopping" in body
    assert act("stop", session) not in body
    assert 'id="no-stop"' not in body


def test_a_session_that_has_ended_offers_neither(session):
    Session.objects.filter(pk=session.pk).update(status="finished")
    body = page_of(session)
    assert act("stop", session) not in body
    assert act("resume", session) in body


def test_the_runs_list_offers_stop_for_what_can_be_stopped(session):
    give_run(session, "stopping")
    assert reverse("runs:stop", args=["run_1"]) not in signed_in("approver").get("/ui/runs/").content.decode()
    Run.objects.update(status="running")
    assert reverse("runs:stop", args=["run_1"]) in signed_in("admin").get("/ui/runs/").content.decode()
