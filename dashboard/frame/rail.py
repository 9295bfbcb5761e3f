"""The left rail as plain data. A new page adds one entry. An entry whose URL does not exist is not shown."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.contrib.auth.models import AnonymousUser, User
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils import timezone

from coordinator.identity.roles import ADMIN, APPROVER, VIEWER
from coordinator.live.fragments import PageFragment
from coordinator.models import PermissionRequest, PermissionVote
from coordinator.models.permissions import RequestStatus
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.deciders.waiting import is_anything_snoozed, load_waiting_and_snoozed_requests


class BadgeNumber(NamedTuple):
    """The number in a badge, for one person.

    Args:
        value: The number.
        own: Whether other people have other numbers, so that it cannot be sent to all pages at once.
        changes_at: When the number changes without a change in the database; None if it does not.
    """

    value: int
    own: bool
    changes_at: datetime | None = None

    @property
    def seconds_until_change(self) -> int | None:
        if self.changes_at is None:
            return None
        return max(1, math.ceil((self.changes_at - timezone.now()).total_seconds()))


@dataclass(frozen=True, slots=True)
class RailBadge:
    """A number next to a label of the rail.

    `number` returns it for one person. `shared` returns it for all people, or None if they have different
    numbers. Changes of `topic` update it.
    """

    number: Callable[[User | AnonymousUser], BadgeNumber]
    shared: Callable[[], int | None]
    topic: str
    label: str  # what the number counts, for screen readers: "waiting"


@dataclass(frozen=True, slots=True)
class RailEntry:
    """One entry of the rail.

    `pinned` entries are in the bottom bar of phones, the others under More. The keys `g` and `letter` open
    the page (static/js/keyboard.js).
    """

    key: str
    label: str
    url_name: str
    icon: str
    letter: str = ""
    least: str = VIEWER
    badge: RailBadge | None = None
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class RailGroup:
    """Entries of the rail under one heading."""

    title: str
    entries: tuple[RailEntry, ...]


def build_waiting_badge_number(person: User | AnonymousUser) -> BadgeNumber:
    """Return how many requests wait for the person's decision, without those that they snoozed."""
    waiting = load_waiting_and_snoozed_requests(person, timezone.now())
    return BadgeNumber(waiting.waiting_count, own=not waiting.is_shared, changes_at=waiting.returns_at)


def waiting_count_if_same_for_everybody() -> int | None:
    now = timezone.now()
    has_votes = PermissionVote.objects.filter(request__status=RequestStatus.PENDING).exists()
    if has_votes or is_anything_snoozed(now) or deciders.load_decider_book(now).differs_by_person:
        return None
    return count_all_waiting_requests()


def count_all_waiting_requests() -> int:
    return PermissionRequest.objects.awaiting_decision(timezone.now()).count()


WAITING = RailBadge(
    build_waiting_badge_number, waiting_count_if_same_for_everybody, "permission_requests", "waiting"
)
GROUPS: tuple[RailGroup, ...] = (
    RailGroup(
        "Now",
        (
            RailEntry("overview", "Overview", "overview", "overview", "o", pinned=True),
            RailEntry(
                "approvals", "Approvals", "approvals:inbox", "approvals", "a", badge=WAITING, pinned=True
            ),
            RailEntry("sessions", "Sessions", "sessions:list", "sessions", "s", pinned=True),
            RailEntry("runs", "Runs", "runs:list", "runs", "r"),
            RailEntry("chat", "Chat", "chat:list", "chat", "c", pinned=True),
        ),
    ),
    RailGroup(
        "Policy",
        (
            RailEntry("rules", "Rules", "rules:list", "rules", "l"),
            RailEntry("mcp", "MCP and grants", "mcp:matrix", "mcp", "m"),
            RailEntry("budgets", "Budgets", "budgets:home", "budgets", "b"),
            RailEntry("deciders", "Who decides", "deciders:home", "deciders", "d"),
            RailEntry("brake", "Brake", "brakes:home", "st-ban", "k"),
        ),
    ),
    RailGroup(
        "Fleet",
        (
            RailEntry("agents", "Agents", "agents:list", "agents", "e"),
            RailEntry("runners", "Runners", "runners:list", "runners", "n"),
            RailEntry("connections", "Connections", "connections:home", "terminal", "i"),
            RailEntry("plugins", "Plugins", "plugins:list", "plugins", "p"),
        ),
    ),
    RailGroup(
        "Records",
        (
            RailEntry("usage", "Usage", "costs:show", "usage", "u"),
            RailEntry("audit", "Audit", "audit:list", "audit", "t"),
            RailEntry("search", "Search", "search:find", "search", "f"),
        ),
    ),
    RailGroup(
        "Settings",
        (
            RailEntry("people", "People", "people:list", "people", "h", least=ADMIN),
            RailEntry("keys", "API keys", "keys:list", "key", "y", least=ADMIN),
            RailEntry(
                "notifications", "Notifications", "approvals:notifications", "bell", "v", least=APPROVER
            ),
            RailEntry("admin", "Admin", "admin:index", "admin", "z", least=ADMIN),
        ),
    ),
)
ENTRIES: tuple[RailEntry, ...] = tuple(entry for group in GROUPS for entry in group.entries)


def find_rail_entry_url(entry: RailEntry) -> str | None:
    """Return the entry's path, or None if no such page exists."""
    try:
        return reverse(entry.url_name)
    except NoReverseMatch:
        return None


def find_rail_entry_by_key(key: str) -> RailEntry | None:
    """Return the entry with this key, or None."""
    return next((entry for entry in ENTRIES if entry.key == key), None)


def build_rail_badge_fragments(entry: RailEntry) -> list[PageFragment]:
    """Return the fragment that updates the entry's badge on every open page.

    Return nothing if people have different numbers.
    """
    count = entry.badge.shared() if entry.badge else None
    if count is None:  # each page fetches its own number (templates/components/_rail_badge.html)
        return []
    html = render_to_string("components/_rail_badge.html", {"item": entry, "count": count})
    return [PageFragment(f"#rail-badge-{entry.key}", html, swap="outerHTML")]
