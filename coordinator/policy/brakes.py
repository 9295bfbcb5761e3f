"""Which brake holds a call or a run: people put brakes on everything, an agent or a host, and release them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.engine import round_trips
from coordinator.models import PermissionRequest, Session
from coordinator.models.brakes import BrakeReach, reaches
from coordinator.models.sessions import SessionStatus
from coordinator.policy.coverage import requester_of
from coordinator.policy.tool_calls import GATEWAY

IN_FORCE = "SELECT id, reach, name, reason, set_by FROM brakes WHERE released_at IS NULL ORDER BY id"


@dataclass(frozen=True, slots=True)
class Braked:
    """A brake in force, as whoever is held by it is told."""

    id: int
    reach: str
    name: str
    reason: str
    set_by: str

    def holds(self, agents: Iterable[str | None], host: str | None) -> bool:
        """Say whether it holds a call of an agent, known by any of the names `agents`, on `host` (None: not known)."""
        return reaches(self.reach, self.name, agents, host)

    @property
    def words(self) -> str:
        """What an agent is told."""
        held = {BrakeReach.AGENT: f"the agent {self.name}", BrakeReach.HOST: f"the host {self.name}"}
        what = held.get(BrakeReach(self.reach), "everything") if self.reach in BrakeReach else "everything"
        why = f": {self.reason.rstrip('.')}" if self.reason else ""
        by = self.set_by.removeprefix("user:")
        return (
            f"{by} put the brake on {what}{why}. No call runs until a person releases it in Signalbox. "
            "Stop here and wait; then make the call again."
        )


def in_force() -> tuple[Braked, ...]:
    """Return every brake in force, oldest first. In plain SQL, since each call of an agent asks it."""
    with round_trips.planning_cursor() as cursor:
        cursor.execute(IN_FORCE)
        return tuple(Braked(*row) for row in cursor.fetchall())


def holding(agents: Iterable[str | None], host: str | None) -> Braked | None:
    """Return the oldest brake that holds a call or run of an agent, known by any of `agents`, on `host`; or None.

    A host that is not known (None) may be any.
    """
    return first_holding(in_force(), agents, host)


def first_holding(on: Iterable[Braked], agents: Iterable[str | None], host: str | None) -> Braked | None:
    """Return the first of the brakes `on` that holds such a call or run; or None."""
    names = list(agents)
    return next((one for one in on if one.holds(names, host)), None)


def holding_asked(
    agent_id: str | None, program: str, host: str | None, session_id: str | None
) -> Braked | None:
    """Return the oldest brake that holds what was asked for in a session; or None.

    Where it would run is known by itself, else by its session, else by where its agent is at work.
    """
    if not in_force():
        return None
    host = host or (host_of(session_id) if session_id else None)
    if host is None and agent_id is not None:
        return holding_agent(agent_id, [program])
    return holding((agent_id, program), host)


def holds_request(request: PermissionRequest) -> bool:
    """Say whether a brake holds whoever made the request, so that it cannot be approved now."""
    asker = requester_of(request)
    return holding_asked(asker.agent_id, request.plugin_id, asker.host, asker.session_id) is not None


def host_of(session_id: str) -> str | None:
    """Return the host that a session is known to run on."""
    return Session.objects.filter(pk=session_id).values_list("hostname", flat=True).first() or None


def holding_agent(agent_id: str, programs: Iterable[str]) -> Braked | None:
    """Return the oldest brake that may hold a call of an agent of which nobody knows from where it comes; or None.

    `programs` are the agent programs that may make it. It may come from every host on which the agent has a session
    that runs, and from anywhere where it has none, or one of an unknown host.
    """
    on, names = in_force(), [agent_id, *programs]
    hosts = _hosts_of(agent_id) if any(one.reach == BrakeReach.HOST for one in on) else set()
    for one in on:
        if one.reach == BrakeReach.HOST:
            if not hosts or None in hosts or one.name in hosts:
                return one
        elif one.holds(names, None):
            return one
    return None


def holding_agents(agent_ids: Iterable[str], programs: Iterable[str]) -> dict[str, Braked]:
    """Return what holding_agent says of several agents, for those that are held: one query where no brake is on."""
    if not in_force():
        return {}
    names = list(programs)
    held = {agent_id: holding_agent(agent_id, names) for agent_id in agent_ids}
    return {agent_id: brake for agent_id, brake in held.items() if brake is not None}


def _hosts_of(agent_id: str) -> set[str | None]:
    running = Session.objects.filter(agent_name=agent_id, status=SessionStatus.RUNNING)
    # The gateway's own sessions say nothing of where their clients are.
    return {
        host or None for host in running.exclude(executor_profile=GATEWAY).values_list("hostname", flat=True)
    }
