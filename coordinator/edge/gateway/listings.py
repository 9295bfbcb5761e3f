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

from coordinator.actions.mcp import mcp_tools
from coordinator.edge.gateway.exchange import Exchange
from coordinator.edge.gateway.freshness import FreshnessCheck
from coordinator.edge.gateway.registry import ServerRegistry
from coordinator.edge.gateway.upstream_calls import UpstreamSender
from coordinator.edge.gateway.upstreams import MOST_ANSWER, OWN_WITHIN
from coordinator.edge.policy.policy_cache import PolicyCache
from coordinator.edge.policy.rulings import PolicyRulings
from coordinator.errors import NotFound
from coordinator.identity.actors import system_actor
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import listing
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway.binding import build_tool_name
from coordinator.mcp.gateway.listing import ToolListingPage, UnreadableListing
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.protocol.http_client import UpstreamFailed
from coordinator.mcp.servers.tools import ToolDefinition, ToolListing
from coordinator.policy.grants.access import AccessPolicy
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import ASK, DecisionRule

log = logging.getLogger(__name__)

MOST_PAGES = 20
# For so long a tool stays that was listed first, changed or came back, though another list lacks it.
SETTLED_AFTER = timedelta(minutes=10)
# Seconds in which nothing more is taken over from a server of whose list something was left out: what has no room now
# will have none in a moment, and a server may list other tools each time.
LEFT_OUT_AGAIN_AFTER = 30.0
LOOK_EVERY = 2.0  # seconds between two looks for tools of one server that nobody knows
BY = system_actor("mcp-gateway")


class AgentToolListings:
    """What agents see of servers' tools. One a process."""

    def __init__(
        self,
        *,
        rulings: PolicyRulings,
        policies: PolicyCache,
        registry: ServerRegistry,
        sending: UpstreamSender,
        threads: EdgeThreads,
        instant: FreshnessCheck,
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

    async def filter_tool_listing(self, x: Exchange, body: bytes) -> bytes:
        """Return an answer to tools/list with what the agent may see. Raises UpstreamFailed for what is none."""
        try:
            page = listing.parse_listing_page(body)
        except UnreadableListing as problem:
            raise UpstreamFailed(f"sent a list of tools that cannot be read ({problem})") from None
        if page is None:
            return body
        tools = await self.list_visible_tools(x, page)
        is_first = x.message.method == "tools/list" and "cursor" not in x.message.params
        if is_first and page.next_cursor is None:
            await self.mark_missing_tools(x.server, {tool.name for tool in page.listing.tools})
        if tools == page.raw and b'"cacheScope"' not in body:
            return body
        return listing.replace_listed_tools(page, tools)

    async def list_visible_tools(
        self, x: Exchange, page: ToolListingPage, prefix: str | None = None
    ) -> list[bytes]:
        """Return the bytes of the tools that the agent may see, in a stable order."""
        await self.store_listed_tools(x.server, page.listing)
        x.server = await self.find_current_server(x)
        rules, policy = await self.load_current_policy(x)

        def is_visible_to_agent(tool: ToolDefinition) -> bool:
            return is_tool_visible(x, rules, policy, tool.name, tool.definition_digest)

        rename = None if prefix is None else lambda name: f"{prefix}{name}"
        declined = {name: tool.shown_instead for name, tool in x.server.tools.items() if tool.shown_instead}
        return listing.filter_visible_tools(page, is_visible_to_agent, rename=rename, shown_instead=declined)

    async def load_current_policy(self, x: Exchange) -> tuple[Sequence[DecisionRule], AccessPolicy]:
        is_told, _ = await self._instant.check_freshness(x.brake_names)
        rules = await self._rulings.load_current_rules() if is_told else None
        if rules is None:
            self._policies.forget_server_grants(x.server.name)
            rules = await self._threads.run_in_thread(tool_rules.load_saved_tool_rules)
        pair = x.agent_id, x.server.name
        return rules, (await self._policies.load_policies({pair}))[pair]

    async def can_reach_server(self, x: Exchange) -> bool:
        """Say whether anything of the server is open to the agent: the server, or one of its tools."""
        pair = x.agent_id, x.server.name
        policy = (await self._policies.load_policies({pair}))[pair]
        tools = {"", *x.server.tools, *policy.tools_with_grants(*pair)}
        verdicts = policy.decide_tools_of_server(x.agent_id, x.server.name, tools, timezone.now())
        return any(verdict.decision != "deny" for verdict in verdicts.values())

    async def filter_visible_names(self, x: Exchange, told: Sequence[tuple[str, str]]) -> list[str]:
        """Return which tools, told by name and digest, the agent may see.

        Those of which a person declined the definition are left out: the server runs at the agent, and its list is
        not replaced there.
        """
        rules, policy = await self.load_current_policy(x)
        return [
            name
            for name, digest in told
            if is_tool_visible(x, rules, policy, name, digest) and not x.server.tools[name].shown_instead
        ]

    def forget_server_policy(self, server_id: str) -> None:
        """Read a server and its grants anew: the feed has not told of some edit yet."""
        self._registry.forget_server(server_id)
        self._policies.forget_server_grants(server_id)

    async def find_current_server(self, x: Exchange) -> UpstreamServer:
        """Return the server as it stands now; one that is gone has no tools, so none of them is shown or called."""
        name = x.server.name
        return await self._registry.find_registered_server(name) or UpstreamServer(
            name, None, "is not registered any more", is_off=True
        )

    async def can_require_approval(self, x: Exchange) -> bool:
        """Say whether a call of the agent may have to wait for a person."""
        rules, policy = await self.load_current_policy(x)
        names = {tool: build_tool_name(x.server.name, tool) for tool in x.server.tools}
        by_rule = any(
            rule.verdict == ASK and any(map(rule.names_rule_tool, names.values())) for rule in rules
        )
        verdicts = policy.decide_tools_of_server(x.agent_id, x.server.name, names, timezone.now())
        return by_rule or any(verdict.decision == ASK for verdict in verdicts.values())

    async def store_listed_tools(self, server: UpstreamServer, told: ToolListing) -> None:
        """Note what a server lists, where it is not what is known."""
        tools = [tool for tool in told.tools if not is_known_definition(server, tool)]
        is_paused = self._left_out_at.get(server.name, -math.inf) > time.monotonic() - LEFT_OUT_AGAIN_AFTER
        if not (tools or told.left_out) or is_paused:
            return
        # What one page lacks may stand on another, and what one caller's list lacks in another caller's.
        part = ToolListing(tools, complete=False, left_out=told.left_out)
        now = timezone.now()
        try:
            tool_changes = await self._threads.run_in_thread(
                mcp_tools.store_tool_listing, server.name, part, by=BY, now=now
            )
        except NotFound:
            return
        if tool_changes.left_out:
            self._left_out_at[server.name] = time.monotonic()
        if not tool_changes.has_no_changes:
            self.forget_server_policy(server.name)

    async def mark_missing_tools(self, server: UpstreamServer, listed: set[str]) -> None:
        """Note which tools a server has no more, by the names of all that it lists.

        One that runs for each caller alone says so of that caller's only.
        """
        lacking = {name for name, tool in server.tools.items() if not tool.is_gone} - listed
        if server.for_each_caller or not lacking:
            return
        now = timezone.now()
        note = functools.partial(
            mcp_tools.mark_unlisted_tools_gone,
            server.name,
            listed,
            listed_by=now - SETTLED_AFTER,
            by=BY,
            now=now,
        )
        if await self._threads.run_in_thread(note):
            self.forget_server_policy(server.name)

    async def discover_tool(self, x: Exchange, tool: str) -> None:
        """Ask the server for its tools, for one that nobody has heard of.

        Where it has none of that name either, it is not asked again for two seconds.
        """
        lock = self._looking.setdefault(x.server.name, asyncio.Lock())
        async with lock:
            x.server = await self.find_current_server(x)
            known_tool = x.server.tools.get(tool)
            recently = self._looked.get(x.server.name, 0.0) > time.monotonic() - LOOK_EVERY
            if (known_tool is not None and not known_tool.is_gone) or recently:
                return
            try:
                async with asyncio.timeout(OWN_WITHIN):  # others wait for the lock
                    await self.fetch_and_store_tools(x)
            except TimeoutError:
                log.warning("The tools of %s were not listed within %.0f seconds", x.server.name, OWN_WITHIN)
            except (UpstreamFailed, UnreadableListing) as problem:
                log.warning("The tools of %s cannot be listed: it %s", x.server.name, problem)
            x.server = await self.find_current_server(x)
            current_tool = x.server.tools.get(tool)
            if current_tool is None or current_tool.is_gone:
                self._looked[x.server.name] = time.monotonic()

    async def fetch_and_store_tools(self, x: Exchange) -> None:
        async for page in self.fetch_listing_pages(x):
            await self.store_listed_tools(x.server, page.listing)

    async def list_all_visible_tools(self, x: Exchange, prefix: str) -> list[bytes]:
        """Return the bytes of all tools that the agent may see, their names after `prefix`.

        They are in the order of their names, however the server divides them into pages, each name once. Raises
        UpstreamFailed and UnreadableListing.
        """
        tools_by_name: dict[str, bytes] = {}
        async for page in self.fetch_listing_pages(x):
            tools_by_name |= {
                _named(tool).name: tool for tool in await self.list_visible_tools(x, page, prefix)
            }
            if sum(map(len, tools_by_name.values())) > MOST_ANSWER:
                raise UnreadableListing(f"lists tools of more than {MOST_ANSWER} bytes")
        return [tools_by_name[name] for name in sorted(tools_by_name)]

    async def fetch_listing_pages(self, x: Exchange) -> AsyncIterator[ToolListingPage]:
        cursor, listed = None, set[str]()
        for number in range(MOST_PAGES):
            page = await self.fetch_listing_page(x, cursor)
            if page is None and number:
                raise UnreadableListing("broke off its list of tools with an error")
            if page is None:
                return
            yield page
            listed |= {tool.name for tool in page.listing.tools}
            cursor = page.next_cursor
            if cursor is None:
                await self.mark_missing_tools(x.server, listed)
                return

    async def fetch_listing_page(self, x: Exchange, cursor: str | None) -> ToolListingPage | None:
        params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        return listing.parse_listing_page(await self._sending.send_own_request(x, "tools/list", params))


def is_tool_visible(
    x: Exchange, rules: Sequence[DecisionRule], policy: AccessPolicy, tool: str, digest: str
) -> bool:
    """Say whether a tool, which is listed with this definition, is known so and shown to the agent."""
    known_tool = x.server.tools.get(tool)
    if known_tool is None or known_tool.definition != digest or x.server.find_tool_shadow(tool) is not None:
        return False
    verdict = policy.decide_tool_access(x.agent_id, x.server.name, tool, timezone.now())
    if deciding.is_definition_unaccepted(x.server, verdict, known_tool):
        return False
    return deciding.can_agent_see_tool(rules, verdict, x.caller, x.server.name, tool)


class ListedToolName(msgspec.Struct):
    name: str


_named = msgspec.json.Decoder(ListedToolName).decode


def is_known_definition(server: UpstreamServer, tool: ToolDefinition) -> bool:
    known_tool = server.tools.get(tool.name)
    return (
        known_tool is not None and known_tool.definition == tool.definition_digest and not known_tool.is_gone
    )
