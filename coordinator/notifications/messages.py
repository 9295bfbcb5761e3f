"""What all channels share: what a message says, the page that it leads to, and how sending fails."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings

from coordinator.lib import times
from coordinator.models import Notification, PermissionRequest
from coordinator.models.permissions import RequestStatus as Status
from coordinator.policy import approvals
from coordinator.policy.approvals import context_of
from coordinator.sessions import titles

LONGEST_TITLE = 180  # characters


class NotSent(Exception):
    """The message did not get through; says why in a few words, never with the receiver's own text."""


class Ended(NotSent):
    """The address is no more, and never will be again; says why in a sentence for its owner."""


@dataclass(frozen=True, slots=True)
class Words:
    """A message for people to read: one line of title, what stands below it, and the page that it ends with."""

    title: str
    text: str
    link: str

    @property
    def letter(self) -> str:
        """Return what stands below the title, with the link."""
        return "\n".join([*([self.text, ""] if self.text else []), self.link, ""])


def words(message: Notification, request: PermissionRequest | None, now: datetime) -> Words:
    """Return what `message` says about `request` (None: a test). The tool's input stays here."""
    if request is None:
        return Words("Signalbox: a test", "This is a test. Messages from Signalbox reach you.", link(None))
    if message.event == Notification.Event.SETTLED:
        title = f"Signalbox: {ended(request, now)} {request.plugin_id} asked for {request.permission_type}"
        return Words(_line(title), "", link(request))
    late = f", waiting for {_waited(request, now)}" if message.event == Notification.Event.ESCALATED else ""
    about = [request.justification]
    if session := title_of(request):
        about.append(f"Session: {session}")
    about += ["", "Open the request and decide (sign in first):"]
    title = f"Signalbox: {request.plugin_id} asks for {request.permission_type}{late}"
    return Words(_line(title), "\n".join(about), link(request))


def ended(request: PermissionRequest, now: datetime) -> str:
    """Return how the request ended, by whom, as a sentence."""
    status = approvals.standing(request, now).status
    if status in approvals.DECIDED:
        return f"{Status(status).label} by {request.approved_by or 'somebody'}."
    if status == Status.EXPIRED:
        return "Expired, nobody decided."
    return "Withdrawn by its requester."


def _line(text: str) -> str:
    return " ".join(text.split())[:LONGEST_TITLE]


def _waited(request: PermissionRequest, now: datetime) -> str:
    return times.rough(now - request.created_at) if isinstance(request.created_at, datetime) else "long"


def path_to(request: PermissionRequest | None) -> str:
    """Return the path of the page on which a person decides."""
    return f"/ui/approvals/{request.request_id}/" if request else "/ui/approvals/"


def link(request: PermissionRequest | None) -> str:
    """Return where a person decides: a page that asks for a sign-in first."""
    return f"{settings.PUBLIC_URL}{path_to(request)}"


def session_of(request: PermissionRequest) -> str | None:
    """Return the id of the session in which a request was made, where that is known."""
    context = context_of(request)
    return context.session_id if context else None


def title_of(request: PermissionRequest) -> str | None:
    """Return what that session is about, where that is known."""
    session_id = session_of(request)
    return (titles.of_one(session_id) or None) if session_id else None
