"""Every page under /ui/, found in the URL configuration, so that tests of all pages know new ones too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver


def views() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the route and the view of every pattern under /ui/."""
    for pattern in get_resolver().url_patterns:
        if isinstance(pattern, URLResolver) and str(pattern.pattern) == "ui/":
            yield from _below("/ui/", pattern)


def _below(prefix: str, resolver: URLResolver) -> Iterator[tuple[str, Callable[..., Any]]]:
    for pattern in resolver.url_patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            yield route, pattern.callback
        else:
            yield from _below(route, pattern)


def plain_paths() -> list[str]:
    """Return the paths that need no argument."""
    return [route for route, _ in views() if "<" not in route and "(" not in route]
