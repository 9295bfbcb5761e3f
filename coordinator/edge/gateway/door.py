"""`/mcp/{server}`: an MCP server over streamable HTTP, as an agent sees the one behind it.

Messages pass as the bytes that came, without members that MCP does not have. Only known methods pass: calls of tools
are judged one by one, reads by what the server is granted as a whole.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable

from coordinator.actions.gateway_sessions import KnownClient
from coordinator.client import mcp_methods
from coordinator.client.mcp_methods import Use
from coordinator.edge.auth import Admission, Authenticator
from coordinator.edge.bodies import Bodies
from coordinator.edge.brake_gate import BrakeGate
from coordinator.edge.gateway.all_servers import CANCELLED, AllServers, NamedLine
from coordinator.edge.gateway.beside import BesideDoor
from coordinator.edge.gateway.calls import Calls
from coordinator.edge.gateway.clients import Clients
from coordinator.edge.gateway.exchange import (
    Exchange,
    agent_of,
    mismatch,
    named_session,
    refuse_other_origins,
)
from coordinator.edge.gateway.holding import Holding
from coordinator.edge.gateway.instant import Instant
from coordinator.edge.gateway.line import Line
from coordinator.edge.gateway.links import Links
from coordinator.edge.gateway.listings import Listings
from coordinator.edge.gateway.news import News
from coordinator.edge.gateway.reads import Reads
from coordinator.edge.gateway.records import Records
from coordinator.edge.gateway.refusals import Refusals
from coordinator.edge.gateway.registry import Registry
from coordinator.edge.gateway.relaying import Relaying
from coordinator.edge.gateway.running import Runner
from coordinator.edge.gateway.sending import Sending
from coordinator.edge.gateway.server_stream import Telling
from coordinator.edge.gateway.server_tasks import ServerTasks
from coordinator.edge.gateway.tasks import Tasks
from coordinator.edge.gateway.upstreams import Upstreams
from coordinator.edge.http import Gone, headers_of
from coordinator.edge.limits import KEY, LIMITS
from coordinator.edge.notes import Notes
from coordinator.edge.policies import Policies
from coordinator.edge.rulings import Rulings
from coordinator.edge.shares import Shares
from coordinator.edge.waits import Disconnect, Waits
from coordinator.edge.writer import GroupWriter
from coordinator.errors import BadRequest, Forbidden, NotFound, SignalboxError
from coordinator.gateway import answers, messages
from coordinator.gateway.http_client import UpstreamFailed
from coordinator.gateway.messages import HEADER_MISMATCH, INTERNAL, UNREACHABLE, Message, Unreadable
from coordinator.gateway.servers import Server
from coordinator.identity.scopes import GATEWAY_SCOPES
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import Hub

LIMIT = LIMITS["message"][KEY]
MOST_STREAMS = 4_000
UNHEARD = 0.1  # seconds of a request in which nobody looks whether its client has left: most are over by then
ALL = Server("", None)  # what the door of all servers stands for


class GatewayDoor:
    """The doors of one process."""

    def __init__(
        self,
        auth: Authenticator,
        *,
        rulings: Rulings,
        policies: Policies,
        waits: Waits,
        writer: GroupWriter,
        threads: EdgeThreads,
        bodies: Bodies,
        hub: Hub,
        gate: BrakeGate,
        notes: Notes,
    ) -> None:
        self._auth = auth
        self._bodies = bodies
        self._places = Shares(MOST_STREAMS, "streams of MCP servers")
        self.upstreams = Upstreams()
        self.registry = Registry(hub, threads)
        self.clients = Clients(threads)
        self.links = Links(self.clients, self.upstreams)
        server_tasks = ServerTasks(threads)
        sending = Sending(self.upstreams, self.links, server_tasks)
        instant = Instant(hub, threads)
        self.listings = Listings(
            rulings=rulings,
            policies=policies,
            registry=self.registry,
            sending=sending,
            threads=threads,
            instant=instant,
        )
        self._telling = Telling(self.upstreams, self.links, self.listings)
        self._news = News(hub, threads)
        self._held: set[Disconnect] = set()
        self.records = records = Records(writer)
        self.refusals = Refusals(records)
        self._relaying = Relaying(
            self.upstreams, self.clients, self.links, self.listings, instant=instant, refusals=self.refusals
        )
        runner = Runner(sending, self.registry, records, threads, gate=gate, notes=notes)
        self.holding = Holding(waits, threads, records, runner)
        self.calls = Calls(
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
        self.reads = Reads(self.calls, self._relaying, records, self.refusals, server_tasks)
        self.all_servers = AllServers(
            clients=self.clients,
            links=self.links,
            refusals=self.refusals,
            registry=self.registry,
            upstreams=self.upstreams,
            listings=self.listings,
            calls=self.calls,
            threads=threads,
        )
        self.tasks = Tasks(threads, records, runner, self.registry, self.links.linked)
        self.beside = BesideDoor(
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
        )

    async def post_to_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /mcp`: one message of a client, to all servers that are open to its agent."""
        await self.post("", scope, receive, send)

    async def news(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /mcp`: what is new in the tools of all servers, for as long as the client stays."""
        await self._hold("", self._news.stream, scope, receive, send)

    async def end_of_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`DELETE /mcp`: the client ends its session."""
        admission, agent_id = await self._admit(scope)
        headers = headers_of(scope)
        empty = Message(b"", {"method": "", "jsonrpc": "2.0"})
        client = await self._client(empty, headers, ALL, admission, agent_id)
        line = Line(send)
        with Disconnect(receive) as gone:
            x = Exchange(admission, agent_id, headers, empty, ALL, line, gone, time.perf_counter(), client)
            await self.all_servers.end(x)
            await line.empty(200)

    async def post(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /mcp/{server}`: one message of a client."""
        try:
            found = await self._taken_in(name, scope, receive, send)
        except SignalboxError as problem:
            problem.not_sent = True
            raise
        if found is None:
            return
        with Disconnect(receive, after=UNHEARD) as gone:
            x = found(gone)
            with x.admission.ending(gone.cut):
                await self._guarded(x)
            if gone.was_cut:
                await x.line.cut()

    async def _taken_in(
        self, name: str, scope: Scope, receive: Receive, send: Send
    ) -> Callable[[Disconnect], Exchange] | None:
        """Read one message, of which no server hears yet; None where it is answered with that."""
        started = time.perf_counter()
        headers = headers_of(scope)
        admission, agent_id = await self._admit(scope)
        line = Line(send) if name else NamedLine(send)
        with self._bodies.hold(f"key:{admission.caller.id}") as held:
            raw = await held.read(receive, headers, LIMIT)
            try:
                message = await held.decoded(messages.read, raw)
            except Unreadable as problem:
                await line.answer(answers.error(None, problem.code, str(problem)), 400)
                return None
        if message.is_stateless and (words := mismatch(message, headers)):
            await line.answer(answers.error(message.id, HEADER_MISMATCH, words), 400)
            return None
        server = await self._server(name, admission, agent_id) if name else ALL
        client = await self._client(message, headers, server, admission, agent_id)
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
            named_session=named_session(headers),
        )

    async def _guarded(self, x: Exchange) -> None:
        """Answer, whatever goes wrong: once a stream is open, a refusal is its last event."""
        try:
            if x.message.method == CANCELLED and await self.holding.cancel(x):
                await x.line.empty(202)
                return
            if x.server is ALL:
                await (self.tasks.answer(x) if self.tasks.is_ours(x.message) else self.all_servers.answer(x))
                return
            await self._require_reach(x)
            await self._answer(x)
        except Gone:
            with contextlib.suppress(OSError, RuntimeError):
                await x.line.end()
        except UpstreamFailed as problem:
            words = f"The MCP server {x.server.name} {problem}."
            await x.line.answer(answers.error(x.message.id, UNREACHABLE, words), 502)
        except SignalboxError as problem:
            if not x.line.is_stream:
                raise
            await x.line.answer(answers.error(x.message.id, INTERNAL, str(problem.detail)))

    async def _answer(self, x: Exchange) -> None:
        method, use = x.message.method, mcp_methods.use_of(x.message.value)
        if x.message.is_response or (not x.message.is_request and method in mcp_methods.NOTIFICATIONS):
            await self._relaying.send_on(x)
        elif not x.message.is_request or use is None:
            await self.reads.refuse_unknown(x)
        elif use is Use.READ or use is Use.LIST:
            await self.reads.answer(x, use)
        elif method == "initialize" and not x.message.is_stateless:
            await self._relaying.initialize(x)
        elif method == "tools/call":
            await self.calls.call(x)
        elif self.tasks.is_ours(x.message):
            await self.tasks.answer(x)
        elif use is Use.TASK:
            await self.reads.answer_about_task(x)
        elif method == "tools/list":
            await self._relaying.relay(x, self.listings.shown)
        elif method == "server/discover":
            await self._relaying.relay(x, self._relaying.discovered)
        else:
            await self._relaying.relay(x, None)

    async def stream(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /mcp/{server}`: what the server tells by itself, for as long as the client stays."""
        await self._hold(name, self._tell, scope, receive, send)

    async def _tell(self, x: Exchange) -> None:
        await self._require_reach(x)
        await self._telling.stream(x)

    async def _hold(
        self,
        name: str,
        tell: Callable[[Exchange], Awaitable[None]],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Hold a stream open for a client's session."""
        admission, agent_id = await self._admit(scope)
        headers = headers_of(scope)
        server = await self._server(name, admission, agent_id) if name else ALL
        empty = Message(b"", {"method": "", "jsonrpc": "2.0"})
        client = await self._client(empty, headers, server, admission, agent_id)
        with self._places.place(admission.caller.name), Disconnect(receive) as gone:
            x = Exchange(
                admission, agent_id, headers, empty, server, Line(send), gone, time.perf_counter(), client
            )
            self._held.add(gone)
            try:
                with admission.ending(gone.cut):
                    await tell(x)
            finally:
                self._held.discard(gone)
            if gone.was_cut:
                await x.line.cut()

    async def delete(self, name: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`DELETE /mcp/{server}`: the client ends its session; the server's own is ended with it."""
        admission, agent_id = await self._admit(scope)
        headers = headers_of(scope)
        server = await self._server(name, admission, agent_id)
        empty = Message(b"", {"method": "", "jsonrpc": "2.0"})
        client = await self._client(empty, headers, server, admission, agent_id)
        line = Line(send)
        if client is None:
            raise BadRequest("There is no session to end: send its Mcp-Session-Id.")
        link = client.links.get(server.name)
        with Disconnect(receive) as gone:
            x = Exchange(admission, agent_id, headers, empty, server, line, gone, time.perf_counter(), client)
            await self.clients.end(client)
            status = 200
            if link is not None and link.upstream_session is not None:
                with contextlib.suppress(UpstreamFailed):
                    answer = await self.upstreams.send(x, b"", session=link.upstream_session, method="DELETE")
                    status = answer.status if answer.status in {200, 202, 204, 405} else 200
                    answer.close()
            await line.empty(status)

    async def _admit(self, scope: Scope) -> tuple[Admission, str]:
        """Let an agent's program in; return who it is. Raises Unauthorized or Forbidden."""
        headers = headers_of(scope)
        refuse_other_origins(headers)
        admission = await self._auth.admit(scope, headers, *GATEWAY_SCOPES)
        return admission, agent_of(admission, headers)

    async def _require_reach(self, x: Exchange) -> None:
        """Turn an agent away to whom nothing of the server is open. Raises Forbidden."""
        if not await self.listings.may_reach(x):
            words = f"{x.agent_id} has no grant for anything of the MCP server {x.server.name}."
            problem = Forbidden(words)
            await self.refusals.note(x.admission, x.agent_id, x.server.name, problem, known=True)
            raise problem

    async def _server(self, name: str, admission: Admission, agent_id: str) -> Server:
        server = await self.registry.get(name)
        if server is None:
            problem = NotFound(
                f"There is no MCP server {name[:100]!r} here. Servers that are not registered are denied."
            )
            await self.refusals.note(admission, agent_id, name, problem, known=False)
            raise problem
        if server.target is None:
            raise Forbidden(f"The MCP server {server.name} {server.fault}.")
        return server

    async def _client(
        self,
        message: Message,
        headers: dict[bytes, bytes],
        server: Server,
        admission: Admission,
        agent_id: str,
    ) -> KnownClient | None:
        """Return the client's session; None for a stateless message, and for one that begins a session.

        Clients that begin anew may still name the session that is over.
        """
        if message.is_stateless or message.method == "initialize":
            return None
        told = headers.get(b"mcp-session-id")
        if told is None:
            if message.method == "server/discover" and message.is_request:
                return None
            raise BadRequest("Send the Mcp-Session-Id that initialize gave, or speak MCP 2026-07-28.")
        return await self.clients.get(told.decode("latin-1"), server.name, admission.caller.id, agent_id)

    def release(self) -> None:
        """End all streams that are held open, now: the worker is about to stop."""
        for gone in tuple(self._held):
            gone.cut()

    async def close(self) -> None:
        """Write what was counted, and close idle connections."""
        with contextlib.suppress(SignalboxError):
            await self.records.close()
        self.upstreams.http.close()
