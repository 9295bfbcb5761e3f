from __future__ import annotations

from datetime import UTC, datetime

import pytest

from coordinator.actions.agents import agents
from coordinator.actions.plugins import plugin_values, plugins
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import AgentPlugin, AuditLog, PluginConfig, PluginData, PluginSetting
from coordinator.models.fields import UnreadableText
from coordinator.secrets import MASK

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 2, 23, 12, tzinfo=UTC)
BY = Actor("user", "ada")


@pytest.fixture(autouse=True)
def plugin() -> PluginSetting:
    return plugins.create_plugin("tool.x", permissions=["FileRead"], actor=BY)


def config(key: str) -> str | None:
    return PluginConfig.objects.get(pk=("tool.x", key)).config_value


def test_the_audit_log_holds_key_and_length_but_never_the_value() -> None:
    plugin_values.CONFIG.add_plugin_value("tool.x", "API_KEY", "s3cret-value", actor=BY)
    plugin_values.CONFIG.change_plugin_value("tool.x", "API_KEY", "an0ther-value!", actor=BY)
    plugin_values.CONFIG.delete_plugin_value("tool.x", "API_KEY", actor=BY)
    told = list(
        AuditLog.objects.filter(target_id="tool.x").exclude(event_type="PLUGIN_REGISTERED").order_by("id")
    )
    assert [(row.event_type, row.metadata) for row in told] == [
        ("CONFIG_UPDATED", {"key": "API_KEY", "value_length": 12}),
        ("CONFIG_UPDATED", {"key": "API_KEY", "value_length": 14}),
        ("CONFIG_DELETED", {"key": "API_KEY", "value_length": 14}),
    ]


def test_the_mask_keeps_a_secret() -> None:
    plugin_values.CONFIG.add_plugin_value("tool.x", "API_KEY", "s3cret", actor=BY)
    plugin_values.CONFIG.change_plugin_value("tool.x", "API_KEY", MASK, actor=BY)
    assert config("API_KEY") == "s3cret"


def test_the_mask_is_no_first_value_of_a_secret() -> None:
    with pytest.raises(UnprocessableRequest, match="none is stored"):
        plugin_values.CONFIG.add_plugin_value("tool.x", "API_KEY", MASK, actor=BY)


def test_a_value_that_moved_on_is_not_overwritten() -> None:
    plugin_values.CONFIG.add_plugin_value("tool.x", "model", "a", actor=BY)
    seen = plugin_values.compute_plugin_value_version("a")
    plugin_values.CONFIG.change_plugin_value("tool.x", "model", "b", actor=BY, seen_version=seen)
    with pytest.raises(Conflict):
        plugin_values.CONFIG.change_plugin_value("tool.x", "model", "c", actor=BY, seen_version=seen)
    with pytest.raises(Conflict):
        plugin_values.CONFIG.delete_plugin_value("tool.x", "model", actor=BY, seen_version=seen)
    assert config("model") == "b"


def test_a_key_is_added_once() -> None:
    plugin_values.CONFIG.add_plugin_value("tool.x", "model", "a", actor=BY)
    with pytest.raises(Conflict, match="already"):
        plugin_values.CONFIG.add_plugin_value("tool.x", "model", "b", actor=BY)
    assert config("model") == "a"


def test_a_value_that_is_gone() -> None:
    with pytest.raises(NotFound, match="Reload"):
        plugin_values.CONFIG.change_plugin_value("tool.x", "nothing", "b", actor=BY)


def test_stored_values_are_dated() -> None:
    plugin_values.DATA.add_plugin_value("tool.x", "n", "1", actor=BY, now=NOW)
    assert PluginData.objects.get(pk=("tool.x", "n")).updated_at == NOW


def test_deleting_takes_what_is_the_plugins_own() -> None:
    plugins.create_plugin("tool.y", actor=BY)
    for plugin_id in ("tool.x", "tool.y"):
        plugin_values.CONFIG.add_plugin_value(plugin_id, "model", "a", actor=BY)
        plugin_values.DATA.add_plugin_value(plugin_id, "n", "1", actor=BY)
        agents.assign_plugin(agents.DEFAULT_AGENT, plugin_id, actor=BY)
    plugins.delete_plugin("tool.x", actor=BY)
    for model in (PluginSetting, PluginConfig, PluginData, AgentPlugin):
        assert not model.objects.filter(plugin_id="tool.x").exists()
        assert model.objects.filter(plugin_id="tool.y").exists()
    told = AuditLog.objects.get(event_type="PLUGIN_DELETED")
    assert told.metadata["before"]["allowed_permissions"] == ["FileRead"]
    assert set(told.metadata["taken_along"].values()) == {1}


def test_what_can_be_read_is_not_mended() -> None:
    with pytest.raises(Conflict, match="can now be read"):
        plugins.replace_broken_permissions("tool.x", [], actor=BY)


def test_mending_keeps_what_was_there_in_the_audit_log() -> None:
    PluginSetting.objects.filter(pk="tool.x").update(allowed_permissions=UnreadableText("not json"))
    plugins.replace_broken_permissions("tool.x", ["FileWrite", "FileRead"], actor=BY)
    assert PluginSetting.objects.get(pk="tool.x").allowed_permissions == ["FileRead", "FileWrite"]
    told = AuditLog.objects.get(event_type="PERMISSIONS_REPLACED")
    assert told.metadata["before"] == {"allowed_permissions": "not json"}


def test_unknown_permissions_are_never_written() -> None:
    with pytest.raises(UnprocessableRequest, match="Everything"):
        plugins.create_plugin("tool.z", permissions=["Everything"], actor=BY)
