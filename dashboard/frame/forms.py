"""The forms for sign-in, passwords and the first administrator."""

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
    """Name and password. The errors do not reveal whether the name exists."""

    error_messages = {
        "invalid_login": "Wrong name or password. Both are case-sensitive.",
        "inactive": "This account is switched off. Ask an administrator.",
    }


class PasswordErrorsAtField(SetPasswordMixin):  # type: ignore[type-arg] # not generic at run time
    """Shows errors of a new password at the first of its two fields."""

    def validate_password_for_user(self, user: User, *repeated_field: str) -> None:
        first = repeated_field[0].replace("2", "1") if repeated_field else "password1"
        super().validate_password_for_user(user, first)


class OwnPasswordForm(PasswordErrorsAtField, PasswordChangeForm):
    """The old password, and a new one twice."""


class FirstPasswordForm(PasswordErrorsAtField, SetPasswordForm):  # type: ignore[type-arg] # not generic at run time
    """A new password twice, for an account with an unknown password."""


class FirstAdminForm(PasswordErrorsAtField, BaseUserCreationForm):  # type: ignore[type-arg] # not generic at run time
    """The first administrator's name, and a password twice, checked by the configured validators.

    The form is never saved: coordinator.actions.people.setup.redeem_setup_token creates the person.
    """
