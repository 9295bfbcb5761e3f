"""Editors of the same grants take turns on PostgreSQL: nobody's edit is ended as a deadlock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Barrier

import pytest
from django.db import connection
from django.utils import timezone

from coordinator.actions.agents import agents
from coordinator.actions.policy import grants
from coordinator.errors import SignalboxError
from coordinator.identity.actors import Actor
from coordinator.models import Grant
from coordinator.policy.grants.edits import GrantEdit
from tests.access.cases import add_agents, add_server
from tests.patience import PATIENCE

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite has one writer at a time"),
]
ALICE = Actor("user", "alice")
ROUNDS = 40


def replace(number: int) -> None:
    verdict = "deny" if number % 2 else "allow"
    edits = [
        GrantEdit(agent, "s", None, verdict, justification=str(number)) for agent in ("agent.a", "agent.b")
    ]
    grants.apply_grant_edits(edits, actor=ALICE, now=timezone.now())


def newest() -> int:
    return Grant.objects.order_by("-id").values_list("id", flat=True)[0]


def extend(number: int) -> None:
    until = timezone.now() + timedelta(hours=2 + number)
    grants.prolong_grant(newest(), until=until, actor=ALICE, now=timezone.now())


def revoke(_number: int) -> None:
    grants.revoke_grant(newest(), actor=ALICE, now=timezone.now())


def delete_agent(_number: int) -> None:
    agents.delete_agent_with_data("agent.b", actor=ALICE)


@pytest.mark.parametrize("other", [extend, revoke, delete_agent])
def test_two_who_change_the_same_grants_at_once_take_turns(other: Callable[[int], None]) -> None:
    """Any OperationalError fails: PostgreSQL reports a deadlock so. What an action refuses is its own affair."""
    add_server("s")
    add_agents("agent.a")
    together = Barrier(2)

    def work(action: Callable[[int], None], number: int) -> None:
        try:
            together.wait(60)
            with suppress(SignalboxError):
                action(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        for number in range(ROUNDS):
            if other is delete_agent or not number:
                add_agents("agent.b")
            with suppress(SignalboxError):
                replace(number)
            for done in [pool.submit(work, action, number + 1) for action in (replace, other)]:
                done.result(PATIENCE)
