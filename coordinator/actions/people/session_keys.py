"""Keys of driven agents for the MCP gateway: one for each agent's process, made when its runner starts it.

A key calls the gateway as the session's agent and does nothing else. It is sent once, to the runner that holds the
session's run, and ends with the agent's process. Leftover keys are removed by housekeeping.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from coordinator.actions.agents import deleted_agents
from coordinator.actions.audit import audit
from coordinator.actions.driving.session_runners import require_last_run_of_runner
from coordinator.actions.people import keys
from coordinator.errors import Conflict
from coordinator.identity import session_keys
from coordinator.identity.actors import Actor, system_actor
from coordinator.mcp.gateway import visibility as reach
from coordinator.mcp.servers.names import GATEWAY
from coordinator.models import Agent, ApiKey, LivingExecutor, Run, Runner, Session, SessionKey
from coordinator.runs import blueprints, offers
from coordinator.runs.statuses import ACTIVE
from coordinator.sessions.agent_programs import AGENT_TITLES

AT_MOST = timedelta(days=7)  # for which a key is good where nothing ends it
BY = system_actor("runner")
SWITCH = "mcp_gateway"  # false in an agent's metadata: its driven sessions get no gateway
PAGE = 500  # keys that are read at a time


@dataclass(frozen=True, slots=True)
class GatewayKey:
    """The gateway access of one agent: the agent that it calls as, and its key. Sent once.

    The key is empty where no endpoint asks for one.
    """

    agent_id: str
    key: str


def issue_gateway_key_or_none(
    session_id: str, runner: Runner, *, program: str, now: datetime
) -> GatewayKey | None:
    """Make the key of the session's agent, in place of an earlier one; None where the agent gets no gateway.

    `program` is the agent's name as its runner has it. Raises NotFound, Forbidden where another runner holds the
    session, and Conflict where none of its runs is in hand.
    """
    with transaction.atomic():
        run = require_last_run_of_runner(session_id, runner)
        Session.objects.select_for_update(no_key=True).filter(pk=session_id).first()
        if not Run.objects.filter(pk=run.pk, status__in=ACTIVE).exists():
            raise Conflict("No run of this session is running.")
        end_session_key(session_id, "Its agent is being restarted.", now)
        agent_id = find_gateway_key_agent_id(run, runner, program, now)
        if agent_id is None:
            return None
        if not settings.API_AUTH:
            return GatewayKey(agent_id, "")
        raw = keys.generate_api_key()
        SessionKey.objects.create(
            key_hash=keys.hash_api_key(raw),
            session_id=session_id,
            agent_id=agent_id,
            runner_id=runner.runner_id,
            created_at=now,
            expires_at=now + AT_MOST,
        )
        metadata = {"agent_id": agent_id, "runner_id": runner.runner_id}
        audit.record_audit_entry(
            "SESSION_KEY_MADE", actor=BY, target=session_id, result="success", metadata=metadata, now=now
        )
    return GatewayKey(agent_id, raw)


def find_gateway_key_agent_id(run: Run, runner: Runner, program: str, now: datetime) -> str | None:
    """Return as which agent a run's calls are judged; None where it gets no gateway.

    That is the run's blueprint, else an agent of the runner's key (`find_agent_of_runner_key`). Nothing is handed to
    whom nothing is open, nor to an agent that was deleted, nor where it or its blueprint switched it off.
    """
    agent_id = run.agent_name or find_agent_of_runner_key(runner, program)
    if not agent_id or is_gateway_switched_off(agent_id, run) or deleted_agents.is_agent_deleted(agent_id):
        return None
    return agent_id if reach.can_agent_reach_any_tool(agent_id, now) else None


def find_agent_of_runner_key(runner: Runner, program: str) -> str | None:
    """Return the agent as which the runner's key lets `program` call; None where the key is bound to others.

    That is the only agent that the key is bound to. Of several it is the one that is named as the program. A key that
    is bound to none has the program itself.
    """
    key = ApiKey.objects.filter(name=runner.registered_by).first()
    bound = key.bound_agent_ids_or_none if key is not None else None
    if bound is not None and len(bound) == 1:
        return min(bound)
    name = find_offered_program_name(runner, program)
    return name if bound is None or name in bound else None


def find_offered_program_name(runner: Runner, reported: str) -> str | None:
    """Return the name of the agent's program, as hooks say it; None for one that is not known, or not offered."""
    offered = {
        offered_agent["name"]
        for offered_agent in offers.list_agents_in_offers(
            offers.load_offers_by_runner_id([runner.pk]).get(runner.pk)
        )
    }
    name = offers.PROGRAMS.get(reported, reported)
    return name if reported in offered and name in AGENT_TITLES else None


def is_gateway_switched_off(agent_id: str, run: Run) -> bool:
    metadata = Agent.objects.filter(pk=agent_id).values_list("metadata", flat=True).first()
    if isinstance(metadata, dict) and metadata.get(SWITCH) is False:
        return True
    blueprint = blueprints.find_unmasked_blueprint_as_json(run.agent_name)
    servers = blueprint.get("mcp_servers") if blueprint else None
    return isinstance(servers, dict) and GATEWAY in servers


def end_session_key(session_id: str, reason: str, now: datetime | None = None, *, actor: Actor = BY) -> None:
    """End the key of a session's agent, if it has one."""
    deleted_count, _ = SessionKey.objects.filter(session_id=session_id).delete()
    if deleted_count:
        audit.record_audit_entry(
            "SESSION_KEY_ENDED", actor=actor, target=session_id, result="success", reason=reason, now=now
        )


def end_orphaned_session_keys(now: datetime) -> None:
    """End keys that are over, and those whose agent's process is gone without anybody having said so."""
    last = 0
    while page := list(SessionKey.objects.filter(pk__gt=last).order_by("id")[:PAGE]):
        for key in page:
            end_session_key_if_orphaned(key, now)
        last = page[-1].pk


def end_session_key_if_orphaned(key: SessionKey, now: datetime) -> None:
    with transaction.atomic():
        Session.objects.select_for_update(no_key=True).filter(pk=key.session_id).first()
        if not session_keys.is_key_of_runner_valid(key.runner_id, now):
            end_session_key(key.session_id, "Its runner's key is no longer valid.", now)
            return
        is_over = not isinstance(key.expires_at, datetime) or key.expires_at <= now
        if is_over or not is_session_process_active(key.session_id):
            end_session_key(key.session_id, "Its agent is gone.", now)


def is_session_process_active(session_id: str) -> bool:
    if LivingExecutor.objects.filter(pk=session_id).exists():
        return True
    return Run.objects.filter(session_id=session_id, status__in=ACTIVE).exists()
