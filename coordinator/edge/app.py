"""The ASGI application: the edge's own doors by path, everything else to Django through the bridge."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from urllib.parse import parse_qs

from django.conf import settings
from django.core.wsgi import get_wsgi_application

from coordinator import ownership
from coordinator.actions.keys import KeyIdentity
from coordinator.edge import live, session_stream
from coordinator.edge.access import AccessDoor
from coordinator.edge.adoption import Adopter
from coordinator.edge.asking import Asker
from coordinator.edge.auth import Authenticator
from coordinator.edge.bridge import DjangoBridge, Receive, Scope, Send
from coordinator.edge.channels import Channel, Frame
from coordinator.edge.chat import ChatDoor
from coordinator.edge.claude_code import ClaudeCodeDoor, Recorder
from coordinator.edge.fragments import Fragments
from coordinator.edge.http import Gone, headers_of, send_error
from coordinator.edge.hub import Hub
from coordinator.edge.ingest import Ingest
from coordinator.edge.metrics import MetricsDoor, Reporter
from coordinator.edge.observing import Observed
from coordinator.edge.otlp import TelemetryDoor
from coordinator.edge.ownership import WriteRights
from coordinator.edge.peers import peer_of
from coordinator.edge.policies import Policies
from coordinator.edge.polls import Polls
from coordinator.edge.readiness import Readiness
from coordinator.edge.rulings import Rulings
from coordinator.edge.safety import with_safe_headers
from coordinator.edge.streams import Opening, Streams, last_seen
from coordinator.edge.threads import EdgeThreads
from coordinator.edge.waits import Waits
from coordinator.edge.writer import GroupWriter
from coordinator.errors import BadRequest, Forbidden, SignalboxError, TooSlow
from coordinator.feed import Change, Feed
from coordinator.housekeeping import Housekeeper

log = logging.getLogger(__name__)

EDGE_THREADS = 2
# What the edge answers itself, by method and address: the name of the door, and what it is about (one group)
# or nothing. tests/guards asks each of them who may come in.
ROUTES: dict[tuple[str, str], str] = {
    ("POST", r"/sessions/([^/]+)/events"): "event",
    ("POST", r"/api/events"): "events",
    ("POST", r"/api/access/check"): "access",
    ("POST", r"/hooks/claude-code"): "hook",
    ("POST", r"/v1/logs"): "logs",
    ("POST", r"/v1/traces"): "traces",
    ("POST", r"/v1/metrics"): "metrics",
    ("GET", r"/api/permission-requests/([^/]+)/wait"): "verdict",
    ("GET", r"/api/chat/(.+)/messages/wait"): "chat",
    ("GET", r"/runner/runs"): "work",
    ("GET", r"/sse/sessions"): "stream",
    ("GET", r"/ui/live/"): "live",
    ("GET", r"/metrics"): "scrape",
    ("GET", r"/health/ready"): "ready",
}
EXACT = {route: name for route, name in ROUTES.items() if "(" not in route[1]}
ABOUT = [(method, re.compile(path), name) for (method, path), name in ROUTES.items() if "(" in path]
READS = frozenset({"GET", "HEAD", "OPTIONS"})
Door = Callable[[Scope, Receive, Send], Awaitable[None]]
DoorAbout = Callable[[str, Scope, Receive, Send], Awaitable[None]]
STREAM_SCOPES = ("read", "operator", "runner", "agent")


class Application:
    """One per worker process. Owns what lives as long as the worker, from lifespan.startup to shutdown."""

    def __init__(self) -> None:
        self.django = DjangoBridge(
            get_wsgi_application(), threads=settings.THREADS, max_body=settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        )
        self.threads = EdgeThreads(EDGE_THREADS)
        self.feed = Feed()
        self.hub = Hub(self.feed)
        self.auth = Authenticator(self.threads)
        self.writer = GroupWriter(self.feed.wake)
        self.waits = Waits(self.hub, self.threads)
        self.streams = Streams(
            self.hub, self.threads, most=settings.MAX_STREAMS, most_per_client=settings.STREAMS_PER_CLIENT
        )
        self.fragments = Fragments()
        self.housekeeper = Housekeeper(self.feed.wake)
        rights = WriteRights(self.threads)
        self.ingest = Ingest(self.auth, rights, self.writer)
        self.polls = Polls(self.auth, self.waits, self.threads)
        self.chat = ChatDoor(self.auth, self.waits, self.threads)
        self.telemetry = TelemetryDoor(self.auth, self.writer, self.threads)
        policies = Policies(self.hub, self.threads)
        self.readiness = Readiness(self.feed, self.writer, self.threads)
        self.reporter = Reporter(
            {
                "signalbox_writer_queue_events": lambda: self.writer.waiting,
                "signalbox_streams_open": lambda: len(self.streams),
                "signalbox_polls_held": lambda: len(self.waits),
            }
        )
        self.metrics = MetricsDoor(self.auth, self.reporter, self.threads)
        self.access = AccessDoor(self.auth, policies, self.waits, self.threads)
        self.claude_code = ClaudeCodeDoor(
            self.auth,
            Recorder(self.writer),
            Rulings(self.hub, policies, self.threads),
            Asker(self.waits, self.threads),
        )
        self._doors: dict[str, Door] = {
            "events": self.ingest.batch,
            "access": self.access.check,
            "hook": self.claude_code.hook,
            "logs": partial(self.telemetry.take, "logs"),
            "traces": partial(self.telemetry.take, "traces"),
            "metrics": partial(self.telemetry.take, "metrics"),
            "work": self.polls.runner,
            "stream": self._session_stream,
            "live": self._live,
            "scrape": self.metrics.scrape,
            "ready": self.readiness.answer,
        }
        self._doors_about: dict[str, DoorAbout] = {
            "event": self.ingest.one,
            "verdict": self.polls.verdict,
            "chat": self.chat.wait,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the worker's lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            request = Observed(scope, send)
            try:
                await self._http(scope, receive, with_safe_headers(request.send))
            finally:
                request.done()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the request to its door; a door raises before it answers, or not at all."""
        door = self._door(scope)
        if door is None:
            await self.django(scope, receive, send)
            if scope["method"] not in READS:
                self.feed.wake()
            return
        try:
            if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
                raise BadRequest("A NUL character in the address.")  # PostgreSQL has no form for it
            await door(scope, receive, send)
        except SignalboxError as error:
            await send_error(send, error)
        except Gone:  # or it only sent its body too slowly, and still listens
            log.debug("client went away: %s", scope["path"])
            await send_error(send, TooSlow("The request did not arrive whole in time. Send it again."))

    def _door(self, scope: Scope) -> Door | None:
        """Return the door behind this method and address, or None for what is Django's."""
        method, path = scope["method"], scope["path"]
        if name := EXACT.get((method, path)):
            return self._doors[name]
        for its_method, pattern, name in ABOUT:
            if method == its_method and (match := pattern.fullmatch(path)):
                return partial(self._doors_about[name], match[1])
        return None

    async def _session_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /sse/sessions?session_id=&include_init=`, as recorded (edge.session_stream)."""
        headers = headers_of(scope)
        query = parse_qs(scope["query_string"].decode("latin-1"), encoding="utf-8")
        caller = await self.auth.program(scope, headers, *STREAM_SCOPES, in_query=True)
        session_id = query.get("session_id", [None])[-1] or None
        with_init = query.get("include_init", ["true"])[-1].lower() not in {"false", "0", "no", "off"}
        if not ownership.reads_everything(caller):
            await self._require_own_session(caller, session_id)
        wants = session_stream.wants(session_id)

        async def render(changes: Sequence[Change]) -> list[Frame]:
            return await self.threads.run(session_stream.render, changes)

        async def hello(upto: int) -> list[Frame]:
            return await self.threads.run(session_stream.hello, session_id, upto) if with_init else []

        async def still_allowed() -> None:
            await self.auth.program(scope, headers, *STREAM_SCOPES, in_query=True)

        opening = Opening(
            client=f"key:{caller.name}" if settings.API_AUTH else peer_of(scope).address,
            channel=self.streams.channel(("sessions", session_id), lambda: Channel(wants, render)),
            wants=wants,
            render=render,
            after=last_seen(headers.get(b"last-event-id"), None),
            hello=hello,
        )
        await self.streams.serve(send, opening, still_allowed)

    async def _require_own_session(self, caller: KeyIdentity, session_id: str | None) -> None:
        """An agent's key follows one session of its own at a time: streams of all sessions are shared by many."""
        if session_id is None:
            raise Forbidden(
                f"This key speaks as {caller.agent_id}: name one of its sessions in ?session_id=."
            )
        await self.threads.run(ownership.require_readable, caller, session_id)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /ui/live/?topics=&last=`: a page's stream (edge.live)."""
        headers = headers_of(scope)
        viewer = await self.auth.viewer(headers)
        names = live.topics_of(scope["query_string"])
        live.require_allowed(viewer, names)
        wants = live.wants(names)
        query = parse_qs(scope["query_string"].decode("latin-1"))

        async def render(changes: Sequence[Change]) -> list[Frame]:
            return await self.threads.run(live.render, self.fragments, changes)

        async def hello(upto: int) -> list[Frame]:
            return live.hello(upto)

        async def still_allowed() -> None:
            live.require_allowed(await self.auth.viewer(headers), names)

        opening = Opening(
            client=f"user:{viewer.username}",
            channel=self.streams.channel(
                ("live", names), lambda: Channel(wants, render, pause=live.SIGNAL_PAUSE)
            ),
            wants=wants,
            render=render,
            after=last_seen(headers.get(b"last-event-id"), query.get("last", [""])[-1]),
            hello=hello,
            most_replayed=live.MOST_REPLAYED,
        )
        await self.streams.serve(send, opening, still_allowed)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                self.let_go()
                await self.access.denied.close()
                self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _start(self) -> None:
        self.feed.listeners.append(Adopter())
        self.feed.start()
        self.hub.hearers.insert(0, self._forget_changed_callers)
        self.hub.start()
        self.writer.start()
        self.streams.start()
        self.housekeeper.start()
        self.reporter.start()

    def _forget_changed_callers(self, batch: Sequence[Change]) -> None:
        before = self.auth.generation
        self.auth.heard(batch)
        if self.auth.generation != before:
            self.streams.recheck()
            self.waits.recheck()

    def let_go(self) -> None:
        """Answer held polls and end streams, now: the worker is about to stop. May be called twice."""
        self.readiness.stopping = True
        self.waits.close()
        self.streams.close()

    def _stop(self) -> None:
        self.hub.stop()
        self.writer.stop()
        self.housekeeper.stop()
        self.feed.stop()
        self.reporter.stop()
        self.threads.close()
        self.django.close()


def create_application() -> Application:
    """Return the application a worker serves."""
    return Application()
