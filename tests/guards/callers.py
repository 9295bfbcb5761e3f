"""Everybody who may knock: people by role, keys by scope, keys that are no good any more."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.identity.actors import system_actor
from coordinator.identity.scopes import SCOPES
from coordinator.models import ApiKey
from tests.unbound import accept_unbound_keys

PEOPLE = ("newcomer", "viewer", "approver", "admin", "superuser")
RANK = {"signed_in": 0, "viewer": 1, "approver": 2, "admin": 3}
RANK_OF = {"newcomer": 0, "viewer": 1, "approver": 2, "admin": 3, "superuser": 3}
AGENT = "agent.guarded"


def people() -> dict[str, User]:
    """Return one person a role, without passwords (hashing each would take its time)."""
    found = {}
    for name in PEOPLE:
        found[name] = User.objects.create(username=name, is_superuser=name == "superuser")
        if group := Group.objects.filter(name=name).first():
            found[name].groups.add(group)
    return found


def browser(person: User) -> Client:
    """Return a client that is signed in as somebody."""
    client = Client(raise_request_exception=False)
    client.force_login(person)
    return client


def key(name: str, *scopes: str, agent_id: str | None = None) -> str:
    """Return a key's secret."""
    now, by = timezone.now(), system_actor("tests")
    accept_unbound_keys()
    return keys.issue_api_key(name=name, scopes=scopes, actor=by, now=now, agent_id=agent_id)[1]


def with_key(raw: str) -> Client:
    """Return a program's client."""
    return Client(raise_request_exception=False, headers={"Authorization": f"Bearer {raw}"})


def programs() -> dict[str, tuple[str, frozenset[str]]]:
    """Return keys by what they are, each with the scopes that open doors for it."""
    made = {scope: (key(f"guard-{scope}", scope), frozenset({scope})) for scope in SCOPES}
    made["agent of its own"] = (key("guard-bound", "agent", agent_id=AGENT), frozenset({"agent"}))
    for name in ("expired", "revoked"):
        made[name] = (key(f"guard-{name}", *SCOPES), frozenset())
    past = timezone.now() - timedelta(seconds=1)
    ApiKey.objects.filter(name="guard-expired").update(expires_at=past)
    row = ApiKey.objects.get(name="guard-revoked")
    keys.invalidate_api_key(row.pk, actor=system_actor("tests"), now=timezone.now())
    return made
