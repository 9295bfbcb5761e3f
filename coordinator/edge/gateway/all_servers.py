"""`/mcp`: all servers that are open to an agent as one, their tools named `server__tool`.

Towards its client this is a server of its own; towards each server it passes the client's calls on, in a session of
that server's which is begun when it is first needed. Resources and prompts are at each server's own door.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
from django.conf import settings
from django.utils import timezone

from coordinator.actions import gateway_calls
from coordinator.actions.gateway_sessions import KnownLink
from coordinator.edge.gateway.calls import Calls
from coordinator.edge.gateway.clients import Clients
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.line import Line
from coordinator.edge.gateway.links import STATELESS, VERSIONS, Links
from coordinator.edge.gateway.listings import Listings
from coordinator.edge.gateway.refusals import Refusals
from coordinator.edge.gateway.registry import Registry
from coordinator.edge.gateway.upstreams import Forgotten, Upstreams
from coordinator.errors import Forbidden, NotFound, SignalboxError
from coordinator.gateway import answers, messages, servers, sse
from coordinator.gateway.http_client import UpstreamFailed
from coordinator.gateway.listing import NoListing
from coordinator.gateway.messages import INVALID_PARAMS, METHOD_NOT_FOUND, TASKS, Message
from coordinator.gateway.servers import Server
from coordinator.lib.asgi import Send
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.names import name_in_calls
from coordinator.policy import access

ABOUT = {"name": "signalbox", "title": "Signalbox", "version": "1"}
INSTRUCTIONS = (
    "Tools of all MCP servers that are open to you, named server__tool. Some calls wait for a person."
)
AT_ONCE = 8  # servers that are asked for their tools at the same time
LIST_WITHIN = 20.0  # seconds that one server has to list its tools
TELL_WITHIN = 5.0  # seconds for which servers are waited for that are told something
# Notifications of clients that concern the servers behind: whichever it is whose call is meant.
CANCELLED = "notifications/cancelled"
FOR_SERVERS = frozenset({CANCELLED, "notifications/roots/list_changed"})
MARK = "sbx:"  # how an id begins that stands for a server's own
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


class NamedLine(Line):
    """A line on which requests of several servers reach one client: each says whose it is by its id."""

    __slots__ = ("server",)

    def __init__(self, send: Send) -> None:
        super().__init__(send)
        self.server = ""

    async def event(self, raw: bytes) -> None:
        """Send an event; a server's request with an id that leads back to it."""
        await super().event(_named(raw, self.server) if self.server else raw)


class AllServers:
    """What answers at `/mcp`. One a process."""

    def __init__(
        self,
        *,
        clients: Clients,
        links: Links,
        refusals: Refusals,
        registry: Registry,
        upstreams: Upstreams,
        listings: Listings,
        calls: Calls,
        threads: EdgeThreads,
    ) -> None:
        self._clients = clients
        self._links = links
        self._refusals = refusals
        self._registry = registry
        self._upstreams = upstreams
        self._listings = listings
        self._calls = calls
        self._threads = threads

    async def answer(self, x: Exchange) -> None:
        """Answer one message."""
        ways: dict[str, Callable[[Exchange], Awaitable[None]]] = {
            "initialize": self._initialize,
            "server/discover": self._discover,
            "ping": self._ping,
            "tools/list": self._list,
            "tools/call": self._call,
        }
        if x.message.is_response:
            await self._respond(x)
        elif not x.message.is_request:
            await self._hear(x)
        elif x.message.method in ways:
            await ways[x.message.method](x)
        else:
            words = "Not available at this address, which has the tools of all servers. A server's own address has it."
            await x.line.answer(
                answers.error(x.message.id, METHOD_NOT_FOUND, words), 404 if x.client is None else 200
            )

    async def _initialize(self, x: Exchange) -> None:
        wanted = x.message.params.get("protocolVersion")
        version = wanted if isinstance(wanted, str) and wanted in VERSIONS else VERSIONS[0]
        client = await self._clients.begin(
            "", key_id=x.key.id, agent_id=x.agent_id, version=version, params=x.message.params
        )
        x.line.extra.append((b"mcp-session-id", client.session_id.encode()))
        value = {
            "protocolVersion": version,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": ABOUT,
            "instructions": INSTRUCTIONS,
        }
        await x.line.answer(answers.result(x.message.id, value))

    async def _discover(self, x: Exchange) -> None:
        value = {
            "resultType": "complete",
            "supportedVersions": [STATELESS, *VERSIONS],
            "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
            "serverInfo": ABOUT,
            "instructions": INSTRUCTIONS,
            "ttlMs": 60_000,
            "cacheScope": "private",
        }
        await x.line.answer(answers.result(x.message.id, value))

    async def _ping(self, x: Exchange) -> None:
        await x.line.answer(answers.result(x.message.id, {}))

    async def _list(self, x: Exchange) -> None:
        """Answer with the tools of all servers that can be reached, by server and name.

        Servers that cannot be reached, or that no call can tell from another, are named in `_meta`.
        """
        if x.client is None and x.key.session_id is not None:
            await self._links.standing(x)  # by which hooks and questions of this agent know that it is here
        turns = asyncio.Semaphore(AT_ONCE)
        opened = await self._open_servers(x)
        alone = [server for server in opened if not server.twins]
        found = await asyncio.gather(*(self._tools_of(x, server, turns) for server in alone))
        tools = [tool for _, some in sorted(found) for tool in some or []]
        silent = sorted(name for name, some in found if some is None)
        twins = sorted(server.name for server in opened if server.twins)
        value: dict[str, Any] = {"tools": [msgspec.Raw(tool) for tool in tools]}
        meta = {"signalbox/unreachable": silent, "signalbox/same-name": twins}
        if silent or twins:
            value["_meta"] = {name: servers for name, servers in meta.items() if servers}
        if x.message.is_stateless:
            value |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        await x.line.answer(answers.result(x.message.id, value))

    async def _open_servers(self, x: Exchange) -> list[Server]:
        """Return the servers of which something is open to the agent, those that cannot be used now among them."""
        names = await self._threads.run(access.named_servers, timezone.now(), x.agent_id)
        found = []
        for name in names:
            server = await self._registry.get(name)
            if server is not None and not server.is_off and not server.is_beside:
                inner = replace(x, server=server)
                if await self._listings.may_reach(inner):
                    found.append(server)
        return found

    async def _tools_of(
        self, x: Exchange, server: Server, turns: asyncio.Semaphore
    ) -> tuple[str, list[bytes] | None]:
        async with turns:
            try:
                async with asyncio.timeout(LIST_WITHIN):
                    inner = await self._links.linked(replace(x, server=server))
                    return server.name, await self._listings.all_visible(
                        inner, f"{name_in_calls(server.name)}__"
                    )
            except (UpstreamFailed, NoListing, SignalboxError, TimeoutError):
                return server.name, None

    async def _hear(self, x: Exchange) -> None:
        """Take a client's notification; what its servers have to know is passed on to them."""
        if x.client is not None and x.message.method in FOR_SERVERS:
            await self._tell_servers(x, x.message.raw)
        await x.line.empty(202)

    async def end(self, x: Exchange) -> None:
        """End the client's session, and the servers' own within it."""
        assert x.client is not None
        await self._clients.end(x.client)
        await self._tell_servers(x, b"", method="DELETE")

    async def _tell_servers(self, x: Exchange, body: bytes, method: str = "POST") -> None:
        """Send a message to all servers with which the client has a session, as far as they hear it soon."""
        assert x.client is not None

        async def tell(server_id: str, link: KnownLink) -> None:
            server = await self._registry.get(server_id)
            if server is None or server.target is None or (link.upstream_session is None and not body):
                return
            inner = replace(x, server=server)
            with contextlib.suppress(UpstreamFailed):
                answer = await self._upstreams.send(inner, body, session=link.upstream_session, method=method)
                answer.close()

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TELL_WITHIN):
                await asyncio.gather(*(tell(*link) for link in x.client.links.items()))

    async def _call(self, x: Exchange) -> None:
        name = x.message.params.get("name")
        prefixes = [(f"{name_in_calls(server.name)}__", server) for server in await self._open_servers(x)]
        meant = [pair for pair in prefixes if isinstance(name, str) and name.startswith(pair[0])]
        # Of names that begin alike the longest has the call. Where that server is closed to the agent, a shorter one's
        # tool of this name is refused when it is judged.
        prefix, server = max(meant, key=lambda pair: len(pair[0]), default=("", None))
        if server is None or not isinstance(name, str):
            await self._refuse(x, name)
            return
        if server.twins:
            others = " and ".join([server.name, *server.twins])
            words = f"Calls cannot tell the servers {others} apart. An admin must rename one."
            await x.line.answer(answers.error(x.message.id, INVALID_PARAMS, words))
            return
        tool = name.removeprefix(prefix)
        try:
            inner = await self._links.linked(replace(x, server=server, message=_as_own(x.message, tool)))
        except UpstreamFailed as problem:
            words = answers.not_reached(server.name, tool, str(problem))
            await x.line.answer(answers.tool_error(x.message, words))
            return
        if b"mcp-name" in inner.headers:
            inner.headers = inner.headers | {b"mcp-name": _header(tool)}
        if isinstance(x.line, NamedLine):
            x.line.server = server.name
        await self._calls.call(inner)

    async def _refuse(self, x: Exchange, name: Any) -> None:
        """Refuse a call of no server that is open here, and have that audited.

        To whom nothing of a server is open, it is like one that is not there.
        """
        meant = await self._threads.run(servers.called, name) if isinstance(name, str) else None
        server = await self._registry.get(meant) if meant else None
        words = (
            "There is no such tool here. Tools that you are not shown are denied. A person can allow them at "
        )
        words += f"{settings.AGENT_URL}{gateway_calls.GRANTS_PAGE}; tell them what you need it for."
        told = str(name)[:200]
        if server is None:
            problem: SignalboxError = NotFound(f"{told!r} is called, which is no registered server's tool.")
        elif not await self._listings.may_reach(replace(x, server=server)):
            problem = Forbidden(f"{x.agent_id} has no grant for anything of the MCP server {server.name}.")
        else:
            why = "runs beside its agent, and is not called from here" if server.is_beside else server.fault
            problem = Forbidden(f"The MCP server {server.name} {why}.")
            words = f"Denied: {told} did not run. {problem.detail} An admin can change that."
        await self._refusals.note(
            x.admission, x.agent_id, server.name if server else told, problem, known=server is not None
        )
        await x.line.answer(answers.error(x.message.id, INVALID_PARAMS, words))

    async def _respond(self, x: Exchange) -> None:
        """Pass the response to a server's request on to that server."""
        server_id, number = _unmarked(x.message.id)
        server = await self._registry.get(server_id) if server_id else None
        link = x.client.links.get(server_id) if x.client and server_id else None
        if server is None or link is None:
            await x.line.answer(answers.error(None, INVALID_PARAMS, "Nobody asked for this response."), 400)
            return
        body = _encode(_fields(x.message.raw) | {"id": msgspec.Raw(_encode(number))})
        inner = replace(x, server=server)
        with contextlib.suppress(Forgotten):
            answer = await self._upstreams.send(inner, body, session=link.upstream_session)
            answer.close()
        await x.line.empty(202)


def _as_own(message: Message, tool: str) -> Message:
    """Return a call with the tool's name as its server knows it; everything else stays as it came."""
    fields = _fields(message.raw)
    params = _fields(fields["params"]) | {"name": msgspec.Raw(_encode(tool))}
    return messages.read(_encode(fields | {"params": msgspec.Raw(_encode(params))}))


def _header(name: str) -> bytes:
    if name.isascii() and name.isprintable():
        return name.encode()
    return b"=?base64?" + base64.b64encode(name.encode()) + b"?="


def _named(event: bytes, server: str) -> bytes:
    """Return a server's request, and its word that it needs none any more, with an id that leads back to it."""
    data = sse.data_of(event)
    if b'"method"' not in data:
        return event
    try:
        fields = _fields(data)
        method = msgspec.json.decode(fields["method"])
        if "id" in fields:
            changed = {"id": _marked(server, fields["id"])}
        elif method == CANCELLED:
            params = _fields(fields["params"])
            params["requestId"] = _marked(server, params["requestId"])
            changed = {"params": msgspec.Raw(_encode(params))}
        else:
            return event
    except (msgspec.MsgspecError, KeyError):
        return event
    return sse.with_data(event, _encode(fields | changed))


def _marked(server: str, number: msgspec.Raw) -> msgspec.Raw:
    return msgspec.Raw(_encode(f"{MARK}{json.dumps([server, msgspec.json.decode(number)])}"))


def _unmarked(number: Any) -> tuple[str, Any]:
    """Return which server an id leads to, and its own id; no server where it is none of ours."""
    if not isinstance(number, str) or not number.startswith(MARK):
        return "", None
    try:
        server, own = json.loads(number.removeprefix(MARK))
    except (ValueError, TypeError):
        return "", None
    return (server, own) if isinstance(server, str) else ("", None)
