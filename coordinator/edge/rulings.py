"""What policy says of each tool call, answered from memory: a copy of the rules that follows the feed.

It answers whatever becomes of the database. While the rules are not read yet, or are known to have changed and
cannot be read again, every call is asked at least, and a call of an MCP tool whose grants cannot be read is denied.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils import timezone

from coordinator.actions import gateway_sessions, key_quotas
from coordinator.edge.policies import Policies
from coordinator.feed.reader import Change
from coordinator.lib.threads import EdgeThreads
from coordinator.lib.turns import CALLER, for_all
from coordinator.live.hub import Hub
from coordinator.mcp.names import PREFIX, ServerTool, behind_gateway
from coordinator.policy import brakes, budgets, certain, managed, tool_rules
from coordinator.policy.access import Policy
from coordinator.policy.brakes import Braked
from coordinator.policy.budgets import BudgetRow
from coordinator.policy.managed import ManagedServers
from coordinator.policy.tool_rules import ASK, DENY, NO_OPINION, OBSERVE, PartialCall, Rule, Ruling

log = logging.getLogger(__name__)

TOPICS = frozenset({"tool_rules", "mcp_servers", "grants", "brakes", "budgets"})
RULES_KEPT_FOR = 15.0  # seconds; what the feed may have missed is seen within this time
READ_WITHIN = 2.0  # seconds a call waits for the rules before it is answered by what is known
MOST_HELD_FOR = 1_000  # callers
TRY_AGAIN = 1.0  # seconds after which rules that could not be read are read again
UNREAD = Ruling(ASK, "The rules cannot be read right now.", "no rules")
BUDGETS_UNREAD = Ruling(
    ASK, "The use of the budgets cannot be read right now.", "budgets", deny_at_deadline=True
)
GRANTS_UNREAD = Ruling(DENY, "The grants cannot be read right now.", "grants")
# Of a call that is asked about where it comes in: no opinion, as far as anybody else is concerned.
ASKED_AT_GATEWAY = Ruling(OBSERVE, "The MCP gateway asks a person before this call runs.", "gateway")


@dataclass(frozen=True, slots=True)
class PolicySnapshot:
    """What people have set: rules in their order, managed MCP servers, brakes, and the budgets that hold calls up."""

    rules: tuple[Rule, ...]
    managed: ManagedServers
    brakes: tuple[Braked, ...] = ()
    budgets: tuple[BudgetRow, ...] = ()
    spent: tuple[BudgetRow, ...] = ()  # those that were used up when this was read


class Rulings:
    """The rules of one process. Used on the event loop; reading is done in a thread, once for all who wait."""

    def __init__(self, hub: Hub, policies: Policies, threads: EdgeThreads) -> None:
        self._policies = policies
        self._threads = threads
        self._snapshot: PolicySnapshot | None = None
        self._edits = 1  # how often the feed has told of an edit
        self._edits_read = 0  # … of which this many are in `_snapshot`
        self._until = 0.0
        self._reading: asyncio.Task[None] | None = None
        # What held_tools found by `_held_by`, by caller: every hook's answer says it.
        self._held: dict[PartialCall, list[tuple[str, str]]] = {}
        self._held_by: PolicySnapshot | None = None
        hub.listeners.append(self.on_changes)

    def on_changes(self, batch: Sequence[Change]) -> None:
        """Take note that a rule, a server or a grant has changed, and read them again."""
        if any(change.topic in TOPICS for change in batch):
            self._edits += 1
            self._until = 0.0
            self._start_reading()

    @property
    def _is_certain(self) -> bool:
        return self._snapshot is not None and self._edits == self._edits_read

    async def on(
        self, tool: str, about: str, agent_id: str | None, program: str, key_id: int | None = None
    ) -> Ruling:
        """Return the stricter of what the rules and, for an MCP tool, the grants say of an agent program's call.

        A call through the gateway is judged as what it means. Where it is to be asked for the gateway asks, so this
        says nothing: a person shall not be asked twice. But only where that key (or agent, where no key is told) has
        a session at the gateway: any server can call itself `signalbox`.
        """
        await self.refresh()
        snapshot = self._snapshot
        through_gateway = self._is_through_gateway(tool)
        tool = (behind_gateway(tool) or tool) if through_gateway else tool
        ruling = NO_OPINION
        if snapshot:
            ruling = tool_rules.by_rules(
                snapshot.rules, tool, about, agent_id, program, servers=snapshot.managed.servers
            )
        if not self._is_certain:
            ruling = tool_rules.stricter(ruling, UNREAD)
        ruling = tool_rules.stricter(ruling, await self._by_grants(tool, agent_id or ""))
        if through_gateway and ruling.decision == ASK and await self._is_at_gateway(agent_id, key_id):
            return ASKED_AT_GATEWAY
        return ruling

    async def rules(self) -> tuple[Rule, ...] | None:
        """Return the rules as they stand; None where that is not known for certain just now."""
        await self.refresh()
        return self._snapshot.rules if self._snapshot is not None and self._is_certain else None

    def strictest_possible(self, call: PartialCall) -> Ruling:
        """Return the strictest that policy may say of a call, without the database and without waiting."""
        if self._snapshot is None:
            return UNREAD
        ruling = tool_rules.strictest_possible(self._snapshot.rules, call, self._snapshot.managed.servers)
        for brake in self._snapshot.brakes:
            if not call.agent_known or brake.holds((call.agent_id, call.program), None):
                ruling = tool_rules.stricter(ruling, by_brake(brake))
        names = (call.agent_id, call.program)
        if any(one.may_concern(names) for one in self._snapshot.budgets):
            ruling = tool_rules.stricter(ruling, BUDGETS_UNREAD)
        if not self._is_certain:
            ruling = tool_rules.stricter(ruling, UNREAD)
        if self._snapshot.managed.may_deny(call.tool):
            ruling = tool_rules.stricter(ruling, GRANTS_UNREAD)
        return ruling

    @property
    def has_budgets(self) -> bool:
        """Say whether a budget may hold any call up, as far as this process knows."""
        return self._snapshot is None or bool(self._snapshot.budgets)

    async def budgets_on(
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
        ruling = await self.by_budgets(agents, session_id)
        if ruling.decision != ASK or not self._is_through_gateway(tool):
            return ruling
        return ASKED_AT_GATEWAY if await self._is_at_gateway(agent_id, key_id) else ruling

    async def by_budgets(self, agents: Sequence[str | None], session_id: str) -> Ruling:
        """Return what the budgets say of the next call in a session: how much is used is asked of the database."""
        if not self.has_budgets:
            return NO_OPINION
        known = self._snapshot.budgets if self._snapshot is not None else None
        try:
            async with asyncio.timeout(READ_WITHIN):
                return await self._threads.run(_by_budgets, known, agents, session_id, CALLER.get())
        except Exception as problem:
            log.warning("The budgets cannot be read, so a call is asked: %s", str(problem).strip())
            return BUDGETS_UNREAD

    def by_brakes(self, agents: Sequence[str | None], host: str | None) -> Ruling:
        """Return the denial of a brake that this process knows of; whether one is on, edge.brake_gate says."""
        known = self._snapshot.brakes if self._snapshot is not None else ()
        return next((by_brake(one) for one in known if one.holds(agents, host)), NO_OPINION)

    def held_tools(self, caller: PartialCall) -> list[tuple[str, str]] | None:
        """Return which tools are held for certain (policy.certain); None while that is not known."""
        if self._snapshot is None or not self._is_certain:
            return None
        if self._held_by is not self._snapshot or len(self._held) >= MOST_HELD_FOR:
            self._held, self._held_by = {}, self._snapshot
        if caller not in self._held:
            self._held[caller] = _held_tools(self._snapshot, caller)
        return self._held[caller]

    def _is_through_gateway(self, tool: str) -> bool:
        """Say whether a call names a tool of a registered server, as the gateway offers it."""
        known = self._snapshot.managed if self._snapshot is not None else None
        return behind_gateway(tool) is not None and known is not None and bool(known.places(tool))

    async def _is_at_gateway(self, agent_id: str | None, key_id: int | None) -> bool:
        try:
            async with asyncio.timeout(READ_WITHIN):
                return await self._threads.run(gateway_sessions.is_there, agent_id, key_id, timezone.now())
        except Exception as problem:
            log.warning("The gateway's sessions cannot be read, so a call is asked: %s", str(problem).strip())
            return False

    async def _by_grants(self, tool: str, agent_id: str) -> Ruling:
        if not tool.startswith(PREFIX):
            return NO_OPINION
        if self._snapshot is None:
            return GRANTS_UNREAD
        known = self._snapshot.managed
        try:
            async with asyncio.timeout(READ_WITHIN):
                policy = await self._policy(known.places(tool), agent_id)
        except Exception as problem:
            log.warning("The grants cannot be read, so a call is denied: %s", str(problem).strip())
            return GRANTS_UNREAD
        verdict = known.verdict(policy, tool, agent_id, timezone.now())
        return tool_rules.by_access(verdict) if verdict else NO_OPINION

    async def _policy(self, places: Sequence[ServerTool], agent_id: str) -> Policy:
        """Return the rows of all servers that a call may mean."""
        pairs = {(agent_id, server_id) for server_id, _ in places}
        together = Policy()
        for policy in (await self._policies.of(pairs)).values():
            together.servers |= policy.servers
            together.slots |= policy.slots
            together.changed |= policy.changed
            together.accepted_only |= policy.accepted_only
        return together

    async def refresh(self) -> None:
        """Read the rules where they are old or were edited; return when that is done, failed or takes too long."""
        if self._until <= asyncio.get_running_loop().time():
            await asyncio.wait([self._start_reading()], timeout=READ_WITHIN)

    def _start_reading(self) -> asyncio.Task[None]:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.ensure_future(self._read())
        return self._reading

    async def _read(self) -> None:
        for_all()
        loop = asyncio.get_running_loop()
        try:
            while not self._is_certain or self._until <= loop.time():
                edits = self._edits
                self._snapshot = await self._threads.run(_load)
                self._edits_read = edits
                self._until = loop.time() + (RULES_KEPT_FOR if edits == self._edits else 0.0)
        except Exception as problem:
            log.warning("The rules cannot be read just now: %s", str(problem).strip())
            self._until = loop.time() + TRY_AGAIN


def by_brake(brake: Braked) -> Ruling:
    """Return the denial of a call that a brake holds."""
    return Ruling(DENY, brake.words, f"brake {brake.id}")


def _held_tools(snapshot: PolicySnapshot, caller: PartialCall) -> list[tuple[str, str]]:
    if any(one.holds((caller.agent_id, caller.program), None) for one in snapshot.brakes):
        return [(certain.HOLD, "*")]
    names = (caller.agent_id, caller.program)
    if any(one.may_concern(names) for one in snapshot.spent):
        return [(certain.HOLD, "*")]
    known = snapshot.managed
    return certain.held_tools(snapshot.rules, caller, grants_deny=known.strict, servers=known.servers)


def _by_budgets(
    known: Sequence[BudgetRow] | None, agents: Sequence[str | None], session_id: str, caller: str
) -> Ruling:
    in_force = budgets.in_force() if known is None else known
    now = timezone.now()
    return budgets.ruling(
        in_force, agents, session_id, now, is_counted=lambda: not key_quotas.is_reached(caller, now)
    )


def _load() -> PolicySnapshot:
    now = timezone.now()
    acting = tuple(one for one in budgets.in_force() if one.acts)
    spent = tuple(one for one in acting if not one.is_lifted(now) and budgets.used_up(one, now))
    return PolicySnapshot(tool_rules.saved(), managed.load(now), brakes.in_force(), acting, spent)
