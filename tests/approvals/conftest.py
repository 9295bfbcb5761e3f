"""Fixtures named for the thing they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from coordinator.actions.people import keys
from coordinator.identity.actors import Actor
from tests.approvals.factories import person
from tests.unbound import accept_unbound_keys


@pytest.fixture
def call(db: None) -> Callable[..., HttpResponse]:
    """A function that calls the API: `call("get", "/api/…", scope="read", agent_id=None, json={…})`."""
    made: dict[tuple[str, str | None], str] = {}

    def send(
        method: str,
        path: str,
        json: Any = None,
        *,
        scope: str = "agent",
        agent_id: str | None = None,
        **headers: str,
    ) -> HttpResponse:
        if (scope, agent_id) not in made:
            accept_unbound_keys()
            _, made[scope, agent_id] = keys.issue_api_key(
                name=f"{scope}-{agent_id}",
                scopes=[scope],
                actor=Actor("user", "owner"),
                now=timezone.now(),
                agent_id=agent_id,
            )
        sent = {"Authorization": f"Bearer {made[scope, agent_id]}", **headers}
        body = {} if json is None else {"data": json, "content_type": "application/json"}
        return getattr(Client(), method)(path, headers=sent, **body)

    return send


@pytest.fixture
def signed_in(db: None) -> Callable[..., Client]:
    """A function that gives the browser of a person with a role, who is signed in."""

    def browser(name: str = "alice", role: str | None = "approver", **options: Any) -> Client:
        client = Client(**options)
        client.force_login(person(name, role))
        return client

    return browser
