from __future__ import annotations

from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db import models
from django.test import Client
from django.urls import reverse

from tests.admin.rows import ODD_DATE, REGISTERED, odd_row
from tests.pages.markup import inline_parts
from tests.people import signed_in

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("without_sidebar")]
# Each table is asked for some of the searches, and for some of the queries made by hand, by turns.
SEARCHED = ("a", "9000001", "9" * 30, 'user\'s "it" \\ %_ é', '"quoted words"')
MADE_BY_HAND = (
    {"created_at__year": "2026"},
    {"created_at__gte": "garbage"},
    {"at__date": "2026-01-01"},
    {"created_at_within": "ever"},
    {"created_at_first": "31.12.2026", "created_at_last": "9999-12-31"},
    {"p": "100000"},
    {"o": "99.x"},
    {"status": "no such word"},
    {"pk__in": "a,b"},
)
each_table = pytest.mark.parametrize("model", REGISTERED, ids=lambda model: model._meta.label)


def place(model: Any, page: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


@pytest.fixture
def client() -> Client:
    return signed_in("admin")


def test_every_table_is_registered_but_those_with_composite_keys() -> None:
    left = {
        model.__name__
        for model in apps.get_app_config("coordinator").get_models()
        if not admin.site.is_registered(model)
    }
    composite = {
        model.__name__
        for model in apps.get_app_config("coordinator").get_models()
        if isinstance(model._meta.pk, models.CompositePrimaryKey)
    }
    assert left == composite


@each_table
def test_a_list_of_odd_rows_answers_whatever_is_asked_of_it(
    client: Client, model: Any, subtests: pytest.Subtests
) -> None:
    turn = REGISTERED.index(model)
    for number in range(2):
        odd_row(model, 9_000_001 + number)
    page = place(model, "changelist")
    answer = client.get(page)
    assert answer.status_code == 200
    listed = answer.context["cl"]
    assert listed.result_count >= 2
    assert not inline_parts(answer.content.decode())
    with subtests.test("any search is answered"):
        for text in SEARCHED[turn % 2 :: 2]:
            assert client.get(page, {"q": text}).status_code in {200, 302}, text
    with subtests.test("every filter is answered"):
        for query in {one["query_string"] for spec in listed.filter_specs for one in spec.choices(listed)}:
            assert client.get(page + query).status_code == 200, query
    with subtests.test("all sortable columns sort"):
        columns = range(len(listed.list_display))
        assert client.get(page, {"o": ".".join(f"-{number}" for number in columns)}).status_code == 200
    with subtests.test("a query made by hand is no failure"):
        for query in MADE_BY_HAND[turn % 3 :: 3]:
            assert client.get(page, query).status_code in {200, 302, 400}, query


@each_table
def test_a_row_has_a_page_and_a_history_however_odd_it_is(
    client: Client, model: Any, subtests: pytest.Subtests
) -> None:
    pk = odd_row(model)
    answer = client.get(place(model, "change", quote(pk)))
    assert answer.status_code == 200
    assert "<b>&9" not in answer.content.decode()
    assert not inline_parts(answer.content.decode())
    with subtests.test("its history is its audit rows"):
        answer = client.get(place(model, "history", quote(pk)), follow=True)
        assert answer.status_code == 200
        assert answer.redirect_chain[0][0].startswith("/admin/coordinator/auditlog/?target_id=")
    with subtests.test("a row that is not there leads away"):
        for missing in ("nothing-here", "9" * 40, "_2F"):
            assert client.get(place(model, "change", missing)).status_code == 302, missing


@pytest.mark.parametrize("role", [None, "viewer", "approver"])
def test_only_admins_enter(role: str | None) -> None:
    client = signed_in(role)
    for model in REGISTERED:
        assert client.get(place(model, "changelist")).status_code in {302, 403}, model


def test_what_cannot_be_read_is_shown_as_it_stands(client: Client) -> None:
    session = apps.get_model("coordinator", "Session")
    odd_row(session)
    assert ODD_DATE in client.get(place(session, "changelist")).content.decode()
