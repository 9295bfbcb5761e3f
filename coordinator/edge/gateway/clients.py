"""The sessions of clients, as this process remembers them for a moment; they stand in the database."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from django.utils import timezone

from coordinator.actions import gateway_sessions, gateway_timelines
from coordinator.actions.gateway_sessions import KnownClient, KnownLink
from coordinator.lib.expiring_cache import ExpiringCache
from coordinator.lib.threads import EdgeThreads

CLIENT_KEPT_FOR = 5.0  # seconds
MOST_KEPT = 10_000
ClientKey = tuple[str, str, int, str]


class Clients:
    """Sessions by id, door, key and agent. One a process."""

    def __init__(self, threads: EdgeThreads) -> None:
        self._threads = threads
        self._kept: ExpiringCache[ClientKey, KnownClient] = ExpiringCache(CLIENT_KEPT_FOR, MOST_KEPT)

    async def get(self, session_id: str, door: str, key_id: int, agent_id: str) -> KnownClient:
        """Return a session of this caller. Raises NotFound."""
        key = session_id, door, key_id, agent_id
        kept = self._kept.get(key, asyncio.get_running_loop().time())
        if kept is not None:
            return kept
        found = await self._threads.run(
            gateway_sessions.find, session_id, door=door, key_id=key_id, agent_id=agent_id, now=timezone.now()
        )
        return self._keep(found)

    async def begin(
        self, door: str, *, key_id: int, agent_id: str, version: str, params: dict[str, Any]
    ) -> KnownClient:
        """Make a session by what a client said of itself."""
        found = await self._threads.run(
            gateway_sessions.begin,
            door,
            key_id=key_id,
            agent_id=agent_id,
            version=version,
            client=params.get("clientInfo"),
            capabilities=params.get("capabilities"),
            now=timezone.now(),
        )
        return self._keep(found)

    async def fresh(self, client: KnownClient) -> KnownClient:
        """Return the session as it stands now. Raises NotFound."""
        self._kept.forget(_key(client))
        found = await self.get(client.session_id, client.door, client.key_id, client.agent_id)
        return replace(found, client=client.client, capabilities=client.capabilities)

    async def standing(self, key_id: int, agent_id: str, version: str) -> KnownClient:
        """Return the one session of a caller that has none, at the door of all servers."""
        return self._keep(
            await self._threads.run(
                gateway_sessions.standing,
                key_id=key_id,
                agent_id=agent_id,
                version=version,
                now=timezone.now(),
            )
        )

    async def unlink(self, client: KnownClient, server_id: str) -> None:
        """Forget a server's session that it does not know any more."""
        self._kept.forget(_key(client))
        await self._threads.run(gateway_sessions.unlink, client.session_id, server_id)

    async def link(
        self, client: KnownClient, server_id: str, upstream_session: str | None, version: str
    ) -> KnownClient:
        """Note a server's own session within the client's."""
        await self._threads.run(
            gateway_sessions.link, client.session_id, server_id, upstream_session, version
        )
        links = client.links | {server_id: KnownLink(upstream_session, version)}
        return self._keep(replace(client, links=links))

    async def end(self, client: KnownClient) -> None:
        """End a session, and the one in whose timeline its calls stand where that is no agent's own."""
        self._kept.forget(_key(client))
        await self._threads.run(gateway_sessions.end, client.session_id)
        await self._threads.run(gateway_timelines.end_session, client.session_id, timezone.now())

    def _keep(self, client: KnownClient) -> KnownClient:
        self._kept.put(_key(client), client, asyncio.get_running_loop().time())
        return client


def _key(client: KnownClient) -> ClientKey:
    return client.session_id, client.door, client.key_id, client.agent_id
