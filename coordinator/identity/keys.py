"""Who calls with an API key, as endpoints and rules know it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from coordinator.errors import Forbidden, Unauthorized
from coordinator.identity.actors import Actor
from coordinator.identity.actors import key_actor_by_name as key_actor
from coordinator.identity.scopes import SCOPES, SPEAK_AS_AGENTS
from coordinator.models import ApiKey, InstallationSetting, RevokedKey, UnreadableText

UNKNOWN = "This API key is unknown or was revoked."
EXPIRED = "This API key has expired."
UNBOUND = (
    "This API key has the scope agent and is bound to no agent. Such keys are refused here: make one that is bound, or "
    "bind it with `signalbox manage apikey bind`."
)
# The stored setting that says whether such keys are let in: `allow` in databases that were in use before they were
# refused, until an administrator binds them. No row means that they are refused.
UNBOUND_KEYS, ALLOW, REFUSE = "unbound_agent_keys", "allow", "refuse"


@dataclass(frozen=True, slots=True)
class KeyIdentity:
    """Who a valid key is: what endpoints know of their caller. `agent_id` is set where it speaks as an agent.

    A key that is bound to several has them in `agents`, and each request says as which it speaks (`speaking_as`).
    `session_id` is set for the key of a driven agent, which is good at the gateway alone; its `id` is below zero.
    """

    id: int
    name: str
    scopes: frozenset[str]
    agent_id: str | None = None
    expires_at: datetime | None = field(default=None, compare=False)
    session_id: str | None = None
    agents: frozenset[str] | None = None

    @property
    def is_bound_to_agents(self) -> bool:
        """Say whether the key speaks for certain agents alone."""
        return self.agent_id is not None or self.agents is not None

    @property
    def bound_agents(self) -> frozenset[str]:
        """The agents that the key is bound to; none for one that is not bound."""
        return frozenset({self.agent_id}) if self.agent_id is not None else self.agents or frozenset()

    @property
    def bound_agents_label(self) -> str:
        """The agents that the key is bound to, as a message lists them."""
        return ", ".join(sorted(self.bound_agents)) or "no agent that can be read"

    def can_speak_for_agent(self, agent_id: str | None) -> bool:
        """Say whether the key may speak for this agent."""
        return not self.is_bound_to_agents or agent_id in self.bound_agents

    def agent_name_for_report(self, reported: str | None) -> str | None:
        """Return whose a session is that the key reports: the reported agent's, unless the key is bound to others."""
        return reported if self.can_speak_for_agent(reported) else min(self.bound_agents, default=None)

    def restrict_to_agent(self, agent_id: str) -> KeyIdentity:
        """Return the caller as one agent: of several the named one, else whom it is bound to. Raises Forbidden."""
        if self.agents is None:
            return self
        if agent_id not in self.agents:
            raise Forbidden(
                f"This key is bound to {self.bound_agents_label} and may not speak for {agent_id}."
            )
        return replace(self, agent_id=agent_id, agents=None)

    @property
    def caller_actor(self) -> Actor:
        return key_actor(self.name)

    def require_any_scope(self, scopes: Iterable[str]) -> None:
        """Raise Forbidden unless the key has one of `scopes`."""
        scope_set = frozenset(scopes)
        if not self.scopes & scope_set:
            raise Forbidden(
                f"This key's scopes ({', '.join(sorted(self.scopes)) or 'none'}) do not allow this. "
                f"It needs one of these scopes: {', '.join(sorted(scope_set))}."
            )


class KeyEnded(Unauthorized):
    """A key that was made here, and was revoked or has expired."""


# Who calls where SIGNALBOX_API_AUTH=off: a program on this machine, which may do what keys may do.
LOCAL_PROGRAM = KeyIdentity(id=0, name="local-program", scopes=frozenset(SCOPES))


def accepts_keys_without_agent() -> bool:
    """Say whether this installation still lets keys of scope `agent` in that are bound to no agent."""
    return InstallationSetting.objects.filter(pk=UNBOUND_KEYS, value=ALLOW).exists()


def is_unbound_agent_key(key: ApiKey) -> bool:
    """Say whether a key has the scope `agent` and is bound to no agent."""
    return key.bound_agent_ids_or_none is None and bool(SPEAK_AS_AGENTS & set(key.scope_names))


def key_refusal_reason_or_empty(key: ApiKey, now: datetime) -> str:
    """Return why a key is refused by now, as its caller is told; nothing where it is good."""
    if key.revoked_at is not None or RevokedKey.objects.filter(pk=key.key_hash).exists():
        return UNKNOWN
    ends = key.expires_at
    if isinstance(ends, UnreadableText) or (ends is not None and ends <= now):
        return EXPIRED
    return UNBOUND if is_unbound_agent_key(key) and not accepts_keys_without_agent() else ""
