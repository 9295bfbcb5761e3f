"""Binding of API keys of scope `agent` to the agents that they act for.

New installations refuse such keys where they are bound to none. Databases that were in use before go on accepting them
until an administrator binds each to the agents that it has acted for; from then on they are refused there too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from coordinator.actions.agents import agents, deleted_agents
from coordinator.actions.audit import audit
from coordinator.actions.people import keys
from coordinator.actions.upkeep import changed_columns
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.identity.actors import key_actor_by_name as key_actor
from coordinator.identity.keys import (
    ALLOW,
    REFUSE,
    UNBOUND_KEYS,
    accepts_keys_without_agent,
    is_unbound_agent_key,
    key_refusal_reason_or_empty,
)
from coordinator.identity.scopes import SPEAK_AS_AGENTS
from coordinator.lib.identifiers import slugify_name_as_agent_id
from coordinator.models import (
    Agent,
    ApiKey,
    DeletedAgent,
    GatewayCall,
    GatewaySession,
    InstallationSetting,
    PermissionContext,
    SessionWriter,
)

ENGINE = "external"  # of an agent that a program on some machine is: no plugin of ours runs it


@dataclass(frozen=True, slots=True)
class UnboundKey:
    """A key that speaks for any agent, and the agents that it has spoken for so far."""

    key: ApiKey
    spoken_for: list[str]


def create_agent_named_like_key(key_name: str, *, actor: Actor, now: datetime) -> Agent:
    """Make the agent that a new key of that name is bound to.

    Raises UnprocessableRequest, or Conflict where its id is taken.
    """
    key_name = key_name.strip()
    if not key_name:
        raise UnprocessableRequest("A key needs a name that says who uses it.")
    agent_id = slugify_name_as_agent_id(key_name)
    if Agent.objects.filter(pk=agent_id).exists():
        raise Conflict(f"There is an agent {agent_id} already. Choose it, or give the key another name.")
    return agents.create_agent(agent_id, name=key_name, default_engine_id=ENGINE, actor=actor, now=now)


def create_bound_key(
    *,
    name: str,
    scopes: Iterable[str],
    actor: Actor,
    now: datetime,
    agent_id: str | None = None,
    expires_at: datetime | None = None,
) -> tuple[ApiKey, str]:
    """Make a key as `keys.create` does; one of scope `agent` without an agent is bound to a new one of its name."""
    with transaction.atomic():
        wanted_scopes = set(scopes)
        if not agent_id and SPEAK_AS_AGENTS & wanted_scopes:
            agent_id = create_agent_named_like_key(name, actor=actor, now=now).pk
        return keys.issue_api_key(
            name=name, scopes=wanted_scopes, actor=actor, now=now, agent_id=agent_id, expires_at=expires_at
        )


def list_unbound_keys(now: datetime) -> list[UnboundKey]:
    """Return the keys in force that are bound to no agent, by name. None where such keys are refused."""
    if not accepts_keys_without_agent():
        return []
    rows = ApiKey.objects.filter(agent_id=None, agent_ids=None, revoked_at=None).order_by("name")
    unbound = [row for row in rows if is_unbound_agent_key(row) and not key_refusal_reason_or_empty(row, now)]
    spoken_for = find_agents_used_by_keys(unbound)
    return [UnboundKey(key, sorted(spoken_for[key.pk])) for key in unbound]


def bind_keys_and_refuse_unbound(*, actor: Actor, now: datetime) -> list[UnboundKey]:
    """Bind each unbound key to the agents that it has spoken for, and refuse unbound keys from now on.

    A key that has spoken for no agent stays unbound, and is refused. Returns the keys with their agents. Raises
    Conflict where unbound keys are refused already.
    """
    with transaction.atomic():
        setting = InstallationSetting.objects.filter(pk=UNBOUND_KEYS, value=ALLOW)
        unbound_keys = list_unbound_keys(now)
        if not setting.update(value=REFUSE, changed_at=now, changed_by=str(actor)):
            raise Conflict("Keys that are bound to no agent are refused here already.")
        for unbound in unbound_keys:
            if unbound.spoken_for:
                save_key_binding(unbound.key, unbound.spoken_for, actor=actor, now=now)
        refused = [unbound.key.name for unbound in unbound_keys if not unbound.spoken_for]
        audit.record_audit_entry(
            "UNBOUND_KEYS_REFUSED",
            actor=actor,
            target=UNBOUND_KEYS,
            result="success",
            metadata={"refused": refused},
            now=now,
        )
    return unbound_keys


def bind_key_to_agents(name: str, agent_ids: Sequence[str], *, actor: Actor, now: datetime) -> ApiKey:
    """Bind a key to these agents instead of any others.

    Raises NotFound, UnprocessableRequest, or Conflict for a revoked key.

    Conflict, too, for the id of a deleted agent that something names still.
    """
    if not agent_ids:
        raise UnprocessableRequest("Name at least one agent.")
    for agent_id in agent_ids:
        changed_columns.require_valid_id(agent_id, "An agent's id")
        deleted_agents.require_no_deleted_agent_references(agent_id)
    with transaction.atomic():
        row = ApiKey.objects.select_for_update().filter(name=name).first()
        if row is None:
            raise NotFound(f"There is no key named {name!r}.")
        if row.revoked_at is not None:
            raise Conflict(f"The key {name!r} is revoked.")
        save_key_binding(row, agent_ids, actor=actor, now=now)
    return row


def save_key_binding(row: ApiKey, agent_ids: Iterable[str], *, actor: Actor, now: datetime) -> None:
    before, bound = sorted(row.bound_agent_ids_or_none or ()), sorted(set(agent_ids))
    row.agent_id, row.agent_ids = (bound[0], None) if len(bound) == 1 else (None, bound)
    row.save(update_fields=["agent_id", "agent_ids"])
    metadata = {"before": before, "after": bound}
    audit.record_audit_entry(
        "API_KEY_BOUND", actor=actor, target=row.name, result="success", metadata=metadata, now=now
    )


def find_agents_used_by_keys(keys: Sequence[ApiKey]) -> dict[int, set[str]]:
    """Return, by key, the agents of its sessions, of its sessions and calls at the gateway, and of its requests."""
    by_name = {key.name: key.pk for key in keys}
    by_actor = {str(key_actor(key.name)): key.pk for key in keys}
    spoken_for: dict[int, set[str]] = {key.pk: set() for key in keys}
    session_writer_rows = SessionWriter.objects.filter(writer__in=by_name).values_list(
        "writer", "session__agent_name"
    )
    for name, agent_id in session_writer_rows.distinct():
        spoken_for[by_name[name]].add(agent_id or "")
    for model in (GatewaySession, GatewayCall):
        called = model.objects.filter(key_id__in=spoken_for).values_list("key_id", "agent_id")
        for key_id, agent_id in called.distinct():
            spoken_for[key_id].add(agent_id)
    requested = PermissionContext.objects.filter(requested_by__in=by_actor)
    for actor, agent_id in requested.values_list("requested_by", "agent_id").distinct():
        spoken_for[by_actor[actor]].add(agent_id or "")
    deleted = set(DeletedAgent.objects.values_list("pk", flat=True))
    return {key_id: names - {""} - deleted for key_id, names in spoken_for.items()}
