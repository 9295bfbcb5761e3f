"""The ASGI application: the edge's own doors by path, everything else to Django through the bridge."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from urllib.parse import parse_qs

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import InterfaceError, OperationalError

from coordinator.dialects.loaded import DIALECTS
from coordinator.edge.access import AccessDoor
from coordinator.edge.adoption import Adopter
from coordinator.edge.auth import Authenticator
from coordinator.edge.bodies import Bodies
from coordinator.edge.brake_gate import BrakeGate
from coordinator.edge.bridge import STOPPING, DjangoBridge
from coordinator.edge.call_guard import CallGuard
from coordinator.edge.chat import ChatDoor
from coordinator.edge.driving import DrivingDoor
from coordinator.edge.gateway.door import GatewayDoor
from coordinator.edge.held_hooks import Asker
from coordinator.edge.hooks import HookDoor, longest
from coordinator.edge.http import Gone, headers_of, no_database, send_error
from coordinator.edge.ingest import Ingest
from coordinator.edge.intake import Intake
from coordinator.edge.leftover import Leftover
from coordinator.edge.metrics import MetricsDoor, Reporter
from coordinator.edge.notes import Notes
from coordinator.edge.observing import Observed
from coordinator.edge.otlp import TelemetryDoor
from coordinator.edge.ownership import WriteRights
from coordinator.edge.peers import network_of, peer_of
from coordinator.edge.policies import Policies
from coordinator.edge.polls import Polls
from coordinator.edge.readiness import Readiness
from coordinator.edge.recorder import Recorder
from coordinator.edge.rulings import Rulings
from coordinator.edge.safety import safe_headers, with_safe_headers
from coordinator.edge.waits import Waits
from coordinator.edge.writer import GroupWriter
from coordinator.engine.checkpoints import Checkpointer
from coordinator.errors import BadRequest, Forbidden, NotFound, Restarting, SignalboxError, TooSlow
from coordinator.feed.reader import Change, Feed
from coordinator.identity import ownership, scopes
from coordinator.identity.keys import KeyIdentity
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.lib.turns import CALLER, Closed
from coordinator.live import pages as live
from coordinator.live import recorded_stream as session_stream
from coordinator.live.channels import Channel, Frame
from coordinator.live.fragments import Fragments
from coordinator.live.hub import Hub
from coordinator.live.streams import Opening, Streams, last_seen
from coordinator.operations.jobs import Housekeeper

log = logging.getLogger(__name__)

EDGE_THREADS = 2
# What the edge answers itself, by method and address: the name of the door, and what it is about (one group)
# or nothing. tests/guards asks each of them who may come in.
ROUTES: dict[tuple[str, str], str] = {
    ("POST", r"/sessions/([^/]+)/events"): "event",
    ("POST", r"/api/events"): "events",
    ("POST", r"/api/access/check"): "access",
    ("POST", r"/hooks/([^/]+)"): "hook",
    ("POST", r"/runner/sessions/([^/]+)/updates"): "updates",
    ("POST", r"/runner/sessions/([^/]+)/permission"): "permission",
    ("POST", r"/runner/sessions/([^/]+)/permission/withdraw"): "withdraw",
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
    ("POST", r"/api/mcp/calls"): "mcp ask",
    ("POST", r"/api/mcp/calls/([^/]+)/cancel"): "mcp cancel",
    ("POST", r"/api/mcp/calls/([^/]+)/end"): "mcp ended",
    ("POST", r"/api/mcp/listings/(.+)"): "mcp listing",
    ("POST", r"/mcp"): "mcp all",
    ("GET", r"/mcp"): "mcp all stream",
    ("DELETE", r"/mcp"): "mcp all end",
    ("POST", r"/mcp/(.+)"): "mcp",
    ("GET", r"/mcp/(.+)"): "mcp stream",
    ("DELETE", r"/mcp/(.+)"): "mcp end",
}
EXACT = {route: name for route, name in ROUTES.items() if "(" not in route[1]}
ABOUT = [(method, re.compile(path), name) for (method, path), name in ROUTES.items() if "(" in path]
READS = frozenset({"GET", "HEAD", "OPTIONS"})
Door = Callable[[Scope, Receive, Send], Awaitable[None]]
DoorAbout = Callable[[str, Scope, Receive, Send], Awaitable[None]]


class Application:
    """One per worker process. Owns what lives as long as the worker, from lifespan.startup to shutdown."""

    def __init__(self) -> None:
        self.threads = EdgeThreads(EDGE_THREADS)
        self.feed = Feed()
        self.hub = Hub(self.feed)
        self.auth = Authenticator(self.threads)
        self.bodies = Bodies()
        self._safe_headers = safe_headers()
        intake = Intake(self.bodies, self.auth.sender)
        self.django = DjangoBridge(
            get_wsgi_application(), threads=settings.THREADS, take=intake.take, who=intake.who
        )
        self.checkpointer = Checkpointer()
        self.writer = GroupWriter(self.feed.wake, wrote=self.checkpointer.wrote)
        self.waits = Waits(self.hub, self.threads)
        self.streams = Streams(
            self.hub, self.threads, most=settings.MAX_STREAMS, most_per_client=settings.STREAMS_PER_CLIENT
        )
        self.fragments = Fragments()
        self.housekeeper = Housekeeper(self.feed.wake)
        rights = WriteRights(self.threads)
        self.ingest = Ingest(self.auth, rights, self.writer, self.bodies)
        self.polls = Polls(self.auth, self.waits, self.threads)
        self.chat = ChatDoor(self.auth, self.waits, self.threads)
        self.telemetry = TelemetryDoor(self.auth, self.writer, self.threads, self.bodies)
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
        self.access = AccessDoor(self.auth, policies, self.waits, self.threads, self.bodies)
        self.rulings = Rulings(self.hub, policies, self.threads)
        asker = Asker(self.waits, self.threads)
        gate = BrakeGate(self.waits, self.threads)
        notes = Notes(self.hub, self.threads)
        driving = DrivingDoor(
            self.auth,
            self.writer,
            rulings=self.rulings,
            gate=gate,
            waits=self.waits,
            threads=self.threads,
            bodies=self.bodies,
        )
        self.hooks: dict[str, CallGuard] = {}
        for name, dialect in DIALECTS.items():
            recorder = Recorder(self.writer, dialect)
            door = HookDoor(self.auth, recorder, self.rulings, asker, self.bodies, gate=gate, notes=notes)
            self.hooks[name] = CallGuard(door, self.rulings, longest)
        self.gateway = GatewayDoor(
            self.auth,
            rulings=self.rulings,
            policies=policies,
            waits=self.waits,
            writer=self.writer,
            threads=self.threads,
            bodies=self.bodies,
            hub=self.hub,
            gate=gate,
            notes=notes,
        )
        self._doors: dict[str, Door] = {
            "events": self.ingest.batch,
            "access": self.access.check,
            "logs": partial(self.telemetry.take, "logs"),
            "traces": partial(self.telemetry.take, "traces"),
            "metrics": partial(self.telemetry.take, "metrics"),
            "work": self.polls.runner,
            "stream": self._session_stream,
            "live": self._live,
            "scrape": self.metrics.scrape,
            "ready": self.readiness.answer,
            "mcp ask": self.gateway.beside.ask,
            "mcp all": self.gateway.post_to_all,
            "mcp all stream": self.gateway.news,
            "mcp all end": self.gateway.end_of_all,
        }
        self._doors_about: dict[str, DoorAbout] = {
            "event": self.ingest.one,
            "verdict": self.polls.verdict,
            "chat": self.chat.wait,
            "hook": self._hook,
            "updates": driving.updates,
            "permission": driving.permission,
            "withdraw": driving.withdraw,
            "mcp": self.gateway.post,
            "mcp cancel": self.gateway.beside.cancel,
            "mcp ended": self.gateway.beside.end,
            "mcp listing": self.gateway.beside.listing,
            "mcp stream": self.gateway.stream,
            "mcp end": self.gateway.delete,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the worker's lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            CALLER.set(f"address:{network_of(peer_of(scope).address)}")
            request = Observed(scope, send)
            body = Leftover(scope, receive, request.send)
            try:
                await self._http(scope, body.receive, with_safe_headers(body.send, self._safe_headers))
            finally:
                request.done()
            await body.read()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the request to its door; a door raises before it answers, or not at all."""
        door = self._door(scope)
        if door is None:
            await self.auth.note_caller(scope)
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
        except (OperationalError, InterfaceError) as problem:
            log.warning("%s met no database: %s", scope["path"], str(problem).strip())
            await send_error(send, no_database(problem))
        except Closed:
            await send_error(send, Restarting(STOPPING, retry_after=1))
        except Gone:  # or it only sent its body too slowly, and still listens
            log.debug("client went away: %s", scope["path"])
            await send_error(send, TooSlow("The request did not arrive completely in time. Send it again."))

    def _door(self, scope: Scope) -> Door | None:
        """Return the door behind this method and address, or None for what is Django's."""
        method, path = scope["method"], scope["path"]
        if name := EXACT.get((method, path)):
            return self._doors[name]
        for its_method, pattern, name in ABOUT:
            if method == its_method and (match := pattern.fullmatch(path)):
                return partial(self._doors_about[name], match[1])
        return None

    async def _hook(self, agent: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /hooks/{agent}` (edge.hooks)."""
        guard = self.hooks.get(agent)
        if guard is None:
            await self.auth.admit(scope, headers_of(scope), *scopes.AGENT_SCOPES)
            raise NotFound(
                f"No agent {agent[:100]!r} is known here. Post to one of: {', '.join(self.hooks)}."
            )
        await guard.hook(scope, receive, send)

    async def _session_stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /sse/sessions?session_id=&include_init=`, as recorded (live/recorded_stream.py)."""
        headers = headers_of(scope)
        admission = await self.auth.admit_reader(scope, headers, *scopes.READERS)
        caller = admission.caller
        session_id, with_init = session_stream.asked_for(scope["query_string"])
        if not ownership.reads_everything(caller):
            await self._require_own_session(caller, session_id)

        async def hello(upto: int) -> list[Frame]:
            return await self.threads.run(session_stream.hello, session_id, upto) if with_init else []

        opening = Opening(
            client=f"key:{caller.name}" if settings.API_AUTH else peer_of(scope).address,
            channel=self.streams.channel(
                ("sessions", session_id), partial(self._session_channel, session_id)
            ),
            after=last_seen(headers.get(b"last-event-id"), None),
            hello=hello,
        )
        await self.streams.serve(send, opening, admission.still_allowed)

    def _session_channel(self, session_id: str | None) -> Channel:
        return Channel(
            session_stream.wants(session_id),
            lambda changes: self.threads.run(session_stream.render, changes),
        )

    async def _require_own_session(self, caller: KeyIdentity, session_id: str | None) -> None:
        """An agent's key follows one session of its own at a time: streams of all sessions are shared by many."""
        if session_id is None:
            raise Forbidden(
                f"This key is bound to {caller.bound_to}. Name one of its sessions in ?session_id=."
            )
        await self.threads.run(ownership.require_readable, caller, session_id)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /ui/live/?topics=&last=`: a page's stream (live/pages.py)."""
        headers = headers_of(scope)
        viewer = await self.auth.viewer(headers)
        names = live.topics_of(scope["query_string"])
        live.require_allowed(viewer, names)
        query = parse_qs(scope["query_string"].decode("latin-1"))

        async def hello(upto: int) -> list[Frame]:
            return live.hello(upto)

        async def still_allowed() -> None:
            live.require_allowed(await self.auth.viewer(headers), names)

        opening = Opening(
            client=f"user:{viewer.username}",
            channel=self.streams.channel(("live", names), partial(self._live_channel, names)),
            after=last_seen(headers.get(b"last-event-id"), query.get("last", [""])[-1]),
            hello=hello,
            most_replayed=live.MOST_REPLAYED,
        )
        await self.streams.serve(send, opening, still_allowed)

    def _live_channel(self, names: frozenset[str]) -> Channel:
        async def sum_up(changes: Sequence[Change]) -> list[Frame]:
            return await self.threads.run(live.sum_up, self.fragments, names, changes)

        return Channel(
            live.wants(names),
            lambda changes: self.threads.run(live.render, self.fragments, names, changes),
            pause=live.pause(names),
            sum_up=sum_up if live.views(names) else None,
            sum_up_pause=live.SUMMARY_PAUSE,
        )

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self._start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                self.release_held_requests()
                await self.access.denied.close()
                await self.gateway.close()
                self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _start(self) -> None:
        self.feed.listeners.append(Adopter())
        self.feed.start()
        self.hub.listeners.insert(0, self._forget_changed_callers)
        self.hub.start()
        await self.rulings.refresh()
        self.checkpointer.start()
        self.writer.start()
        self.streams.start()
        self.housekeeper.start()
        self.reporter.start()

    def _forget_changed_callers(self, batch: Sequence[Change]) -> None:
        before = self.auth.generation
        self.auth.on_changes(batch)
        if self.auth.generation != before:
            self.streams.recheck()
            self.waits.recheck()

    def release_held_requests(self) -> None:
        """Answer held polls and end streams, now: the worker is about to stop. May be called twice."""
        self.readiness.stopping = True
        self.waits.close()
        self.streams.close()
        self.gateway.release()

    def _stop(self) -> None:
        self.hub.stop()
        self.writer.stop()
        self.checkpointer.stop()
        self.housekeeper.stop()
        self.feed.stop()
        self.reporter.stop()
        self.threads.close()
        self.bodies.close()
        self.django.close()


def create_application() -> Application:
    return Application()
