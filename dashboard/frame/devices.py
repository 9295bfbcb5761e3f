"""Which device a session is signed in on, where that takes push messages: known to its pages, removed at sign-out."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils import timezone

from coordinator.actions.notifications import push
from coordinator.models import NotificationTarget

# In the session: {"target": id, "mark": by what the page knows its own subscription, "sign_in": whose it was then}
HELD = "push"


def store_push_device_in_session(request: HttpRequest, target: NotificationTarget) -> None:
    """Note that this session's browser is this device."""
    assert isinstance(request.user, User)
    request.session[HELD] = {
        "target": target.pk,
        "mark": push.hash_device_address(target.address),
        "sign_in": push.hash_user_password_state(request.user),
    }


def push_device_hash_of_session(request: HttpRequest) -> str:
    """Return the mark of this session's device; empty where it has none, or the password was changed since.

    A page then ties its device to the session anew.
    """
    session = getattr(request, "session", None)
    held_mark = session.get(HELD) if session is not None else None
    if not isinstance(held_mark, dict) or not isinstance(request.user, User):
        return ""
    return (
        str(held_mark.get("mark", ""))
        if held_mark.get("sign_in") == push.hash_user_password_state(request.user)
        else ""
    )


def sign_in_mark(request: HttpRequest) -> str:
    """Return what another person, or another password, changes; empty where nobody is signed in."""
    return push.hash_user_password_state(request.user)[:16] if isinstance(request.user, User) else ""


def remove_push_device_of_session(request: HttpRequest) -> None:
    """Remove this session's device: what requests say is no longer for whoever holds it."""
    held_mark = request.session.get(HELD)
    if isinstance(held_mark, dict) and isinstance(request.user, User):
        push.remove_signed_out_device(held_mark.get("target"), user=request.user, now=timezone.now())
