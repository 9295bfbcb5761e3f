"""A card that is being made while its call is cancelled is closed as soon as it is there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.utils import timezone

from coordinator.actions.mcp.elicitations import OpenElicitation
from coordinator.edge.gateway.elicitations import CALL_OVER, ElicitationHandler
from coordinator.models.permissions import RequestStatus
from tests.approvals.factories import AGENT, asked, fresh

pytestmark = [pytest.mark.django_db, pytest.mark.one_engine]


class Threads:
    """Threads that are all the test's own."""

    async def run_in_thread(self, work: Any, *arguments: Any, **options: Any) -> Any:
        return await sync_to_async(work)(*arguments, **options)


def test_a_card_that_is_made_for_a_cancelled_call_is_closed() -> None:
    nothing = cast(Any, None)
    handler = ElicitationHandler(nothing, cast(Any, Threads()), nothing, nothing, instant=nothing)
    exchange: Any = SimpleNamespace(caller_key=SimpleNamespace(caller_actor=AGENT))

    async def cancel_while_it_is_made() -> str:
        begins, goes_on = asyncio.Event(), asyncio.Event()

        async def make() -> OpenElicitation:
            begins.set()
            await goes_on.wait()
            row = await sync_to_async(asked)(now=timezone.now())
            rows.append(row)
            return OpenElicitation(row.pk, row.request_id, "", is_findable=True)

        rows: list[Any] = []
        opening = asyncio.ensure_future(handler.await_opened_card_or_withdraw(exchange, make(), CALL_OVER))
        await begins.wait()
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        goes_on.set()
        while not rows or handler._closing:
            await asyncio.sleep(0)
        return str((await sync_to_async(fresh)(rows[0])).status)

    assert async_to_sync(cancel_while_it_is_made)() == RequestStatus.WITHDRAWN
