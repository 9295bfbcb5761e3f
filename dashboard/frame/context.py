"""What every page's frame needs: the rail, the person's role, the theme. Nothing is computed until it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from coordinator.identity.roles import has_role, role_of
from coordinator.models import Brake
from dashboard.frame import devices, installing
from dashboard.frame.rail import ENTRIES, Badge, Entry, Number, url_of
from dashboard.frame.themes import THEMES, theme_of


@dataclass(frozen=True, slots=True)
class RailItem:
    key: str
    label: str
    icon: str
    url: str
    pinned: bool
    here: bool  # the path at work is this page or below it
    badge: Badge | None
    person: User | AnonymousUser

    @property
    def number(self) -> Number | None:
        """Return the badge's number; asked for once a page."""
        return self.badge.number(self.person) if self.badge else None


def _items(request: HttpRequest) -> list[RailItem]:
    return [item for entry in ENTRIES if (item := _item(entry, request))]


def _item(entry: Entry, request: HttpRequest) -> RailItem | None:
    url = url_of(entry)
    if url is None or not has_role(request.user, entry.least):
        return None
    here = request.path == url if entry.key == "overview" else request.path.startswith(url)
    return RailItem(entry.key, entry.label, entry.icon, url, entry.pinned, here, entry.badge, request.user)


def _brakes() -> list[Brake]:
    return list(Brake.objects.filter(released_at__isnull=True).order_by("id"))


def rail(request: HttpRequest) -> dict[str, Any]:
    """Return what the frame shows, for every template: `rail`, `role`, `brakes_in_force`, `theme`, `from_elsewhere`,
    `push_mark`, `release`.

    `rail` are the lines that this person may see. The last two are for static/js/push.js: by what it knows its own
    device, and which release drew the page.
    """
    user = getattr(request, "user", None)
    if user is None:  # an error page, answered before the sign-in middleware ran
        return {"rail": [], "role": None, "theme": theme_of(request), "themes": THEMES}
    return {
        "rail": SimpleLazyObject(lambda: _items(request)),
        "role": SimpleLazyObject(lambda: role_of(user)),
        "brakes_in_force": SimpleLazyObject(lambda: _brakes() if role_of(user) else []),
        "theme": theme_of(request),
        "themes": THEMES,
        "push_mark": SimpleLazyObject(lambda: devices.mark(request)),
        "release": SimpleLazyObject(installing.version),
        # Browsers say so of links, forms and scripts on pages of other origins (static/js/proof.js).
        "from_elsewhere": request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"},
    }
