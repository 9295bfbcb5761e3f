"""`/mcp`: all servers that are open to an agent as one, their tools named `server__tool`.

Towards its client this is a server of its own; towards each server it passes the client's calls on, in a session of
that server's which is begun when it is first needed. Resources and prompts are at each server's own door.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
from django.utils import timezone

from coordinator.actions.gateway_sessions import KnownClient
from coordinator.edge.gateway.calls import Calls
from coordinator.edge.gateway.clients import Clients
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.line import Line
from coordinator.edge.gateway.listings import Listings
from coordinator.edge.gateway.registry import Registry
from coordinator.edge.gateway.upstreams import BOTH, Upstreams, own_response
from coordinator.errors import SignalboxError
from coordinator.gateway import answers, messages, sse
from coordinator.gateway.http_client import UpstreamFailed
from coordinator.gateway.listing import NoListing
from coordinator.gateway.messages import INVALID_PARAMS, METHOD_NOT_FOUND, TASKS, Message
from coordinator.gateway.servers import Server
from coordinator.lib.asgi import Send
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.names import name_in_calls
from coordinator.policy import access

VERSIONS = ("2025-11-25", "2025-06-18")  # with sessions; the newest is offered to whoever asks for another
STATELESS = "2026-07-28"
ABOUT = {"name": "signalbox", "title": "Signalbox", "version": "1"}
INSTRUCTIONS = (
    "Tools of all MCP servers that are open to you, named server__tool. Some calls wait for a person."
)
AT_ONCE = 8  # servers that are asked for their tools at the same time
LIST_WITHIN = 20.0  # seconds that one server has to list its tools
# Seconds for which it is taken for granted that a server has, or lacks, an era.
ERA_FOR, NO_ERA_FOR = 3600.0, 60.0
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
        registry: Registry,
        upstreams: Upstreams,
        listings: Listings,
        calls: Calls,
        threads: EdgeThreads,
    ) -> None:
        self._clients = clients
        self._registry = registry
        self._upstreams = upstreams
        self._listings = listings
        self._calls = calls
        self._threads = threads
        self._eras: dict[
            str, tuple[bool, float]
        ] = {}  # whether a server speaks without sessions, and until when
        self._beginning: dict[tuple[str, str], asyncio.Lock] = {}

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
            await x.line.empty(202)
        elif x.message.method in ways:
            await ways[x.message.method](x)
        else:
            words = (
                "Not at this door, which has the tools of all servers. Each server's own door has the rest."
            )
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
            await self._standing(x)  # by which hooks and questions of this agent know that it is here
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
                    inner = await self.linked(replace(x, server=server))
                    return server.name, await self._listings.all_visible(
                        inner, f"{name_in_calls(server.name)}__"
                    )
            except (UpstreamFailed, NoListing, SignalboxError, TimeoutError):
                return server.name, None

    async def _call(self, x: Exchange) -> None:
        name = x.message.params.get("name")
        prefixes = [(f"{name_in_calls(server.name)}__", server) for server in await self._open_servers(x)]
        meant = [pair for pair in prefixes if isinstance(name, str) and name.startswith(pair[0])]
        # Of names that begin alike the longest has the call. Where that server is closed to the agent, a shorter one's
        # tool of this name is refused when it is judged.
        prefix, server = max(meant, key=lambda pair: len(pair[0]), default=("", None))
        if server is None or not isinstance(name, str) or server.twins:
            words = "There is no such tool here."
            if server is not None:
                others = " and ".join([server.name, *server.twins])
                words = f"Calls cannot tell the servers {others} apart. An admin must rename one."
            await x.line.answer(answers.error(x.message.id, INVALID_PARAMS, words))
            return
        tool = name.removeprefix(prefix)
        try:
            inner = await self.linked(replace(x, server=server, message=_as_own(x.message, tool)))
        except UpstreamFailed as problem:
            words = answers.not_reached(server.name, tool, str(problem))
            await x.line.answer(answers.tool_error(x.message, words))
            return
        if b"mcp-name" in inner.headers:
            inner.headers = inner.headers | {b"mcp-name": _header(tool)}
        if isinstance(x.line, NamedLine):
            x.line.server = server.name
        await self._calls.call(inner)

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
        answer = await self._upstreams.send(inner, body, session=link.upstream_session)
        answer.close()
        await x.line.empty(202)

    async def linked(self, x: Exchange) -> Exchange:
        """Return the exchange with what its server needs: a session of its own, or none. Raises UpstreamFailed."""
        name = x.server.name
        if x.client is None:
            if await self._is_stateless(x):
                return x
            x = replace(x, client=await self._standing(x))
        assert x.client is not None
        if name in x.client.links:
            return x
        place = x.client.session_id, name
        try:
            async with self._beginning.setdefault(place, asyncio.Lock()):
                client = await self._clients.fresh(x.client)
                if name not in client.links:
                    client = await self._begin(replace(x, client=client))
        finally:
            self._beginning.pop(place, None)
        return replace(x, client=client)

    async def _standing(self, x: Exchange) -> KnownClient:
        """Return the session in which servers of older versions hear the calls of a stateless client."""
        client = await self._clients.standing(x.key.id, x.agent_id, VERSIONS[0])
        said = {"name": x.client_name or "signalbox", "version": "1"}
        return replace(client, client=said, capabilities={})

    async def _is_stateless(self, x: Exchange) -> bool:
        """Say whether the server speaks without sessions. What it did not say may only have failed: asked again."""
        now = asyncio.get_running_loop().time()
        known, until = self._eras.get(x.server.name, (False, 0.0))
        if until < now:
            known = await self._speaks_without_sessions(x)
            self._eras[x.server.name] = known, now + (ERA_FOR if known else NO_ERA_FOR)
        return known

    async def _speaks_without_sessions(self, x: Exchange) -> bool:
        meta = {"_meta": x.message.meta}
        headers = [BOTH, ("Content-Type", "application/json"), ("Mcp-Protocol-Version", STATELESS)]
        headers.append(("Mcp-Method", "server/discover"))
        body = answers.request("signalbox-discover", "server/discover", meta)
        answer = await self._upstreams.ask(x.server, headers, body, session=None, caller=x.agent_id)
        try:
            response = await own_response(answer, "signalbox-discover")
            return STATELESS in str(msgspec.json.decode(response).get("result", {}).get("supportedVersions"))
        except (UpstreamFailed, msgspec.MsgspecError, AttributeError):
            return False
        finally:
            answer.close()

    async def _begin(self, x: Exchange) -> KnownClient:
        """Begin a session with the server, in the client's name."""
        assert x.client is not None
        params = {
            "protocolVersion": x.client.protocol_version,
            "capabilities": x.client.capabilities,
            "clientInfo": {"name": "signalbox", "version": "1"} | x.client.client,
        }
        headers = [BOTH, ("Content-Type", "application/json")]
        body = answers.request("signalbox-begin", "initialize", params)
        answer = await self._upstreams.ask(x.server, headers, body, session=None, caller=x.agent_id)
        try:
            response = await own_response(answer, "signalbox-begin")
            session = answer.headers.get("mcp-session-id")
        finally:
            answer.close()
        result = msgspec.json.decode(response).get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if not isinstance(version, str):
            raise UpstreamFailed("refused to begin a session")
        headers.append(("Mcp-Protocol-Version", version))
        begun = answers.notification("notifications/initialized", {})
        told = await self._upstreams.ask(x.server, headers, begun, session=session, caller=x.agent_id)
        told.close()
        return await self._clients.link(x.client, x.server.name, session, version)


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
    data = sse.data_of(event)
    if b'"method"' not in data or b'"id"' not in data:
        return event
    try:
        fields = _fields(data)
    except msgspec.MsgspecError:
        return event
    if "method" not in fields or "id" not in fields:
        return event
    mark = f"{MARK}{json.dumps([server, msgspec.json.decode(fields['id'])])}"
    return sse.with_data(event, _encode(fields | {"id": msgspec.Raw(_encode(mark))}))


def _unmarked(number: Any) -> tuple[str, Any]:
    """Return which server an id leads to, and its own id; no server where it is none of ours."""
    if not isinstance(number, str) or not number.startswith(MARK):
        return "", None
    try:
        server, own = json.loads(number.removeprefix(MARK))
    except (ValueError, TypeError):
        return "", None
    return (server, own) if isinstance(server, str) else ("", None)
