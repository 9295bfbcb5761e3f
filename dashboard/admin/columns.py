"""How the admin draws a column's value in lists and on a row's page.

No stored value makes these functions fail.

Each function returns a callable for `list_display`, `fields` and `readonly_fields`. Other programs write the
same tables: a time may be any text, a boolean any number, JSON may be invalid. Such values are shown
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.db import models
from django.urls import NoReverseMatch, reverse
from django.utils.html import format_html
from django.utils.text import Truncator

from coordinator.models.fields import JsonTextField, TimeField
from dashboard.templatetags.signalbox import NOTHING, filesize, pretty_json, status, time

Cell = Callable[[Any], Any]
SHOWN = 80  # characters of a text in a list


def build_cell_for_attribute(
    name: str, draw: Callable[[Any], Any], *, label: str = "", sortable: bool = True
) -> Cell:
    """Return a cell that draws the attribute `name` with `draw`; NULL is drawn as an empty cell."""

    def draw_cell(row: Any) -> Any:
        value = getattr(row, name)
        return NOTHING if value is None else draw(value)

    draw_cell.__name__ = name
    description = label or name.removesuffix("_id").replace("_", " ")
    return admin.display(description=description, ordering=name if sortable else None)(draw_cell)


def text_column(name: str, *, label: str = "", sortable: bool = True, max_characters: int = SHOWN) -> Cell:
    """Return a cell for a text on one line, shortened to `max_characters`."""
    return build_cell_for_attribute(
        name, lambda value: Truncator(value).chars(max_characters), label=label, sortable=sortable
    )


def code_column(name: str, *, label: str = "", sortable: bool = True) -> Cell:
    return build_cell_for_attribute(
        name,
        lambda value: format_html("<code>{}</code>", Truncator(value).chars(SHOWN)),
        label=label,
        sortable=sortable,
    )


def time_column(name: str, *, label: str = "", sortable: bool = True) -> Cell:
    """Return a cell for a relative time, with the exact time on hover.

    A text that is no time is shown unchanged.
    """
    return build_cell_for_attribute(name, time, label=label, sortable=sortable)


def state_column(name: str, *, label: str = "") -> Cell:
    """Return a cell for a status, with the same label and colour as on the other pages."""
    return build_cell_for_attribute(name, status, label=label)


def flag_column(name: str, *, label: str = "", yes: str = "active", no: str = "inactive") -> Cell:
    """Return a cell for a boolean, as the word `yes` or `no`.

    Another value (2 in SQLite) is shown unchanged.
    """
    return build_cell_for_attribute(
        name, lambda value: status({True: yes, False: no}.get(value, value)), label=label
    )


def size_column(name: str, *, label: str = "") -> Cell:
    """Return a cell for a number of bytes."""
    return build_cell_for_attribute(
        name, lambda value: filesize(value) if isinstance(value, int) else value, label=label
    )


def reference_column(name: str, model: str, *, label: str = "") -> Cell:
    """Return a cell for an id, as a link to the admin page of the row. The row need not exist."""
    return build_cell_for_attribute(name, lambda value: link_to_admin_row(model, value), label=label)


def link_to_admin_row(model: str, pk: Any) -> Any:
    """Return a link to the admin page of the row `pk` of `model`, or the id if the row has no page.

    Args:
        model: The app's label and the model's name, such as `coordinator_session`.
        pk: The row's id, as stored.
    """
    try:
        url = reverse(f"admin:{model}_change", args=[quote(pk)])
    except NoReverseMatch:  # an empty id has no page
        return str(pk)
    return format_html('<a href="{}"><code>{}</code></a>', url, Truncator(pk).chars(SHOWN))


def json_column(name: str) -> Cell:
    """Return a cell for indented JSON. Text that is not JSON is shown unchanged."""
    return build_cell_for_attribute(
        name, lambda value: format_html('<pre class="code" tabindex="0">{}</pre>', pretty_json(value))
    )


def multiline_column(name: str) -> Cell:
    """Return a cell for a whole text with its line breaks, for a row's page."""
    return build_cell_for_attribute(
        name, lambda value: format_html('<span class="stored-text">{}</span>', value)
    )


def column_for_field(field: models.Field[Any, Any]) -> Cell:
    """Return the cell that draws `field` on a row's page."""
    if isinstance(field, models.ForeignKey):
        if not field.target_field.primary_key:
            return code_column(field.attname)
        return reference_column(field.attname, field.related_model._meta.label_lower.replace(".", "_"))
    if isinstance(field, models.BooleanField):
        return flag_column(field.name, yes="Yes", no="No")
    return next(
        (draw(field.name) for kinds, draw in BY_KIND if isinstance(field, kinds)), text_column(field.name)
    )


BY_KIND: tuple[tuple[Any, Callable[[str], Cell]], ...] = (
    (TimeField | models.DateTimeField, time_column),
    (JsonTextField, json_column),
    (models.TextField | models.CharField, multiline_column),
)


def build_cells_for_model(model: type[models.Model], *, without: tuple[str, ...] = ()) -> list[Cell]:
    """Return the cells that draw all columns of `model` on a row's page, except those in `without`."""
    return [column_for_field(field) for field in model._meta.concrete_fields if field.name not in without]
