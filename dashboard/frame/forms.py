"""The forms of people's own accounts."""

from __future__ import annotations

from django.contrib.auth.forms import AuthenticationForm, BaseUserCreationForm


class SignInForm(AuthenticationForm):
    """Name and password. Errors do not reveal whether the name exists."""

    error_messages = {
        "invalid_login": "Wrong name or password. Both are case-sensitive.",
        "inactive": "This account is switched off. Ask an administrator.",
    }


class FirstAdminForm(BaseUserCreationForm):  # type: ignore[type-arg] # not generic at run time
    """The first administrator: a name, and a password twice, held against the settings' validators.

    It is never saved: coordinator.actions.people.setup.redeem_setup_token makes the person.
    """
