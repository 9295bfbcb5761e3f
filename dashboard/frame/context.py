"""What every page's frame needs: the rail, the person's role, the theme. Nothing is computed until it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from coordinator.identity.roles import APPROVER, has_role, highest_role
from coordinator.models import Brake
from coordinator.policy.deciders import decider_book as deciders
from dashboard.frame import devices, sign_in_ways, web_app_files
from dashboard.frame.rail import GROUPS, BadgeNumber, RailBadge, RailEntry, find_rail_entry_url
from dashboard.frame.themes import THEMES, read_theme_cookie
from dashboard.help.explained import help_url_explaining_page


@dataclass(frozen=True, slots=True)
class RailItem:
    """An entry of the rail as one person sees it on one page."""

    entry: RailEntry
    group: str
    url: str
    here: bool  # the path at work is this page or below it
    person: User | AnonymousUser

    @property
    def key(self) -> str:
        return self.entry.key

    @property
    def badge(self) -> RailBadge | None:
        return self.entry.badge

    @property
    def badge_number(self) -> BadgeNumber | None:
        """Return the badge's number; asked for once a page."""
        return self.badge.number(self.person) if self.badge else None


def build_rail_items(request: HttpRequest) -> list[RailItem]:
    visible = [
        (group.title, entry, url)
        for group in GROUPS
        for entry in group.entries
        if has_role(request.user, entry.least) and (url := find_rail_entry_url(entry)) is not None
    ]
    # The overview's path begins those of all others.
    above = [url for _, entry, url in visible if entry.key != "overview" and request.path.startswith(url)]
    current_url = max(above, key=len, default=request.path)
    return [RailItem(entry, group, url, url == current_url, request.user) for group, entry, url in visible]


def list_brakes_in_force() -> list[Brake]:
    return list(Brake.objects.filter(released_at__isnull=True).order_by("id"))


def explain_policy_edit_limit(user: User | AnonymousUser) -> str:
    """Return why this approver may change no rules and grants by now; nothing for all others."""
    return (
        deciders.ADMINS_EDIT if has_role(user, APPROVER) and not deciders.can_user_edit_policy(user) else ""
    )


def rail(request: HttpRequest) -> dict[str, Any]:
    """Return what the frame shows, for every template: `rail`, `role`, `brakes_in_force`, `theme`, `from_elsewhere`,
    `push_mark`, `sign_in_mark`, `release`, `signed_in_at`, `policy_note`, `explanation`.

    `rail` are the lines that this person may see. The marks and `release` are for static/js/push.js: by what it knows
    its own device, what another person or password changes, and which release drew the page. `signed_in_at` names the
    provider of single sign-on that vouches for the session, if one does; `policy_note` says to an approver why they may
    change no rules and grants. `explanation` is the address of the help that explains the page, or nothing.
    """
    user = getattr(request, "user", None)
    if user is None:  # an error page, answered before the sign-in middleware ran
        return {"rail": [], "role": None, "theme": read_theme_cookie(request), "themes": THEMES}
    return {
        "rail": SimpleLazyObject(lambda: build_rail_items(request)),
        "role": SimpleLazyObject(lambda: highest_role(user)),
        "brakes_in_force": SimpleLazyObject(lambda: list_brakes_in_force() if highest_role(user) else []),
        "theme": read_theme_cookie(request),
        "themes": THEMES,
        "push_mark": SimpleLazyObject(lambda: devices.push_device_hash_of_session(request)),
        "sign_in_mark": SimpleLazyObject(lambda: devices.sign_in_mark(request)),
        "release": SimpleLazyObject(web_app_files.release_digest),
        "signed_in_at": sign_in_ways.session_provider_name(request),
        "explanation": SimpleLazyObject(lambda: help_url_explaining_page(request)),
        "policy_note": SimpleLazyObject(lambda: explain_policy_edit_limit(user)),
        # Browsers say so of links, forms and scripts on pages of other origins (static/js/proof.js).
        "from_elsewhere": request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"},
    }
