"""The left rail as plain data. A new page adds one line; a line whose URL does not exist yet is not shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from django.contrib.auth.models import AnonymousUser, User
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from coordinator.identity.roles import ADMIN, VIEWER
from coordinator.live.fragments import Fragment
from coordinator.models import PermissionRequest, PermissionVote
from coordinator.models.permissions import RequestStatus
from coordinator.policy import deciders


class Number(NamedTuple):
    """What a badge says to one person. `own`: others have another number, so the stream cannot bring it to all."""

    value: int
    own: bool


@dataclass(frozen=True, slots=True)
class Badge:
    """A small number beside a label. `number` runs on every page, `shared` for all pages at once where all have the
    same number; None where they have not. Changes of `topic` update it.
    """

    number: Callable[[User | AnonymousUser], Number]
    shared: Callable[[], int | None]
    topic: str
    label: str  # what it counts, for screen readers: "waiting"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the rail. `pinned` entries stay in the phone's bottom bar, the others fold under More."""

    key: str
    label: str
    url_name: str
    icon: str
    least: str = VIEWER
    badge: Badge | None = None
    pinned: bool = False


def _waiting_for(person: User | AnonymousUser) -> Number:
    """Return how many requests wait for the person's decision."""
    book = deciders.load(timezone.now())
    theirs = deciders.decidable(person, book)
    return Number(_all_waiting(), own=False) if theirs is None else Number(len(theirs), own=True)


def _waiting_for_all() -> int | None:
    has_votes = PermissionVote.objects.filter(request__status=RequestStatus.PENDING).exists()
    return None if has_votes or deciders.load(timezone.now()).rules else _all_waiting()


def _all_waiting() -> int:
    return PermissionRequest.objects.waiting(timezone.now()).count()


ENTRIES: tuple[Entry, ...] = (
    Entry("overview", "Overview", "overview", "overview", pinned=True),
    Entry(
        "approvals",
        "Approvals",
        "approvals:inbox",
        "approvals",
        badge=Badge(_waiting_for, _waiting_for_all, "permission_requests", "waiting"),
        pinned=True,
    ),
    Entry("brake", "Brake", "brakes:home", "st-ban"),
    Entry("budgets", "Budgets", "budgets:home", "st-half"),
    Entry("sessions", "Sessions", "sessions:list", "sessions", pinned=True),
    Entry("runs", "Runs", "runs:list", "runs"),
    Entry("chat", "Chat", "chat:list", "chat", pinned=True),
    Entry("mcp", "MCP", "mcp:list", "mcp"),
    Entry("connections", "Connections", "connections:home", "terminal"),
    Entry("agents", "Agents", "agents:list", "agents"),
    Entry("audit", "Audit", "audit:list", "audit"),
    Entry("keys", "API keys", "keys:list", "key", least=ADMIN),
    Entry("admin", "Admin", "admin:index", "admin", least=ADMIN),
)


def url_of(entry: Entry) -> str | None:
    """Return the entry's path, or None while no such page exists."""
    try:
        return reverse(entry.url_name)
    except NoReverseMatch:
        return None


def entry_of(key: str) -> Entry | None:
    """Return the entry with this key, or None."""
    return next((entry for entry in ENTRIES if entry.key == key), None)


def badge_fragments(entry: Entry) -> list[Fragment]:
    """Return the entry's badge as it stands now, for every open page: one query, however many look on."""
    count = entry.badge.shared() if entry.badge else None
    if count is None:  # pages ask for their own (templates/components/_rail_badge.html)
        return []
    html = render_to_string("components/_rail_badge.html", {"item": entry, "count": count})
    return [Fragment(f"#rail-badge-{entry.key}", html, swap="outerHTML")]
