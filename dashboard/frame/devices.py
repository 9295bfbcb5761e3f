"""The push device on which a session is signed in. Its pages know it, and it is removed at sign-out."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.utils import timezone

from coordinator.actions.notifications import push
from coordinator.models import NotificationTarget

# Session value: {"target": id, "mark": hash of its address, "sign_in": hash of the person's password state}
PUSH_SESSION_KEY = "push"


def store_push_device_in_session(request: HttpRequest, target: NotificationTarget) -> None:
    """Store in the session that its browser is this push device."""
    assert isinstance(request.user, User)
    request.session[PUSH_SESSION_KEY] = {
        "target": target.pk,
        "mark": push.hash_device_address(target.address),
        "sign_in": push.hash_user_password_state(request.user),
    }


def push_device_hash_of_session(request: HttpRequest) -> str:
    """Return the hash of the session's push device.

    It is empty if the session has none, or if the password has changed since. The page then stores its device
    again.
    """
    session = getattr(request, "session", None)
    stored_mark = session.get(PUSH_SESSION_KEY) if session is not None else None
    if not isinstance(stored_mark, dict) or not isinstance(request.user, User):
        return ""
    return (
        str(stored_mark.get("mark", ""))
        if stored_mark.get("sign_in") == push.hash_user_password_state(request.user)
        else ""
    )


def sign_in_mark(request: HttpRequest) -> str:
    """Return a hash that changes with the person and their password; empty if nobody is signed in."""
    return push.hash_user_password_state(request.user)[:16] if isinstance(request.user, User) else ""


def remove_push_device_of_session(request: HttpRequest) -> None:
    """Remove the session's push device, so that it receives no more notifications."""
    stored_mark = request.session.get(PUSH_SESSION_KEY)
    if isinstance(stored_mark, dict) and isinstance(request.user, User):
        push.remove_signed_out_device(stored_mark.get("target"), user=request.user, now=timezone.now())
