"""A short-lived cache of the clients' sessions, which are stored in the database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from django.utils import timezone

from coordinator.actions.mcp import gateway_sessions, gateway_timelines
from coordinator.actions.mcp.gateway_sessions import GatewayClient, StoredUpstreamSession
from coordinator.lib.expiring_cache import ExpiringCache
from coordinator.lib.threads import EdgeThreads

CLIENT_CACHE_SECONDS = 5.0
MAX_CACHED_CLIENTS = 10_000
ClientKey = tuple[str, str, int, str]


class ClientSessions:
    """Sessions by id, endpoint, key and agent. One a process."""

    def __init__(self, threads: EdgeThreads) -> None:
        self._threads = threads
        self._cached_clients: ExpiringCache[ClientKey, GatewayClient] = ExpiringCache(
            CLIENT_CACHE_SECONDS, MAX_CACHED_CLIENTS
        )

    async def require_client_session(
        self, session_id: str, endpoint: str, key_id: int, agent_id: str
    ) -> GatewayClient:
        """Return a session of this caller. Raises NotFound."""
        key = session_id, endpoint, key_id, agent_id
        cached_client = self._cached_clients.get(key, asyncio.get_running_loop().time())
        if cached_client is not None:
            return cached_client
        client_row = await self._threads.run_in_thread(
            gateway_sessions.require_and_touch_gateway_session,
            session_id,
            endpoint=endpoint,
            key_id=key_id,
            agent_id=agent_id,
            now=timezone.now(),
        )
        return self.cache_client_session(client_row)

    async def begin_client_session(
        self, endpoint: str, *, key_id: int, agent_id: str, version: str, params: dict[str, Any]
    ) -> GatewayClient:
        """Make a session by what a client said of itself."""
        client_row = await self._threads.run_in_thread(
            gateway_sessions.create_gateway_session,
            endpoint,
            key_id=key_id,
            agent_id=agent_id,
            version=version,
            client=params.get("clientInfo"),
            capabilities=params.get("capabilities"),
            now=timezone.now(),
        )
        return self.cache_client_session(client_row)

    async def require_reloaded_client_session(self, client: GatewayClient) -> GatewayClient:
        """Return the session as it is stored now. Raises NotFound."""
        self._cached_clients.remove_key(client_session_cache_key(client))
        client_session = await self.require_client_session(
            client.session_id, client.endpoint, client.key_id, client.agent_id
        )
        return replace(client_session, client=client.client, capabilities=client.capabilities)

    async def get_or_create_default_client(self, key_id: int, agent_id: str, version: str) -> GatewayClient:
        """Return the one session of a caller that has none, at the endpoint of all servers."""
        return self.cache_client_session(
            await self._threads.run_in_thread(
                gateway_sessions.get_or_create_default_session,
                key_id=key_id,
                agent_id=agent_id,
                version=version,
                now=timezone.now(),
            )
        )

    async def unlink_upstream_session(self, client: GatewayClient, server_id: str) -> None:
        """Forget a server's session that it does not know any more."""
        self._cached_clients.remove_key(client_session_cache_key(client))
        await self._threads.run_in_thread(
            gateway_sessions.delete_upstream_session, client.session_id, server_id
        )

    async def save_upstream_session_link(
        self, client: GatewayClient, server_id: str, upstream_session: str | None, version: str
    ) -> GatewayClient:
        """Note a server's own session within the client's."""
        await self._threads.run_in_thread(
            gateway_sessions.save_upstream_session, client.session_id, server_id, upstream_session, version
        )
        links = client.links | {server_id: StoredUpstreamSession(upstream_session, version)}
        return self.cache_client_session(replace(client, links=links))

    async def end_client_and_timeline_session(self, client: GatewayClient) -> None:
        """End a client session, and the timeline session of its calls where that is no agent's own."""
        self._cached_clients.remove_key(client_session_cache_key(client))
        await self._threads.run_in_thread(gateway_sessions.end_gateway_session, client.session_id)
        await self._threads.run_in_thread(
            gateway_timelines.end_connection_session, client.session_id, timezone.now()
        )

    def cache_client_session(self, client: GatewayClient) -> GatewayClient:
        self._cached_clients.put(client_session_cache_key(client), client, asyncio.get_running_loop().time())
        return client


def client_session_cache_key(client: GatewayClient) -> ClientKey:
    return client.session_id, client.endpoint, client.key_id, client.agent_id
