"""The theme: light, dark or the system's.

It is stored in a cookie, so that the server renders the right one.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest

COOKIE = "signalbox_theme"
COOKIE_AGE = 365 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Theme:
    """A theme. `scheme` is its value in `<meta name="color-scheme">`."""

    name: str
    label: str
    scheme: str


THEMES = {
    theme.name: theme
    for theme in (
        Theme("system", "System", "light dark"),
        Theme("light", "Light", "light"),
        Theme("dark", "Dark", "dark"),
    )
}


def read_theme_cookie(request: HttpRequest) -> Theme:
    """Return the theme in the person's cookie, or the system's."""
    return THEMES.get(request.COOKIES.get(COOKIE, ""), THEMES["system"])
