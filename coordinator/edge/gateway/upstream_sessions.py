"""Upstream sessions for clients' sessions: opened when needed, and opened again when a server has forgotten them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec

from coordinator.actions.mcp.gateway_sessions import GatewayClient, StoredUpstreamSession
from coordinator.edge.gateway.clients import ClientSessions
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.upstreams import BOTH, UpstreamClient, read_response_to_gateway_request
from coordinator.errors import NotFound
from coordinator.mcp.gateway import answers
from coordinator.mcp.gateway.elicitation import copy_capabilities_adding_elicitation
from coordinator.mcp.protocol.http_client import UpstreamAnswer, UpstreamFailed

VERSIONS = (
    "2025-11-25",
    "2025-06-18",
)  # with sessions; the newest is offered to a client that asks for another
STATELESS = "2026-07-28"
# Seconds for which it is taken for granted that a server has, or lacks, an era.
ERA_FOR, NO_ERA_FOR = 3600.0, 60.0
END_WITHIN = 5.0  # seconds in which a server should take note that a session ends


class UpstreamSessionLost(NotFound):
    """A server forgot the session of its own endpoint's client, who has to begin a new one. Nothing has run."""

    def __init__(self) -> None:
        super().__init__("The server restarted and lost this session. Start a new one with initialize.")


class UpstreamSessions:
    """One a process."""

    def __init__(self, clients: ClientSessions, upstreams: UpstreamClient) -> None:
        self._clients = clients
        self._upstreams = upstreams
        self._eras: dict[
            str, tuple[bool, float]
        ] = {}  # whether a server speaks without sessions, and until when
        self._beginning: dict[tuple[str, str], asyncio.Lock] = {}

    async def ensure_exchange_has_upstream_session(self, exchange: Exchange) -> Exchange:
        """Return the exchange with what its server needs: a session of its own, or none. Raises UpstreamFailed."""
        if exchange.client is None:
            if await self.get_or_probe_server_statelessness(exchange):
                return exchange
            exchange = replace(exchange, client=await self.get_or_create_stateless_client_session(exchange))
        assert exchange.client is not None
        if exchange.server.name in exchange.client.links:
            return exchange
        return replace(
            exchange, client=await self.relink_client_to_upstream_session(exchange, exchange.client)
        )

    async def relink_exchange_after_session_forgotten(self, exchange: Exchange) -> None:
        """Have a session begun in place of one that its server forgot.

        Raises UpstreamSessionLost at a server's own endpoint, where that is its client's to do, and UpstreamFailed.
        """
        assert exchange.client is not None
        if exchange.client.endpoint == exchange.server.name:
            raise await self.end_session_and_build_lost_error(exchange)
        try:
            exchange.client = await self.relink_client_to_upstream_session(exchange, exchange.client)
        except UpstreamFailed as problem:
            raise UpstreamFailed(
                str(problem)
            ) from None  # whatever it did, it did not run what was to be sent

    async def end_session_and_build_lost_error(self, exchange: Exchange) -> UpstreamSessionLost:
        """End the client's session, which its server forgot; return the error for the client."""
        assert exchange.client is not None
        await self._clients.end_client_and_timeline_session(exchange.client)
        exchange.is_sent = False
        return UpstreamSessionLost()

    async def get_or_create_stateless_client_session(self, exchange: Exchange) -> GatewayClient:
        """Return the session in which servers of older versions receive the calls of a stateless client."""
        client = await self._clients.get_or_create_default_client(
            exchange.caller_key.id, exchange.agent_id, VERSIONS[0]
        )
        client_info = {"name": exchange.client_name or "signalbox", "version": "1"}
        return replace(client, client=client_info, capabilities={})

    async def relink_client_to_upstream_session(
        self, exchange: Exchange, known_client: GatewayClient
    ) -> GatewayClient:
        """Return the client's session with another link to the server than the one that is known, if any."""
        name = exchange.server.name
        session_key = known_client.session_id, name
        try:
            async with self._beginning.setdefault(session_key, asyncio.Lock()):
                client = await self._clients.require_reloaded_client_session(known_client)
                if name in client.links and client.links[name] == known_client.links.get(name):
                    await self._clients.unlink_upstream_session(client, name)
                elif name in client.links:
                    return client  # somebody was faster
                return await self.begin_and_link_upstream_session(replace(exchange, client=client))
        finally:
            self._beginning.pop(session_key, None)

    async def begin_and_link_upstream_session(self, exchange: Exchange) -> GatewayClient:
        """Begin a session with the server, in the client's name."""
        assert exchange.client is not None
        capabilities = copy_capabilities_adding_elicitation(exchange.client.capabilities)
        session = await self.negotiate_upstream_session(exchange, capabilities)
        return await self._clients.save_upstream_session_link(
            exchange.client, exchange.server.name, session.upstream_session, session.protocol_version
        )

    @contextlib.asynccontextmanager
    async def temporary_upstream_session_during_block(self, exchange: Exchange) -> AsyncIterator[Exchange]:
        """Give an exchange without a client a session that ends with the block; none where its server needs none.

        Raises UpstreamFailed.
        """
        if await self.get_or_probe_server_statelessness(exchange):
            yield exchange
            return
        client = GatewayClient("", "", exchange.caller_key.id, exchange.agent_id, VERSIONS[0])
        own = replace(exchange, client=replace(client, client={"name": "signalbox"}))
        session = await self.negotiate_upstream_session(own, {})
        own.client = replace(client, links={exchange.server.name: session})
        try:
            yield own
        finally:
            if session.upstream_session is not None:
                with contextlib.suppress(UpstreamFailed, TimeoutError):
                    async with asyncio.timeout(END_WITHIN):
                        answer = await self._upstreams.send_client_message(
                            own, b"", session=session.upstream_session, method="DELETE"
                        )
                        answer.close()

    async def negotiate_upstream_session(
        self, exchange: Exchange, capabilities: dict[str, Any]
    ) -> StoredUpstreamSession:
        """Begin a session with the server and return it. Raises UpstreamFailed."""
        assert exchange.client is not None
        params = {
            "protocolVersion": exchange.client.protocol_version,
            "capabilities": capabilities,
            "clientInfo": {"name": "signalbox", "version": "1"} | exchange.client.client,
        }
        headers = [BOTH, ("Content-Type", "application/json")]
        body = answers.encode_json_rpc_request("signalbox-begin", "initialize", params)
        answer = await self.send_gateway_message_to_server(exchange, headers, body)
        try:
            response = await read_response_to_gateway_request(answer, "signalbox-begin")
            session = answer.headers.get("mcp-session-id")
        finally:
            answer.close()
        result = msgspec.json.decode(response).get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        if not isinstance(version, str):
            raise UpstreamFailed("refused to begin a session")
        headers.append(("Mcp-Protocol-Version", version))
        begun = answers.encode_notification("notifications/initialized", {})
        initialize_answer = await self.send_gateway_message_to_server(
            exchange, headers, begun, session=session
        )
        initialize_answer.close()
        return StoredUpstreamSession(session, version)

    async def send_gateway_message_to_server(
        self, exchange: Exchange, headers: list[tuple[str, str]], body: bytes, session: str | None = None
    ) -> UpstreamAnswer:
        """Send a message of Signalbox's own for the agent, or the person, of an exchange. Raises UpstreamFailed."""
        return await self._upstreams.send_message_to_server(
            exchange.server,
            headers,
            body,
            session=session,
            caller=exchange.agent_id,
            person=exchange.person,
        )

    async def get_or_probe_server_statelessness(self, exchange: Exchange) -> bool:
        """Say whether the server speaks without sessions. What it did not say may only have failed: asked again."""
        now = asyncio.get_running_loop().time()
        is_stateless, until = self._eras.get(exchange.server.name, (False, 0.0))
        if until < now:
            is_stateless = await self.probe_whether_server_is_stateless(exchange)
            self._eras[exchange.server.name] = is_stateless, now + (ERA_FOR if is_stateless else NO_ERA_FOR)
        return is_stateless

    async def probe_whether_server_is_stateless(self, exchange: Exchange) -> bool:
        meta = {"_meta": exchange.message.meta}
        headers = [BOTH, ("Content-Type", "application/json"), ("Mcp-Protocol-Version", STATELESS)]
        headers.append(("Mcp-Method", "server/discover"))
        body = answers.encode_json_rpc_request("signalbox-discover", "server/discover", meta)
        answer = await self.send_gateway_message_to_server(exchange, headers, body)
        try:
            response = await read_response_to_gateway_request(answer, "signalbox-discover")
            return STATELESS in str(msgspec.json.decode(response).get("result", {}).get("supportedVersions"))
        except (UpstreamFailed, msgspec.MsgspecError, AttributeError):
            return False
        finally:
            answer.close()
