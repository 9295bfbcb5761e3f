"""The ASGI application: routes the edge's own paths to its endpoints and all others to Django."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from urllib.parse import parse_qs

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.db import InterfaceError, OperationalError

from coordinator.api.edge_operations import OPERATIONS, EdgeOperation
from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.edge.gateway.endpoint import GatewayEndpoint
from coordinator.edge.hooks.endpoint import HookEndpoint, parse_hook_wait_seconds
from coordinator.edge.hooks.guard import HookGuard
from coordinator.edge.hooks.notes import PendingNotes
from coordinator.edge.hooks.pending_hooks import HookApprovalWaiter
from coordinator.edge.hooks.recorder import HookRecorder
from coordinator.edge.http.auth import Authenticator
from coordinator.edge.http.bodies import RequestBodies
from coordinator.edge.http.body_intake import RequestBodyIntake
from coordinator.edge.http.bridge import STOPPING, DjangoBridge
from coordinator.edge.http.client_addresses import client_network_or_address, get_client_address_and_scheme
from coordinator.edge.http.messages import (
    OPERATION,
    ClientDisconnected,
    build_database_unavailable_error,
    get_request_headers,
    send_error,
)
from coordinator.edge.http.request_log import ObservedRequest
from coordinator.edge.http.security_headers import build_security_headers, wrap_send_with_security_headers
from coordinator.edge.http.unread_body import UnreadRequestBody
from coordinator.edge.ingest.adoption import EventAdopter
from coordinator.edge.ingest.driven_sessions import DrivingEndpoint
from coordinator.edge.ingest.events import EventIngestEndpoint
from coordinator.edge.ingest.otlp import TelemetryEndpoint
from coordinator.edge.ingest.ownership import WriteRights
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.edge.monitoring.metrics import MetricsEndpoint, MetricsReporter
from coordinator.edge.monitoring.readiness import ReadinessEndpoint
from coordinator.edge.policy.access_check import AccessEndpoint
from coordinator.edge.policy.brake_gate import BrakeGate
from coordinator.edge.policy.policy_cache import PolicyCache
from coordinator.edge.policy.rulings import PolicyRulings
from coordinator.edge.polling.chat import ChatEndpoint
from coordinator.edge.polling.endpoints import LongPollEndpoint
from coordinator.edge.polling.waits import LongPollWaiters
from coordinator.errors import (
    BadRequest,
    Forbidden,
    NotFound,
    RequestTimedOut,
    ServiceRestarting,
    SignalboxError,
)
from coordinator.feed.reader import ChangeFeed, FeedChange
from coordinator.identity import ownership
from coordinator.identity.keys import KeyIdentity
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.fair_queue import CALLER, ThreadsClosed
from coordinator.lib.threads import EdgeThreads
from coordinator.live import pages as live
from coordinator.live import recorded_stream as session_stream
from coordinator.live.channels import EventFrame, LiveChannel
from coordinator.live.fragments import FragmentCache
from coordinator.live.hub import FeedHub
from coordinator.live.streams import LiveStreams, StreamOpening, last_event_id_or_none
from coordinator.mcp.gateway.tool_trials import register_trial_runner
from coordinator.operations.jobs import Housekeeper

log = logging.getLogger(__name__)

EDGE_THREADS = 2
ROUTES: dict[tuple[str, str], EdgeOperation] = {operation.route: operation for operation in OPERATIONS}
EXACT = {route: operation for route, operation in ROUTES.items() if "(" not in route[1]}
BY_PATTERN = [
    (method, re.compile(path), operation) for (method, path), operation in ROUTES.items() if "(" in path
]
READS = frozenset({"GET", "HEAD", "OPTIONS"})
Endpoint = Callable[[Scope, Receive, Send], Awaitable[None]]
ItemEndpoint = Callable[[str, Scope, Receive, Send], Awaitable[None]]


class Application:
    """One per worker process. Owns what lives as long as the worker, from lifespan.startup to shutdown."""

    def __init__(self) -> None:
        self.threads = EdgeThreads(EDGE_THREADS)
        self.feed = ChangeFeed()
        self.hub = FeedHub(self.feed)
        self.auth = Authenticator(self.threads)
        self.bodies = RequestBodies()
        self._safe_headers = build_security_headers()
        intake = RequestBodyIntake(self.bodies, self.auth.identify_authenticated_sender)
        self.django = DjangoBridge(
            get_or_create_django_handler(),
            threads=settings.THREADS,
            take=intake.receive_body_file_during_block,
            who=intake.identify_request_sender,
        )
        self.writer = GroupWriter(self.feed.wake_feed)
        self.waits = LongPollWaiters(self.hub, self.threads)
        self.streams = LiveStreams(
            self.hub, self.threads, most=settings.MAX_STREAMS, most_per_client=settings.STREAMS_PER_CLIENT
        )
        self.fragments = FragmentCache()
        self.housekeeper = Housekeeper(self.feed.wake_feed)
        rights = WriteRights(self.threads)
        self.ingest = EventIngestEndpoint(self.auth, rights, self.writer, self.bodies)
        self.polls = LongPollEndpoint(self.auth, self.waits, self.threads)
        self.chat = ChatEndpoint(self.auth, self.waits, self.threads)
        self.telemetry = TelemetryEndpoint(self.auth, self.writer, self.threads, self.bodies)
        policies = PolicyCache(self.hub, self.threads)
        self.readiness = ReadinessEndpoint(self.feed, self.writer, self.threads)
        self.reporter = MetricsReporter(
            {
                "signalbox_writer_queue_events": lambda: self.writer.waiting_event_count,
                "signalbox_streams_open": lambda: len(self.streams),
                "signalbox_polls_held": lambda: len(self.waits),
            }
        )
        self.metrics = MetricsEndpoint(self.auth, self.reporter, self.threads)
        self.access = AccessEndpoint(self.auth, policies, self.waits, self.threads, self.bodies)
        self.rulings = PolicyRulings(self.hub, policies, self.threads)
        asker = HookApprovalWaiter(self.waits, self.threads)
        gate = BrakeGate(self.waits, self.threads)
        notes = PendingNotes(self.hub, self.threads)
        driving = DrivingEndpoint(
            self.auth,
            self.writer,
            rulings=self.rulings,
            gate=gate,
            waits=self.waits,
            threads=self.threads,
            bodies=self.bodies,
        )
        self.hooks: dict[str, HookGuard] = {}
        for name, dialect in DIALECTS.items():
            recorder = HookRecorder(self.writer, dialect)
            endpoint = HookEndpoint(
                self.auth, recorder, self.rulings, asker, self.bodies, gate=gate, notes=notes
            )
            self.hooks[name] = HookGuard(endpoint, self.rulings, parse_hook_wait_seconds)
        self.gateway = GatewayEndpoint(
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
        self._endpoints: dict[str, Endpoint] = {
            "post_events": self.ingest.receive_event_batch,
            "coordinator_api_access_check_tool_access": self.access.answer_access_check,
            "export_logs": partial(self.telemetry.receive_telemetry, "logs"),
            "export_traces": partial(self.telemetry.receive_telemetry, "traces"),
            "export_metrics": partial(self.telemetry.receive_telemetry, "metrics"),
            "poll_for_run": self.polls.poll_runner_work,
            "follow_sessions": self.stream_session_events,
            "stream_live_page": self.stream_live_page,
            "metrics": self.metrics.answer_metrics_scrape,
            "ready": self.readiness.answer_readiness,
            "mcp_beside_ask": self.gateway.local_calls.handle_call_decision_request,
            "mcp_all_post": self.gateway.handle_post_to_all_servers,
            "mcp_all_get": self.gateway.stream_all_servers_tool_updates,
            "mcp_all_delete": self.gateway.delete_combined_session,
        }
        self._item_endpoints: dict[str, ItemEndpoint] = {
            "post_session_event": self.ingest.receive_event,
            "wait_for_verdict": self.polls.wait_for_request_verdict,
            "wait_for_chat_messages": self.chat.wait_for_chat_messages,
            "post_hook": self.route_hook_request,
            "tell_updates": driving.receive_session_updates,
            "ask_for_agent": driving.receive_permission_question_and_wait,
            "withdraw_for_agent": driving.withdraw_permission_question,
            "mcp_collection_post": self.gateway.handle_post_to_named_collection,
            "mcp_collection_get": self.gateway.stream_collection_tool_updates,
            "mcp_collection_delete": self.gateway.delete_collection_session,
            "mcp_server_post": self.gateway.handle_post_to_server,
            "mcp_beside_cancel": self.gateway.local_calls.cancel_local_call,
            "mcp_beside_end": self.gateway.local_calls.record_local_call_end,
            "mcp_beside_listing": self.gateway.local_calls.store_listing_and_send_visible,
            "mcp_server_get": self.gateway.stream_server_messages,
            "mcp_server_delete": self.gateway.delete_server_session,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the worker's lifespan."""
        if scope["type"] == "lifespan":
            await self.run_lifespan(receive, send)
        elif scope["type"] == "http":
            CALLER.set(f"address:{client_network_or_address(get_client_address_and_scheme(scope).address)}")
            request = ObservedRequest(scope, send)
            body = UnreadRequestBody(scope, receive, request.send)
            try:
                await self.route_http_request(
                    scope, body.receive, wrap_send_with_security_headers(body.send, self._safe_headers)
                )
            finally:
                request.log_request_and_end_trace()
            await body.discard_remaining_body()

    async def route_http_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the request to its endpoint; an endpoint raises before it answers, or not at all."""
        endpoint = self.match_endpoint_and_set_operation(scope)
        if endpoint is None:
            await self.auth.set_caller_context_variable(scope)
            await self.django(scope, receive, send)
            if scope["method"] not in READS:
                self.feed.wake_feed()
            return
        try:
            if "\x00" in scope["path"] or b"%00" in scope["query_string"]:
                raise BadRequest("A NUL character in the address.")  # PostgreSQL has no form for it
            await endpoint(scope, receive, send)
        except SignalboxError as error:
            await send_error(send, error)
        except (OperationalError, InterfaceError) as problem:
            log.warning("%s met no database: %s", scope["path"], str(problem).strip())
            await send_error(send, build_database_unavailable_error())
        except ThreadsClosed:
            await send_error(send, ServiceRestarting(STOPPING, retry_after=1))
        except ClientDisconnected:  # or it only sent its body too slowly, and still listens
            log.debug("client went away: %s", scope["path"])
            await send_error(
                send, RequestTimedOut("The request did not arrive completely in time. Send it again.")
            )

    def match_endpoint_and_set_operation(self, scope: Scope) -> Endpoint | None:
        """Return the endpoint behind this method and address, or None for what is Django's.

        The operation is noted in `scope`: its scopes let programs in (edge/http/auth.py), and it limits the body.
        """
        method, path = scope["method"], scope["path"]
        if operation := EXACT.get((method, path)):
            scope[OPERATION] = operation
            return self._endpoints[operation.name]
        for its_method, pattern, operation in BY_PATTERN:
            if method == its_method and (match := pattern.fullmatch(path)):
                scope[OPERATION] = operation
                return partial(self._item_endpoints[operation.name], match[1])
        return None

    async def route_hook_request(self, agent: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /hooks/{agent}` (edge.hooks)."""
        guard = self.hooks.get(agent)
        if guard is None:
            await self.auth.admit_api_key_caller(scope, get_request_headers(scope))
            raise NotFound(
                f"No agent {agent[:100]!r} is known here. Post to one of: {', '.join(self.hooks)}."
            )
        await guard.answer_hook_with_fallback(scope, receive, send)

    async def stream_session_events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /sse/sessions?session_id=&include_init=`, as recorded (live/recorded_stream.py)."""
        headers = get_request_headers(scope)
        admission = await self.auth.admit_api_key_stream_reader(scope, headers)
        caller = admission.caller
        session_id, with_init = session_stream.parse_session_id_and_init(scope["query_string"])
        if not ownership.can_read_all_sessions(caller):
            await self.require_session_stream_access(caller, session_id)

        async def load_initial_frames(upto: int) -> list[EventFrame]:
            return (
                await self.threads.run_in_thread(session_stream.load_session_init_frames, session_id, upto)
                if with_init
                else []
            )

        opening = StreamOpening(
            client=f"key:{caller.name}"
            if settings.API_AUTH
            else get_client_address_and_scheme(scope).address,
            channel=self.streams.get_or_create_channel(
                ("sessions", session_id), partial(self.build_session_channel, session_id)
            ),
            after=last_event_id_or_none(headers.get(b"last-event-id"), None),
            hello=load_initial_frames,
        )
        await self.streams.send_sse_stream(send, opening, admission.require_still_allowed)

    def build_session_channel(self, session_id: str | None) -> LiveChannel:
        return LiveChannel(
            session_stream.session_stream_topics(session_id),
            lambda changes: self.threads.run_in_thread(session_stream.load_frames_of_changes, changes),
        )

    async def require_session_stream_access(self, caller: KeyIdentity, session_id: str | None) -> None:
        """An agent's key follows one session of its own at a time: streams of all sessions are shared by many."""
        if session_id is None:
            raise Forbidden(
                f"This key is bound to {caller.bound_agents_label}. Name one of its sessions in ?session_id=."
            )
        await self.threads.run_in_thread(ownership.require_session_read_access, caller, session_id)

    async def stream_live_page(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /ui/live/?topics=&last=`: a page's stream (live/pages.py)."""
        headers = get_request_headers(scope)
        viewer = await self.auth.require_viewer_by_session_cookie(headers)
        names = live.parse_requested_topics(scope["query_string"])
        live.require_allowed_topics(viewer, names)
        query = parse_qs(scope["query_string"].decode("latin-1"))

        async def build_initial_frames(upto: int) -> list[EventFrame]:
            return live.page_ready_frames(upto)

        async def require_topics_allowed() -> None:
            live.require_allowed_topics(await self.auth.require_viewer_by_session_cookie(headers), names)

        opening = StreamOpening(
            client=f"user:{viewer.username}",
            channel=self.streams.get_or_create_channel(
                ("live", names), partial(self.build_live_channel, names)
            ),
            after=last_event_id_or_none(headers.get(b"last-event-id"), query.get("last", [""])[-1]),
            hello=build_initial_frames,
            most_replayed=live.MOST_REPLAYED,
        )
        await self.streams.send_sse_stream(send, opening, require_topics_allowed)

    def build_live_channel(self, names: frozenset[str]) -> LiveChannel:
        async def summarize_live_changes(changes: Sequence[FeedChange]) -> list[EventFrame]:
            return await self.threads.run_in_thread(
                live.render_view_summary_frames, self.fragments, names, changes
            )

        return LiveChannel(
            live.page_wanted_topics(names),
            lambda changes: self.threads.run_in_thread(
                live.render_page_frames, self.fragments, names, changes
            ),
            pause=live.seconds_between_page_redraws(names),
            sum_up=summarize_live_changes if live.find_requested_views(names) else None,
            sum_up_pause=live.SUMMARY_PAUSE,
        )

    async def run_lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.start_services()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                self.end_waiting_polls_and_streams()
                await self.access.denied.flush_denials()
                await self.gateway.close()
                self.stop_services()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def start_services(self) -> None:
        self.feed.listeners.append(EventAdopter())
        self.feed.start_feed()
        self.hub.listeners.insert(0, self.recheck_callers_on_identity_change)
        self.hub.start_following_feed()
        await self.rulings.refresh_policy_rules()
        self.writer.start()
        self.streams.start_channel_maintenance()
        register_trial_runner(
            partial(self.gateway.trials.run_tool_trial_from_thread, asyncio.get_running_loop())
        )
        self.housekeeper.start()
        self.reporter.start()

    def recheck_callers_on_identity_change(self, batch: Sequence[FeedChange]) -> None:
        before = self.auth.generation
        self.auth.clear_caches_on_identity_change(batch)
        if self.auth.generation != before:
            self.streams.recheck_permissions_of_open_streams()
            self.waits.recheck_waiters()

    def end_waiting_polls_and_streams(self) -> None:
        """Answer held polls and end streams, now: the worker is about to stop. May be called twice."""
        self.readiness.stopping = True
        self.waits.close_and_answer_all_waiters()
        self.streams.close_all_streams()
        self.gateway.cut_open_streams()

    def stop_services(self) -> None:
        self.hub.unsubscribe_from_feed()
        self.writer.stop()
        self.housekeeper.stop()
        self.feed.stop_feed()
        self.reporter.stop()
        self.threads.shut_down_threads()
        self.bodies.close()
        self.django.close()


@cache
def get_or_create_django_handler() -> WSGIHandler:
    """Return Django's handler with all middleware, one a process: `serve` creates it before it forks its workers."""
    return WSGIHandler()


def create_application() -> Application:
    return Application()
