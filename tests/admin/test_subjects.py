"""The admin's list of tables: each under its subject, with a plural that is a word."""

from __future__ import annotations

import re

import pytest
from django.apps import apps
from django.contrib import admin

from dashboard.admin.subjects import INTERNAL, SUBJECTS
from tests.people import signed_in


def test_no_plural_is_made_by_an_s_alone_where_english_has_another() -> None:
    names = [str(model._meta.verbose_name_plural) for model in admin.site._registry]
    assert [name for name in names if re.search(r"(?:[^aeiou]y|ss|sh|ch|x|f|er of .*)s$", name)] == []


def test_every_subject_names_tables_that_exist() -> None:
    known = {model.__name__ for model in apps.get_models()}
    assert {name for names in SUBJECTS.values() for name in names.split()} <= known


@pytest.mark.django_db
def test_the_tables_stand_by_subject_and_the_programs_own_come_last() -> None:
    page = signed_in("admin").get("/admin/").content.decode()
    places = [
        page.index(f">\n          {name}") if f">\n          {name}" in page else page.index(name)
        for name in SUBJECTS
    ]
    assert places == sorted(places)
    assert page.index(INTERNAL) > max(places)
    assert "Audit deliveries" in page
