"""Choice fields that keep a saved or posted value selected even if it is no longer a choice.

Without this, a form that is shown again after an error would drop such a value. If no selection means
everything, saving it would then widen a setting that the editor did not touch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms


class StoredChoicesMixin:
    unavailable: frozenset[str] = frozenset()

    def valid_value(self, value: Any) -> bool:
        """Return whether the value can be saved: it is a choice, and not only shown because it was posted."""
        return super().valid_value(value) and str(value) not in self.unavailable  # type: ignore[misc]


class StoredChoiceField(StoredChoicesMixin, forms.ChoiceField):
    pass


class StoredMultipleChoiceField(StoredChoicesMixin, forms.MultipleChoiceField):
    pass


class StoredTypedMultipleChoiceField(StoredChoicesMixin, forms.TypedMultipleChoiceField):
    pass


def set_choices_and_keep_saved_values(
    form: forms.BaseForm, name: str, choices: Iterable[tuple[Any, str]], *, saved: Iterable[Any] = ()
) -> None:
    """Set the field's choices to `choices`, and add the initial, `saved` and posted values that are missing.

    Initial and saved values can be saved again. Posted ones are shown by their id and refused.
    """
    field = form.fields[name]
    assert isinstance(field, StoredChoiceField | StoredMultipleChoiceField | StoredTypedMultipleChoiceField)
    offered = list(choices)
    values = {str(value) for value, _ in offered} | {""}
    initial = form.initial.get(name)
    offered_values = [*(initial if isinstance(initial, list | tuple) else [initial]), *saved]
    offered_values = list(
        dict.fromkeys(
            str(value) for value in offered_values if value is not None and str(value) not in values
        )
    )
    key = form.add_prefix(name)
    posted = form.data.getlist(key) if hasattr(form.data, "getlist") else [form.data.get(key)]
    missing_values = list(
        dict.fromkeys(
            value for value in posted if value is not None and value not in {*values, *offered_values}
        )
    )
    field.choices = [
        *offered,
        *((value, f"Deleted ({value})") for value in (*offered_values, *missing_values)),
    ]
    field.unavailable = frozenset(missing_values)
