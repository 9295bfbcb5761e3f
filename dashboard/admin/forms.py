"""Form fields for TEXT and JSON columns, and a form that does not overwrite another person's change.

A value that the person did not edit stays the same byte for byte. Browsers turn line breaks into CRLF, and
forms turn NULL into an empty text; so `changed_form_values` returns only values that differ from what was
shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models

from coordinator.lib import json_bounds
from coordinator.models import UnreadableText
from coordinator.models.fields import JsonTextField
from coordinator.models.plugins import PluginPermission


def normalize_line_breaks(text: str) -> str:
    """Return the text with all line breaks as line feeds, as the database stores them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def parse_strict_json(text: str) -> Any:
    """Return the decoded JSON.

    Raise ValueError if it is invalid, nested too deeply, or has NaN or Infinity.
    """
    json_bounds.require_json_bounds(text.encode("utf-8", "surrogatepass"))
    return json.loads(text, parse_constant=refuse_nonfinite_number)


def refuse_nonfinite_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


class GrowingTextarea(forms.Textarea):
    """A text area of one line that grows with its content. An `<input>` would drop line breaks."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__({"rows": 1, "class": "text-column", **(attrs or {})})


class TextColumnField(forms.CharField):
    """A field for a TEXT column.

    Spaces are not stripped; an empty field means NULL if the column allows it.
    """

    widget = GrowingTextarea

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"strip": False, **options})

    def to_python(self, value: Any) -> Any:
        python_value = super().to_python(value)
        return normalize_line_breaks(python_value) if isinstance(python_value, str) else python_value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return normalize_line_breaks(str(initial or "")) != normalize_line_breaks(str(data or ""))


class JsonColumnField(forms.CharField):
    """A field for a TEXT column with JSON, shown indented.

    Invalid stored JSON is shown, and saved unchanged.
    """

    widget = forms.Textarea
    stored: Any = None

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"strip": False, **options})
        self.widget.attrs |= {"rows": 4, "class": "json-column", "spellcheck": "false"}

    def prepare_value(self, value: Any) -> Any:
        """Return the text to show: decoded JSON indented, typed or unreadable text unchanged."""
        if isinstance(value, UnreadableText | TypedText):
            return str(value)
        return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)

    def bound_data(self, data: Any, initial: Any) -> Any:
        return data if data is None else TypedText(data)

    def to_python(self, value: Any) -> Any:
        text = normalize_line_breaks(value or "")
        if isinstance(self.stored, UnreadableText) and text == normalize_line_breaks(self.stored):
            return self.stored
        if not text.strip():
            return None
        try:
            return parse_strict_json(text)
        except (ValueError, RecursionError) as problem:
            raise ValidationError(f"This is not JSON: {problem}", code="invalid") from None

    def validate(self, value: Any) -> None:
        if value is None and self.required:
            raise ValidationError(self.error_messages["required"], code="required")

    def run_validators(self, value: Any) -> None:
        """Do nothing: the inherited validators are for text, and the value is decoded JSON here."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            python_value = self.to_python(data)
        except ValidationError:
            return True
        return type(python_value) is not type(initial) or serialize_json_for_comparison(
            python_value
        ) != serialize_json_for_comparison(initial)


class TypedText(str):
    """Text that a person typed, as opposed to a JSON string that was decoded."""

    __slots__ = ()


def serialize_json_for_comparison(value: Any) -> str:
    return json.dumps(value)


class StoredForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form for one row, with the version that the editor has seen.

    Actions save the values, not the form.
    """

    version = forms.CharField(widget=forms.HiddenInput, required=False)
    shown_version = ""
    refusal: str | None = None  # why an action refused the values, shown as a form error

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["version"] = self.shown_version
        for name, field in self.fields.items():
            if isinstance(field, JsonColumnField):
                field.stored = self.initial.get(name)

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean()
        if self.refusal:
            self.add_error(None, self.refusal)
        return cleaned

    def _post_clean(self) -> None:
        """Do not set the values on the row: the action validates them and writes them to the locked row."""

    def changed_form_values(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the values of the fields in `names` that differ from what was shown.

        For a new row, return the values of all of them.
        """
        return {
            name: self.cleaned_data[name]
            for name in names
            if name in self.cleaned_data and (self.instance._state.adding or name in self.changed_data)
        }


def build_text_or_json_form_field(column: models.Field[Any, Any]) -> forms.Field | None:
    """Return the form field for a TEXT or JSON column, or None for other kinds of columns."""
    if not isinstance(column, models.TextField):
        return None
    field_options: dict[str, Any] = {
        "required": not column.blank,
        "label": str(column.verbose_name).capitalize(),
        "help_text": column.help_text,
    }
    if column.has_default():
        field_options["initial"] = column.get_default()
    if isinstance(column, JsonTextField):
        return JsonColumnField(**field_options)
    return TextColumnField(**field_options, empty_value=None if column.null else "")


class PermissionsField(forms.MultipleChoiceField):
    """Checkboxes for the nine known permissions. Other values in the column are not changed."""

    widget = forms.CheckboxSelectMultiple

    def __init__(self, **options: Any) -> None:
        super().__init__(choices=PluginPermission.choices, required=False, **options)
        self.choices = [(name, name) for name in PluginPermission.values]

    def prepare_value(self, value: Any) -> Any:
        """Return the known permissions in the column; an empty list if the column is not a list."""
        if not isinstance(value, list):
            return []
        return [name for name in value if isinstance(name, str) and name in PluginPermission.values]
