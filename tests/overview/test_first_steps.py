"""The first steps on the overview: what ticks each, for whom, and when they are gone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from coordinator.actions.audit import audit
from coordinator.actions.people import invitations, keys
from coordinator.identity.actors import person_actor, system_actor
from coordinator.models import ApiKey, Session, ToolRule
from dashboard.overview.first_steps import FirstSteps, load_first_steps_if_shown
from tests.people import person

NOW = datetime.now(UTC)
pytestmark = pytest.mark.django_db


@pytest.fixture
def ada() -> User:
    return person("admin", "ada")


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def connect() -> None:
    keys.issue_api_key(name="laptop", scopes=["agent"], agent_id="a", actor=system_actor("test"), now=NOW)
    ApiKey.objects.update(last_used_at=NOW)


def see_session() -> None:
    Session.objects.create(session_id="ses_1", status="running", created_at=NOW)


def make_rule() -> None:
    ToolRule.objects.create(position=1, tool="Bash", verdict="ask", changed_at=NOW, changed_by="user:ada")


def decide(user: User) -> None:
    audit.record_audit_entry(
        "PERMISSION_REQUEST_DENIED", actor=person_actor(user), target="req-1", result="denied", now=NOW
    )


def test_a_new_administrator_has_all_to_do(ada: User) -> None:
    assert load_first_steps_if_shown(ada, NOW) == FirstSteps(False, False, False, False, False)


def test_each_step_ticks_by_itself_and_the_list_is_gone_with_the_last(ada: User) -> None:
    connect()
    assert load_first_steps_if_shown(ada, NOW) == FirstSteps(True, False, False, False, False)
    see_session()
    make_rule()
    assert load_first_steps_if_shown(ada, NOW) == FirstSteps(True, True, True, False, False)
    invitations.create_invitation(role="viewer", days=1, user=ada, now=NOW)
    assert load_first_steps_if_shown(ada, NOW) == FirstSteps(True, True, True, False, True)
    decide(ada)
    assert load_first_steps_if_shown(ada, NOW) is None


def test_an_approver_has_what_approvers_do_and_a_viewer_nothing(ada: User) -> None:
    decide(ada)  # somebody else's decision
    assert load_first_steps_if_shown(person("approver"), NOW) == FirstSteps(None, False, False, False, None)
    assert load_first_steps_if_shown(person("viewer"), NOW) is None


def test_one_person_puts_them_away_for_themselves_on_all_their_browsers(ada: User) -> None:
    bob = person("admin", "bob")
    assert "First steps" in client_of(ada).get("/ui/").content.decode()
    client_of(ada).post("/ui/first-steps/dismiss/")
    client_of(ada).post("/ui/first-steps/dismiss/")
    assert "First steps" not in client_of(ada).get("/ui/").content.decode()
    assert "First steps" in client_of(bob).get("/ui/").content.decode()


def test_they_do_not_come_back_when_old_rows_are_pruned(ada: User) -> None:
    assert load_first_steps_if_shown(ada, NOW + timedelta(days=31)) is None


def test_what_the_demo_wrote_ticks_nothing_off(ada: User) -> None:
    audit.record_audit_entry(
        "DEMO_FILLED", actor=system_actor("demo"), target=None, result="success", now=NOW
    )
    assert load_first_steps_if_shown(ada, NOW) is None


def test_an_open_overview_takes_a_list_that_is_done(ada: User) -> None:
    client = client_of(ada)
    assert "0 of 5 done" in client.get("/ui/first-steps/").content.decode()
    client.post("/ui/first-steps/dismiss/")
    html = client.get("/ui/first-steps/").content.decode()
    assert 'id="first-steps"' in html
    assert "hidden" in html


def test_the_connect_command_is_one_press_away_and_turns_into_the_session(ada: User) -> None:
    client = client_of(ada)
    shown = client.post("/ui/connections/code/", {"name": "ada-laptop"}).content.decode()
    assert "--key-file &lt;(echo " in shown
    waiting = "/ui/connections/first-event/?key=ada-laptop"
    assert "Waiting for ada-laptop to connect" in client.get(waiting).content.decode()
    keys.issue_api_key(name="ada-laptop", scopes=["agent"], agent_id="a", actor=person_actor(ada), now=NOW)
    assert "Waiting for the first event" in client.get(waiting).content.decode()
    trial = Session.objects.create(
        session_id="ses_0", status="finished", created_at=NOW, executor_session_id="signalbox-test-1"
    )
    trial.writers.create(writer="ada-laptop")
    session = Session.objects.create(session_id="ses_1", status="running", created_at=NOW)
    session.writers.create(writer="another")
    assert "Waiting for the first event" in client.get(waiting).content.decode()
    session.writers.create(writer="ada-laptop")
    html = client.get(waiting).content.decode()
    assert "/ui/sessions/ses_1/" in html
    assert "hx-get" not in html
