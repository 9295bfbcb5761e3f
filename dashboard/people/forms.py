"""The forms of people's accounts: inviting, a role, and joining."""

from __future__ import annotations

from django import forms
from django.contrib.auth.forms import UserCreationForm

from coordinator.actions.people.invitations import LIFETIMES, MAX_LABEL_CHARACTERS
from coordinator.identity.roles import ADMIN, APPROVER, VIEWER
from dashboard.frame.forms import PasswordErrorsAtField

WHAT_ROLES_ALLOW = {
    VIEWER: "reads",
    APPROVER: "reads, decides requests and edits grants",
    ADMIN: "reads, decides, and edits servers, agents, keys and people",
}
ROLE_CHOICES = [
    (VIEWER, "Viewer: reads"),
    (APPROVER, "Approver: also decides requests and edits grants"),
    (ADMIN, "Admin: also edits servers, agents, keys and people"),
]
NO_ROLE = ("", "No role: sees only their own account page")


class InvitationForm(forms.Form):
    label = forms.CharField(
        label="For whom",
        required=False,
        max_length=MAX_LABEL_CHARACTERS,
        help_text="So that you can tell invitations apart. They choose their user name themselves.",
    )
    role = forms.ChoiceField(choices=ROLE_CHOICES, widget=forms.RadioSelect, initial=VIEWER)
    days = forms.TypedChoiceField(
        label="The link expires", choices=list(LIFETIMES.items()), coerce=int, initial=3
    )


class RoleForm(forms.Form):
    role = forms.ChoiceField(
        label="What they may do",
        choices=[NO_ROLE, *ROLE_CHOICES],
        required=False,
        widget=forms.RadioSelect,
    )
    version = forms.CharField(widget=forms.HiddenInput)


class JoinForm(PasswordErrorsAtField, UserCreationForm):  # type: ignore[type-arg] # not generic at run time
    """A user name, and a password typed twice.

    The form is never saved: coordinator.actions.people.invitations creates the account.
    """
