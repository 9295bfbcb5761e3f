"""The forms of the page Who decides: its rows, groups of people, and delegations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib.auth.models import Group, User
from django.utils import timezone

from coordinator.actions.deciders import delegations, groups
from coordinator.lib import instants
from coordinator.policy.deciders import rules as deciding_rules
from coordinator.policy.deciders.decider_book import DeciderBook
from coordinator.policy.deciders.rules import TERMS, DecidingRuleRow
from dashboard.frame.stored_choices import StoredTypedMultipleChoiceField, set_choices_and_keep_saved_values

Choices = Sequence[tuple[int, str]]


def build_name_field(**more: Any) -> forms.CharField:
    return forms.CharField(max_length=deciding_rules.LONGEST_NAME, required=False, **more)


def build_multiple_choice_field(size: int) -> StoredTypedMultipleChoiceField:
    widget = forms.SelectMultiple(attrs={"size": size})
    return StoredTypedMultipleChoiceField(coerce=int, required=False, widget=widget)


class DecidingRuleForm(forms.Form):
    """The form of one row.

    `known_groups` and `known_people` are the choices; a row keeps saved ones that are gone.
    """

    permission_type = build_name_field()
    tool = build_name_field()
    server = build_name_field()
    agent = build_name_field()
    host = build_name_field()
    groups = build_multiple_choice_field(4)
    people = build_multiple_choice_field(4)
    needed = forms.TypedChoiceField(
        coerce=int, choices=[(1, "One person"), (2, "Two people")], required=False
    )

    def __init__(self, *args: Any, known_groups: Choices, known_people: Choices, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        set_choices_and_keep_saved_values(self, "groups", known_groups)
        set_choices_and_keep_saved_values(self, "people", known_people)

    @property
    def is_empty_row(self) -> bool:
        """Return whether the row has no values, as in the empty row for a new one."""
        has_value = any(self[name].value() for name in (*TERMS, "groups", "people"))
        return not has_value and str(self["needed"].value() or 1) == "1"


RowForms = forms.formset_factory(
    DecidingRuleForm,
    can_order=True,
    can_delete=True,
    extra=1,
    max_num=deciding_rules.MOST_RULES,
    absolute_max=deciding_rules.MOST_RULES + 1,
)


def build_decider_form_kwargs(book: DeciderBook) -> dict[str, Choices]:
    """Return the groups and people that a row can name, for DecidingRuleForm."""
    people = [(pk, user.get_username()) for pk, user in book.approvers_by_id.items()]
    known_ids = set(dict(people))
    missing_ids = {person_id for rule in book.rules for person_id in rule.people} - known_ids
    user_rows = User.objects.filter(pk__in=missing_ids).values_list("pk", "username")
    people += [(pk, f"{name} (may not decide)") for pk, name in user_rows]
    return {
        "known_groups": sorted(book.group_names_by_id.items(), key=lambda one: one[1].lower()),
        "known_people": people,
    }


def build_deciding_rule_formset(book: DeciderBook) -> Any:
    """Return the formset of the saved rows, with an empty one at the end."""
    names = (*TERMS, "groups", "people", "needed")
    initial = [{name: convert_tuple_to_list(getattr(rule, name)) for name in names} for rule in book.rules]
    return RowForms(initial=initial, form_kwargs=build_decider_form_kwargs(book))


def convert_tuple_to_list(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def build_posted_deciding_rule_formset(data: Any, book: DeciderBook) -> Any:
    return RowForms(
        data, initial=build_deciding_rule_formset(book).initial, form_kwargs=build_decider_form_kwargs(book)
    )


def deciding_rules_from_forms(forms_: Any) -> list[DecidingRuleRow]:
    """Return the rows of a valid formset in their order, without empty ones."""
    form_rows = [
        form.cleaned_data for form in forms_.ordered_forms if form.cleaned_data and not form.is_empty_row
    ]
    return [
        DecidingRuleRow(
            number,
            **{name: form_row[name].strip() for name in TERMS},
            groups=tuple(form_row["groups"]),
            people=tuple(form_row["people"]),
            needed=form_row["needed"] or 1,
        )
        for number, form_row in enumerate(form_rows, 1)
    ]


class DeciderGroupForm(forms.Form):
    """The form of a group: its name and its people."""

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


def build_group_form(group: Group, book: DeciderBook) -> DeciderGroupForm:
    """Return the form of an existing group. Its choices include members who may no longer decide."""
    members = {user.pk: user.get_username() for user in group.user_set.all()}
    known_names = {pk: user.get_username() for pk, user in book.approvers_by_id.items()}
    other_members = {pk: f"{name} (may not decide)" for pk, name in members.items() if pk not in known_names}
    return DeciderGroupForm(
        initial={"name": group.name, "people": list(members), "seen": groups.compute_group_version(group)},
        known_people={**known_names, **other_members}.items(),
        auto_id=f"group-{group.pk}-%s",
    )


class MomentField(forms.CharField):
    """A time from a datetime-local field, in UTC.

    static/js/moments.js converts it to and from the reader's local time.
    """

    widget = forms.DateTimeInput(attrs={"type": "datetime-local", "data-moment": ""}, format="%Y-%m-%dT%H:%M")

    def clean(self, value: Any) -> datetime | None:
        text = super().clean(value)
        if not text:
            return None
        instant = instants.parse_instant_or_none(
            text if len(text) != len("2026-01-01T00:00") else f"{text}:00"
        )
        if instant is None:
            raise forms.ValidationError("Enter a date and a time.")
        return instant


class DelegationForm(forms.Form):
    """The form with which a person delegates their right to decide."""

    receiver = forms.TypedChoiceField(coerce=int, label="Who decides for you")
    starts_at = MomentField(label="From")
    ends_at = MomentField(label="Until", help_text=f"At most {delegations.LONGEST.days} days ahead.")
    reason = forms.CharField(required=False, max_length=delegations.LONGEST_REASON, label="Reason")

    def __init__(self, *args: Any, others: Iterable[tuple[int, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["receiver"]
        assert isinstance(field, forms.TypedChoiceField)
        field.choices = [("", "Choose an approver"), *others]


def build_empty_delegation_form(user: User, book: DeciderBook) -> DelegationForm:
    """Return an empty form, with a period of a week from now."""
    now = timezone.now()
    other_approvers = [
        (pk, approver.get_username()) for pk, approver in book.approvers_by_id.items() if pk != user.pk
    ]
    return DelegationForm(
        initial={"starts_at": now, "ends_at": now + timedelta(days=7)},
        others=other_approvers,
        auto_id="delegate-%s",
    )
