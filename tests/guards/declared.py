"""What the routes declare: who may use them, with which methods, and how much they may be sent.

`declared.txt` keeps it, so that a change of it is read before it is made. After you have read the difference, write the
file again: `python -m tests.guards`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

from django.contrib import admin
from django.contrib.auth.models import User
from django.urls import URLPattern, URLResolver, get_resolver
from ninja.constants import NOT_SET

from coordinator.api import api
from coordinator.api.application import read_operation_body_allowance
from coordinator.api.auth import KeyAuth
from coordinator.api.edge_operations import OPERATIONS
from coordinator.identity.declarations import body_allowance_of_view
from coordinator.lib import body_limits

FILE = Path(__file__).parent / "declared.txt"
# By what the code calls them.
ALLOWANCES: dict[body_limits.BodyAllowance, str] = {
    value: name for name, value in vars(body_limits).items() if isinstance(value, body_limits.BodyAllowance)
}
UNDECLARED = "undeclared"


def walk_views(
    patterns: Any = None, prefix: str = "/", space: str = ""
) -> Iterator[tuple[str, str, Callable[..., Any]]]:
    """Yield the name, the route and the view of each pattern of Django's resolver."""
    for pattern in get_resolver().url_patterns if patterns is None else patterns:
        route = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            inner = f"{space}{pattern.namespace}:" if pattern.namespace else space
            yield from walk_views(pattern.url_patterns, route, inner)
        elif isinstance(pattern, URLPattern):
            yield f"{space}{pattern.name or ''}", route, pattern.callback


def is_page(name: str, route: str) -> bool:
    return name == "home" or route.startswith("/ui/")


def declared_pages() -> Iterator[tuple[str, ...]]:
    for name, route, view in walk_views():
        if is_page(name, route):
            methods = getattr(view, "allowed_methods", None)
            posted = ALLOWANCES[body_allowance_of_view(view, "POST")] if "POST" in (methods or ()) else "-"
            who = getattr(view, "needed_role", UNDECLARED)
            yield name, who, " ".join(methods) if methods else "any", posted


def declared_admin_pages() -> Iterator[tuple[str, ...]]:
    """Yield the admin's pages beside those of its tables, and what an administrator may do with each table."""
    tables = {
        f"{model._meta.app_label}_{model._meta.model_name}": site
        for model, site in admin.site._registry.items()
    }
    actions = ("changelist", "add", "change", "delete", "history")
    of_tables = {f"{table}_{action}" for table in tables for action in actions}
    for name, route, view in walk_views():
        page = name.removeprefix("admin:")
        if route.startswith("/admin/") and page not in of_tables and page:
            yield (
                page,
                getattr(view, "needed_role", UNDECLARED),
                "-",
                ALLOWANCES[body_allowance_of_view(view, "POST")],
            )
    request = Mock(user=User(username="somebody", is_superuser=True))
    for table, site in tables.items():
        may = {
            "add": site.has_add_permission(request),
            "change": site.has_change_permission(request),
            "delete": site.has_delete_permission(request),
        }
        yield f"{table}_*", "admin", " ".join(right for right in may if may[right]) or "view", "FORM"


def declared_operations() -> Iterator[tuple[str, ...]]:
    for router in api._get_bound_routers():
        for path, view in router.path_operations.items():
            for operation in view.operations:
                (method,) = operation.methods
                body = "-" if method == "GET" else ALLOWANCES[read_operation_body_allowance(operation)]
                route = f"{router.prefix}{path}".replace("{", "<").replace("}", ">")
                yield route, declared_callers(operation), method, body
    for name, route, view in walk_views():
        if name in {"api:openapi-json", "api:openapi-view"}:
            yield route, getattr(view, "needed_role", UNDECLARED), "GET", "-"


def declared_edge_operations() -> Iterator[tuple[str, ...]]:
    for operation in OPERATIONS:
        who = " ".join(sorted(operation.scopes)) or operation.role or UNDECLARED
        body = "-" if operation.method == "GET" else ALLOWANCES[operation.body]
        yield operation.route[1], who, operation.method, body


def declared_callers(operation: Any) -> str:
    """Return the scopes that open an operation, `people`, or `anyone` where it says so."""
    if operation.auth_param is NOT_SET:
        return UNDECLARED
    (guard,) = operation.auth_callbacks or [None]
    if guard is None:
        return "anyone"
    return " ".join(sorted(guard.scopes)) if isinstance(guard, KeyAuth) else "people"


def build_declarations() -> str:
    """Return the text of the file."""
    kinds = {
        "page": sorted(declared_pages()),
        "admin": sorted(declared_admin_pages()),
        "api": sorted(declared_operations()),
        "edge": sorted(declared_edge_operations()),
    }
    rows = [
        f"{kind:<6} {who:<26} {methods:<18} {body:<11} {name}"
        for kind, found in kinds.items()
        for name, who, methods, body in found
    ]
    return "\n".join([f"{'kind':<6} {'who':<26} {'methods':<18} {'body':<11} route", *rows, ""])


def read_declarations(kind: str) -> Iterator[tuple[str, str, str, str]]:
    """Yield route, who, methods and body of each row of the file that is of this kind."""
    for line in FILE.read_text().splitlines()[1:]:
        if line[:6].strip() == kind:
            yield line[65:], line[7:33].strip(), line[34:52].strip(), line[53:64].strip()
