"""What may have changed since this process last heard of anything: asked of the database before each call.

Rules and grants are kept in memory and follow the feed, which takes a moment. Whether it has told everything so far is
one small question, and so is whether a brake is on.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db import connection

from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import Hub
from coordinator.policy import brakes
from coordinator.policy.brakes import Braked

TOPICS = ("tool_rules", "mcp_servers", "grants", "mcp_tools", "mcp_upstreams")


class Instant:
    """One a process."""

    def __init__(self, hub: Hub, threads: EdgeThreads) -> None:
        self._hub = hub
        self._threads = threads

    async def look(self, agents: Sequence[str]) -> tuple[bool, Braked | None]:
        """Return whether this process knows of every edit of the policy, and the brake that is on for the agent.

        `agents` are its id and then the programs that it may be.
        """
        return await self._threads.run(_look, self._hub.position, list(agents))


def _look(position: int, agents: list[str]) -> tuple[bool, Braked | None]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM changes WHERE id > %s AND topic IN (%s, %s, %s, %s, %s) LIMIT 1",
            [position, *TOPICS],
        )
        is_told = cursor.fetchone() is None
    return is_told, brakes.holding_agent(agents[0], agents[1:])
