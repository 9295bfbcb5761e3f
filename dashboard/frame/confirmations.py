"""Which requests need a recent confirmation of the person's identity, and how they can give it.

If SIGNALBOX_CONFIRM_DECISIONS_WITHIN is set, every request that needs the role approver or admin is refused
unless its person has confirmed their identity within that time: decisions, grants, rules, brakes, and all of
the admin. That includes new pages, unless EXEMPT names them. A person with a passkey must confirm with it,
not with a password.

Requests that add or remove ways to sign in, invite people or give roles always need a confirmation. A browser
that was left open for a minute must not be enough for them.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Literal

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest

from coordinator.actions.people import accounts, passkeys
from coordinator.identity.roles import ADMIN, APPROVER
from dashboard.frame import sign_in_ways

Way = Literal["passkey", "provider", "password", "recovery"]
ACCOUNT_WITHIN = timedelta(minutes=10)
ACCOUNT_CHANGES = frozenset(
    {
        "accounts:passkey-add-options",
        "accounts:passkey-add",
        "accounts:passkey-remove",
        "accounts:provider-connect",
        "accounts:recovery-codes",
        "admin:auth_user_add",
        "admin:auth_user_change",
        "admin:auth_user_password_change",
        "admin:coordinator_passkey_changelist",
        "admin:coordinator_passkey_delete",
        "people:invite",
        "people:reactivate",
        "people:role",
    }
)
# Needs a confirmation only of a person who has no password yet. Others enter their old one.
FIRST_PASSWORD = "accounts:password"  # noqa: S105 - the name of a URL
# Conversation, requests that change nothing, and those that only stop or deny, which must never be delayed.
EXEMPT = frozenset(
    {
        "approvals:seen",
        "approvals:quiet-hours",
        "brakes:put-on",
        "chat:say",
        "first-steps-dismiss",
        "mcp:preview",
        "push:deny",
        "runs:stop",
        "sessions:note",
        "sessions:prompt",
        "sessions:rename",
        "sessions:stop",
        "sessions:stop-turn",
        "sessions:unqueue",
    }
)


def required_confirmation_age_or_none(request: HttpRequest, view: Callable[..., object]) -> timedelta | None:
    """Return how recent the person's confirmation must be for this request; None if none is needed."""
    name = request.resolver_match.view_name if request.resolver_match else ""
    decisions = timedelta(seconds=settings.CONFIRM_DECISIONS_WITHIN)
    if name in ACCOUNT_CHANGES or (name == FIRST_PASSWORD and has_no_known_password(request)):
        return min(decisions, ACCOUNT_WITHIN) if decisions else ACCOUNT_WITHIN
    if not decisions or name in EXEMPT:
        return None
    decides = getattr(view, "needed_role", "") in {APPROVER, ADMIN} or request.path.startswith("/admin/")
    return decisions if decides else None


def has_no_known_password(request: HttpRequest) -> bool:
    """Return whether the person joined with a passkey and has set no password yet."""
    user = getattr(request, "user", None)
    return isinstance(user, User) and accounts.has_unknown_password(user)


def should_confirm_with_passkey(user: User) -> bool:
    """Return whether the person must confirm with a passkey instead of a password.

    They must if decisions need a confirmation and they have a passkey.
    """
    return bool(settings.CONFIRM_DECISIONS_WITHIN and passkeys.list_usable_passkeys(user))


def list_confirmation_ways(request: HttpRequest, *, only_passkey: bool) -> list[Way]:
    """Return how the person can confirm their identity, best way first.

    With `only_passkey` a password is not accepted; a recovery code replaces it.
    """
    assert isinstance(request.user, User)
    ways: list[Way] = ["passkey"] if passkeys.list_usable_passkeys(request.user) else []
    if sign_in_ways.session_provider_name(request):
        return [*ways, "provider"]
    return [*ways, "recovery" if only_passkey else "password"]
