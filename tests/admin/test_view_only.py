from __future__ import annotations

from typing import Any

import pytest
from django.contrib import admin
from django.contrib.admin.utils import quote

from coordinator.models import Agent, McpServer, PluginSetting
from dashboard.admin.options import ViewOnlyAdmin
from tests.admin.rows import REGISTERED, odd_row
from tests.admin.test_every_table import place
from tests.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("without_sidebar")]

EDITED = {"Agent", "DangerMark", "McpServer", "PluginSetting", "User"}
VIEW_ONLY = [model for model in REGISTERED if isinstance(admin.site._registry[model], ViewOnlyAdmin)]
each_view_only = pytest.mark.parametrize("model", VIEW_ONLY, ids=lambda model: model.__name__)


def test_only_these_are_edited_here() -> None:
    assert {model.__name__ for model in REGISTERED} - {model.__name__ for model in VIEW_ONLY} == {
        *EDITED,
        "ChatMessage",  # which can be deleted
        "Passkey",  # which can be removed
    }


@each_view_only
def test_nothing_is_added_changed_or_deleted_nor_offered(model: Any, subtests: pytest.Subtests) -> None:
    client, pk = signed_in("admin"), odd_row(model)
    before = list(model._default_manager.filter(pk=pk).values_list())
    assert client.post(place(model, "add"), {"version": ""}).status_code == 403
    assert client.post(place(model, "change", quote(pk)), {"version": ""}).status_code == 403
    assert client.post(place(model, "delete", quote(pk)), {"post": "yes"}).status_code == 403
    with subtests.test("nothing is deleted in bulk"):
        sent = {"action": "delete_selected", "_selected_action": [pk], "post": "yes"}
        client.post(place(model, "changelist"), sent)
    assert list(model._default_manager.filter(pk=pk).values_list()) == before
    with subtests.test("no way to change anything is offered"):
        page = client.get(place(model, "change", quote(pk))).content.decode()
        assert 'name="_save"' not in page
        assert "deletelink" not in page
        assert place(model, "add") not in client.get(place(model, "changelist")).content.decode()


@pytest.mark.parametrize("role", ["viewer", "approver"])
@pytest.mark.parametrize("model", [Agent, McpServer, PluginSetting], ids=lambda model: model.__name__)
def test_people_who_are_no_admins_change_nothing(model: Any, role: str) -> None:
    client, pk = signed_in(role), odd_row(model)
    assert client.post(place(model, "delete", quote(pk)), {"post": "yes"}).status_code in {302, 403}
    assert model._default_manager.filter(pk=pk).exists()


def test_the_hash_of_a_key_or_a_password_is_on_no_page() -> None:
    client = signed_in("admin")
    for model, column in (("apikey", "key_hash"), ("agent", "power_password_hash"), ("user", "password")):
        found = next(entry for entry in REGISTERED if entry._meta.model_name == model)
        pk = odd_row(found)
        found._default_manager.filter(pk=pk).update(**{column: "hash-that-nobody-may-see"})
        for page in (place(found, "changelist"), place(found, "change", quote(pk))):
            assert "hash-that-nobody" not in client.get(page).content.decode()
