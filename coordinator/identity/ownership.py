"""Whose a session is: which keys may write into it, and which may read it.

- A key of scope `operator` reads and writes all; so does the local program where keys are switched off.
- A key bound to an agent, or to several, writes into their sessions and into those that it made. Unless it has a
  scope that reads everything, it reads those alone, and any other is to it as if it did not exist.
- A key of scope `agent` without an agent speaks for all agents. Only installations that are older than their refusal
  let such keys in, until an administrator binds them.
- A runner's key writes into the sessions that it made and into those whose runs a runner of this key has taken.
  One that no runner has taken yet is nobody's: the executor-facing endpoints were open so far, and stay so.

These rules only read; the rows they go by are written in coordinator.actions.sessions.writers.
"""

from __future__ import annotations

from collections.abc import Iterable

from django.db.models import Q, QuerySet

from coordinator.errors import Conflict, Forbidden, NotFound, SignalboxError
from coordinator.identity.keys import KeyIdentity
from coordinator.identity.scopes import READ_ALL, SPEAK_AS_AGENTS, TAKE_RUNS, WRITE_ALL
from coordinator.models import Session, SessionWriter


def can_write_all_sessions(caller: KeyIdentity) -> bool:
    """Say whether no session is closed to this key."""
    writes = WRITE_ALL if caller.is_bound_to_agents else WRITE_ALL | SPEAK_AS_AGENTS
    return bool(caller.scopes & writes)


def can_read_all_sessions(caller: KeyIdentity) -> bool:
    """Say whether the key may look at every session."""
    return not caller.is_bound_to_agents or bool(caller.scopes & READ_ALL)


def readable_sessions(caller: KeyIdentity) -> QuerySet[Session]:
    """Return the sessions that the key may look at."""
    everything = Session.objects.all()
    return everything if can_read_all_sessions(caller) else everything.filter(own_sessions_condition(caller))


def require_session_read_access(caller: KeyIdentity, session_id: str | None) -> None:
    """Raise NotFound, as for one that does not exist, for a session that the key may not look at."""
    if not can_read_all_sessions(caller) and not readable_sessions(caller).filter(pk=session_id).exists():
        raise NotFound("Session not found")


def require_session_write_access(caller: KeyIdentity, *session_ids: str) -> None:
    """Raise what `find_session_write_refusals` says of the first session that the key may not write into."""
    for refusal in find_session_write_refusals(caller, session_ids).values():
        raise refusal


def find_session_write_refusals(caller: KeyIdentity, session_ids: Iterable[str]) -> dict[str, SignalboxError]:
    """Return, by session, why the key may not write into it; sessions it may write into are left out.

    A session that does not exist is refused to an agent's key just as another agent's, and left to whoever
    writes where there is nothing to hide.
    """
    matching_session_ids = {session_id for session_id in session_ids if "\x00" not in session_id}
    if not matching_session_ids or can_write_all_sessions(caller):
        return {}
    closed = matching_session_ids - set(
        Session.objects.filter(own_sessions_condition(caller), pk__in=matching_session_ids).values_list(
            "pk", flat=True
        )
    )
    if caller.scopes & TAKE_RUNS:
        session_writers = SessionWriter.objects.filter(session_id__in=closed, is_runner=True)
        closed &= set(session_writers.values_list("session_id", flat=True))
        return {session_id: Forbidden(OF_ANOTHER_RUNNER) for session_id in closed}
    return {session_id: NotFound("Session not found") for session_id in closed}


def require_unused_executor_id(caller: KeyIdentity, session_id: str, executor_session_id: str | None) -> None:
    """Raise Conflict where an agent's key would name a session by the executor's id of another.

    Hooks and telemetry are told to sessions by that id: those of the other would go astray.
    """
    if executor_session_id is None or not caller.is_bound_to_agents or can_write_all_sessions(caller):
        return
    namesakes = Session.objects.filter(executor_session_id=executor_session_id).exclude(pk=session_id)
    if namesakes.exists():
        raise Conflict("Another session has this executor_session_id")


OF_ANOTHER_RUNNER = (
    "A runner with another key is running this session. Use that runner's key, or a key of scope operator."
)


def own_sessions_condition(caller: KeyIdentity) -> Q:
    """Return the test for sessions that are the key's own, or its agent's."""
    by_key = Q(pk__in=SessionWriter.objects.filter(writer=caller.name).values("session_id"))
    return by_key | Q(agent_name__in=caller.bound_agents) if caller.is_bound_to_agents else by_key
