from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from coordinator.actions.people import users
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, person_actor
from coordinator.identity.roles import highest_role_of_user
from coordinator.models import AuditLog
from tests.people import PASSWORD
from tests.people import person as make

pytestmark = pytest.mark.django_db

BY = Actor("user", "ada")


@pytest.fixture(autouse=True)
def ada() -> User:
    return make("admin", "ada")


def again(user: User) -> User:
    return User.objects.get(pk=user.pk)


def test_a_new_person_has_the_role_and_can_sign_in() -> None:
    user = users.create_user("grace", password=PASSWORD, role="approver", actor=BY)
    assert highest_role_of_user(again(user)) == "approver"
    assert again(user).check_password(PASSWORD)
    told = AuditLog.objects.get(event_type="USER_CREATED")
    assert told.metadata["after"]["role"] == "approver"
    assert PASSWORD not in str(told.metadata)


@pytest.mark.parametrize(
    ("name", "password", "role"), [("grace", "123", ""), ("a b/c", PASSWORD, ""), ("grace", PASSWORD, "king")]
)
def test_what_makes_no_person(name: str, password: str, role: str) -> None:
    with pytest.raises(UnprocessableRequest):
        users.create_user(name, password=password, role=role, actor=BY)
    assert User.objects.count() == 1


def test_a_name_is_used_once() -> None:
    with pytest.raises(Conflict, match="in use"):
        users.create_user("ada", password=PASSWORD, actor=BY)


def test_a_role_replaces_another_and_leaves_other_groups() -> None:
    user = make("viewer", "grace")
    user.groups.add(Group.objects.create(name="night shift"))
    users.update_user(user.pk, {}, role="approver", actor=BY)
    assert set(user.groups.values_list("name", flat=True)) == {"approver", "night shift"}
    told = AuditLog.objects.get(event_type="USER_UPDATED")
    assert told.metadata == {"before": {"role": "viewer"}, "after": {"role": "approver"}}


@pytest.mark.parametrize(("changes", "role"), [({"is_active": False}, None), ({}, "viewer"), ({}, "")])
def test_the_last_administrator_stays_one(ada: User, changes: dict[str, bool], role: str | None) -> None:
    with pytest.raises(Conflict, match="administrator"):
        users.update_user(ada.pk, changes, role=role, actor=BY)
    assert highest_role_of_user(again(ada)) == "admin"


def test_of_two_administrators_one_may_go(ada: User) -> None:
    other = make("admin", "grace")
    users.update_user(other.pk, {}, role="viewer", actor=person_actor(ada))
    assert highest_role_of_user(again(other)) == "viewer"


def test_nobody_deletes_themselves(ada: User) -> None:
    make("admin", "grace")
    with pytest.raises(Conflict, match="yourself"):
        users.delete_user(ada.pk, actor=person_actor(ada))


def test_a_deleted_person_stays_in_the_audit_log() -> None:
    user = make("viewer", "grace")
    users.delete_user(user.pk, actor=BY)
    assert not User.objects.filter(username="grace").exists()
    assert AuditLog.objects.get(event_type="USER_DELETED").target_id == "grace"
    with pytest.raises(NotFound):
        users.delete_user(user.pk or 0, actor=BY)


def test_a_stale_page_does_not_overwrite() -> None:
    user = make("viewer", "grace")
    seen = users.compute_user_version(user)
    users.update_user(user.pk, {}, role="approver", actor=BY, seen_version=seen)
    with pytest.raises(Conflict, match="somebody else"):
        users.update_user(user.pk, {"email": "g@example.org"}, actor=BY, seen_version=seen)
