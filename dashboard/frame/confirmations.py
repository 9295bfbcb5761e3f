"""Which requests need a recent confirmation that it is the person who signed in, and how they can give it.

With SIGNALBOX_CONFIRM_DECISIONS_WITHIN, whatever needs the role approver or admin is refused until its person has
confirmed that it is them within that time: decisions, grants, rules, brakes, and all of Admin. A new page is among
them unless EXEMPT names it. Whoever has a passkey confirms with it, and a password does not do.

What adds or removes ways to sign in always needs it, and what lets other people in or gives them a role: a browser
that was left open for a minute must not be enough.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Literal

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest

from coordinator.actions.people import passkeys
from coordinator.identity.roles import ADMIN, APPROVER
from dashboard.frame import sign_in_ways

Way = Literal["passkey", "provider", "password", "recovery"]
ACCOUNT_WITHIN = timedelta(minutes=10)
ACCOUNT_CHANGES = frozenset(
    {
        "accounts:passkey-add-options",
        "accounts:passkey-add",
        "accounts:passkey-remove",
        "accounts:recovery-codes",
        "people:invite",
        "people:reactivate",
        "people:role",
    }
)
# Conversation, what changes nothing, and what only stops or denies, which must never wait.
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


def max_age_of_identity_confirmation(request: HttpRequest, view: Callable[..., object]) -> timedelta | None:
    """Return within which time a request's person must have confirmed that it is them; None where any time does."""
    name = request.resolver_match.view_name if request.resolver_match else ""
    decisions = timedelta(seconds=settings.CONFIRM_DECISIONS_WITHIN)
    if name in ACCOUNT_CHANGES:
        return min(decisions, ACCOUNT_WITHIN) if decisions else ACCOUNT_WITHIN
    if not decisions or name in EXEMPT:
        return None
    decides = getattr(view, "needed_role", "") in {APPROVER, ADMIN} or request.path.startswith("/admin/")
    return decisions if decides else None


def needs_passkey(user: User) -> bool:
    """Say whether this person's password confirms nothing: decisions need a confirmation, and they have a passkey."""
    return bool(settings.CONFIRM_DECISIONS_WITHIN and passkeys.list_usable_passkeys(user))


def list_confirmation_ways(request: HttpRequest, *, only_passkey: bool) -> list[Way]:
    """Return how the request's person can confirm that it is them, the best first.

    `only_passkey` leaves out the password, in whose place a recovery code is taken.
    """
    assert isinstance(request.user, User)
    ways: list[Way] = ["passkey"] if passkeys.list_usable_passkeys(request.user) else []
    if sign_in_ways.session_provider_name(request):
        return [*ways, "provider"]
    return [*ways, "recovery" if only_passkey else "password"]
