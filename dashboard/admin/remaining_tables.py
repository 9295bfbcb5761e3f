"""Read-only pages for all tables that no other module of this package registers.

registry.py calls this last, so a new table is shown without further work.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.contrib import admin
from django.db import models

from coordinator.models.fields import JsonTextField
from coordinator.secrets.masked_columns import COLUMNS, CREDENTIAL
from dashboard.admin import columns
from dashboard.admin.options import ViewOnlyAdmin

MOST_COLUMNS = 9


def register_remaining_models() -> None:
    """Register a view-only page for every other table.

    Tables with composite keys are left out, because Django cannot register them.
    """
    for model in apps.get_app_config("coordinator").get_models():
        if not admin.site.is_registered(model) and not isinstance(model._meta.pk, models.CompositePrimaryKey):
            admin.site.register(model, build_view_only_admin(model))


def build_view_only_admin(model: type[models.Model]) -> type[ViewOnlyAdmin]:
    """Return a view-only admin with the table's first columns. Large columns are read only on a row's page.

    Columns with credentials are neither shown nor searched.
    """
    secret = tuple(COLUMNS.get(model.__name__, {}).get(CREDENTIAL, "").split())
    shown_fields = [field for field in model._meta.concrete_fields if field.name not in secret]
    fields = [field for field in shown_fields if not is_large_column(field)]
    texts = [field.name for field in fields if isinstance(field, models.TextField) and not field.is_relation]
    attributes: dict[str, Any] = {
        "__doc__": model.__doc__,
        "list_display": tuple(build_list_column_for_field(field) for field in fields[:MOST_COLUMNS]),
        "list_without": tuple(field.name for field in shown_fields if is_large_column(field)),
        "never_read": secret,
        "search_fields": tuple(texts),
        "ordering": ("-pk",),
    }
    return type(f"{model.__name__}Admin", (ViewOnlyAdmin,), attributes)


def is_large_column(field: models.Field[Any, Any]) -> bool:
    return isinstance(field, JsonTextField | models.JSONField | models.BinaryField)


def build_list_column_for_field(field: models.Field[Any, Any]) -> columns.Cell:
    plain = isinstance(field, models.TextField | models.CharField)
    return columns.text_column(field.name) if plain else columns.column_for_field(field)
