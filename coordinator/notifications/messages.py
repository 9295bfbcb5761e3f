"""What all channels share: the page that a message leads to, what it says of a session, and how sending fails."""

from __future__ import annotations

from django.conf import settings

from coordinator.models import PermissionRequest
from coordinator.policy.approvals import context_of
from coordinator.sessions import titles


class NotSent(Exception):
    """The message did not get through; says why in a few words, never with the receiver's own text."""


def link(request: PermissionRequest | None) -> str:
    """Return where a person decides: a page that asks for a sign-in first."""
    path = f"/ui/approvals/{request.request_id}/" if request else "/ui/approvals/"
    return f"{settings.PUBLIC_URL}{path}"


def session_of(request: PermissionRequest) -> str | None:
    """Return the id of the session in which a request was made, where that is known."""
    context = context_of(request)
    return context.session_id if context else None


def title_of(request: PermissionRequest) -> str | None:
    """Return what that session is about, where that is known."""
    session_id = session_of(request)
    return (titles.of_one(session_id) or None) if session_id else None
