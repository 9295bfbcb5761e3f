"""The demo's people answer what the demo's own fleet asks, in a database of the demo's own, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from coordinator.actions import approvals
from coordinator.actions.agents import agents
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.audit import audit
from coordinator.actions.people import keys
from coordinator.actions.policy import tool_rules
from coordinator.demo import fill, people
from coordinator.demo.cast import PEOPLE, TEAMS, TRADES, demo_blueprint_name
from coordinator.demo.people import DemoPeople, ForeignDataPresent
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor, key_actor_by_name, system_actor
from coordinator.importing import seeds
from coordinator.models import (
    Agent,
    AuditLeaf,
    AuditLog,
    Grant,
    McpServer,
    PermissionRequest,
    PermissionVote,
    Session,
)
from coordinator.policy.grants.access_requests import RequestedAccess
from coordinator.policy.requests.approvals import PermissionSubject
from coordinator.policy.rules.tool_rules import DecisionRule, digest_tool_rules
from tests.people import person
from tests.unbound import accept_unbound_keys

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("own")]

NOW = datetime.now(UTC).replace(microsecond=0)
FLEET = "demo-fleet-1a2b3c"


def asked(by: str, target: str = "git push") -> PermissionRequest:
    subject = PermissionSubject("claude-code", "ToolCall", None, "Bash", {"command": target})
    return approvals.request_permission(
        NewPermissionRequest(subject, justification="Please."), actor=key_actor_by_name(by), now=NOW
    ).request


@pytest.fixture
def own() -> None:
    """Signalbox's own word that the demo filled this database while it was empty."""
    audit.record_audit_entry(
        fill.FILLED,
        actor=system_actor("demo"),
        target=None,
        result="success",
        metadata={"in_use": False},
        now=NOW,
    )


def at_work(*names: str) -> DemoPeople:
    return DemoPeople(names or (FLEET,), threading.Event())


def test_a_question_waits_for_whoever_looks_and_is_answered_after_a_while() -> None:
    row, someone = asked(FLEET), at_work()
    assert someone.answer_due_requests(NOW) == 0
    assert someone.answer_due_requests(NOW + timedelta(seconds=people.VIEWER_WAIT_SECONDS[0] - 1)) == 0
    assert someone.answer_due_requests(NOW + timedelta(seconds=people.VIEWER_WAIT_SECONDS[1])) == 1
    row.refresh_from_db()
    assert row.status in {"approved", "denied"}
    assert row.approved_by in PEOPLE
    assert row.approved_by.endswith("(demo)")


def test_what_others_ask_is_never_theirs() -> None:
    rows = [asked("shop-agent", "a"), asked("demo-fleet-9z9z9z", "b"), asked("demo-fleet", "c")]
    someone = at_work()
    for seconds in (0, 600):
        assert someone.answer_due_requests(NOW + timedelta(seconds=seconds)) == 0
    assert {PermissionRequest.objects.get(pk=row.pk).status for row in rows} == {"pending"}


def test_somebody_who_was_faster_is_not_overruled(monkeypatch: pytest.MonkeyPatch) -> None:
    row, someone = asked(FLEET), at_work()
    stale = PermissionRequest.objects.with_context().get(pk=row.pk)
    approvals.decide_request(
        row.request_id, person=fill.build_unsaved_decider("ann"), verdict="denied", now=NOW
    )
    assert someone.decide_demo_request(stale, NOW) is False
    row.refresh_from_db()
    assert (row.status, row.approved_by) == ("denied", "ann")


def test_they_have_names_that_no_account_can_have() -> None:
    for name in PEOPLE:
        with pytest.raises(ValidationError):
            User(username=name, password="x").full_clean()


def test_what_takes_two_people_waits_for_real_ones(settings: Any) -> None:
    settings.TWO_PERSON_TYPES = {"ToolCall"}
    row, someone = asked(FLEET), at_work()
    for seconds in (0, 600, 1200):
        assert someone.answer_due_requests(NOW + timedelta(seconds=seconds)) == 0
    row.refresh_from_db()
    assert row.status == "pending"
    assert not PermissionVote.objects.exists()


def test_they_grant_no_access() -> None:
    McpServer.objects.create(name="deploy", command="sh", created_at=NOW)
    Agent.objects.create(id="agent.checkout_fixer", name="Fixer", default_engine_id="mind.x")
    wanted = RequestedAccess("agent.checkout_fixer", "deploy", None)
    ask = NewPermissionRequest(wanted.permission_subject, justification="Please.", agent_id=wanted.agent_id)
    row = approvals.request_permission(ask, actor=key_actor_by_name(FLEET), now=NOW).request
    someone = at_work()
    for seconds in (0, 600):
        assert someone.answer_due_requests(NOW + timedelta(seconds=seconds)) == 0
    row.refresh_from_db()
    assert row.status == "pending"
    assert not Grant.objects.exists()


def test_what_is_not_for_them_keeps_them_from_nothing_else(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people, "AT_ONCE", 1)
    settings.TWO_PERSON_TYPES = {"FileWrite"}
    two = PermissionSubject("claude-code", "FileWrite", "/srv")
    approvals.request_permission(
        NewPermissionRequest(two, justification="Please."), actor=key_actor_by_name(FLEET), now=NOW
    )
    row, someone = asked(FLEET), at_work()
    someone.answer_due_requests(NOW)
    assert someone.answer_due_requests(NOW + timedelta(seconds=600)) == 1
    row.refresh_from_db()
    assert row.approved_by in PEOPLE


def a_key(by: Actor) -> None:
    accept_unbound_keys()
    keys.issue_api_key(name=f"key-of-{by.name}", scopes=["agent"], actor=by, now=NOW)


def a_session(**told: Any) -> None:
    Session.objects.create(session_id="ses_real", status="finished", created_at=NOW, **told)


THE_FIRST_TEAMS = {"project_dir": TEAMS[0].project_dir, "hostname": TEAMS[0].hostname}


@pytest.mark.parametrize(
    ("come", "named"),
    [
        (lambda: a_key(Actor("user", "ann")), "key-of-ann"),
        (lambda: a_session(project_dir="/home/ann/shop", hostname="build-01"), "ses_real"),
        (lambda: a_session(**THE_FIRST_TEAMS | {"hostname": "anns-laptop"}), "ses_real"),
        (a_session, "ses_real"),
    ],
)
def test_they_stop_for_good_once_anybody_else_works_here(
    come: Callable[[], None], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people, "LOOK_EVERY", 0)
    monkeypatch.setattr(people, "VIEWER_WAIT_SECONDS", (0, 0))
    monkeypatch.setattr(people, "connection", SimpleNamespace(close=lambda: None))  # the test goes on with it
    row = asked(FLEET)
    said: list[str] = []
    come()
    with pytest.raises(ForeignDataPresent, match=named):
        at_work().answer_due_requests(NOW)
    DemoPeople([FLEET], threading.Event(), said.append).answer_requests_until_over()  # ends by itself
    assert named in said[0]
    row.refresh_from_db()
    assert row.status == "pending"


@pytest.mark.parametrize(
    "come",
    [
        lambda: a_key(system_actor("demo")),
        lambda: a_session(**THE_FIRST_TEAMS),
        lambda: a_session(project_dir=TEAMS[0].project_dir),  # ordered, and no runner has taken it yet
        lambda: a_session(agent_name=demo_blueprint_name(TEAMS[0], TRADES[0])),
        lambda: person("admin"),
    ],
)
def test_the_demos_own_keys_and_sessions_and_whoever_looks_stop_nothing(come: Callable[[], object]) -> None:
    come()
    assert fill.explain_why_demo_may_not_decide() is None


@pytest.fixture
def empty(own: None) -> None:
    AuditLog.objects.filter(event_type=fill.FILLED).delete()


@pytest.mark.usefixtures("few_sessions")
@pytest.mark.parametrize("accounts", [0, 1])
def test_a_database_that_the_demo_filled_while_empty_is_its_own(empty: None, accounts: int) -> None:
    """The set-up link's account may be there, so that the help page's way works in either order."""
    for _account in range(accounts):
        person("admin")
    assert fill.explain_why_demo_may_not_decide() is not None
    assert not fill.has_existing_application_data()
    fill.fill_demo_database(seed=7, days=1, now=NOW)
    assert fill.explain_why_demo_may_not_decide() is None
    person("viewer")
    assert fill.explain_why_demo_may_not_decide() is None


def two_accounts() -> None:
    person("admin")
    person("approver")


def a_rule() -> None:
    tool_rules.replace_tool_rules(
        [DecisionRule(1, "Bash", "deny", "x")],
        seen_version=digest_tool_rules([]),
        actor=system_actor("test"),
        now=NOW,
    )


@pytest.mark.parametrize(
    "set_up",
    [
        a_session,
        two_accounts,
        a_rule,
        lambda: a_key(Actor("user", "ann")),
        lambda: Agent.objects.create(id="agent.real", name="Real", default_engine_id="mind.x"),
        lambda: McpServer.objects.create(name="real", command="sh", created_at=NOW),
    ],
)
def test_an_installation_that_people_have_set_up_is_not_the_demos_own(
    empty: None, set_up: Callable[[], object]
) -> None:
    set_up()
    assert fill.has_existing_application_data()
    with pytest.raises(Conflict, match="in use"):
        fill.fill_demo_database(seed=7, days=1, now=NOW)


@pytest.mark.usefixtures("few_sessions")
def test_a_database_that_was_filled_although_in_use_is_not_the_demos_own(empty: None) -> None:
    McpServer.objects.create(name="real", command="sh", created_at=NOW)
    fill.fill_demo_database(seed=7, days=1, now=NOW, anyway=True)
    assert fill.explain_why_demo_may_not_decide() == "the demo did not fill this database while it was empty"


def test_the_agent_that_every_installation_has_is_no_use() -> None:
    assert set(seeds.SEEDS["agents"]) == {(agents.DEFAULT_AGENT,)}


def test_an_entry_that_another_program_wrote_proves_nothing(empty: None) -> None:
    told = {"actor_id": str(system_actor("demo")), "result": "success", "metadata": {"in_use": False}}
    row = AuditLog.objects.create(timestamp=NOW, event_type=fill.FILLED, **told)
    assert not AuditLeaf.objects.get(pk=row.pk).by_signalbox
    assert fill.explain_why_demo_may_not_decide() is not None
