"""The log and the counters of requests to the edge: the id, class and duration of each.

The id is the audit's trace id and comes back as X-Request-ID. A caller's own is taken only from one of the
operator's proxies: anybody else could make two people's deeds look like one.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from django.conf import settings

from coordinator.edge.http.client_addresses import get_client_address_and_scheme, is_trusted_proxy
from coordinator.lib import process_metrics as meters
from coordinator.lib import trace
from coordinator.lib.asgi import Message, Scope, Send

log = logging.getLogger("signalbox.access")

SLOW = 1.0  # seconds from which an answer is worth a line even where only those are asked for
# What is held open on purpose is never slow.
LONG_LIVED_ROUTES = frozenset({"stream", "poll", "hook", "mcp"})
# By prefix, the first that fits; whatever is left is the REST API.
ROUTES = (
    ("/ui/live/", "stream"),
    ("/sse/", "stream"),
    ("/ui/", "page"),
    ("/admin/", "page"),
    ("/static/", "static"),
    ("/hooks/", "hook"),
    ("/mcp", "mcp"),
    ("/v1/", "telemetry"),
    ("/api/access/check", "access"),
    ("/runner/runs", "poll"),
    ("/health", "health"),
    ("/metrics", "metrics"),
)


def classify_request(method: str, path: str) -> str:
    """Return the class that a request is counted under; there are few, whatever paths callers make up."""
    if method == "POST" and (path == "/api/events" or (path[:10] == "/sessions/" and path[-7:] == "/events")):
        return "ingest"
    if path[-5:] == "/wait":
        return "poll"
    return next((name for prefix, name in ROUTES if path.startswith(prefix)), "api")


class ObservedRequest:
    """One request that is being answered; its `send` replaces the server's."""

    __slots__ = ("_began", "_route", "_scope", "_send", "_status", "trace_id")

    def __init__(self, scope: Scope, send: Send) -> None:
        self._began = time.perf_counter()
        self._scope, self._send = scope, send
        self._status = 0
        self._route = classify_request(scope["method"], scope["path"])
        self.trace_id = trace.begin_trace(
            find_trusted_proxy_request_id(scope) if settings.TRUSTED_PROXIES else None
        )
        scope["signalbox.trace_id"] = self.trace_id  # for Django, in its own thread

    async def send(self, message: Message) -> None:
        """Pass a piece of the answer on, with the id in its headers."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            message["headers"] = [*message["headers"], (b"x-request-id", self.trace_id.encode())]
            meters.REQUESTS.add(self._route, str(self._status))
            meters.LATENCY.observe(time.perf_counter() - self._began, self._route)
        await self._send(message)

    def log_request_and_end_trace(self) -> None:
        """The answer has ended, or will never come: write the line that the settings ask for."""
        took = time.perf_counter() - self._began
        kind = settings.ACCESS_LOG
        is_slow = took > SLOW and self._route not in LONG_LIVED_ROUTES
        if kind == "all" or (kind == "slow" and (is_slow or self._status >= 500)):
            log.info("%s", self, extra={"fields": self.build_log_fields(took)})
        trace.end_trace()

    def build_log_fields(self, took: float) -> dict[str, Any]:
        # Without the query, which may carry a key.
        return {
            "method": self._scope["method"],
            "path": self._scope["path"],
            "status": self._status or None,
            "ms": round(took * 1000, 1),
            "route": self._route,
            "peer": get_client_address_and_scheme(self._scope).address,
        }

    def __str__(self) -> str:
        fields = self.build_log_fields(time.perf_counter() - self._began)
        return "{method} {path} {status} {ms} ms from {peer}".format(
            **fields | {"status": fields["status"] or "unanswered"}
        )


def find_trusted_proxy_request_id(scope: Scope) -> str | None:
    if not is_trusted_proxy(str((scope.get("client") or ("",))[0])):
        return None
    offered_ids = [value for name, value in scope["headers"] if name.lower() == b"x-request-id"]
    return offered_ids[0].decode("latin-1") if len(offered_ids) == 1 else None
