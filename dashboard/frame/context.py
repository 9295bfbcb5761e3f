"""Template context of every page: the rail, the person's role, the theme.

Values are computed on first use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from coordinator.identity.roles import APPROVER, has_role, highest_role_of_user
from coordinator.models import Brake
from coordinator.policy.deciders import decider_book as deciders
from dashboard.frame import devices, sign_in_ways, web_app_files
from dashboard.frame.rail import GROUPS, BadgeNumber, RailBadge, RailEntry, find_rail_entry_url
from dashboard.frame.themes import THEMES, read_theme_cookie
from dashboard.help.explained import page_help_url_or_empty


@dataclass(frozen=True, slots=True)
class RailItem:
    """An entry of the rail, for one person on one page."""

    entry: RailEntry
    group: str
    url: str
    here: bool  # whether the current page is this one or below it
    person: User | AnonymousUser

    @property
    def key(self) -> str:
        return self.entry.key

    @property
    def badge(self) -> RailBadge | None:
        return self.entry.badge

    @property
    def badge_number(self) -> BadgeNumber | None:
        """Return the badge's number for the person; None without a badge. It is computed once a page."""
        return self.badge.number(self.person) if self.badge else None


def build_rail_items(request: HttpRequest) -> list[RailItem]:
    visible = [
        (group.title, entry, url)
        for group in GROUPS
        for entry in group.entries
        if has_role(request.user, entry.least) and (url := find_rail_entry_url(entry)) is not None
    ]
    # The overview's path is the beginning of all other paths.
    above = [url for _, entry, url in visible if entry.key != "overview" and request.path.startswith(url)]
    current_url = max(above, key=len, default=request.path)
    return [RailItem(entry, group, url, url == current_url, request.user) for group, entry, url in visible]


def list_brakes_in_force() -> list[Brake]:
    return list(Brake.objects.filter(released_at__isnull=True).order_by("id"))


def policy_edit_refusal_or_empty(user: User | AnonymousUser) -> str:
    """Return why this approver may not change rules and grants; empty for everybody else and if they may."""
    return (
        deciders.ADMINS_EDIT if has_role(user, APPROVER) and not deciders.can_user_edit_policy(user) else ""
    )


def rail(request: HttpRequest) -> dict[str, Any]:
    """Return the frame's template context.

    Returns:
        rail: The entries that the person may see.
        role: The person's role.
        brakes_in_force: The brakes that are on.
        theme, themes: The chosen theme, and all themes.
        push_mark: Identifies the session's push device, for static/js/push.js.
        sign_in_mark: Changes with the person and their password, for static/js/push.js.
        release: Identifies the release that made the page, for static/js/push.js.
        signed_in_at: The name of the single sign-on provider of the session, or empty.
        explanation: The URL of the help about the page, or empty.
        policy_note: Why an approver may not change rules and grants, or empty.
        from_elsewhere: Whether a page of another origin led here.
    """
    user = getattr(request, "user", None)
    if user is None:  # an error page that was rendered before the sign-in middleware ran
        return {"rail": [], "role": None, "theme": read_theme_cookie(request), "themes": THEMES}
    return {
        "rail": SimpleLazyObject(lambda: build_rail_items(request)),
        "role": SimpleLazyObject(lambda: highest_role_of_user(user)),
        "brakes_in_force": SimpleLazyObject(
            lambda: list_brakes_in_force() if highest_role_of_user(user) else []
        ),
        "theme": read_theme_cookie(request),
        "themes": THEMES,
        "push_mark": SimpleLazyObject(lambda: devices.push_device_hash_of_session(request)),
        "sign_in_mark": SimpleLazyObject(lambda: devices.sign_in_mark(request)),
        "release": SimpleLazyObject(web_app_files.release_digest),
        "signed_in_at": sign_in_ways.session_provider_name(request),
        "explanation": SimpleLazyObject(lambda: page_help_url_or_empty(request)),
        "policy_note": SimpleLazyObject(lambda: policy_edit_refusal_or_empty(user)),
        # Browsers set this for links, forms and scripts of other origins (static/js/proof.js).
        "from_elsewhere": request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"},
    }
