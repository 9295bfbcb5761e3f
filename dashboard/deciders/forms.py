"""The forms of "Who decides": its rows, the groups that they name, and handing over one's right for a while."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import Group, User
from django.utils import timezone

from coordinator.actions.deciders import delegations, groups
from coordinator.lib import instants
from coordinator.policy import deciding_rules
from coordinator.policy.deciders import DeciderBook
from coordinator.policy.deciding_rules import TERMS, Rule
from dashboard.frame.kept_choices import KeptTypedMultipleChoiceField, offer

Choices = Sequence[tuple[int, str]]


def _name(**more: Any) -> forms.CharField:
    return forms.CharField(max_length=deciding_rules.LONGEST_NAME, required=False, **more)


def _several(size: int) -> KeptTypedMultipleChoiceField:
    widget = forms.SelectMultiple(attrs={"size": size})
    return KeptTypedMultipleChoiceField(coerce=int, required=False, widget=widget)


class RowForm(forms.Form):
    """One row. `groups` and `people` are those who can be chosen; a row keeps those who are gone."""

    permission_type = _name()
    tool = _name()
    server = _name()
    agent = _name()
    host = _name()
    groups = _several(4)
    people = _several(4)
    needed = forms.TypedChoiceField(
        coerce=int, choices=[(1, "One person"), (2, "Two people")], required=False
    )

    def __init__(self, *args: Any, known_groups: Choices, known_people: Choices, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        offer(self, "groups", known_groups)
        offer(self, "people", known_people)

    @property
    def is_new(self) -> bool:
        """Say whether nothing stands in the row, as in the one for a new row."""
        named = any(self[name].value() for name in (*TERMS, "groups", "people"))
        return not named and str(self["needed"].value() or 1) == "1"


RowForms = forms.formset_factory(
    RowForm,
    can_order=True,
    can_delete=True,
    extra=1,
    max_num=deciding_rules.MOST_RULES,
    absolute_max=deciding_rules.MOST_RULES + 1,
)


def choices_of(book: DeciderBook) -> dict[str, Choices]:
    """Return whom rows can name."""
    people = [(pk, user.get_username()) for pk, user in book.people.items()]
    known = set(dict(people))
    named = {one for rule in book.rules for one in rule.people} - known
    others = User.objects.filter(pk__in=named).values_list("pk", "username")
    people += [(pk, f"{name} (may not decide)") for pk, name in others]
    return {
        "known_groups": sorted(book.groups.items(), key=lambda one: one[1].lower()),
        "known_people": people,
    }


def rows_of(book: DeciderBook) -> Any:
    """Return the forms of the saved rows."""
    names = (*TERMS, "groups", "people", "needed")
    initial = [{name: _listed(getattr(rule, name)) for name in names} for rule in book.rules]
    return RowForms(initial=initial, form_kwargs=choices_of(book))


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def posted_rows(data: Any, book: DeciderBook) -> Any:
    return RowForms(data, initial=rows_of(book).initial, form_kwargs=choices_of(book))


def wanted(forms_: Any) -> list[Rule]:
    """Return the rows in their order; one in which nothing stands is the empty one at the end."""
    said = [form.cleaned_data for form in forms_.ordered_forms if form.cleaned_data and not form.is_new]
    return [
        Rule(
            number,
            **{name: one[name].strip() for name in TERMS},
            groups=tuple(one["groups"]),
            people=tuple(one["people"]),
            needed=one["needed"] or 1,
        )
        for number, one in enumerate(said, 1)
    ]


class GroupForm(forms.Form):
    """A group's name and its people."""

    name = forms.CharField(max_length=groups.LONGEST_NAME, label="Name")
    people = forms.TypedMultipleChoiceField(
        coerce=int, required=False, widget=forms.CheckboxSelectMultiple, label="People"
    )
    seen = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, known_people: Iterable[tuple[int, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["people"]
        assert isinstance(field, forms.TypedMultipleChoiceField)
        field.choices = list(known_people)


def form_of(group: Group, book: DeciderBook) -> GroupForm:
    """Return the form of a group that exists; members who may not decide stand there, too."""
    members = {user.pk: user.get_username() for user in group.user_set.all()}
    known = {pk: user.get_username() for pk, user in book.people.items()}
    others = {pk: f"{name} (may not decide)" for pk, name in members.items() if pk not in known}
    return GroupForm(
        initial={"name": group.name, "people": list(members), "seen": groups.version_of(group)},
        known_people={**known, **others}.items(),
        auto_id=f"group-{group.pk}-%s",
    )


class MomentField(forms.CharField):
    """An instant from a datetime-local field, in UTC; static/js/moments.js turns the reader's own time into that."""

    widget = forms.DateTimeInput(attrs={"type": "datetime-local", "data-moment": ""}, format="%Y-%m-%dT%H:%M")

    def clean(self, value: Any) -> datetime | None:
        text = super().clean(value)
        if not text:
            return None
        found = instants.parse(text if len(text) != len("2026-01-01T00:00") else f"{text}:00")
        if found is None:
            raise forms.ValidationError("Enter a date and a time.")
        return found


class DelegationForm(forms.Form):
    """Handing over one's right to decide."""

    receiver = forms.TypedChoiceField(coerce=int, label="Who decides for you")
    starts_at = MomentField(label="From")
    ends_at = MomentField(label="Until", help_text=f"At most {delegations.LONGEST.days} days ahead.")
    reason = forms.CharField(required=False, max_length=delegations.LONGEST_REASON, label="Reason")

    def __init__(self, *args: Any, others: Iterable[tuple[int, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["receiver"]
        assert isinstance(field, forms.TypedChoiceField)
        field.choices = [("", "Choose an approver"), *others]


def empty_delegation(user: User, book: DeciderBook) -> DelegationForm:
    """Return the form as a person finds it: from now on, for a week."""
    now = timezone.now()
    others = [(pk, one.get_username()) for pk, one in book.people.items() if pk != user.pk]
    return DelegationForm(
        initial={"starts_at": now, "ends_at": now + timedelta(days=7)}, others=others, auto_id="delegate-%s"
    )
