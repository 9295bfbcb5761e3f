"""A person's name: what is kept under it follows them to a new one, and is nobody's once they are gone."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import models
from django.utils import timezone

from coordinator.actions import approvals, runs
from coordinator.actions.approvals import NewPermissionRequest, person_names
from coordinator.actions.people import keys, users
from coordinator.actions.policy import budgets
from coordinator.actions.sessions.events import record_events
from coordinator.errors import Conflict
from coordinator.identity.actors import Actor, person_actor
from coordinator.lib import instants
from coordinator.models import ApiKey, AuditLog, Budget, PermissionContext, ReadMark, SessionOwner, UsageDay
from coordinator.policy.grants.access_requests import RequestedAccess
from coordinator.policy.limits import budgets as use
from coordinator.sessions.events import NewEvent
from tests.access.cases import add_agents
from tests.people import person as new_person

pytestmark = pytest.mark.django_db
ANNA = Actor("user", "anna")

LIKE_A_PERSON = re.compile(r"(_by|person|owner|voter|right_of|user|user_id|user_name|actor_id|decided_for)$")
BY_NAME_IN_LEAVING = [
    "EscalationStep.person",
    "NotificationChoice.person",
    "NotificationTarget.person",
    "QuietHours.person",
]
NOT_A_PERSON = {
    "Job.leased_by": "a process",
    "PermissionContext.used_by": "a session and a call",
    "PermissionContext.waited_by": "a process and a call",
    "Runner.registered_by": "a key",
}


def text_columns() -> list[str]:
    return [
        f"{model.__name__}.{field.name}"
        for model in apps.get_app_config("coordinator").get_models()
        for field in model._meta.local_fields
        if isinstance(field, models.TextField) and LIKE_A_PERSON.search(field.name)
    ]


def test_every_column_that_may_hold_a_persons_name_is_known_to_renaming() -> None:
    known = {*person_names.FOLLOWING, *person_names.HISTORY, *BY_NAME_IN_LEAVING, *NOT_A_PERSON}
    assert [column for column in text_columns() if column not in known] == []


def test_nothing_is_listed_that_there_is_not() -> None:
    fields = {
        f"{model.__name__}.{field.name}"
        for model in apps.get_app_config("coordinator").get_models()
        for field in model._meta.local_fields
    }
    assert {*person_names.FOLLOWING, *person_names.HISTORY, *BY_NAME_IN_LEAVING, *NOT_A_PERSON} <= fields
    assert not set(person_names.FOLLOWING) & set(person_names.HISTORY)


@pytest.fixture
def carl() -> User:
    """carl, who may make two calls a day, has made them, has read a thread, asked for access and made a key."""
    new_person("admin", "anna")
    carl, now = new_person("approver", "carl"), timezone.now()
    add_agents("agent.bot")
    budgets.create_budget("person", "carl", "day", "calls", amount=2, at_limit="hold", actor=ANNA, now=now)
    use_up(carl)
    ReadMark.objects.create(person="carl", agent_id="agent.bot", read_at=now)
    wish = RequestedAccess("agent.bot", "s", "t")
    approvals.request_permission(
        NewPermissionRequest(wish.permission_subject, "why", agent_id="agent.bot"),
        actor=person_actor(carl),
        now=now,
    )
    keys.issue_api_key(
        name="carls", scopes=["agent"], actor=person_actor(carl), now=now, agent_id="agent.bot"
    )
    return carl


def start(user: User) -> Any:
    return runs.queue_start_or_resume_run(
        kind="start_session", prompt="hello", actor=person_actor(user), now=timezone.now()
    )


def use_up(user: User) -> None:
    now = timezone.now()
    told = {
        "event_type": "pre_tool",
        "timestamp": instants.format_canonical_instant(now),
        "tool_name": "Bash",
    }
    session_id = start(user).session_id
    record_events(
        [NewEvent(session_id=session_id, tool_input={"command": f"{n}"}, **told) for n in range(2)], now
    )


def rename(user: User, name: str) -> None:
    users.update_user(user.pk, {"username": name}, actor=ANNA)
    user.refresh_from_db()


def stored(model: type[models.Model], column: str) -> set[str | None]:
    return set(model._default_manager.values_list(column, flat=True))


def test_a_renamed_persons_budget_and_use_follow_them(carl: User) -> None:
    with pytest.raises(Conflict):
        start(carl)
    rename(carl, "carl.smith")
    with pytest.raises(Conflict):
        start(carl)
    assert stored(Budget, "name") == {"carl.smith"}
    assert stored(UsageDay, "person") == {"carl.smith"}
    assert stored(SessionOwner, "person") == {"carl.smith"}
    assert stored(ReadMark, "person") == {"carl.smith"}
    assert stored(PermissionContext, "requested_by") == {"user:carl.smith"}
    assert stored(ApiKey, "created_by") == {"user:carl.smith"}


def test_whoever_gets_the_free_name_inherits_nothing(carl: User) -> None:
    rename(carl, "carl.smith")
    successor = users.create_user("carl", password=None, role="approver", actor=ANNA)
    assert start(successor).run_id


def test_whoever_gets_a_deleted_persons_name_inherits_nothing(carl: User) -> None:
    users.delete_user(carl.pk, actor=ANNA)
    assert AuditLog.objects.get(event_type="BUDGET_REMOVED").metadata["person_deleted"] == "carl"
    successor = users.create_user("carl", password=None, role="approver", actor=ANNA)
    assert start(successor).run_id
    assert stored(SessionOwner, "person") == {"carl"}  # what they have just started
    assert SessionOwner.objects.count() == 1
    assert "carl" not in stored(UsageDay, "person")
    assert not ReadMark.objects.exists()
    assert "user:carl" not in stored(ApiKey, "created_by") | stored(PermissionContext, "requested_by")


def test_a_name_that_was_left_by_somebody_deleted_elsewhere_gives_nothing(carl: User) -> None:
    User.objects.filter(pk=carl.pk).delete()
    dora = new_person("approver", "dora")
    rename(dora, "carl")
    assert "carl" not in stored(UsageDay, "person")
    assert "user:carl" not in stored(ApiKey, "created_by")


def test_a_budget_that_was_set_before_the_person_came_counts_for_them() -> None:
    now = timezone.now()
    budgets.create_budget("person", "eve", "day", "calls", amount=1, at_limit="hold", actor=ANNA, now=now)
    eve = users.create_user("eve", password=None, role="approver", actor=ANNA)
    use_up(eve)
    (budget,) = use.load_active_budgets()
    assert use.current_budget_state(budget, now + timedelta(seconds=1)).is_reached
