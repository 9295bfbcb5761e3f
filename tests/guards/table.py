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

# Who may use what the edge serves, and how much it may be sent, by the method and the pattern of its path. Programs on
# this very machine scrape /metrics without a key.
EDGE: dict[tuple[str, str], str] = {(method, path): who for path, who, method, _ in read_declarations("edge")}
EDGE_BODIES: dict[tuple[str, str], str] = {
    (method, path): body for path, _, method, body in read_declarations("edge") if body != "-"
}
# A question, not a change: what it denies is noted in the audit log, as every refusal is.
POSTS_THAT_ONLY_ASK = {"POST /api/access/check"}
