from __future__ import annotations

import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from coordinator.models import AuditLog, PluginSetting
from coordinator.models.plugins import PluginPermission
from tests.admin.pages import errors, open_page, save
from tests.admin.rows import insert
from tests.people import signed_in

pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    return signed_in("admin")


def plugin(permissions: str | None) -> None:
    insert(PluginSetting, {"plugin_id": "tool.x", "allowed_permissions": permissions})


def column() -> str | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT allowed_permissions FROM plugin_settings WHERE plugin_id = 'tool.x'")
        return cursor.fetchone()[0]  # type: ignore[no-any-return]


def edit(client: Client, **changes: Any) -> Any:
    return save(client, PluginSetting, "tool.x", **changes)


def trail() -> list[tuple[str, str | None]]:
    return list(AuditLog.objects.order_by("id").values_list("event_type", "permission"))


def test_the_boxes_are_the_known_nine(client: Client) -> None:
    plugin('["FileRead"]')
    form = open_page(client, PluginSetting, "tool.x").context["adminform"].form
    assert [value for value, _ in form.fields["allowed_permissions"].choices] == list(PluginPermission.values)
    assert len(PluginPermission.values) == 9
    assert form["allowed_permissions"].value() == ["FileRead"]


def test_ticking_grants_and_unticking_revokes_one_by_one(client: Client) -> None:
    plugin('["FileRead","NetworkAccess"]')
    assert edit(client, allowed_permissions=["NetworkAccess", "MemoryRead"], reason="why").status_code == 302
    assert json.loads(column() or "") == ["NetworkAccess", "MemoryRead"]
    assert set(trail()) == {("PERMISSION_GRANTED", "MemoryRead"), ("PERMISSION_REVOKED", "FileRead")}
    assert set(AuditLog.objects.values_list("reason", flat=True)) == {"why"}


def test_unknown_permissions_are_shown_and_kept(client: Client) -> None:
    plugin('["Teleport","FileRead"]')
    assert "Teleport" in open_page(client, PluginSetting, "tool.x").content.decode()
    assert edit(client, allowed_permissions=None).status_code == 302
    assert json.loads(column() or "") == ["Teleport"]


@pytest.mark.parametrize(
    "stored",
    [None, "[]", '["FileRead", "FileRead"]', "not json", "{}", '"FileRead"', '[1, null, {"a": []}]', ""],
)
def test_what_nobody_touched_stays_byte_for_byte(client: Client, stored: str | None) -> None:
    plugin(stored)
    assert edit(client, is_active=None).status_code == 302
    assert column() == stored
    assert trail() == [("PLUGIN_DISABLED", None)]


@pytest.mark.parametrize("stored", ["not json <b>", "{}", '"FileRead"', "7"])
def test_what_cannot_be_read_is_shown_and_not_replaced_unasked(client: Client, stored: str) -> None:
    plugin(stored)
    page = open_page(client, PluginSetting, "tool.x").content.decode()
    assert "Not a list of permissions" in page
    assert "Tick the box below" in errors(edit(client, allowed_permissions=["FileRead"]))
    assert column() == stored


def test_what_cannot_be_read_is_replaced_if_asked_to(client: Client) -> None:
    plugin("not json")
    assert edit(client, allowed_permissions=["FileRead"], replace_unreadable="on").status_code == 302
    assert column() == '["FileRead"]'
    assert trail() == [("PERMISSIONS_REPLACED", None)]


def test_null_takes_a_first_permission(client: Client) -> None:
    plugin(None)
    assert edit(client, allowed_permissions=["FileRead"]).status_code == 302
    assert column() == '["FileRead"]'


def test_a_permission_made_up_by_hand_is_refused(client: Client) -> None:
    plugin("[]")
    assert errors(edit(client, allowed_permissions=["Everything"]))
    assert column() == "[]"
