"""A plugin's configuration as rows in its page."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from coordinator.models import AuditLog, PluginConfig, PluginData, PluginSetting
from coordinator.secrets import MASK
from dashboard.admin.rows import PAGE
from tests.admin.pages import errors, open_page, save, url
from tests.admin.rows import ODD_ID, insert
from tests.people import signed_in

pytestmark = pytest.mark.django_db

SECRET = "s3cret-value-of-a-key"
ODD_KEYS = ["a/b", 'quo"te', "it's", "<b>", "clé ключ 键", "a b", "x\ny", "_2F", "", "%00", "a" * 500]


@pytest.fixture
def client() -> Client:
    return signed_in("admin")


@pytest.fixture(autouse=True)
def plugin() -> None:
    insert(PluginSetting, {"plugin_id": ODD_ID})


def config(**values: str | None) -> None:
    for key, value in values.items():
        store(key, value)


def store(key: str, value: str | None) -> None:
    insert(PluginConfig, {"plugin_id": ODD_ID, "config_key": key, "config_value": value})


def configs() -> dict[str, str | None]:
    return dict(PluginConfig.objects.filter(plugin_id=ODD_ID).values_list("config_key", "config_value"))


def trail() -> list[tuple[str, str]]:
    told = AuditLog.objects.order_by("id")
    return [(row.event_type, (row.metadata or {}).get("key", "")) for row in told]


def edit(client: Client, opened: Any = None, **changes: Any) -> Any:
    return save(client, PluginSetting, ODD_ID, opened, **changes)


def test_a_row_is_added(client: Client) -> None:
    assert edit(client, configs__0__key="model", configs__0__value="a\r\nb").status_code == 302
    assert configs() == {"model": "a\nb"}
    assert trail() == [("CONFIG_UPDATED", "model")]


def test_a_row_is_changed_and_no_other(client: Client) -> None:
    config(a="1", b="2", c=None)
    assert edit(client, configs__1__value="3").status_code == 302
    assert configs() == {"a": "1", "b": "3", "c": None}
    assert trail() == [("CONFIG_UPDATED", "b")]


def test_a_row_is_deleted(client: Client) -> None:
    config(a="1", b="2")
    assert edit(client, configs__0__DELETE="on").status_code == 302
    assert configs() == {"b": "2"}
    assert trail() == [("CONFIG_DELETED", "a")]


def test_all_of_it_at_once_and_a_deleted_key_anew(client: Client) -> None:
    config(a="1", b="2")
    changes = {
        "configs-0-DELETE": "on",
        "configs-1-value": "9",
        "configs-2-key": "a",
        "configs-2-value": "new",
    }
    assert edit(client, **changes).status_code == 302
    assert configs() == {"a": "new", "b": "9"}


@pytest.mark.parametrize("key", ODD_KEYS, ids=repr)
def test_odd_keys_are_changed_and_deleted(client: Client, key: str) -> None:
    store(key, "1")
    assert edit(client).status_code == 302
    assert trail() == []
    assert edit(client, configs__0__value="2").status_code == 302
    assert configs() == {key: "2"}
    assert edit(client, configs__0__DELETE="on").status_code == 302
    assert configs() == {}


@pytest.mark.parametrize(
    "value", ["a\r\nb\nc", "\n", " ", "<script>", "a" * 30_000, "\r"], ids=lambda v: repr(v[:9])
)
def test_odd_values_that_nobody_touched_stay_byte_for_byte(client: Client, value: str) -> None:
    config(a=value, b="1")
    assert edit(client, configs__1__value="2").status_code == 302
    assert configs() == {"a": value, "b": "2"}


def test_a_secret_never_reaches_the_page(client: Client) -> None:
    config(API_KEY=SECRET, url=f"https://me:{SECRET}@example.org")
    insert(PluginData, {"plugin_id": ODD_ID, "key": "oauth_token", "value": SECRET})
    page = open_page(client, PluginSetting, ODD_ID).content.decode()
    assert SECRET not in page
    assert page.count(f'value="{MASK}"') == 3


def test_a_secret_stays_unless_another_is_typed(client: Client) -> None:
    config(API_KEY=SECRET)
    assert edit(client, configs__0__value=MASK).status_code == 302
    assert configs() == {"API_KEY": SECRET}
    assert trail() == []
    assert edit(client, configs__0__value="***new").status_code == 302
    assert configs() == {"API_KEY": "***new"}
    assert SECRET not in str(list(AuditLog.objects.values()))


def test_an_emptied_secret_is_empty(client: Client) -> None:
    config(API_KEY=SECRET)
    assert edit(client, configs__0__value="").status_code == 302
    assert not configs()["API_KEY"]


def test_the_mask_is_no_first_value_of_a_secret(client: Client) -> None:
    answer = edit(client, configs__0__key="API_KEY", configs__0__value=MASK)
    assert "none is stored" in errors(answer)
    assert configs() == {}


def test_an_error_loses_nothing_that_was_typed_and_writes_nothing(client: Client) -> None:
    config(a="1", API_KEY=SECRET)
    answer = edit(
        client,
        is_active=None,
        reason="because",
        configs__0__value="typed-secret",
        configs__1__value="typed-value",
        configs__2__key="a",
        configs__2__value="typed-new",
        configs__3__value="no-key-typed",
        data__0__key="typed-key",
    )
    assert errors(answer)
    page = answer.content.decode()
    for typed in ("because", "typed-secret", "typed-value", "typed-new", "no-key-typed", "typed-key"):
        assert typed in page
    assert SECRET not in page
    assert configs() == {"a": "1", "API_KEY": SECRET}
    assert trail() == []


def test_a_key_that_is_there_already_undoes_all_of_it(client: Client) -> None:
    config(a="1", b="2")
    answer = edit(client, is_active=None, configs__1__value="3", configs__2__key="a", configs__2__value="x")
    assert "already" in errors(answer)
    assert configs() == {"a": "1", "b": "2"}
    assert PluginSetting.objects.get(pk=ODD_ID).is_active
    assert trail() == []


def test_the_second_of_two_editors_of_a_value_is_told(client: Client) -> None:
    config(a="1", b="2")
    opened = open_page(client, PluginSetting, ODD_ID)
    edit(client, configs__0__value="theirs")
    answer = edit(client, opened, configs__0__value="mine")
    assert "somebody else" in errors(answer)
    assert "mine" in answer.content.decode()
    assert configs()["a"] == "theirs"


def test_two_editors_of_different_values_do_not_meet(client: Client) -> None:
    config(a="1", b="2", c="3", API_KEY=SECRET)
    opened = open_page(client, PluginSetting, ODD_ID)
    rows = {form.stored_key: form.prefix for form in opened.context["inline_admin_formsets"][0].formset}
    PluginConfig.objects.filter(config_key="c").delete()
    PluginConfig.objects.filter(config_key="API_KEY").update(config_value="rotated")
    edit(client, **{f"{rows['a']}-value": "theirs"})
    assert edit(client, opened, **{f"{rows['b']}-value": "mine"}).status_code == 302
    assert configs() == {"a": "theirs", "b": "mine", "API_KEY": "rotated"}


def test_a_value_that_is_gone_is_not_brought_back(client: Client) -> None:
    config(a="1")
    opened = open_page(client, PluginSetting, ODD_ID)
    PluginConfig.objects.all().delete()
    assert "no longer has" in errors(edit(client, opened, configs__0__value="2"))
    assert configs() == {}


@pytest.mark.parametrize("stored", ["garbage", "[1, 2]", "null", '["a"]', '{"a": 1}', "[" * 5000])
def test_a_row_forged_by_hand_is_refused(client: Client, stored: str) -> None:
    config(a="1")
    assert edit(client, configs__0__stored=stored).status_code == 200
    assert configs() == {"a": "1"}


def test_a_missing_or_huge_count_of_rows_is_refused(client: Client) -> None:
    for count in (None, "99999999", "x"):
        assert edit(client, configs__TOTAL_FORMS=count).status_code == 200


def test_stored_values_are_edited_likewise(client: Client) -> None:
    insert(
        PluginData, {"plugin_id": ODD_ID, "key": "n", "value": "1", "updated_at": "2026-01-01 00:00:00+00:00"}
    )
    assert edit(client, data__0__value="2", data__1__key="m", data__1__value="3").status_code == 302
    assert dict(PluginData.objects.filter(plugin_id=ODD_ID).values_list("key", "value")) == {
        "n": "2",
        "m": "3",
    }
    assert edit(client, data__0__DELETE="on").status_code == 302
    assert [event for event, _ in trail()] == ["PLUGIN_DATA_UPDATED"] * 2 + ["PLUGIN_DATA_DELETED"]


def test_many_rows_come_by_the_page_and_by_their_beginning(client: Client) -> None:
    PluginConfig.objects.bulk_create(
        PluginConfig(plugin_id=ODD_ID, config_key=f"k{number:03}", config_value="1")
        for number in range(PAGE + 5)
    )
    place = url(PluginSetting, "change", ODD_ID)

    def shown(**query: str) -> list[str]:
        answer = client.get(place, {name.replace("__", "-"): value for name, value in query.items()})
        formset = answer.context["inline_admin_formsets"][0].formset
        return [form.stored_key for form in formset if form.is_stored]

    assert len(shown()) == PAGE
    assert shown(configs__page="2") == [f"k{number:03}" for number in range(PAGE, PAGE + 5)]
    assert shown(configs__begins="k01") == [f"k01{number}" for number in range(10)]
    assert shown(configs__page="x") == shown(configs__page="0") == shown()


def test_a_page_of_many_rows_can_be_saved(client: Client) -> None:
    for model, key in ((PluginConfig, "config_key"), (PluginData, "key")):
        model.objects.bulk_create(
            model(plugin_id=ODD_ID, **{key: f"k{number:03}"}) for number in range(PAGE + 5)
        )
    assert edit(client, configs__7__value="new").status_code == 302
    assert configs()["k007"] == "new"


def test_configurations_of_unknown_plugins_are_named(client: Client) -> None:
    insert(PluginConfig, {"plugin_id": "stray/1", "config_key": "a", "config_value": "1"})
    page = client.get(url(PluginSetting, "changelist")).content.decode()
    assert "/add/?plugin_id=stray%2F1" in page
