"""The plugins' pages: permissions with who and why, secrets that stay, values by prefix, stale versions refused."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.plugins import plugin_permissions, plugin_values, plugins
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog, PluginConfig, PluginData, PluginSetting, RuntimePlugin
from coordinator.policy.requests.approvals import PermissionSubject
from tests.people import signed_in

pytestmark = pytest.mark.django_db
BY = Actor("user", "anna")
PAGE = "/ui/plugins/of/mind.test/"


@pytest.fixture(autouse=True)
def plugin() -> PluginSetting:
    return plugins.create_plugin("mind.test", actor=BY)


def body(response: Any) -> str:
    return str(response.content.decode())


def held() -> Any:
    return PluginSetting.objects.get(pk="mind.test").allowed_permissions


def version() -> str:
    return plugins.compute_plugin_version(PluginSetting.objects.get(pk="mind.test"))


def test_a_permission_is_granted_here_with_who_and_why():
    client = signed_in("approver")
    client.post(
        "/ui/plugins/grant/mind.test/",
        {"permission": "FileRead", "reason": "reads the rules", "version": version()},
    )
    assert held() == ["FileRead"]
    page = body(client.get(PAGE))
    assert "user:approver" in page
    assert "reads the rules" in page


def test_a_permission_is_revoked_here():
    plugin_permissions.add_plugin_permission("mind.test", "FileRead", actor=BY)
    signed_in("approver").post(
        "/ui/plugins/revoke/mind.test/", {"permission": "FileRead", "reason": "done", "version": version()}
    )
    assert held() == []
    row = AuditLog.objects.get(event_type="PERMISSION_REVOKED")
    assert (row.actor_id, row.reason, row.permission) == ("user:approver", "done", "FileRead")


@pytest.mark.parametrize("verb", ["grant", "revoke", "switch"])
def test_a_stale_version_is_refused(verb):
    seen = version()
    plugin_permissions.add_plugin_permission("mind.test", "FileRead", actor=BY)
    answer = signed_in("admin").post(
        f"/ui/plugins/{verb}/mind.test/",
        {"permission": "FileRead" if verb == "revoke" else "FileWrite", "version": seen, "on": "no"},
        follow=True,
    )
    assert "changed by somebody else" in body(answer)
    assert held() == ["FileRead"]
    assert PluginSetting.objects.get(pk="mind.test").is_active


def test_pg_11_a_permission_that_does_not_exist_is_refused():
    answer = signed_in("approver").post(
        "/ui/plugins/grant/mind.test/", {"permission": "Everything", "version": version()}, follow=True
    )
    assert "is not a permission" in body(answer)
    assert held() == []


def test_pg_10_permissions_do_not_leak_to_another_plugin():
    plugins.create_plugin("mind.other", actor=BY)
    plugin_permissions.add_plugin_permission("mind.test", "FileRead", actor=BY)
    assert PluginSetting.objects.get(pk="mind.other").allowed_permissions == []


def test_viewers_look_and_approvers_do_not_switch():
    assert signed_in("viewer").post("/ui/plugins/grant/mind.test/").status_code == 403
    assert signed_in("approver").post("/ui/plugins/switch/mind.test/").status_code == 403


def test_secrets_are_masked_and_others_are_shown():
    plugin_values.CONFIG.add_plugin_value("mind.test", "api_key", "sk-very-secret", actor=BY)
    plugin_values.CONFIG.add_plugin_value("mind.test", "timeout", "30", actor=BY)
    plugin_values.DATA.add_plugin_value("mind.test", "auth_token", "t0p-secret", actor=BY)
    page = body(signed_in("admin").get(PAGE))
    assert "30" in page
    assert "sk-very-secret" not in page
    assert "t0p-secret" not in page


def test_stored_values_are_browsed_by_prefix_and_in_pages():
    PluginData.objects.bulk_create(
        PluginData(plugin_id="mind.test", key=f"{kind}:{number:03}", value="v", updated_at=timezone.now())
        for kind in ("a", "b")
        for number in range(60)
    )
    client = signed_in("viewer")
    first = body(client.get(PAGE, {"prefix": "b:"}))
    assert ("b:000" in first, "b:049" in first, "b:050" in first, "a:000" in first) == (
        True,
        True,
        False,
        False,
    )
    rest = body(client.get(PAGE, {"prefix": "b:", "after": "b:049"}))
    assert ("b:050" in rest, "b:059" in rest, "b:049" in rest) == (True, True, False)


def test_requests_that_wait_stand_on_the_page():
    ask = approvals.NewPermissionRequest(
        PermissionSubject("mind.test", "NetworkAccess", None), "to fetch the rates"
    )
    approvals.request_permission(ask, actor=BY, now=timezone.now())
    assert "to fetch the rates" in body(signed_in("viewer").get(PAGE))


@pytest.mark.parametrize("stored", ["{}", "not json", "3"])
def test_permissions_that_cannot_be_read_are_shown_and_not_edited(stored):
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE plugin_settings SET allowed_permissions = %s WHERE plugin_id = 'mind.test'", [stored]
        )
    client = signed_in("admin")
    page = body(client.get(PAGE))
    assert "not a list" in page
    answer = client.post(
        "/ui/plugins/grant/mind.test/", {"permission": "FileRead", "version": version()}, follow=True
    )
    assert "cannot be read" in body(answer)
    assert client.get("/ui/plugins/").status_code == 200


def test_a_plugin_that_only_other_tables_know_can_be_made_known():
    PluginConfig.objects.create(plugin_id="mind.stray", config_key="a", config_value="b")
    client = signed_in("admin")
    assert "mind.stray" in body(client.get("/ui/plugins/"))
    assert "No plugin is registered" in body(client.get("/ui/plugins/of/mind.stray/"))
    client.post("/ui/plugins/register/mind.stray/")
    assert PluginSetting.objects.get(pk="mind.stray").allowed_permissions == []


def test_a_runtime_plugin_is_shown_with_its_code():
    RuntimePlugin.objects.create(
        plugin_id="mind.test",
        script_name="x.py",
        code_content="print('<b>')",
        created_at=timezone.now(),
        permissions=["FileRead"],
    )
    page = body(signed_in("viewer").get(PAGE))
    assert "&lt;b&gt;" in page
    assert "<b>" not in page.split("Generated at run time")[1]


def test_an_id_with_slashes_has_a_page():
    plugins.create_plugin("odd/plugin #1", actor=BY)
    client = signed_in("admin")
    assert client.get("/ui/plugins/").status_code == 200
    assert client.get("/ui/plugins/of/odd/plugin%20%231/").status_code == 200


def test_switching_is_audited_with_its_reason():
    signed_in("admin").post(
        "/ui/plugins/switch/mind.test/", {"on": "no", "reason": "misbehaves", "version": version()}
    )
    row = AuditLog.objects.get(event_type="PLUGIN_DISABLED")
    assert (row.actor_id, row.reason) == ("user:admin", "misbehaves")
