"""Rows as other programs leave them, one a registered table, written with raw SQL."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection, models

from coordinator.models.fields import JsonTextField, TimeField

REGISTERED = sorted(admin.site._registry, key=lambda model: model._meta.label)
ODD_DATE = "the day before yesterday"
BROKEN_JSON = '{"half": [1, 2'
ODD_ID = "a/b \"c\" <d> 'é' _2F?x=1&y#z"


def is_text(field: models.Field[Any, Any]) -> bool:
    """Say whether the column holds text, whatever Python makes of it."""
    return field.get_internal_type() in {"TextField", "CharField"}


def odd_value(field: models.Field[Any, Any], number: int) -> Any:
    """Return what a careless program might have written to the column; NULL where that is allowed."""
    if field.primary_key:
        return f"{ODD_ID}{number}" if is_text(field) else number
    if field.null and not isinstance(field, JsonTextField | TimeField):
        return None
    if isinstance(field, JsonTextField):
        return BROKEN_JSON
    if isinstance(field, TimeField):
        return odd_time(field, number)
    return plain_value(field, number)


def odd_time(field: TimeField, number: int) -> Any:
    if is_text(field):
        return ODD_DATE
    if field.get_internal_type() == "BigIntegerField":
        return 2**62 + number  # a year that no calendar has
    return ODD_DATE if connection.vendor == "sqlite" else None


def plain_value(field: models.Field[Any, Any], number: int) -> Any:
    if isinstance(field, models.ForeignKey):
        return None
    if isinstance(field, models.BooleanField):
        return 2 if connection.vendor == "sqlite" else True
    if isinstance(field, models.BinaryField):
        return b"\xff odd"
    if isinstance(field, models.DateTimeField):
        return "2026-02-23 12:00:00+00:00"
    if field.choices:
        return str(field.choices[0][0])
    return words_of(field, number) if is_text(field) else number


def words_of(field: models.Field[Any, Any], number: int) -> str:
    """Return a text for the column; the documents' CHECKs take only their own words."""
    checked = {
        ("chat_messages", "source"): "user",
        ("chat_attachments", "storage_type"): "inline",
        ("mcp_access_control", "entry_type"): "capability",
        ("stored_files", "place"): "folder",
        ("changes", "op"): "update",
        ("mcp_servers", "default_policy"): "OPT-OUT",
    }
    return checked.get((field.model._meta.db_table, field.column), f"<b>&{number}\nüñ</b>")


def insert(model: type[models.Model], values: dict[str, Any]) -> None:
    """Write one row with SQL, by column."""
    columns = ", ".join(f'"{name}"' for name in values)
    marks = ", ".join(["%s"] * len(values))
    with connection.cursor() as cursor:
        cursor.execute(
            f'INSERT INTO "{model._meta.db_table}" ({columns}) VALUES ({marks})', list(values.values())
        )


def odd_row(model: type[models.Model], number: int = 9_000_001) -> Any:
    """Write an odd row, with the rows that its foreign keys need, and return its primary key."""
    if model is User:
        return User.objects.create(username=f"odd <b>{number}</b>").pk
    values = {}
    for field in model._meta.concrete_fields:
        if isinstance(field, models.ForeignKey) and (field.primary_key or not field.null):
            odd_row(field.related_model, number)
            values[field.column] = odd_value(field.target_field, number)
        else:
            values[field.column] = odd_value(field, number)
    insert(model, values)
    return values[model._meta.pk.column]
