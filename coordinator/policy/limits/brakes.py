"""Brakes that hold calls and runs: people put brakes on everything, an agent or a host, and release them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection

from coordinator.models import PermissionRequest, Session
from coordinator.models.brakes import BrakeReach, is_covered_by_brake
from coordinator.models.sessions import SessionStatus
from coordinator.policy.requests.approval_coverage import request_requester
from coordinator.policy.requests.tool_calls import GATEWAY

IN_FORCE = "SELECT id, reach, name, reason, set_by FROM brakes WHERE released_at IS NULL ORDER BY id"


@dataclass(frozen=True, slots=True)
class ActiveBrake:
    """A brake in force, as reported to those whose calls it holds."""

    id: int
    reach: str
    name: str
    reason: str
    set_by: str

    def applies_to(self, agents: Iterable[str | None], host: str | None) -> bool:
        """Say whether it holds a call of an agent, known by any of the names `agents`, on `host` (None: not known)."""
        return is_covered_by_brake(self.reach, self.name, agents, host)

    @property
    def agent_message(self) -> str:
        """The message that an agent receives."""
        reach_labels = {BrakeReach.AGENT: f"the agent {self.name}", BrakeReach.HOST: f"the host {self.name}"}
        reach_label = (
            reach_labels.get(BrakeReach(self.reach), "everything")
            if self.reach in BrakeReach
            else "everything"
        )
        reason_text = f": {self.reason.rstrip('.')}" if self.reason else ""
        by = self.set_by.removeprefix("user:")
        return (
            f"{by} put the brake on {reach_label}{reason_text}. No call runs until a person releases it in Signalbox. "
            "Stop here and wait; then make the call again."
        )


def load_active_brakes() -> tuple[ActiveBrake, ...]:
    """Return every brake in force, oldest first. In plain SQL, since each call of an agent asks it."""
    with connection.cursor() as cursor:
        cursor.execute(IN_FORCE)
        return tuple(ActiveBrake(*row) for row in cursor.fetchall())


def find_brake_on_call(agents: Iterable[str | None], host: str | None) -> ActiveBrake | None:
    """Return the oldest brake that holds a call or run of an agent, known by any of `agents`, on `host`; or None.

    A host that is not known (None) may be any.
    """
    return select_first_brake(load_active_brakes(), agents, host)


def select_first_brake(
    on: Iterable[ActiveBrake], agents: Iterable[str | None], host: str | None
) -> ActiveBrake | None:
    """Return the first of the brakes `on` that holds such a call or run; or None."""
    names = list(agents)
    return next((brake for brake in on if brake.applies_to(names, host)), None)


def find_brake_on_request(
    agent_id: str | None, program: str, host: str | None, session_id: str | None
) -> ActiveBrake | None:
    """Return the oldest brake that holds what was asked for in a session; or None.

    Where it would run is known by itself, else by its session, else by where its agent is at work.
    """
    if not load_active_brakes():
        return None
    host = host or (load_session_host_or_none(session_id) if session_id else None)
    if host is None and agent_id is not None:
        return find_brake_on_agent(agent_id, [program])
    return find_brake_on_call((agent_id, program), host)


def is_request_braked(request: PermissionRequest) -> bool:
    """Say whether a brake holds the requester, so that the request cannot be approved now."""
    asker = request_requester(request)
    return find_brake_on_request(asker.agent_id, request.plugin_id, asker.host, asker.session_id) is not None


def load_session_host_or_none(session_id: str) -> str | None:
    """Return the host that a session is known to run on."""
    return Session.objects.filter(pk=session_id).values_list("hostname", flat=True).first() or None


def find_brake_on_agent(agent_id: str, programs: Iterable[str]) -> ActiveBrake | None:
    """Return the oldest brake that may hold a call of an agent of which nobody knows from where it comes; or None.

    `programs` are the agent programs that may make it. It may come from every host on which the agent has a session
    that runs, and from anywhere where it has none, or one of an unknown host.
    """
    on, names = load_active_brakes(), [agent_id, *programs]
    hosts = (
        running_session_hosts_of_agent(agent_id)
        if any(brake.reach == BrakeReach.HOST for brake in on)
        else set()
    )
    for brake in on:
        if brake.reach == BrakeReach.HOST:
            if not hosts or None in hosts or brake.name in hosts:
                return brake
        elif brake.applies_to(names, None):
            return brake
    return None


def find_brakes_by_agent(agent_ids: Iterable[str], programs: Iterable[str]) -> dict[str, ActiveBrake]:
    """Return what holding_agent says of several agents, for those that are held: one query where no brake is on."""
    if not load_active_brakes():
        return {}
    names = list(programs)
    brakes_by_agent = {agent_id: find_brake_on_agent(agent_id, names) for agent_id in agent_ids}
    return {agent_id: brake for agent_id, brake in brakes_by_agent.items() if brake is not None}


def running_session_hosts_of_agent(agent_id: str) -> set[str | None]:
    running = Session.objects.filter(agent_name=agent_id, status=SessionStatus.RUNNING)
    # The gateway's own sessions say nothing of where their clients are.
    return {
        host or None for host in running.exclude(executor_profile=GATEWAY).values_list("hostname", flat=True)
    }
