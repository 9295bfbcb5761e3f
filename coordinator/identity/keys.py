"""Who calls with an API key, as doors and rules know it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from coordinator.errors import Forbidden, Unauthorized
from coordinator.identity.actors import Actor
from coordinator.identity.actors import key as key_actor
from coordinator.identity.scopes import SCOPES
from coordinator.models import ApiKey, RevokedKey, UnreadableText

UNKNOWN = "This API key is unknown or was revoked."
EXPIRED = "This API key has expired."


@dataclass(frozen=True, slots=True)
class KeyIdentity:
    """Who a valid key is: what doors know of their caller. `agent_id` is set where it speaks as an agent.

    `session_id` is set for the key of a driven agent, which is good at the gateway alone; its `id` is below zero.
    """

    id: int
    name: str
    scopes: frozenset[str]
    agent_id: str | None = None
    expires_at: datetime | None = field(default=None, compare=False)
    session_id: str | None = None

    @property
    def actor(self) -> Actor:
        return key_actor(self.name)

    def require(self, scopes: Iterable[str]) -> None:
        """Raise Forbidden unless the key has one of `scopes`."""
        wanted = frozenset(scopes)
        if not self.scopes & wanted:
            raise Forbidden(
                f"This key's scopes ({', '.join(sorted(self.scopes)) or 'none'}) do not allow this. "
                f"It needs one of these scopes: {', '.join(sorted(wanted))}."
            )


class KeyEnded(Unauthorized):
    """A key that was made here, and was revoked or has expired."""


# Who calls where SIGNALBOX_API_AUTH=off: a program on this machine, which may do what keys may do.
LOCAL_PROGRAM = KeyIdentity(id=0, name="local-program", scopes=frozenset(SCOPES))


def problem_of(key: ApiKey, now: datetime) -> str:
    """Return why a key is refused by now, as its caller is told; nothing where it is good."""
    if key.revoked_at is not None or RevokedKey.objects.filter(pk=key.key_hash).exists():
        return UNKNOWN
    ends = key.expires_at
    return EXPIRED if isinstance(ends, UnreadableText) or (ends is not None and ends <= now) else ""
