"""Policy rulings on tool calls, made from a copy of the rules in memory that follows the feed.

Rulings need no database. While the rules are not read yet, or are known to have changed and cannot be read again,
every call is asked at least, and a call of an MCP tool whose grants cannot be read is denied.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from django.utils import timezone

from coordinator.actions.mcp import gateway_sessions
from coordinator.actions.people import key_quotas
from coordinator.edge.policy.policy_cache import PolicyCache
from coordinator.errors import UnprocessableRequest
from coordinator.feed.reader import FeedChange
from coordinator.lib.fair_queue import CALLER, clear_current_caller
from coordinator.lib.threads import EdgeThreads
from coordinator.live.hub import FeedHub
from coordinator.mcp.gateway import tool_search
from coordinator.mcp.servers.names import (
    CALL_TOOL,
    FIND_TOOLS,
    GATEWAY,
    PREFIX,
    ServerTool,
    unwrap_gateway_call_or_none,
)
from coordinator.models.mcp import ListedTools
from coordinator.policy.grants import managed
from coordinator.policy.grants.access import AccessPolicy
from coordinator.policy.grants.managed import ManagedServers
from coordinator.policy.limits import brakes, budgets
from coordinator.policy.limits.brakes import ActiveBrake
from coordinator.policy.limits.budgets import BudgetRow
from coordinator.policy.rules import history_queries, offline_blocking, tool_rules
from coordinator.policy.rules.call_history import (
    MARKED_RESULT,
    CallHistory,
    HistoryNeeds,
    Repetition,
    TimedCall,
)
from coordinator.policy.rules.call_text import CallText, build_call_text_from_input
from coordinator.policy.rules.tool_rules import (
    ASK,
    DENY,
    NO_HISTORY,
    NO_OPINION,
    OBSERVE,
    DecisionRule,
    PartialCall,
    Ruling,
)

log = logging.getLogger(__name__)

FindMoment = Callable[[], Awaitable[TimedCall]]
TOPICS = frozenset({"tool_rules", "mcp_servers", "grants", "brakes", "budgets"})
RULES_CACHE_SECONDS = 15.0  # what the feed may have missed is seen within this time
READ_WITHIN = 2.0  # seconds a call waits for the rules before it is answered by what is known
MAX_CACHED_CALLERS = 1_000  # callers
TRY_AGAIN = 1.0  # seconds after which rules that could not be read are read again
UNREAD = Ruling(ASK, "The rules cannot be read right now.", "no rules")
BUDGETS_UNREAD = Ruling(
    ASK, "The use of the budgets cannot be read right now.", "budgets", deny_at_deadline=True
)
HISTORY_UNREAD = Ruling(ASK, "What was recorded before this call cannot be read right now.", "the rules")
GRANTS_UNREAD = Ruling(DENY, "The grants cannot be read right now.", "grants")
# Of a call that is asked about where it comes in: no opinion, as far as anybody else is concerned.
DECIDED_AT_GATEWAY = Ruling(OBSERVE, "The MCP gateway asks a person before this call runs.", "gateway")
GATEWAY_SEARCH, GATEWAY_CALL = f"{PREFIX}{GATEWAY}__{FIND_TOOLS}", f"{PREFIX}{GATEWAY}__{CALL_TOOL}"


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """What people have set: rules in their order, managed MCP servers, brakes, and the budgets that hold calls up."""

    rules: tuple[DecisionRule, ...]
    managed: ManagedServers
    brakes: tuple[ActiveBrake, ...] = ()
    budgets: tuple[BudgetRow, ...] = ()
    spent: tuple[BudgetRow, ...] = ()  # those that were used up when this was read
    has_history_rules: bool = False  # whether a rule asks about the time before a call


class PolicyRulings:
    """The rules of one process. Used on the event loop; reading is done in a thread, once for all who wait."""

    def __init__(self, hub: FeedHub, policies: PolicyCache, threads: EdgeThreads) -> None:
        self._policies = policies
        self._threads = threads
        self._snapshot: PolicySnapshot | None = None
        self._edits = 1  # how often the feed has reported an edit
        self._edits_read = 0  # … of which this many are in `_snapshot`
        self._until = 0.0
        self._reading: asyncio.Task[None] | None = None
        # What is blocked for a caller by `_guarded_tools_snapshot`: every hook's answer says it.
        self._guarded_tools: dict[PartialCall, list[tuple[str, str]]] = {}
        self._guarded_tools_snapshot: PolicySnapshot | None = None
        hub.listeners.append(self.start_rules_reload_on_change)

    def start_rules_reload_on_change(self, batch: Sequence[FeedChange]) -> None:
        """Take note that a rule, a server or a grant has changed, and read them again."""
        if any(change.topic in TOPICS for change in batch):
            self._edits += 1
            self._until = 0.0
            self.start_loading_rules()

    @property
    def is_snapshot_current(self) -> bool:
        return self._snapshot is not None and self._edits == self._edits_read

    async def judge_tool_call(
        self,
        tool: str,
        about: str,
        agent_id: str | None,
        program: str,
        key_id: int | None = None,
        *,
        find_moment: FindMoment | None = None,
    ) -> Ruling:
        """Return the stricter of what the rules and, for an MCP tool, the grants say of an agent program's call.

        A call through the gateway is judged as what it means, one by its `call_tool` as well. Where it is to be asked
        for the gateway asks, so this says nothing: a person shall not be asked twice. But only where that key (or
        agent, where no key is given) has a session at the gateway: any server can call itself `signalbox`.

        `find_moment` returns the call as its session's events name it, for rules about what was recorded before it.
        """
        await self.refresh_policy_rules()
        snapshot = self._snapshot
        is_search = tool == GATEWAY_SEARCH and await self.can_agent_search_gateway_tools(agent_id, key_id)
        wrapped_tool, wrapped_about = tool, about
        tool, about = unwrap_gateway_tool_and_text(tool, about)
        through_gateway = self.is_gateway_tool(tool)
        tool = (unwrap_gateway_call_or_none(tool) or tool) if through_gateway else tool
        ruling = by_wrapper = NO_OPINION
        if snapshot:
            about, unread = await self.add_required_history_to_text(
                snapshot, tool, about, agent_id, program, find_moment=find_moment
            )
            judge_by_rules = functools.partial(
                tool_rules.tool_ruling_or_no_opinion, snapshot.rules, servers=snapshot.managed.servers
            )
            ruling = tool_rules.stricter_ruling(judge_by_rules(tool, about, agent_id, program), unread)
            if wrapped_tool == GATEWAY_CALL:
                by_wrapper = judge_by_rules(wrapped_tool, wrapped_about, agent_id, program)
        if not self.is_snapshot_current:
            ruling = tool_rules.stricter_ruling(ruling, UNREAD)
        if not is_search:  # it lists what the agent may see, as `tools/list` does, which needs no grant
            ruling = tool_rules.stricter_ruling(ruling, await self.judge_call_by_grants(tool, agent_id or ""))
        if through_gateway and ruling.decision == ASK and await self.has_gateway_session(agent_id, key_id):
            ruling = DECIDED_AT_GATEWAY
        # A rule may name `call_tool` itself, of which the gateway does not know. It lets nothing through.
        return (
            tool_rules.stricter_ruling(ruling, by_wrapper) if by_wrapper.decision in {ASK, DENY} else ruling
        )

    async def add_required_history_to_text(
        self,
        snapshot: PolicySnapshot,
        tool: str,
        about: str,
        agent_id: str | None,
        program: str,
        *,
        find_moment: FindMoment | None,
    ) -> tuple[str, Ruling]:
        """Return the call's text with what rules ask about the time before it, and what to do where that is unread."""
        if find_moment is None or not isinstance(about, CallText) or not snapshot.has_history_rules:
            return about, NO_OPINION
        needs = tool_rules.find_history_needs_of_rules(
            snapshot.rules, tool, about, agent_id, program, servers=snapshot.managed.servers
        )
        return (
            await self.add_history_to_call_text(needs, about, find_moment) if needs else (about, NO_OPINION)
        )

    async def add_history_to_call_text(
        self, needs: HistoryNeeds, about: CallText, find_moment: FindMoment
    ) -> tuple[CallText, Ruling]:
        """Return the call's text with what was recorded before it; a person is asked where that cannot be read."""
        history = await self.load_call_history_or_none(needs, find_moment)
        if history is None:
            return about, HISTORY_UNREAD
        return about.copy_with_call_history(history), NO_OPINION

    async def load_call_history_or_none(
        self, needs: HistoryNeeds, find_moment: FindMoment
    ) -> CallHistory | None:
        """Return what was recorded before a call; None where that cannot be read."""
        try:
            async with asyncio.timeout(READ_WITHIN):
                moment = await find_moment()
                return await self._threads.run_in_thread(
                    history_queries.evaluate_history_conditions, needs, moment
                )
        except Exception as problem:
            log.warning("What was recorded before a call cannot be read, so it is asked: %s", str(problem))
            return None

    async def list_rules_about_unknown_call(
        self, rules: Sequence[DecisionRule], find_moment: FindMoment
    ) -> list[DecisionRule]:
        """Return the rules that may be about a call of a session of which nothing but its moment is known.

        It is not counted as a repetition of another call or error. A rule about a marked result asks nothing about the
        call: it is one of them where its session got such a result, or where that cannot be read.
        """
        marked = frozenset(
            repetition
            for rule in rules
            if not rule.is_off and (repetition := parse_repetition_or_none(rule)) is not None
            if repetition.kind == MARKED_RESULT
        )
        history = (
            await self.load_call_history_or_none(HistoryNeeds(marked), find_moment) if marked else NO_HISTORY
        )
        reached = marked if history is None else history.repetitions
        return [rule for rule in rules if not rule.repeats or parse_repetition_or_none(rule) in reached]

    async def get_rules_if_current(self) -> tuple[DecisionRule, ...] | None:
        """Return the current rules; None where they are not known for certain just now."""
        await self.refresh_policy_rules()
        return self._snapshot.rules if self._snapshot is not None and self.is_snapshot_current else None

    def find_strictest_possible_ruling(self, call: PartialCall) -> Ruling:
        """Return the strictest that policy may say of a call, without the database and without waiting."""
        if self._snapshot is None:
            return UNREAD
        ruling = tool_rules.strictest_ruling_for_partial_call(
            self._snapshot.rules, call, self._snapshot.managed.servers
        )
        for brake in self._snapshot.brakes:
            if not call.agent_known or brake.applies_to((call.agent_id, call.program), None):
                ruling = tool_rules.stricter_ruling(ruling, build_brake_ruling(brake))
        names = (call.agent_id, call.program)
        if any(budget.can_apply_to_agents(names) for budget in self._snapshot.budgets):
            ruling = tool_rules.stricter_ruling(ruling, BUDGETS_UNREAD)
        if not self.is_snapshot_current:
            ruling = tool_rules.stricter_ruling(ruling, UNREAD)
        if self._snapshot.managed.can_grants_deny_call(call.tool):
            ruling = tool_rules.stricter_ruling(ruling, GRANTS_UNREAD)
        return ruling

    @property
    def has_call_blocking_budgets(self) -> bool:
        """Say whether a budget may hold any call up, as far as this process knows."""
        return self._snapshot is None or bool(self._snapshot.budgets)

    async def judge_call_budgets(
        self,
        tool: str,
        agents: Sequence[str | None],
        session_id: str,
        *,
        agent_id: str | None,
        key_id: int | None,
    ) -> Ruling:
        """Return what the budgets say of an agent program's call. A call through the gateway is asked about there.

        `agent_id` and `key_id` are whose session at the gateway that would be, as in `on`.
        """
        ruling = await self.judge_session_budgets(agents, session_id)
        if ruling.decision != ASK or not self.is_gateway_tool(tool):
            return ruling
        return DECIDED_AT_GATEWAY if await self.has_gateway_session(agent_id, key_id) else ruling

    async def judge_session_budgets(self, agents: Sequence[str | None], session_id: str) -> Ruling:
        """Return what the budgets say of the next call in a session: how much is used is asked of the database."""
        if not self.has_call_blocking_budgets:
            return NO_OPINION
        session_budgets = self._snapshot.budgets if self._snapshot is not None else None
        try:
            async with asyncio.timeout(READ_WITHIN):
                return await self._threads.run_in_thread(
                    compute_budget_ruling, session_budgets, agents, session_id, CALLER.get()
                )
        except Exception as problem:
            log.warning("The budgets cannot be read, so a call is asked: %s", str(problem).strip())
            return BUDGETS_UNREAD

    def cached_brake_ruling_or_default(self, agents: Sequence[str | None], host: str | None) -> Ruling:
        """Return the denial of a brake that this process knows of; whether one is on, edge.policy.brake_gate says."""
        known_brakes = self._snapshot.brakes if self._snapshot is not None else ()
        return next(
            (build_brake_ruling(brake) for brake in known_brakes if brake.applies_to(agents, host)),
            NO_OPINION,
        )

    def list_offline_blocked_tools(self, caller: PartialCall) -> list[tuple[str, str]] | None:
        """Return which tools are held for certain (policy.rules.offline_blocking); None while that is not known."""
        if self._snapshot is None or not self.is_snapshot_current:
            return None
        if (
            self._guarded_tools_snapshot is not self._snapshot
            or len(self._guarded_tools) >= MAX_CACHED_CALLERS
        ):
            self._guarded_tools, self._guarded_tools_snapshot = {}, self._snapshot
        if caller not in self._guarded_tools:
            self._guarded_tools[caller] = compute_offline_blocked_tools(self._snapshot, caller)
        return self._guarded_tools[caller]

    def is_gateway_tool(self, tool: str) -> bool:
        """Say whether a call names a tool of a registered server, as the gateway offers it."""
        managed_servers = self._snapshot.managed if self._snapshot is not None else None
        return (
            unwrap_gateway_call_or_none(tool) is not None
            and managed_servers is not None
            and bool(managed_servers.find_server_tools_of_call(tool))
        )

    async def can_agent_search_gateway_tools(self, agent_id: str | None, key_id: int | None) -> bool:
        """Say whether an administrator had the agent search for tools, and it has a session at the gateway."""
        if agent_id is None or not await self.has_gateway_session(agent_id, key_id):
            return False
        try:
            async with asyncio.timeout(READ_WITHIN):
                shown_tools = await self._threads.run_in_thread(
                    tool_search.load_tool_listing_setting, agent_id
                )
        except Exception as problem:
            log.warning("Which tools %s is shown cannot be read: %s", agent_id, str(problem).strip())
            return False
        return shown_tools.listed is ListedTools.SEARCH

    async def has_gateway_session(self, agent_id: str | None, key_id: int | None) -> bool:
        try:
            async with asyncio.timeout(READ_WITHIN):
                return await self._threads.run_in_thread(
                    gateway_sessions.has_live_gateway_session, agent_id, key_id, timezone.now()
                )
        except Exception as problem:
            log.warning("The gateway's sessions cannot be read, so a call is asked: %s", str(problem).strip())
            return False

    async def judge_call_by_grants(self, tool: str, agent_id: str) -> Ruling:
        if not tool.startswith(PREFIX):
            return NO_OPINION
        if self._snapshot is None:
            return GRANTS_UNREAD
        managed_servers = self._snapshot.managed
        try:
            async with asyncio.timeout(READ_WITHIN):
                policy = await self.load_merged_server_policy(
                    managed_servers.find_server_tools_of_call(tool), agent_id
                )
        except Exception as problem:
            log.warning("The grants cannot be read, so a call is denied: %s", str(problem).strip())
            return GRANTS_UNREAD
        verdict = managed_servers.decide_call_by_grants(policy, tool, agent_id, timezone.now())
        return tool_rules.ruling_from_grant_verdict(verdict) if verdict else NO_OPINION

    async def load_merged_server_policy(
        self, server_tools: Sequence[ServerTool], agent_id: str
    ) -> AccessPolicy:
        """Return the rows of all servers that a call may mean."""
        pairs = {(agent_id, server_id) for server_id, _ in server_tools}
        together = AccessPolicy()
        for policy in (await self._policies.load_policies(pairs)).values():
            together.servers |= policy.servers
            together.slots |= policy.slots
            together.changed |= policy.changed
            together.accepted_only |= policy.accepted_only
        return together

    async def refresh_policy_rules(self) -> None:
        """Read the rules where they are old or were edited; return when that is done, failed or takes too long."""
        if self._until <= asyncio.get_running_loop().time():
            await asyncio.wait([self.start_loading_rules()], timeout=READ_WITHIN)

    def start_loading_rules(self) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self.refresh_snapshot_until_current())
        return self._reading

    async def refresh_snapshot_until_current(self) -> None:
        clear_current_caller()
        loop = asyncio.get_running_loop()
        try:
            while not self.is_snapshot_current or self._until <= loop.time():
                edits = self._edits
                self._snapshot = await self._threads.run_in_thread(load_policy_snapshot)
                self._edits_read = edits
                self._until = loop.time() + (RULES_CACHE_SECONDS if edits == self._edits else 0.0)
        except Exception as problem:
            log.warning("The rules cannot be read just now: %s", str(problem).strip())
            self._until = loop.time() + TRY_AGAIN


def parse_repetition_or_none(rule: DecisionRule) -> Repetition | None:
    """Return the repetition that a rule is about; None for any other rule, and where it cannot be read."""
    try:
        return rule.parsed_repetition_condition
    except UnprocessableRequest:
        return None


def build_brake_ruling(brake: ActiveBrake) -> Ruling:
    """Return the denial of a call that a brake holds."""
    return Ruling(DENY, brake.agent_message, f"brake {brake.id}")


def compute_offline_blocked_tools(snapshot: PolicySnapshot, caller: PartialCall) -> list[tuple[str, str]]:
    if any(brake.applies_to((caller.agent_id, caller.program), None) for brake in snapshot.brakes):
        return [(offline_blocking.HOLD, "*")]
    names = (caller.agent_id, caller.program)
    if any(spent_budget.can_apply_to_agents(names) for spent_budget in snapshot.spent):
        return [(offline_blocking.HOLD, "*")]
    managed_servers = snapshot.managed
    return offline_blocking.build_offline_tool_lines(
        snapshot.rules, caller, grants_deny=managed_servers.strict, servers=managed_servers.servers
    )


def compute_budget_ruling(
    known_budgets: Sequence[BudgetRow] | None, agents: Sequence[str | None], session_id: str, caller: str
) -> Ruling:
    in_force = budgets.load_active_budgets() if known_budgets is None else known_budgets
    now = timezone.now()
    return budgets.decide_by_budgets(
        in_force,
        agents,
        session_id,
        now,
        are_writes_counted=lambda: not key_quotas.is_quota_reached(caller, now),
    )


def load_policy_snapshot() -> PolicySnapshot:
    now = timezone.now()
    acting = tuple(
        active_budget for active_budget in budgets.load_active_budgets() if active_budget.can_block
    )
    spent = tuple(
        acting_budget
        for acting_budget in acting
        if not acting_budget.is_lifted(now) and budgets.is_budget_spent_or_uncountable(acting_budget, now)
    )
    rules = tool_rules.load_saved_tool_rules()
    return PolicySnapshot(
        rules,
        managed.load_managed_servers(now),
        brakes.load_active_brakes(),
        acting,
        spent,
        tool_rules.has_history_rules(rules),
    )


def unwrap_gateway_tool_and_text(tool: str, about: str) -> tuple[str, str]:
    """Return the tool and the text of the call that a call by the gateway's `call_tool` means; others as they are."""
    tool_input = about.tool_input if tool == GATEWAY_CALL and isinstance(about, CallText) else None
    name = tool_input.get("name") if isinstance(tool_input, dict) else None
    if not isinstance(tool_input, dict) or not isinstance(name, str):
        return tool, about
    return f"{PREFIX}{GATEWAY}__{name}", build_call_text_from_input(tool_input.get("arguments") or {}, None)
