"""What may have changed is asked for after each call came, though calls that come together share an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections
from django.db.models import Max
from django.utils import timezone
from psycopg import Cursor

from coordinator.edge.gateway import freshness as instant
from coordinator.edge.gateway.freshness import FreshnessCheck
from coordinator.engine import is_sqlite
from coordinator.lib.threads import EdgeThreads
from coordinator.models import ApiKey, Change
from coordinator.policy.limits.brakes import ActiveBrake

AGENT = ("agent.one",)
BRAKE = ActiveBrake(1, "all", "", "", "user:ada")


class Slow:
    """Threads in which a look takes until it is let go on, and reads what stands there when it begins."""

    def __init__(self) -> None:
        self.standing: list[tuple[bool, bool]] = []
        self.begun = 0
        self.waiting: list[asyncio.Future[None]] = []

    async def run_in_thread(self, work: Callable[..., Any], *args: Any) -> Any:
        if work is not instant.query_freshness_and_brake_flags:
            return BRAKE
        found = self.standing[self.begun]
        self.begun += 1
        self.waiting.append(asyncio.get_running_loop().create_future())
        await self.waiting[-1]
        return found


class Hub:
    position = 7


def played(
    play: Callable[[FreshnessCheck, Slow], Coroutine[Any, Any, None]], *standing: tuple[bool, bool]
) -> Slow:
    """Play with a look whose answers are these, one after the other."""

    async def run() -> Slow:
        slow = Slow()
        slow.standing = list(standing)
        async with asyncio.timeout(10):
            await play(FreshnessCheck(cast(Any, Hub()), cast(Any, slow)), slow)
        return slow

    return asyncio.run(run())


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_call_is_never_answered_by_a_look_from_before_it() -> None:
    async def play(look: FreshnessCheck, slow: Slow) -> None:
        first = asyncio.ensure_future(look.get_policy_freshness_and_brake(AGENT))
        await settled()
        later = [
            asyncio.ensure_future(look.get_policy_freshness_and_brake(AGENT)) for _ in range(20)
        ]  # a rule was edited just before
        await settled()
        slow.waiting[0].set_result(None)
        await settled()
        assert await first == (True, None)
        assert not any(one.done() for one in later)
        slow.waiting[1].set_result(None)
        assert await asyncio.gather(*later) == [(False, BRAKE)] * 20

    assert played(play, (True, False), (False, True)).begun == 2


def test_a_look_that_fails_fails_those_who_wait_for_it_alone() -> None:
    async def play(look: FreshnessCheck, slow: Slow) -> None:
        calls = [asyncio.ensure_future(look.get_policy_freshness_and_brake(AGENT)) for _ in range(2)]
        await settled()
        gone = asyncio.ensure_future(look.get_policy_freshness_and_brake(AGENT))
        after = asyncio.ensure_future(look.get_policy_freshness_and_brake(AGENT))
        await settled()
        gone.cancel()
        slow.waiting[0].set_exception(OSError("no database"))
        for call in calls:
            with pytest.raises(OSError, match="no database"):
                await call
        await settled()
        slow.waiting[1].set_result(None)
        assert await after == (True, None)

    played(play, (True, False), (True, False))


@pytest.mark.django_db(transaction=True)  # PostgreSQL tells at the commit
def test_a_revoked_key_and_a_changed_user_are_news() -> None:
    key = ApiKey.objects.create(
        name="one", prefix="sbx_", key_hash="0" * 64, scopes=["agent"], created_at=timezone.now()
    )
    user = User.objects.create(username="ada")
    for row, changed in ((key, {"revoked_at": timezone.now()}), (user, {"is_active": False})):
        position = Change.objects.aggregate(last=Max("id"))["last"]
        assert instant.query_freshness_and_brake_flags(position) == (True, False)
        type(row).objects.filter(pk=row.pk).update(**changed)
        assert instant.query_freshness_and_brake_flags(position) == (False, False)


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(is_sqlite(), reason="has no round trips")
def test_a_look_is_one_question_and_finds_a_connection_that_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    execute = Cursor.execute

    def noted(cursor: Any, query: Any, *rest: Any, **more: Any) -> Any:
        asked.append(query)
        return execute(cursor, query, *rest, **more)

    position = Change.objects.aggregate(last=Max("id"))["last"] or 0
    threads = EdgeThreads(1)

    def looked() -> tuple[bool, bool]:
        return asyncio.run(threads.run_in_thread(instant.query_freshness_and_brake_flags, position))

    try:
        looked()
        with monkeypatch.context() as patch:
            patch.setattr(Cursor, "execute", noted)
            assert looked() == (True, False)
        # Django asks first whether the connection still stands (CONN_HEALTH_CHECKS).
        assert len([query for query in asked if query != "SELECT 1"]) == 1, asked
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        with connection.cursor() as cursor:
            cursor.execute(f"{cut} AND pid <> pg_backend_pid()")
        assert looked() == (True, False)
    finally:
        asyncio.run(threads.run_in_thread(connections.close_all))
        threads.shut_down_threads()
