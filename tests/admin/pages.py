"""A person at work in the admin: opens a page, changes what its form holds, sends it."""

from __future__ import annotations

from typing import Any

from django.contrib.admin.utils import quote
from django.db.models import Model
from django.test import Client
from django.urls import reverse


def url(model: type[Model], page: str, *args: Any) -> str:
    """Return the address of one of the table's pages."""
    quoted = [quote(arg) for arg in args]
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=quoted)


def sent_by(answer: Any) -> dict[str, Any]:
    """Return what a browser would send if the page's form were sent as it is."""
    fields = _sent_by_form(answer.context["adminform"].form)
    for group in answer.context["inline_admin_formsets"]:
        formset = group.formset
        fields |= _sent_by_form(formset.management_form)
        for form in formset.forms:
            fields |= _sent_by_form(form)
    return fields


def _sent_by_form(form: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for bound in form:
        value = bound.value()
        if value is None or value is False:
            continue
        # Browsers send line breaks as CRLF.
        text = str(value).replace("\r\n", "\n").replace("\n", "\r\n") if isinstance(value, str) else value
        fields[bound.html_name] = "on" if value is True else text
    return fields


def open_page(client: Client, model: type[Model], pk: Any = None) -> Any:
    """Return the answer with the form of a row, or of a new one."""
    answer = client.get(url(model, "add") if pk is None else url(model, "change", pk))
    assert answer.status_code == 200
    return answer


def save(client: Client, model: type[Model], pk: Any = None, opened: Any = None, **changes: Any) -> Any:
    """Send the form of a row with `changes` made, by field; `__` stands for `-`. None unticks or leaves out."""
    fields = sent_by(opened or open_page(client, model, pk))
    for name, value in changes.items():
        fields.pop(name.replace("__", "-"), None)
        if value is not None:
            fields[name.replace("__", "-")] = value
    return client.post(url(model, "add") if pk is None else url(model, "change", pk), fields)


def errors(answer: Any) -> str:
    """Return the errors of a page that was not saved."""
    assert answer.status_code == 200
    assert answer.context["errors"]
    return " ".join(str(error) for error in answer.context["errors"])
