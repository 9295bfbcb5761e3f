"""Filtering of `tools/list` responses to what an agent may see, and storing of the listed tools to detect changes."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
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
from coordinator.mcp.gateway import listing, tool_search
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway.binding import qualified_tool_name
from coordinator.mcp.gateway.listing import ToolListingPage, UnreadableListing
from coordinator.mcp.gateway.servers import UpstreamServer
from coordinator.mcp.protocol.http_client import UpstreamFailed
from coordinator.mcp.protocol.messages import METHOD_NOT_FOUND
from coordinator.mcp.servers.tools import (
    SkippedTool,
    ToolDefinition,
    ToolListing,
    skipped_page_reason_or_empty,
)
from coordinator.policy.grants.access import AccessPolicy
from coordinator.policy.rules import tool_rules
from coordinator.policy.rules.tool_rules import ASK, DecisionRule

log = logging.getLogger(__name__)

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
        self._full_servers: set[str] = set()  # those that had no room left at that time
        self._looking: dict[str, asyncio.Lock] = {}

    async def store_and_filter_listing_answer(self, exchange: Exchange, body: bytes) -> bytes:
        """Return an answer to tools/list with what the agent may see. Raises UpstreamFailed for what is none."""
        try:
            page = listing.parse_listing_page_unless_error(body)
        except UnreadableListing as problem:
            raise UpstreamFailed(f"sent a list of tools that cannot be read ({problem})") from None
        if page is None:
            return body
        cursor = exchange.message.params.get("cursor")
        if page.next_cursor is not None and page.next_cursor == cursor:
            page = listing.convert_to_last_listing_page(page, skipped_page_reason_or_empty(cursor, [cursor]))
        tools = await self.store_page_and_encode_visible(exchange, page)
        is_first = exchange.message.method == "tools/list" and "cursor" not in exchange.message.params
        if is_first and page.next_cursor is None and not page.listing.cut_off:
            await self.mark_missing_tools(exchange.server, {tool.name for tool in page.listing.tools})
        is_whole = not page.listing.left_out and not page.listing.cut_off
        if tools == page.raw and is_whole and b'"cacheScope"' not in body:
            return body
        return listing.encode_listing_response_with_tools(page, tools)

    async def store_page_and_encode_visible(
        self, exchange: Exchange, page: ToolListingPage, prefix: str | None = None
    ) -> list[bytes]:
        """Return the bytes of the tools that the agent may see, in a stable order."""
        await self.store_listed_tools(exchange.server, page.listing)
        exchange.server = await self.find_current_server(exchange)
        rules, policy = await self.load_rules_and_access_policy(exchange)
        shown_tools = await self._threads.run_in_thread(
            tool_search.load_tool_listing_setting, exchange.agent_id
        )

        def is_visible_to_agent(tool: ToolDefinition) -> bool:
            return (
                exchange.is_tool_served_at_endpoint(exchange.server.name, tool.name)
                and shown_tools.is_tool_shown(exchange.server.name, tool.name)
                and is_tool_definition_visible(exchange, rules, policy, tool.name, tool.definition_digest)
            )

        rename = None if prefix is None else lambda name: f"{prefix}{name}"
        declined = {
            name: tool.shown_instead for name, tool in exchange.server.tools.items() if tool.shown_instead
        }
        shortened = {
            name: tool.short_description
            for name, tool in exchange.server.tools.items()
            if tool.short_description is not None and not tool.shown_instead
        }
        return listing.encode_each_visible_tool(
            page, is_visible_to_agent, rename=rename, shown_instead=declined, short_descriptions=shortened
        )

    async def load_rules_and_access_policy(
        self, exchange: Exchange
    ) -> tuple[Sequence[DecisionRule], AccessPolicy]:
        is_policy_current, _ = await self._instant.get_policy_freshness_and_brake(
            exchange.agent_names_for_brakes
        )
        rules = await self._rulings.get_rules_if_current() if is_policy_current else None
        if rules is None:
            self._policies.invalidate_cached_server_grants(exchange.server.name)
            rules = await self._threads.run_in_thread(tool_rules.load_saved_tool_rules)
        pair = exchange.agent_id, exchange.server.name
        return rules, (await self._policies.load_policies({pair}))[pair]

    async def can_agent_reach_server(self, exchange: Exchange) -> bool:
        """Say whether anything of the server is open to the agent: the server, or one of its tools."""
        pair = exchange.agent_id, exchange.server.name
        policy = (await self._policies.load_policies({pair}))[pair]
        tools = {"", *exchange.server.tools, *policy.tools_with_grants_or_changes(*pair)}
        verdicts = policy.verdicts_by_tool_of_server(
            exchange.agent_id, exchange.server.name, tools, timezone.now()
        )
        return any(verdict.decision != "deny" for verdict in verdicts.values())

    async def filter_visible_names(
        self, exchange: Exchange, names_and_digests: Sequence[tuple[str, str]]
    ) -> list[str]:
        """Return the names of those tools, given by name and digest, that the agent may see.

        Tools whose definition a person declined are left out: the server runs on the agent's machine, and its list
        is not replaced there.
        """
        rules, policy = await self.load_rules_and_access_policy(exchange)
        return [
            name
            for name, digest in names_and_digests
            if is_tool_definition_visible(exchange, rules, policy, name, digest)
            and not exchange.server.tools[name].shown_instead
        ]

    def invalidate_server_and_grants_cache(self, server_id: str) -> None:
        """Read a server and its grants again: the feed has not reported some edit yet."""
        self._registry.invalidate_cached_server(server_id)
        self._policies.invalidate_cached_server_grants(server_id)

    async def find_current_server(self, exchange: Exchange) -> UpstreamServer:
        """Return the server's current state. A server that is gone has no tools, so none is shown or called."""
        name = exchange.server.name
        server = await self._registry.get_cached_or_load_server(name) or UpstreamServer(
            name, None, "is not registered any more", is_off=True
        )
        if not exchange.listing_problem:
            return server
        return replace(server, listing_problem=exchange.listing_problem)

    async def can_agent_call_require_approval(self, exchange: Exchange) -> bool:
        """Say whether a call of the agent may have to wait for a person."""
        rules, policy = await self.load_rules_and_access_policy(exchange)
        names = {tool: qualified_tool_name(exchange.server.name, tool) for tool in exchange.server.tools}
        by_rule = any(
            rule.verdict == ASK and not rule.is_off and any(map(rule.rule_applies_to_tool, names.values()))
            for rule in rules
        )
        verdicts = policy.verdicts_by_tool_of_server(
            exchange.agent_id, exchange.server.name, names, timezone.now()
        )
        return by_rule or any(verdict.decision == ASK for verdict in verdicts.values())

    async def store_listed_tools(self, server: UpstreamServer, listing: ToolListing) -> None:
        """Note what a server lists, where it is not what is known."""
        tools = [tool for tool in listing.tools if not is_stored_tool_definition(server, tool)]
        is_paused = self._left_out_at.get(server.name, -math.inf) > time.monotonic() - LEFT_OUT_AGAIN_AFTER
        if not (tools or listing.left_out or listing.cut_off):
            return
        if is_paused and (not tools or server.name in self._full_servers):
            return
        # What one page lacks may be on another, and what one caller's list lacks in another caller's.
        part = ToolListing(tools, complete=False, left_out=listing.left_out, cut_off=listing.cut_off)
        now = timezone.now()
        try:
            tool_changes = await self._threads.run_in_thread(
                mcp_tools.store_tool_listing, server.name, part, actor=BY, now=now
            )
        except NotFound:
            return
        if tool_changes.left_out or listing.cut_off:
            self._left_out_at[server.name] = time.monotonic()
            is_full = len(tool_changes.left_out) > len(listing.left_out)
            (self._full_servers.add if is_full else self._full_servers.discard)(server.name)
        if not tool_changes.has_no_changes:
            self.invalidate_server_and_grants_cache(server.name)

    async def mark_missing_tools(self, server: UpstreamServer, listed: set[str]) -> None:
        """Note which tools a server has no more, by the names of all that it lists.

        One that runs for each caller alone, or is called with each person's token, says so of that caller's only.
        """
        lacking = {name for name, tool in server.tools.items() if not tool.is_gone} - listed
        if server.for_each_caller or server.needs_token or not lacking:
            return
        now = timezone.now()
        note = functools.partial(
            mcp_tools.mark_unlisted_tools_gone,
            server.name,
            listed,
            listed_by=now - SETTLED_AFTER,
            actor=BY,
            now=now,
        )
        if await self._threads.run_in_thread(note):
            self.invalidate_server_and_grants_cache(server.name)

    async def refresh_exchange_tools_if_unknown(self, exchange: Exchange, tool: str) -> None:
        """Ask the server for its tools because of a tool that is unknown.

        Where it has none of that name either, it is not asked again for two seconds.
        """
        lock = self._looking.setdefault(exchange.server.name, asyncio.Lock())
        async with lock:
            exchange.server = await self.find_current_server(exchange)
            known_tool = exchange.server.tools.get(tool)
            recently = self._looked.get(exchange.server.name, 0.0) > time.monotonic() - LOOK_EVERY
            if (known_tool is not None and not known_tool.is_gone) or recently:
                return
            try:
                async with asyncio.timeout(OWN_WITHIN):  # others wait for the lock
                    await self.fetch_and_store_tools(exchange)
            except TimeoutError:
                log.warning(
                    "The tools of %s were not listed within %.0f seconds", exchange.server.name, OWN_WITHIN
                )
            except (UpstreamFailed, UnreadableListing) as problem:
                log.warning("The tools of %s cannot be listed: it %s", exchange.server.name, problem)
                exchange.listing_problem = str(problem)
            exchange.server = await self.find_current_server(exchange)
            current_tool = exchange.server.tools.get(tool)
            is_unknown = current_tool is None or current_tool.is_gone
            if is_unknown and not exchange.server.needs_token:  # each caller's token may show other tools
                self._looked[exchange.server.name] = time.monotonic()

    async def fetch_and_store_tools(self, exchange: Exchange) -> None:
        async for page in self.iterate_and_record_listing_pages(exchange):
            await self.store_listed_tools(exchange.server, page.listing)

    async def fetch_and_encode_visible_tools(self, exchange: Exchange, prefix: str) -> list[bytes]:
        """Return the bytes of all tools that the agent may see, their names after `prefix`.

        They are in the order of their names, however the server divides them into pages, each name once. Raises
        UpstreamFailed and UnreadableListing.
        """
        tools_by_name: dict[str, bytes] = {}
        async for page in self.iterate_and_record_listing_pages(exchange):
            tools_by_name |= {
                _named(tool).name: tool
                for tool in await self.store_page_and_encode_visible(exchange, page, prefix)
            }
            if sum(map(len, tools_by_name.values())) > MOST_ANSWER:
                raise UnreadableListing(f"lists tools of more than {MOST_ANSWER} bytes")
        return [tools_by_name[name] for name in sorted(tools_by_name)]

    async def iterate_and_record_listing_pages(self, exchange: Exchange) -> AsyncIterator[ToolListingPage]:
        """Yield the pages of a server's list. What is left out of them is noted once, after the last."""
        cursors, listed, left_out = list[str](), set[str](), list[SkippedTool]()
        while True:
            page = await self.fetch_listing_page(exchange, cursors[-1] if cursors else None)
            if page is None and cursors:
                raise UnreadableListing("broke off its list of tools with an error")
            if page is None:  # it has no tools at all
                return
            yield replace(page, listing=replace(page.listing, left_out=[]))
            listed |= {tool.name for tool in page.listing.tools}
            left_out += page.listing.left_out
            cut_off = page.listing.cut_off
            if page.next_cursor is not None:
                cut_off = skipped_page_reason_or_empty(page.next_cursor, cursors)
            if page.next_cursor is None or cut_off:
                break
            cursors.append(page.next_cursor)
        await self.store_listed_tools(
            exchange.server, ToolListing([], complete=False, left_out=left_out, cut_off=cut_off)
        )
        if not cut_off:
            await self.mark_missing_tools(exchange.server, listed)

    async def fetch_listing_page(self, exchange: Exchange, cursor: str | None) -> ToolListingPage | None:
        """Return a page of a server's list; None from a server that does not have tools. Raises UnreadableListing."""
        params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        response = await self._sending.send_request_of_gateway(exchange, "tools/list", params)
        page = listing.parse_listing_page_unless_error(response)
        if page is None and listing.read_error_code_or_none(response) != METHOD_NOT_FOUND:
            raise UnreadableListing("answered with an error when it was asked for its tools")
        return page


def is_tool_definition_visible(
    exchange: Exchange, rules: Sequence[DecisionRule], policy: AccessPolicy, tool: str, digest: str
) -> bool:
    """Say whether a tool, which is listed with this definition, is known so and shown to the agent."""
    known_tool = exchange.server.tools.get(tool)
    if (
        known_tool is None
        or known_tool.definition != digest
        or exchange.server.find_server_shadowing_own_tool(tool) is not None
    ):
        return False
    verdict = policy.decide_tool_access(exchange.agent_id, exchange.server.name, tool, timezone.now())
    if deciding.is_tool_blocked_by_definition_change(exchange.server, verdict, known_tool):
        return False
    return deciding.can_agent_see_tool(rules, verdict, exchange.caller, exchange.server.name, tool)


class ListedToolName(msgspec.Struct):
    name: str


_named = msgspec.json.Decoder(ListedToolName).decode


def is_stored_tool_definition(server: UpstreamServer, tool: ToolDefinition) -> bool:
    known_tool = server.tools.get(tool.name)
    return (
        known_tool is not None and known_tool.definition == tool.definition_digest and not known_tool.is_gone
    )
