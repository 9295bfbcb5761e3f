"""The endpoints `/mcp/{server}`, `/mcp` and `/mcp/collections/NAME`: MCP over streamable HTTP.

Messages are forwarded as the bytes received, without members that MCP does not have. Only known methods are forwarded:
tool calls are judged one by one, reads by the grants for the server as a whole.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable

from coordinator.actions.mcp.gateway_sessions import GatewayClient
from coordinator.client import mcp_methods
from coordinator.client.mcp_methods import RequestUse
from coordinator.edge.gateway.all_servers import CANCELLED, CombinedServersEndpoint, ServerTaggedStream
from coordinator.edge.gateway.approved_calls import ApprovedCallRunner
from coordinator.edge.gateway.audited_refusals import RefusalAudit
from coordinator.edge.gateway.call_limiter import CallLimiter
from coordinator.edge.gateway.calls import ToolCallHandler
from coordinator.edge.gateway.clients import ClientSessions
from coordinator.edge.gateway.elicitations import ElicitationHandler
from coordinator.edge.gateway.exchange import (
    Exchange,
    find_header_body_mismatch,
    parse_signalbox_session_or_none,
    require_allowed_origin_host,
    resolve_agent_id_of_caller,
)
from coordinator.edge.gateway.freshness import FreshnessCheck
from coordinator.edge.gateway.list_changes import ToolListUpdates
from coordinator.edge.gateway.listings import AgentToolListings
from coordinator.edge.gateway.local_calls import LocalCallEndpoint
from coordinator.edge.gateway.non_tool_requests import ReadRequestHandler
from coordinator.edge.gateway.pending_calls import PendingCalls
from coordinator.edge.gateway.records import CallRecords
from coordinator.edge.gateway.registry import ServerRegistry
from coordinator.edge.gateway.relay import MessageRelay
from coordinator.edge.gateway.response_stream import ResponseStream
from coordinator.edge.gateway.result_cache import ResultCache
from coordinator.edge.gateway.server_request_approvals import ServerRequestApprovals
from coordinator.edge.gateway.server_requests import ServerRequestGate
from coordinator.edge.gateway.server_stream import ServerStreamRelay
from coordinator.edge.gateway.server_tasks import ServerTasks
from coordinator.edge.gateway.stored_results import StoredResultReader
from coordinator.edge.gateway.tasks import GatewayTasks
from coordinator.edge.gateway.tool_trials import ToolTrialRunner
from coordinator.edge.gateway.upstream_calls import UpstreamSender
from coordinator.edge.gateway.upstream_sessions import UpstreamSessions
from coordinator.edge.gateway.upstreams import UpstreamClient
from coordinator.edge.hooks.notes import PendingNotes
from coordinator.edge.http.auth import Admission, Authenticator
from coordinator.edge.http.bodies import RequestBodies
from coordinator.edge.http.concurrency import ConcurrencyLimit
from coordinator.edge.http.messages import (
    ClientDisconnected,
    get_edge_operation_of_request,
    get_request_headers,
)
from coordinator.edge.ingest.write_queue import GroupWriter
from coordinator.edge.policy.brake_gate import BrakeGate
from coordinator.edge.policy.policy_cache import PolicyCache
from coordinator.edge.policy.rulings import PolicyRulings
from coordinator.edge.polling.waits import DisconnectWatcher, LongPollWaiters
from coordinator.errors import BadRequest, Forbidden, NotFound, SignalboxError
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import FeedHub
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway.collections import CollectionTools, load_collection_tools
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.protocol import messages
from coordinator.mcp.protocol.http_client import UpstreamFailed
from coordinator.mcp.protocol.messages import (
    HEADER_MISMATCH,
    INTERNAL,
    UNREACHABLE,
    McpMessage,
    UnreadableMessage,
)
from coordinator.mcp.servers.names import COLLECTION_PREFIX

MOST_STREAMS = 4_000
# Seconds of a request in which nobody looks whether its client has left: most are over by then.
DISCONNECT_CHECK_DELAY = 0.1
ALL = UpstreamServer("", None)  # represents all servers, at their common endpoint


class GatewayEndpoint:
    """The endpoints of one process."""

    def __init__(
        self,
        auth: Authenticator,
        *,
        rulings: PolicyRulings,
        policies: PolicyCache,
        waits: LongPollWaiters,
        writer: GroupWriter,
        threads: EdgeThreads,
        bodies: RequestBodies,
        hub: FeedHub,
        gate: BrakeGate,
        notes: PendingNotes,
    ) -> None:
        self._auth = auth
        self._bodies = bodies
        self._threads = threads
        self._stream_limit = ConcurrencyLimit(MOST_STREAMS, "streams of MCP servers")
        self.upstreams = UpstreamClient(threads)
        self.registry = ServerRegistry(hub, threads)
        self.clients = ClientSessions(threads)
        self.links = UpstreamSessions(self.clients, self.upstreams)
        server_tasks = ServerTasks(threads)
        self.records = records = CallRecords(writer)
        instant = FreshnessCheck(hub, threads)
        elicitations = ElicitationHandler(waits, threads, records, self.upstreams, instant=instant)
        self.refusals = RefusalAudit(records)
        server_requests = ServerRequestGate(
            rulings=rulings,
            policies=policies,
            instant=instant,
            threads=threads,
            records=records,
            refusals=self.refusals,
            elicitations=elicitations,
            approvals=ServerRequestApprovals(waits, threads, records, elicitations),
        )
        limiter, cache = CallLimiter(records), ResultCache(records, threads)
        sending = UpstreamSender(
            self.upstreams,
            self.links,
            server_tasks,
            elicitations,
            limiter,
            cache=cache,
            server_requests=server_requests,
        )
        self.listings = AgentToolListings(
            rulings=rulings,
            policies=policies,
            registry=self.registry,
            sending=sending,
            threads=threads,
            instant=instant,
        )
        self._server_streams = ServerStreamRelay(self.upstreams, self.links, self.listings, server_requests)
        self._tool_list_updates = ToolListUpdates(hub, threads)
        self._open_streams: set[DisconnectWatcher] = set()
        self._relaying = MessageRelay(
            self.upstreams,
            self.clients,
            self.links,
            self.listings,
            instant=instant,
            refusals=self.refusals,
            elicitations=elicitations,
            server_requests=server_requests,
        )
        runner = ApprovedCallRunner(sending, self.registry, records, threads, gate=gate, notes=notes)
        self.holding = PendingCalls(waits, threads, records, runner)
        self.calls = ToolCallHandler(
            rulings=rulings,
            policies=policies,
            listings=self.listings,
            holding=self.holding,
            records=records,
            sending=sending,
            instant=instant,
            threads=threads,
            notes=notes,
        )
        self.reads = ReadRequestHandler(
            self.calls,
            self._relaying,
            records,
            self.refusals,
            server_tasks,
            limiter=limiter,
            holding=self.holding,
            threads=threads,
        )
        self.stored_results = StoredResultReader(self.calls, records, self.registry, self.reads, threads)
        self.all_servers = CombinedServersEndpoint(
            clients=self.clients,
            links=self.links,
            refusals=self.refusals,
            registry=self.registry,
            upstreams=self.upstreams,
            listings=self.listings,
            calls=self.calls,
            threads=threads,
            elicitations=elicitations,
            server_requests=server_requests,
        )
        self.trials = ToolTrialRunner(
            auth=auth,
            registry=self.registry,
            sessions=self.links,
            sending=sending,
            limiter=limiter,
            cache=cache,
            threads=threads,
        )
        self.tasks = GatewayTasks(
            threads, records, runner, self.registry, self.links.ensure_exchange_has_upstream_session
        )
        self.local_calls = LocalCallEndpoint(
            auth,
            bodies=bodies,
            calls=self.calls,
            listings=self.listings,
            records=records,
            refusals=self.refusals,
            registry=self.registry,
            runner=runner,
            gate=gate,
            waits=waits,
            threads=threads,
            server_requests=server_requests,
        )

    async def handle_post_to_all_servers(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /mcp`: one message of a client, to all servers that are open to its agent."""
        await self.handle_post_to_server("", scope, receive, send)

    async def stream_all_servers_tool_updates(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /mcp`: what is new in the tools of all servers, for as long as the client stays."""
        await self.serve_client_event_stream(
            "", self._tool_list_updates.serve_tool_list_change_stream, scope, receive, send
        )

    async def handle_post_to_named_collection(
        self, name: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`POST /mcp/collections/{name}`: one message of a client, to the servers of a collection's tools."""
        await self.handle_post_to_server(f"{COLLECTION_PREFIX}{name}", scope, receive, send)

    async def stream_collection_tool_updates(
        self, name: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`GET /mcp/collections/{name}`: what is new in a collection's tools, for as long as the client stays."""
        await self.serve_client_event_stream(
            f"{COLLECTION_PREFIX}{name}",
            self._tool_list_updates.serve_tool_list_change_stream,
            scope,
            receive,
            send,
        )

    async def delete_collection_session(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`DELETE /mcp/collections/{name}`: the client ends its session."""
        await self.end_session_at_shared_endpoint(f"{COLLECTION_PREFIX}{name}", scope, receive, send)

    async def delete_combined_session(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`DELETE /mcp`: the client ends its session."""
        await self.end_session_at_shared_endpoint("", scope, receive, send)

    async def end_session_at_shared_endpoint(
        self, name: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """End a client's session at the address of all servers, or of a collection, with the servers' own within it."""
        admission, agent_id = await self.admit_gateway_client(scope)
        headers = get_request_headers(scope)
        empty = McpMessage(b"", {"method": "", "jsonrpc": "2.0"})
        server, collection = await self.resolve_endpoint_server_and_collection(name, admission, agent_id)
        client = await self.require_client_session_unless_stateless(empty, headers, name, admission, agent_id)
        line = ResponseStream(send)
        with DisconnectWatcher(receive) as disconnect_watcher:
            exchange = Exchange(
                admission,
                agent_id,
                headers,
                empty,
                server,
                line,
                disconnect_watcher,
                time.perf_counter(),
                client,
                collection=collection,
            )
            await self.all_servers.end_combined_session(exchange)
            await line.send_status_without_body(200)

    async def handle_post_to_server(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /mcp/{server}`: one message of a client."""
        try:
            received_message = await self.receive_exchange_builder_or_none(name, scope, receive, send)
        except SignalboxError as problem:
            problem.not_sent = True
            raise
        if received_message is None:
            return
        with DisconnectWatcher(receive, after=DISCONNECT_CHECK_DELAY) as disconnect_watcher:
            exchange = received_message(disconnect_watcher)
            with exchange.admission.watch_key_revocation_during_block(
                disconnect_watcher.simulate_client_disconnect
            ):
                await self.answer_message_or_error(exchange)
            if disconnect_watcher.was_cut:
                await exchange.line.send_key_revoked_and_end()

    async def receive_exchange_builder_or_none(
        self, name: str, scope: Scope, receive: Receive, send: Send
    ) -> Callable[[DisconnectWatcher], Exchange] | None:
        """Read one message without sending it to a server; return None where it is answered already."""
        started = time.perf_counter()
        headers = get_request_headers(scope)
        admission, agent_id = await self.admit_gateway_client(scope)
        is_one_server = name and not name.startswith(COLLECTION_PREFIX)
        line = ResponseStream(send) if is_one_server else ServerTaggedStream(send)
        with self._bodies.reserve_body_during_block(f"key:{admission.caller.id}") as reservation:
            raw = await reservation.read_body(receive, headers, get_edge_operation_of_request(scope).body.key)
            try:
                message = await reservation.decode_received_body(messages.parse_mcp_message, raw)
            except UnreadableMessage as problem:
                await line.send_answer(answers.encode_error_response(None, problem.code, str(problem)), 400)
                return None
        if message.is_stateless and (header_mismatch := find_header_body_mismatch(message, headers)):
            await line.send_answer(
                answers.encode_error_response(message.id, HEADER_MISMATCH, header_mismatch), 400
            )
            return None
        server, collection = await self.resolve_endpoint_server_and_collection(name, admission, agent_id)
        client = await self.require_client_session_unless_stateless(
            message, headers, name, admission, agent_id
        )
        return lambda gone: Exchange(
            admission,
            agent_id,
            headers,
            message,
            server,
            line,
            gone,
            started,
            client,
            named_session=parse_signalbox_session_or_none(headers),
            collection=collection,
        )

    async def answer_message_or_error(self, exchange: Exchange) -> None:
        """Answer, whatever goes wrong: once a stream is open, a refusal is its last event."""
        try:
            if exchange.message.method == CANCELLED and await self.holding.cancel_pending_call(exchange):
                await exchange.line.send_status_without_body(202)
                return
            if exchange.server is ALL:
                if await self.stored_results.try_answer_stored_result_read(exchange):
                    return
                await (
                    self.tasks.send_gateway_task_answer(exchange)
                    if self.tasks.is_gateway_task_request(exchange.message)
                    else self.all_servers.answer_combined_message(exchange)
                )
                return
            await self.require_server_access_or_audit(exchange)
            if not await self.stored_results.try_answer_stored_result_read(exchange):
                await self.dispatch_client_message(exchange)
        except ClientDisconnected:
            with contextlib.suppress(OSError, RuntimeError):
                await exchange.line.end_event_stream()
        except UpstreamFailed as problem:
            failure_text = f"The MCP server {exchange.server.name} {problem}."
            await exchange.line.send_answer(
                answers.encode_error_response(exchange.message.id, UNREACHABLE, failure_text), 502
            )
        except SignalboxError as problem:
            if not exchange.line.is_stream:
                raise
            await exchange.line.send_answer(
                answers.encode_error_response(exchange.message.id, INTERNAL, str(problem.detail))
            )

    async def dispatch_client_message(self, exchange: Exchange) -> None:
        method, use = exchange.message.method, mcp_methods.classify_mcp_request(exchange.message.value)
        if exchange.message.is_response or (
            not exchange.message.is_request and method in mcp_methods.NOTIFICATIONS
        ):
            await self._relaying.forward_notification_or_response(exchange)
        elif not exchange.message.is_request or use is None:
            await self.reads.refuse_unknown_method(exchange)
        elif use is RequestUse.READ or use is RequestUse.LIST:
            await self.reads.answer_non_tool_request(exchange, use)
        elif method == "initialize" and not exchange.message.is_stateless:
            await self._relaying.initialize_client_session(exchange)
        elif method == "tools/call":
            await self.calls.handle_tool_call(exchange)
        elif self.tasks.is_gateway_task_request(exchange.message):
            await self.tasks.send_gateway_task_answer(exchange)
        elif use is RequestUse.TASK:
            await self.reads.forward_own_task_request(exchange)
        elif method == "tools/list":
            await self._relaying.relay_request_unless_braked(
                exchange, self.listings.store_and_filter_listing_answer
            )
        elif method == "server/discover":
            await self._relaying.relay_request_unless_braked(
                exchange, self._relaying.advertise_tasks_in_initialize_response
            )
        else:
            await self._relaying.relay_request_unless_braked(exchange, None)

    async def stream_server_messages(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /mcp/{server}`: stream the messages that the server sends unasked, for as long as the client stays."""
        await self.serve_client_event_stream(name, self.require_access_and_relay_stream, scope, receive, send)

    async def require_access_and_relay_stream(self, exchange: Exchange) -> None:
        await self.require_server_access_or_audit(exchange)
        await self._server_streams.relay_server_stream(exchange)

    async def serve_client_event_stream(
        self,
        name: str,
        handle_stream: Callable[[Exchange], Awaitable[None]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Hold a stream open for a client's session."""
        admission, agent_id = await self.admit_gateway_client(scope)
        headers = get_request_headers(scope)
        server, collection = await self.resolve_endpoint_server_and_collection(name, admission, agent_id)
        empty = McpMessage(b"", {"method": "", "jsonrpc": "2.0"})
        client = await self.require_client_session_unless_stateless(empty, headers, name, admission, agent_id)
        with (
            self._stream_limit.reserve_slot_during_block(admission.caller.name),
            DisconnectWatcher(receive) as disconnect_watcher,
        ):
            exchange = Exchange(
                admission,
                agent_id,
                headers,
                empty,
                server,
                ResponseStream(send),
                disconnect_watcher,
                time.perf_counter(),
                client,
                collection=collection,
            )
            self._open_streams.add(disconnect_watcher)
            try:
                with admission.watch_key_revocation_during_block(
                    disconnect_watcher.simulate_client_disconnect
                ):
                    await handle_stream(exchange)
            finally:
                self._open_streams.discard(disconnect_watcher)
            if disconnect_watcher.was_cut:
                await exchange.line.send_key_revoked_and_end()

    async def delete_server_session(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`DELETE /mcp/{server}`: the client ends its session; the server's own is ended with it."""
        admission, agent_id = await self.admit_gateway_client(scope)
        headers = get_request_headers(scope)
        server = await self.require_gateway_server_or_audit(name, admission, agent_id)
        empty = McpMessage(b"", {"method": "", "jsonrpc": "2.0"})
        client = await self.require_client_session_unless_stateless(
            empty, headers, server.name, admission, agent_id
        )
        line = ResponseStream(send)
        if client is None:
            raise BadRequest("There is no session to end: send its Mcp-Session-Id.")
        link = client.links.get(server.name)
        with DisconnectWatcher(receive) as disconnect_watcher:
            exchange = Exchange(
                admission,
                agent_id,
                headers,
                empty,
                server,
                line,
                disconnect_watcher,
                time.perf_counter(),
                client,
            )
            await self.clients.end_client_and_timeline_session(client)
            status = 200
            if link is not None and link.upstream_session is not None:
                with contextlib.suppress(UpstreamFailed):
                    answer = await self.upstreams.send_client_message(
                        exchange, b"", session=link.upstream_session, method="DELETE"
                    )
                    status = answer.status if answer.status in {200, 202, 204, 405} else 200
                    answer.close()
            await line.send_status_without_body(status)

    async def admit_gateway_client(self, scope: Scope) -> tuple[Admission, str]:
        """Let an agent's program in; return who it is. Raises Unauthorized or Forbidden."""
        headers = get_request_headers(scope)
        require_allowed_origin_host(headers)
        admission = await self._auth.admit_api_key_caller(scope, headers)
        return admission, resolve_agent_id_of_caller(admission, headers)

    async def require_server_access_or_audit(self, exchange: Exchange) -> None:
        """Turn an agent away to whom nothing of the server is open. Raises Forbidden."""
        if not await self.listings.can_agent_reach_server(exchange):
            refusal_text = (
                f"{exchange.agent_id} has no grant for anything of the MCP server {exchange.server.name}."
            )
            problem = Forbidden(refusal_text)
            await self.refusals.audit_access_refusal_with_throttle(
                exchange.admission, exchange.agent_id, exchange.server.name, problem, is_known_server=True
            )
            raise problem

    async def resolve_endpoint_server_and_collection(
        self, name: str, admission: Admission, agent_id: str
    ) -> tuple[UpstreamServer, CollectionTools | None]:
        """Return the server of an address: ALL at that of all servers, and with it the collection at a collection's.

        Raises NotFound, and Forbidden for a server that cannot be used.
        """
        if not name:
            return ALL, None
        if not name.startswith(COLLECTION_PREFIX):
            return await self.require_gateway_server_or_audit(name, admission, agent_id), None
        collection_name = name.removeprefix(COLLECTION_PREFIX)
        collection = await self._threads.run_in_thread(load_collection_tools, collection_name)
        if collection is None:
            problem = NotFound(f"There is no collection {collection_name[:100]!r} here.")
            await self.refusals.audit_access_refusal_with_throttle(
                admission, agent_id, name, problem, is_known_server=False
            )
            raise problem
        return ALL, collection

    async def require_gateway_server_or_audit(
        self, name: str, admission: Admission, agent_id: str
    ) -> UpstreamServer:
        server = await self.registry.get_cached_or_load_server(name)
        if server is None:
            problem = NotFound(
                f"There is no MCP server {name[:100]!r} here. Servers that are not registered are denied."
            )
            await self.refusals.audit_access_refusal_with_throttle(
                admission, agent_id, name, problem, is_known_server=False
            )
            raise problem
        if server.target is None:
            raise Forbidden(f"The MCP server {server.name} {server.failure}.")
        return server

    async def require_client_session_unless_stateless(
        self,
        message: McpMessage,
        headers: dict[bytes, bytes],
        endpoint: str,
        admission: Admission,
        agent_id: str,
    ) -> GatewayClient | None:
        """Return the client's session at this endpoint; None for a stateless message, and for one that begins one.

        Clients that start again may still name the session that has ended.
        """
        if message.is_stateless or message.method == "initialize":
            return None
        session_header = headers.get(b"mcp-session-id")
        if session_header is None:
            if message.method == "server/discover" and message.is_request:
                return None
            raise BadRequest("Send the Mcp-Session-Id that initialize gave, or speak MCP 2026-07-28.")
        return await self.clients.require_client_session(
            session_header.decode("latin-1"), endpoint, admission.caller.id, agent_id
        )

    def cut_open_streams(self) -> None:
        """End all streams that are held open, now: the worker is about to stop."""
        for stream_gone in tuple(self._open_streams):
            stream_gone.simulate_client_disconnect()

    async def close(self) -> None:
        """Write what was counted, and close idle connections."""
        with contextlib.suppress(SignalboxError):
            await self.records.flush_call_records()
        self.upstreams.http.close()
