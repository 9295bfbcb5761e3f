"""The one table of how much a request's body may be: by the URL that it is sent to and by who sends it.

A URL that is not in the table reads what a stranger may send. tests/bodies asks every URL for its row.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.conf import settings
from django.urls import Resolver404, resolve

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class BodyLimit:
    """What one body may be. `sent` and `unpacked` (without Content-Encoding) are in bytes, `seconds` are for it
    to arrive whole, and `becomes` is the memory in bytes that it may take once decoded (lib.json_bounds). `values` is
    how many fields and items a body may hold that is looked at as a whole: no other thread runs meanwhile. 0: any."""

    sent: int
    seconds: float
    unpacked: int = 0
    becomes: int = 0
    values: int = 0


# Before sign-in: a form with a name and a password, or a machine's small JSON, of which the door asks the key.
STRANGER = BodyLimit(8 * KIB, 10, 8 * KIB, MIB)
_FORM = BodyLimit(2 * MIB, 60)
_JSON = BodyLimit(8 * MIB, 60, 8 * MIB, 64 * MIB)
_UPLOAD = BodyLimit(settings.DATA_UPLOAD_MAX_MEMORY_SIZE, 300, settings.DATA_UPLOAD_MAX_MEMORY_SIZE, 96 * MIB)
_EVENTS = BodyLimit(20 * MIB, 60, 20 * MIB, 96 * MIB)

MOST_VALUES = 100_000  # at which one look at all of them takes some 50 ms

KEY, PERSON = "key", "person"
LIMITS: dict[str, dict[str, BodyLimit]] = {
    "no body": {},
    "sign-in": {},  # who signs in has not proven anything yet
    "form": {PERSON: _FORM},
    "upload": {PERSON: _UPLOAD},
    "api": {KEY: _JSON, PERSON: _JSON},
    "api upload": {KEY: _UPLOAD},
    "events": {KEY: _EVENTS},
    "hook": {KEY: _EVENTS},
    "telemetry": {KEY: _EVENTS},
    "message": {KEY: BodyLimit(8 * MIB, 60, 8 * MIB, 64 * MIB, MOST_VALUES)},
    "question": {KEY: BodyLimit(2 * MIB, 30, 2 * MIB, 16 * MIB, MOST_VALUES)},
}

# For each URL, the name of its limit in LIMITS. First the edge's, by their names in edge.app.ROUTES.
EDGE_LIMITS: dict[str, str] = {
    "event": "events",
    "events": "events",
    "access": "question",
    "hook": "hook",
    "updates": "events",
    "permission": "events",
    "withdraw": "events",
    "mcp": "message",
    "mcp all": "message",
    "mcp ask": "question",
    "mcp cancel": "question",
    "mcp ended": "question",
    "mcp listing": "question",
    "logs": "telemetry",
    "traces": "telemetry",
    "metrics": "telemetry",
    **dict.fromkeys(
        (
            "verdict",
            "chat",
            "work",
            "stream",
            "live",
            "scrape",
            "ready",
            "mcp stream",
            "mcp end",
            "mcp all stream",
            "mcp all end",
        ),
        "no body",
    ),
}
# Django's pages, by URL name; the admin's other pages take a form (`limit_name`), the rest no body.
PAGE_LIMITS: dict[str, str] = {
    page: limit
    for limit, pages in {
        "sign-in": """
            accounts:confirm accounts:login accounts:logout accounts:provider-again accounts:provider-back
            accounts:provider-connect accounts:provider-disconnect accounts:provider-start accounts:setup accounts:theme
            admin:login admin:logout""",
        "no body": "home",
        "form": """
            accounts:password agents:assign agents:delete agents:edit agents:new agents:password agents:power
            agents:withdraw approvals:always approvals:confirm-set approvals:decide approvals:decide-set
            approvals:escalation-add approvals:escalation-remove approvals:notification-about
            approvals:notification-add approvals:notification-remove approvals:notification-test
            approvals:quiet-hours approvals:revoke approvals:seen approvals:triage brakes:put-on brakes:release
            budgets:add budgets:allow budgets:edit budgets:remove chat:clear chat:delete-message chat:read
            connections:code connections:key connections:test costs:save-prices deciders:delegate
            deciders:delegation-end deciders:group-change deciders:group-delete deciders:group-make
            deciders:save keys:bind keys:list keys:revoke mcp:accept mcp:accept-command mcp:accepted-only mcp:add
            mcp:ask mcp:credential-remove mcp:credential-set mcp:delete mcp:discover mcp:edit mcp:extend
            mcp:isolation mcp:paste
            mcp:preview mcp:revoke mcp:save mcp:switch mcp:upstream plugins:grant plugins:register
            plugins:revoke plugins:switch push:deny push:key push:renew push:subscribe rules:accept-suggestion
            rules:calls rules:save rules:suggestions rules:trial runners:deregister runs:new runs:release
            runs:stop sessions:command sessions:delete sessions:note sessions:rename sessions:resume
            sessions:stop sessions:stop-turn sessions:unqueue""",
        "upload": "chat:say sessions:prompt",
    }.items()
    for page in pages.split()
}
# Django's API, by route; a route that is not here takes no body.
API_LIMITS: dict[str, str] = {
    route: limit
    for limit, routes in {
        "api": """
            /agents /agents/<name> /agents/<name>/status /api/agents/<path:agent_id>/heartbeat
            /api/agents/<path:agent_id>/power /api/mcp/access/by-agent/<agent_id> /api/mcp/servers/<name>/access
            /api/permission-requests /api/permission-requests/<request_id> /capabilities /capabilities/<name>
            /runner/heartbeat /runner/register /runner/runs/<run_id>/completed /runner/runs/<run_id>/failed
            /runner/runs/<run_id>/started /runner/runs/<run_id>/stopped /runner/sessions/<session_id>/gateway
            /runner/sessions/<session_id>/status
            /runners/<runner_id> /runs
            /runs/<run_id>/stop /sessions/<session_id> /sessions/<session_id>/bind
            /sessions/<session_id>/metadata /sessions/<session_id>/stop""",
        "sign-in": "/api/connect/exchange",
        "api upload": "/api/chat/<path:agent_id>/messages",
        "question": "/api/access/check",
    }.items()
    for route in routes.split()
}


def find_limit_name(path: str) -> str:
    """Return the name of the limit of Django's URL at `path`; `no body` where there is none, or none that takes one."""
    try:
        found = resolve(path)
    except Resolver404:
        return "no body"
    if name := PAGE_LIMITS.get(found.view_name) or API_LIMITS.get(f"/{found.route}"):
        return name
    return "form" if found.namespace == "admin" else "no body"


def find_body_limit(name: str, sender: str) -> BodyLimit:
    """Return what `sender` (`key:1`, `person:2` or an address) may send where the limit of this name holds."""
    return LIMITS[name].get(sender.partition(":")[0], STRANGER)
