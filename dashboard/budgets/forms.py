"""The forms with which an administrator adds and edits a budget."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User

from coordinator.models import UsageDay
from coordinator.models.budgets import AtLimit, BudgetMeasure, BudgetReach, BudgetSpan
from dashboard.frame.known_names import (
    HIDDEN_WHILE_EMPTY,
    MOST_OFFERED,
    NamedReachForm,
    list_suggested_agent_names,
)
from dashboard.frame.stored_choices import StoredChoiceField, set_choices_and_keep_saved_values

LATELY_USED_ROWS = 1_000  # rows of usage by session and day, whose hosts, folders and models are suggested


class BudgetAmountForm(forms.Form):
    """The amount of a budget, and what happens when it is used up."""

    amount = forms.FloatField(
        min_value=0,
        label="Amount",
        help_text="In tokens, US dollars or tool calls. Denied calls count, too.",
        widget=forms.NumberInput({"step": "any", "inputmode": "decimal"}),
    )
    at_limit = StoredChoiceField(
        initial=AtLimit.WARN,
        label="When it is used up",
        help_text="In any case, affected sessions show a warning from 80 percent on.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        set_choices_and_keep_saved_values(self, "at_limit", AtLimit.choices)


class BudgetForm(NamedReachForm, BudgetAmountForm):
    """The form of a new budget."""

    reach = forms.ChoiceField(choices=BudgetReach.choices, label="For")
    name = forms.CharField(
        required=False,
        max_length=255,
        label="Name",
        help_text="The agent's id or program (such as codex), the person's user name, the host's name, the folder's "
        "path, or the model.",
    )
    measure = forms.ChoiceField(choices=BudgetMeasure.choices, label="What to count")
    span = forms.ChoiceField(choices=BudgetSpan.choices, label="Period")
    field_order = ("reach", "name", "is_meant", "measure", "span", "amount", "at_limit")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].widget.attrs |= {"list": "budget-names", **HIDDEN_WHILE_EMPTY}

    def known_names(self) -> list[str]:
        """Return the suggested names: agents, people, and recently used hosts, folders and models."""
        people = User.objects.filter(is_active=True).order_by("username").values_list("username", flat=True)
        names = list_suggested_agent_names().union(people[:MOST_OFFERED])
        lately = UsageDay.objects.order_by("-day", "-id")[:LATELY_USED_ROWS]
        for used_names in lately.values_list("hostname", "project_dir", "model"):
            names.update(place for place in used_names if place)
        return sorted(names)
