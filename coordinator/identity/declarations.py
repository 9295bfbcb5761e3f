"""What every view declares about who may call it: its methods, the role that it needs, and how much it may be sent.

The decorators keep what they declare on the view, and hold it there too:

- `require_safe`, `require_GET`, `require_POST`, `require_http_methods`: Django's, which also note the methods.
- `dashboard.frame.guards` and `declare_anonymous_access`: the role. Operations of the API declare scopes with `auth=`.
- `declare_request_body_allowance` (coordinator/lib/body_limits.py): the size of the body. Without it, a view that
  changes something takes a form from who has signed in, and an operation of the API takes JSON from a key.

The edge reads the limit of a body from the view that the URL configuration has for the request's path.
tests/guards holds every route to its declarations, and tests/guards/declared.txt shows them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django.urls import Resolver404, resolve
from django.views.decorators import http

from coordinator.lib.body_limits import FORM, SMALL, BodyAllowance

ANYONE, SIGNED_IN = "anyone", "signed_in"  # beside the roles of identity/roles.py
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
View = TypeVar("View", bound=Callable[..., Any])


def require_http_methods(methods: Sequence[str]) -> Callable[[View], View]:
    """Answer 405 to every other method, and declare these on the view."""

    def decorate_view(view: View) -> View:
        return declare_http_methods_of_view(http.require_http_methods(list(methods))(view), methods)

    return decorate_view


require_GET = require_http_methods(["GET"])
require_POST = require_http_methods(["POST"])
require_safe = require_http_methods(["GET", "HEAD"])


def declare_http_methods_of_view(view: View, methods: Sequence[str]) -> View:
    """Declare the methods of a view that already refuses all others."""
    view.allowed_methods = tuple(methods)  # type: ignore[attr-defined]
    return view


def declare_minimum_role(view: View, role: str) -> View:
    """Declare the least role of a view that already refuses everybody else."""
    view.needed_role = role  # type: ignore[attr-defined]
    return view


def declare_anonymous_access(view: View) -> View:
    """Declare that a view is for everybody, signed in or not: it shows nothing of anybody, or leads in or out."""
    return declare_minimum_role(view, ANYONE)


def body_allowance_of_url(path: str, method: str) -> BodyAllowance:
    """Return how much a request for one of Django's URLs may send; what a stranger may, where nothing is there."""
    try:
        view = resolve(path).func
    except Resolver404:
        return SMALL
    return body_allowance_of_view(view, method)


def body_allowance_of_view(view: Callable[..., Any], method: str) -> BodyAllowance:
    """Return what the view declares for the method: `declare_request_body_allowance`, or the default of its role."""
    operations: dict[str, BodyAllowance] | None = getattr(view, "body_allowances", None)
    if operations is not None:  # a path of the API (api/application.py)
        return operations.get(method, SMALL)
    if method in SAFE_METHODS or method not in getattr(view, "allowed_methods", ()):
        return SMALL
    by_default = SMALL if getattr(view, "needed_role", ANYONE) == ANYONE else FORM
    allowance: BodyAllowance = getattr(view, "body_allowance", by_default)
    return allowance
