"""The groups of the three roles stand after every migrate, and what a person added to them stays."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordinator.identity.roles import ROLES
from coordinator.operations import triggers_and_groups

pytestmark = pytest.mark.django_db


def may(role: str) -> set[str]:
    return set(Group.objects.get(name=role).permissions.values_list("codename", flat=True))


def test_each_role_has_a_group_with_those_before_it_included() -> None:
    viewer, approver, admin = (may(role) for role in ROLES)
    assert viewer < approver < admin
    assert all(name.startswith("view_") for name in viewer)
    assert approver - viewer == {"change_permissionrequest", "add_grant", "change_grant", "delete_grant"}
    assert {"change_mcpserver", "add_apikey", "change_user"} <= admin


def test_a_viewer_may_look_at_every_table_of_ours_and_at_no_user() -> None:
    viewer = may("viewer")
    assert {"view_session", "view_auditlog", "view_grant"} <= viewer
    assert "view_user" not in viewer


def test_deleted_groups_and_permissions_come_back() -> None:
    Group.objects.get(name="approver").permissions.clear()
    Group.objects.get(name="viewer").delete()
    call_command("migrate", verbosity=0)
    assert "add_grant" in may("approver")
    assert "view_session" in may("viewer")


def test_what_a_person_added_stays() -> None:
    extra = Permission.objects.get(codename="add_session", content_type__app_label="coordinator")
    Group.objects.get(name="viewer").permissions.add(extra)
    alice = User.objects.create_user("alice")
    alice.groups.add(Group.objects.get(name="viewer"))
    triggers_and_groups.ensure_role_groups("default")
    assert "add_session" in may("viewer")
    assert alice.groups.get().name == "viewer"


def test_where_all_stands_nothing_is_written() -> None:
    with CaptureQueriesContext(connection) as queries:
        triggers_and_groups.ensure_role_groups("default")
    assert not [query for query in queries if query["sql"].startswith(("INSERT", "UPDATE", "DELETE"))]
