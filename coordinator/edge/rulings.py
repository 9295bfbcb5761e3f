"""What policy says of each tool call, answered from memory: rules and grants, both dropped when the feed tells."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from django.db import Error as DatabaseError
from django.utils import timezone

from coordinator import tool_rules
from coordinator.edge.hub import Hub
from coordinator.edge.policies import Policies
from coordinator.edge.threads import EdgeThreads
from coordinator.errors import Busy
from coordinator.feed import Change
from coordinator.tool_rules import NO_OPINION, Rule, Ruling

KEPT_FOR = 15.0  # seconds; what the feed may have missed is seen within this time


class Rulings:
    """The rules of one process. Used on the event loop; reading is done in a thread, once for all who wait."""

    def __init__(self, hub: Hub, policies: Policies, threads: EdgeThreads) -> None:
        self._policies = policies
        self._threads = threads
        self._rules: asyncio.Future[tuple[Rule, ...]] | None = None
        self._until = 0.0
        hub.hearers.append(self.heard)

    def heard(self, batch: Sequence[Change]) -> None:
        """Forget the rules when one has changed."""
        if any(change.topic == "tool_rules" for change in batch):
            self._rules = None

    async def on(self, tool: str, about: str, agent_id: str | None) -> Ruling:
        """Return the stricter of what the rules and, for an MCP tool, the grants say."""
        ruling = tool_rules.by_rules(await self._current(), tool, about, agent_id)
        return tool_rules.stricter(ruling, await self._by_grants(tool, agent_id or ""))

    async def _by_grants(self, tool: str, agent_id: str) -> Ruling:
        named = tool_rules.mcp_tool(tool)
        if named is None:
            return NO_OPINION
        server, name = named
        names = tool_rules.server_names(server)
        policies = await self._policies.of([(agent_id, one) for one in names])
        now = timezone.now()
        verdicts = {one: policies[agent_id, one].verdict(agent_id, one, name, now) for one in names}
        found = tool_rules.known_verdict(verdicts, server)
        return tool_rules.by_access(found) if found else NO_OPINION

    async def _current(self) -> tuple[Rule, ...]:
        now = asyncio.get_running_loop().time()
        if self._rules is None or self._until < now or (self._rules.done() and self._rules.exception()):
            self._until = now + KEPT_FOR
            self._rules = asyncio.ensure_future(self._read())
        return await asyncio.shield(self._rules)

    async def _read(self) -> tuple[Rule, ...]:
        try:
            return await self._threads.run(tool_rules.saved)
        except DatabaseError:
            raise Busy("The rules cannot be read just now. Try again.", retry_after=1) from None
