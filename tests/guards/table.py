"""Who may use which URL, as tests/guards/test_every_url.py tries every caller on it.

Pages and operations of the API declare it where they are written; declared.txt keeps what they declare. Before you let
a new row in, ask: may everybody with that role or scope touch every row behind this URL, or only their own? Whose a
session, a runner or a request is, is told by coordinator/identity/ownership.py, actions/runners.py and
approvals.visible; tests/guards/test_whose.py holds those rules.
"""

from __future__ import annotations

from tests.guards.declared import read_declarations

ANY_METHOD = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    name: (who, ANY_METHOD if methods == "any" else tuple(methods.split()))
    for name, who, methods, _ in read_declarations("page")
}
# What an administrator may do with each table, beside looking at it.
ADMIN_TABLES: dict[str, str] = {
    name.removesuffix("_*"): "" if rights == "view" else rights
    for name, _, rights, _ in read_declarations("admin")
    if name.endswith("_*")
}
API: dict[str, str] = {f"{method} {route}": who for route, who, method, _ in read_declarations("api")}
# How much each URL that is written to may be sent, by the method and what stands above for it.
BODIES: dict[tuple[str, str], str] = {
    (method, name): body
    for kind in ("page", "api")
    for name, _, methods, body in read_declarations(kind)
    for method in methods.split()
    if body != "-"
}

R, A, O, READ = "runner", "agent", "operator", "read"  # noqa: E741
EVERYBODY = f"{R} {A} {O} {READ}"
EDGE: dict[tuple[str, str], str] = {
    ("POST", r"/sessions/([^/]+)/events"): f"{R} {A} {O}",
    ("POST", r"/api/events"): f"{R} {A} {O}",
    ("POST", r"/api/access/check"): EVERYBODY,
    ("POST", r"/hooks/([^/]+)"): A,
    ("POST", r"/runner/sessions/([^/]+)/updates"): R,
    ("POST", r"/runner/sessions/([^/]+)/permission"): R,
    ("POST", r"/runner/sessions/([^/]+)/permission/withdraw"): R,
    ("POST", r"/api/mcp/calls"): A,
    ("POST", r"/api/mcp/calls/([^/]+)/cancel"): A,
    ("POST", r"/api/mcp/calls/([^/]+)/end"): A,
    ("POST", r"/api/mcp/listings/(.+)"): A,
    **{(method, r"/mcp"): A for method in ("POST", "GET", "DELETE")},
    ("POST", r"/mcp/(.+)"): A,
    ("GET", r"/mcp/(.+)"): A,
    ("DELETE", r"/mcp/(.+)"): A,
    ("POST", r"/v1/logs"): f"{R} {A} {O}",
    ("POST", r"/v1/traces"): f"{R} {A} {O}",
    ("POST", r"/v1/metrics"): f"{R} {A} {O}",
    ("GET", r"/api/permission-requests/([^/]+)/wait"): EVERYBODY,
    ("GET", r"/api/chat/(.+)/messages/wait"): f"{A} {O} {READ}",
    ("GET", r"/runner/runs"): R,
    ("GET", r"/sse/sessions"): EVERYBODY,
    ("GET", r"/ui/live/"): "viewer",
    ("GET", r"/health/ready"): "anyone",
    ("GET", r"/metrics"): f"{O} {READ}",  # and programs on this very machine without a key
}
EDGE_BODIES: dict[tuple[str, str], str] = {
    ("POST", r"/sessions/([^/]+)/events"): "EVENTS",
    ("POST", r"/api/events"): "EVENTS",
    ("POST", r"/hooks/([^/]+)"): "EVENTS",
    ("POST", r"/runner/sessions/([^/]+)/updates"): "EVENTS",
    ("POST", r"/runner/sessions/([^/]+)/permission"): "EVENTS",
    ("POST", r"/runner/sessions/([^/]+)/permission/withdraw"): "EVENTS",
    ("POST", r"/v1/logs"): "EVENTS",
    ("POST", r"/v1/traces"): "EVENTS",
    ("POST", r"/v1/metrics"): "EVENTS",
    ("POST", r"/api/access/check"): "QUESTION",
    ("POST", r"/api/mcp/calls"): "QUESTION",
    ("POST", r"/api/mcp/calls/([^/]+)/cancel"): "QUESTION",
    ("POST", r"/api/mcp/calls/([^/]+)/end"): "QUESTION",
    ("POST", r"/api/mcp/listings/(.+)"): "QUESTION",
    ("POST", r"/mcp"): "MESSAGE",
    ("POST", r"/mcp/(.+)"): "MESSAGE",
    ("DELETE", r"/mcp"): "SMALL",
    ("DELETE", r"/mcp/(.+)"): "SMALL",
}
# A question, not a change: what it denies is noted in the audit log, as every refusal is.
POSTS_THAT_ONLY_ASK = {"POST /api/access/check"}
