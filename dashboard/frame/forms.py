"""The forms of people's own accounts."""

from __future__ import annotations

from django.contrib.auth.forms import (
    AuthenticationForm,
    BaseUserCreationForm,
    PasswordChangeForm,
    SetPasswordForm,
    SetPasswordMixin,
)
from django.contrib.auth.models import User


class SignInForm(AuthenticationForm):
    """Name and password. Errors do not reveal whether the name exists."""

    error_messages = {
        "invalid_login": "Wrong name or password. Both are case-sensitive.",
        "inactive": "This account is switched off. Ask an administrator.",
    }


class PasswordErrorsAtField(SetPasswordMixin):  # type: ignore[type-arg] # not generic at run time
    """Says what is wrong with a new password at the field that asks for it, not at its repetition."""

    def validate_password_for_user(self, user: User, *repeated_field: str) -> None:
        first = repeated_field[0].replace("2", "1") if repeated_field else "password1"
        super().validate_password_for_user(user, first)


class OwnPasswordForm(PasswordErrorsAtField, PasswordChangeForm):
    """The old password, and a new one twice."""


class FirstPasswordForm(PasswordErrorsAtField, SetPasswordForm):  # type: ignore[type-arg] # not generic at run time
    """A password twice, for an account whose password nobody knows."""


class FirstAdminForm(PasswordErrorsAtField, BaseUserCreationForm):  # type: ignore[type-arg] # not generic at run time
    """The first administrator: a name, and a password twice, held against the settings' validators.

    It is never saved: coordinator.actions.people.setup.redeem_setup_token makes the person.
    """
