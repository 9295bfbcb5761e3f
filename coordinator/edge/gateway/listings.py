"""`tools/list` on its way to an agent: what it may see; and what passes is taken over, so that changes are known."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from django.utils import timezone

from coordinator.actions import mcp_tools
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.instant import Instant
from coordinator.edge.gateway.registry import Registry
from coordinator.edge.gateway.sending import Sending
from coordinator.edge.gateway.upstreams import MOST_ANSWER, OWN_WITHIN
from coordinator.edge.policies import Policies
from coordinator.edge.rulings import Rulings
from coordinator.errors import NotFound
from coordinator.gateway import deciding, listing
from coordinator.gateway.binding import name_of
from coordinator.gateway.http_client import UpstreamFailed
from coordinator.gateway.listing import NoListing, Page
from coordinator.gateway.servers import Server
from coordinator.identity.actors import system
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.tools import Definition, ToolListing
from coordinator.policy import tool_rules
from coordinator.policy.access import Policy
from coordinator.policy.tool_rules import ASK, Rule

log = logging.getLogger(__name__)

MOST_PAGES = 20
# For so long a tool stays that was listed first, changed or came back, though another list lacks it.
SETTLED_AFTER = timedelta(minutes=10)
# Seconds in which nothing more is taken over from a server of whose list something was left out: what has no room now
# will have none in a moment, and a server may list other tools each time.
LEFT_OUT_AGAIN_AFTER = 30.0
LOOK_EVERY = 2.0  # seconds between two looks for tools of one server that nobody knows
BY = system("mcp-gateway")


class Listings:
    """What agents see of servers' tools. One a process."""

    def __init__(
        self,
        *,
        rulings: Rulings,
        policies: Policies,
        registry: Registry,
        sending: Sending,
        threads: EdgeThreads,
        instant: Instant,
    ) -> None:
        self._instant = instant
        self._rulings = rulings
        self._policies = policies
        self._registry = registry
        self._sending = sending
        self._threads = threads
        self._looked: dict[str, float] = {}
        self._left_out_at: dict[str, float] = {}  # by registered server
        self._looking: dict[str, asyncio.Lock] = {}

    async def shown(self, x: Exchange, body: bytes) -> bytes:
        """Return an answer to tools/list with what the agent may see. Raises UpstreamFailed for what is none."""
        try:
            page = listing.read(body)
        except NoListing as problem:
            raise UpstreamFailed(f"sent a list of tools that cannot be read ({problem})") from None
        if page is None:
            return body
        tools = await self.visible(x, page)
        is_first = x.message.method == "tools/list" and "cursor" not in x.message.params
        if is_first and page.cursor is None:
            await self._take_in_whole(x.server, {tool.name for tool in page.listing.tools})
        if tools == page.raw and b'"cacheScope"' not in body:
            return body
        return listing.with_tools(page, tools)

    async def visible(self, x: Exchange, page: Page, prefix: str | None = None) -> list[bytes]:
        """Return the bytes of the tools that the agent may see, in a stable order."""
        await self.take_in(x.server, page.listing)
        x.server = await self.server(x)
        rules, policy = await self._standing(x)

        def may_see(tool: Definition) -> bool:
            return _may_see(x, rules, policy, tool.name, tool.digest)

        rename = None if prefix is None else lambda name: f"{prefix}{name}"
        return listing.shown(page, may_see, rename=rename)

    async def _standing(self, x: Exchange) -> tuple[Sequence[Rule], Policy]:
        is_told, _ = await self._instant.look(x.known_as)
        rules = await self._rulings.rules() if is_told else None
        if rules is None:
            self._policies.forget(x.server.name)
            rules = await self._threads.run(tool_rules.saved)
        pair = x.agent_id, x.server.name
        return rules, (await self._policies.of({pair}))[pair]

    async def may_reach(self, x: Exchange) -> bool:
        """Say whether anything of the server is open to the agent: the server, or one of its tools."""
        pair = x.agent_id, x.server.name
        policy = (await self._policies.of({pair}))[pair]
        tools = {"", *x.server.tools, *policy.tools(*pair)}
        verdicts = policy.row_of_verdicts(x.agent_id, x.server.name, tools, timezone.now())
        return any(verdict.decision != "deny" for verdict in verdicts.values())

    async def names(self, x: Exchange, told: Sequence[tuple[str, str]]) -> list[str]:
        """Return which tools, told by name and digest, the agent may see."""
        rules, policy = await self._standing(x)
        return [name for name, digest in told if _may_see(x, rules, policy, name, digest)]

    def forget(self, server_id: str) -> None:
        """Read a server and its grants anew: the feed has not told of some edit yet."""
        self._registry.forget(server_id)
        self._policies.forget(server_id)

    async def server(self, x: Exchange) -> Server:
        """Return the server as it stands now; one that is gone has no tools, so none of them is shown or called."""
        name = x.server.name
        return await self._registry.get(name) or Server(name, None, "is not registered any more", is_off=True)

    async def may_ask(self, x: Exchange) -> bool:
        """Say whether a call of the agent may have to wait for a person."""
        rules, policy = await self._standing(x)
        names = {tool: name_of(x.server.name, tool) for tool in x.server.tools}
        by_rule = any(rule.verdict == ASK and any(map(rule.names, names.values())) for rule in rules)
        verdicts = policy.row_of_verdicts(x.agent_id, x.server.name, names, timezone.now())
        return by_rule or any(verdict.decision == ASK for verdict in verdicts.values())

    async def take_in(self, server: Server, told: ToolListing) -> None:
        """Note what a server lists, where it is not what is known."""
        tools = [tool for tool in told.tools if not _is_known(server, tool)]
        is_paused = self._left_out_at.get(server.name, -math.inf) > time.monotonic() - LEFT_OUT_AGAIN_AFTER
        if not (tools or told.left_out) or is_paused:
            return
        # What one page lacks may stand on another, and what one caller's list lacks in another caller's.
        part = ToolListing(tools, complete=False, left_out=told.left_out)
        now = timezone.now()
        try:
            taken = await self._threads.run(mcp_tools.store_listing, server.name, part, by=BY, now=now)
        except NotFound:
            return
        if taken.left_out:
            self._left_out_at[server.name] = time.monotonic()
        if not taken.is_nothing:
            self.forget(server.name)

    async def _take_in_whole(self, server: Server, listed: set[str]) -> None:
        """Note which tools a server has no more, by the names of all that it lists.

        One that runs for each caller alone says so of that caller's only.
        """
        lacking = {name for name, tool in server.tools.items() if not tool.is_gone} - listed
        if server.for_each_caller or not lacking:
            return
        now = timezone.now()
        note = functools.partial(
            mcp_tools.note_gone, server.name, listed, listed_by=now - SETTLED_AFTER, by=BY, now=now
        )
        if await self._threads.run(note):
            self.forget(server.name)

    async def look_for(self, x: Exchange, tool: str) -> None:
        """Ask the server for its tools, for one that nobody has heard of.

        Where it has none of that name either, it is not asked again for two seconds.
        """
        lock = self._looking.setdefault(x.server.name, asyncio.Lock())
        async with lock:
            x.server = await self.server(x)
            known = x.server.tools.get(tool)
            recently = self._looked.get(x.server.name, 0.0) > time.monotonic() - LOOK_EVERY
            if (known is not None and not known.is_gone) or recently:
                return
            try:
                async with asyncio.timeout(OWN_WITHIN):  # others wait for the lock
                    await self._look(x)
            except TimeoutError:
                log.warning("The tools of %s were not listed within %.0f seconds", x.server.name, OWN_WITHIN)
            except (UpstreamFailed, NoListing) as problem:
                log.warning("The tools of %s cannot be listed: it %s", x.server.name, problem)
            x.server = await self.server(x)
            found = x.server.tools.get(tool)
            if found is None or found.is_gone:
                self._looked[x.server.name] = time.monotonic()

    async def _look(self, x: Exchange) -> None:
        async for page in self._pages(x):
            await self.take_in(x.server, page.listing)

    async def all_visible(self, x: Exchange, prefix: str) -> list[bytes]:
        """Return the bytes of all tools that the agent may see, their names after `prefix`.

        They are in the order of their names, however the server divides them into pages, each name once. Raises
        UpstreamFailed and NoListing.
        """
        found: dict[str, bytes] = {}
        async for page in self._pages(x):
            found |= {_named(tool).name: tool for tool in await self.visible(x, page, prefix)}
            if sum(map(len, found.values())) > MOST_ANSWER:
                raise NoListing(f"lists tools of more than {MOST_ANSWER} bytes")
        return [found[name] for name in sorted(found)]

    async def _pages(self, x: Exchange) -> AsyncIterator[Page]:
        cursor, listed = None, set[str]()
        for number in range(MOST_PAGES):
            page = await self._page(x, cursor)
            if page is None and number:
                raise NoListing("broke off its list of tools with an error")
            if page is None:
                return
            yield page
            listed |= {tool.name for tool in page.listing.tools}
            cursor = page.cursor
            if cursor is None:
                await self._take_in_whole(x.server, listed)
                return

    async def _page(self, x: Exchange, cursor: str | None) -> Page | None:
        params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        return listing.read(await self._sending.ask(x, "tools/list", params))


def _may_see(x: Exchange, rules: Sequence[Rule], policy: Policy, tool: str, digest: str) -> bool:
    """Say whether a tool, which is listed with this definition, is known so and shown to the agent."""
    known = x.server.tools.get(tool)
    if known is None or known.definition != digest or x.server.read_as(tool) is not None:
        return False
    verdict = policy.verdict(x.agent_id, x.server.name, tool, timezone.now())
    if deciding.is_held_back(x.server, verdict, known):
        return False
    return deciding.may_see(rules, verdict, x.caller, x.server.name, tool)


class _Tool(msgspec.Struct):
    name: str


_named = msgspec.json.Decoder(_Tool).decode


def _is_known(server: Server, tool: Definition) -> bool:
    known = server.tools.get(tool.name)
    return known is not None and known.definition == tool.digest and not known.is_gone
