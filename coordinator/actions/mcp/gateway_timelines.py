"""The session whose timeline shows an agent's calls through the MCP gateway: its running one, else one made here.

In an agent's own session its hooks report the same calls. The two are one call there: the gateway's events carry the id
that the agent gave it. Where the agent's program names its session or its call itself (an AgentCallIds), that is
trusted as far as no decision depends on it: it chooses among the running sessions of the caller's own agent, and among
the calls there that have the same tool and arguments.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Q, QuerySet

from coordinator.actions.sessions import events, inactivity, origins, reported_sessions
from coordinator.identity import ownership
from coordinator.identity.keys import KeyIdentity
from coordinator.lib import instants
from coordinator.mcp.protocol.agent_call_ids import NO_CLAIM, AgentCallIds
from coordinator.mcp.servers import names
from coordinator.models import Event, EventContext, PermissionContext, Session
from coordinator.models.gateway import BY_GATEWAY
from coordinator.models.permissions import RequestStatus
from coordinator.models.sessions import SessionStatus
from coordinator.policy.requests.approvals import canonical_json_bytes
from coordinator.policy.requests.tool_calls import GATEWAY
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.events import NewEvent
from coordinator.sessions.reports import SessionLocation

NEAR = timedelta(minutes=2)  # how long before a call arrives at the gateway its agent may report its start
LIKELY = 20  # calls of a session among which the one that comes to the gateway is looked for
MOST_RUNNING = (
    200  # running sessions of an agent, the newest first, among which the call that it names is looked for
)
CLOSED = "MCP session closed"


class TimelineSession(NamedTuple):
    """A session, whether its agent reports its own events there, and whether it is certainly the caller's."""

    session_id: str
    is_agents: bool
    is_certain: bool = True


class ReportedCall(NamedTuple):
    """A call's beginning as its agent reported it: the event, the agent's id for the call and name for the tool.

    `event_id` is None for a call that the agent's program names and its hooks have not reported yet.
    """

    event_id: int | None
    call_id: str
    tool_name: str


def reopen_or_create_timeline_session(
    own: str,
    named: str | None,
    agent_id: str,
    caller: KeyIdentity,
    now: datetime,
    *,
    claim: AgentCallIds = NO_CLAIM,
) -> TimelineSession:
    """Return the session: the one that the client names, or claims, the agent's only running one, or one for `own`.

    A driven agent's key determines its session. `own` distinguishes the client's connections. A session that the key
    may not write into is ignored.
    """
    if caller.session_id is not None:
        driven_session = find_existing_session_id(caller.session_id)
    elif named:
        driven_session = find_client_named_session_id(named, caller)
    else:
        driven_session = find_agent_claimed_session_id(
            claim, agent_id, caller
        ) or find_only_running_session_id(agent_id, caller)
    if driven_session is not None:
        inactivity.reopen_session_ended_by_silence(driven_session, now)
        is_certain = caller.session_id is not None or named is not None
        return TimelineSession(driven_session, is_agents=True, is_certain=is_certain)
    where = SessionLocation(agent_name=agent_id, profile=GATEWAY, by=caller)
    session_id = reported_sessions.reopen_or_create_session(f"{GATEWAY}:{own}", where, now).session_id
    return TimelineSession(session_id, is_agents=False)


def end_connection_session(own: str, now: datetime) -> None:
    """End the session that was made for a client's connection: it is closed. One with an open question stays."""
    session_id = reported_sessions.find_session_id_by_executor_id(f"{GATEWAY}:{own}")
    if session_id is None or reported_sessions.is_session_finished(session_id):
        return
    if PermissionContext.objects.filter(
        session_id=session_id, request__status=RequestStatus.PENDING
    ).exists():
        return  # its client may come back for the answer; silence ends it
    at = instants.format_canonical_instant(now)
    stop = NewEvent(
        event_type="session_stop", session_id=session_id, timestamp=at, reason=CLOSED, source=BY_GATEWAY
    )
    events.record_events([stop], now)


def claim_reported_call(
    session_id: str,
    server_id: str,
    tool: str,
    arguments: Any,
    *,
    as_call: str,
    now: datetime,
    claimed: str = "",
) -> ReportedCall | None:
    """Return the newest call of these arguments that its agent reported just now, linked to our call `as_call`.

    None where there is none, or another call of ours has it. Its agent has not reported its end. Where the agent's
    program has `claimed` an id, it is the call of that id and no other, as soon as its agent reports it.
    """
    if claimed and not is_call_reported(session_id, claimed):
        is_ours = origins.claim_event_origin_in_session(session_id, build_gateway_call_origin(claimed), now)
        if is_ours:
            origins.claim_event_origin_in_session(
                session_id, build_gateway_call_origin(claimed, as_call), now
            )
        return ReportedCall(None, claimed, "") if is_ours else None
    argument_bytes = canonical_json_bytes(
        mask_secrets_in_value(arguments if isinstance(arguments, dict) else {})
    )
    if (
        claimed
    ):  # it may have waited for a person, at its agent, for long; and the agent may call the server otherwise
        rows = filter_call_start_events(session_id, Q(tool_name__endswith=f"_{names.name_in_calls(tool)}"))
        rows = rows.exclude(context__source=BY_GATEWAY).filter(context__tool_use_id=claimed)
    else:
        rows = filter_reported_call_start_events(session_id, server_id, tool)
        rows = rows.filter(context__instant_us__gte=instants.instant_to_microseconds(now - NEAR))
    reported_rows = rows.values_list("id", "context__tool_use_id", "tool_name", "tool_input")[:LIKELY]
    alike = [
        ReportedCall(row[0], row[1] or "", row[2] or "")
        for row in reported_rows
        if canonical_json_bytes(row[3] or {}) == argument_bytes
    ]
    ended = find_ended_call_ids(session_id, [open_call.call_id for open_call in alike])
    for open_call in alike:
        if open_call.call_id not in ended and origins.claim_event_origin_in_session(
            session_id, build_gateway_call_origin(open_call.call_id), now
        ):
            origins.claim_event_origin_in_session(
                session_id, build_gateway_call_origin(open_call.call_id, as_call), now
            )
            return open_call
    return None


def find_claimed_call(session_id: str, tool: str, *, as_call: str, now: datetime) -> ReportedCall | None:
    """Return the call that was taken for our call of this id when that began; None where none was."""
    begun = filter_call_start_events(session_id, Q(tool_name__endswith=f"_{names.name_in_calls(tool)}"))
    rows = begun.values_list("id", "context__tool_use_id", "tool_name")
    calls = [ReportedCall(event_id, call_id or "", name or "") for event_id, call_id, name in rows[:LIKELY]]
    calls_by_origin = {build_gateway_call_origin(call.call_id, as_call): call for call in calls}
    claimed_origins = (
        origins.filter_claimed_origins({(session_id, key) for key in calls_by_origin}, now)
        if calls_by_origin
        else set()
    )
    return next((calls_by_origin[key] for key in claimed_origins), None)


def build_gateway_call_origin(call_id: str, as_call: str = "") -> str:
    """Return the origin that marks a call reported by its agent as one of ours, or as the call `as_call`."""
    return f"gateway {as_call}:{call_id}"


def is_call_reported(session_id: str, call_id: str) -> bool:
    """Return whether the session has an event of a call of this id."""
    return EventContext.objects.filter(session_id=session_id, tool_use_id=call_id).exists()


def filter_reported_call_start_events(session_id: str, server_id: str, tool: str) -> QuerySet[Event]:
    """Return the start events, newest first, that agents reported of calls that may be of this tool."""
    server, tool_part = names.name_in_calls(server_id), names.name_in_calls(tool)
    # Each agent joins the names of server and tool in its own way; one server's own endpoint may be called `signalbox`.
    may_be = Q(tool_name__contains=server, tool_name__endswith=f"_{tool_part}")
    own_endpoint_names = [
        f"{before}{names.GATEWAY}{by}{tool_part}"
        for before in ("", "mcp_", names.PREFIX)
        for by in ("_", "__")
    ]
    call_starts = filter_call_start_events(session_id, may_be | Q(tool_name__in=own_endpoint_names))
    return call_starts.exclude(context__source=BY_GATEWAY)


def filter_call_start_events(session_id: str, condition: Q) -> QuerySet[Event]:
    """Return the beginnings, newest first, of a session's calls that have an id."""
    starts = Event.objects.filter(condition, event_type="pre_tool", context__session_id=session_id)
    starts = starts.filter(context__tool_use_id__isnull=False)
    return starts.order_by("-context__instant_us", "-id")


def find_ended_call_ids(session_id: str, call_ids: list[str]) -> set[str | None]:
    ends = Event.objects.filter(
        session_id=session_id, event_type="post_tool", context__tool_use_id__in=call_ids
    )
    return set(ends.values_list("context__tool_use_id", flat=True)) if call_ids else set()


def find_existing_session_id(session_id: str) -> str | None:
    return session_id if Session.objects.filter(pk=session_id).exists() else None


def find_client_named_session_id(named: str, caller: KeyIdentity) -> str | None:
    ids = [
        *Session.objects.filter(pk=named).values_list("pk", flat=True),
        *Session.objects.filter(executor_session_id=named).values_list("pk", flat=True)[:5],
    ]
    closed = ownership.find_session_write_refusals(caller, ids)
    return next((session_id for session_id in ids if session_id not in closed), None)


def find_agent_claimed_session_id(claim: AgentCallIds, agent_id: str, caller: KeyIdentity) -> str | None:
    """Return the running session of the agent in which its program says that it makes the call; None for no one.

    Only one that runs: no claim takes a call out of the session whose budgets it would count for without it.
    """
    running = filter_running_agent_sessions(agent_id)
    if claim.session:
        ids = list(running.filter(executor_session_id=claim.session).values_list("pk", flat=True)[:2])
    elif claim.call_id:
        newest = list(running.order_by("-created_at").values_list("pk", flat=True)[:MOST_RUNNING])
        calls = EventContext.objects.filter(session_id__in=newest, tool_use_id=claim.call_id)
        calls = calls.filter(event__event_type="pre_tool").exclude(source=BY_GATEWAY)
        ids = list(calls.values_list("session_id", flat=True).distinct()[:2])
    else:
        return None
    if len(ids) != 1 or ownership.find_session_write_refusals(caller, ids):
        return None
    return str(ids[0])


def filter_running_agent_sessions(agent_id: str) -> QuerySet[Session]:
    running = Session.objects.filter(agent_name=agent_id, status=SessionStatus.RUNNING)
    return running.exclude(executor_profile=GATEWAY)


def find_only_running_session_id(agent_id: str, caller: KeyIdentity) -> str | None:
    ids = list(filter_running_agent_sessions(agent_id).values_list("pk", flat=True)[:2])
    return ids[0] if len(ids) == 1 and not ownership.find_session_write_refusals(caller, ids) else None
