"""Who acts: a signed-in person, an API key, or Signalbox itself. Every audit row names one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from coordinator.errors import Forbidden


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did something, as the audit log writes it: `user:alice`, `key:ci-runner`, `system:housekeeping`."""

    kind: Literal["user", "key", "system"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def person_actor(user: AbstractBaseUser | AnonymousUser) -> Actor:
    """Return the actor for a signed-in person."""
    return Actor("user", user.get_username())


def key_actor_by_name(name: str) -> Actor:
    """Return the actor for an API key, by the key's name."""
    return Actor("key", name)


def system_actor(part: str) -> Actor:
    """Return the actor for a part of Signalbox that acts on its own, such as `housekeeping`."""
    return Actor("system", part)


def require_actor_not_api_key(actor: Actor, refusal_text: str) -> None:
    """Raise Forbidden with this text for an API key: what a person alone may change."""
    if actor.kind == "key":
        raise Forbidden(refusal_text)
