"""Two polls of one task that find it approved at the same time: one runs it, the other says nothing of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from coordinator.actions import gateway_calls
from coordinator.actions.gateway_calls import Attempt, CallPlace
from coordinator.edge.gateway.running import kept_message
from coordinator.edge.gateway.tasks import Tasks
from coordinator.gateway.deciding import Caller
from coordinator.gateway.messages import read
from coordinator.models import GatewayCall
from coordinator.models.gateway import CallState
from coordinator.policy.tool_rules import ASK, Ruling
from tests.gateway.test_told_to_who_is_there import BINDING, BODY, RULING, Threads

pytestmark = pytest.mark.django_db


def test_a_poll_that_comes_second_does_not_end_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    request = gateway_calls.ask(BINDING, RULING, CallPlace(None), until=None, now=timezone.now())
    request.status = "approved"
    call = _task(request.request_id)
    ends: list[Any] = []
    ran: list[Any] = []
    records = SimpleNamespace(
        taken_up=lambda *_: SimpleNamespace(decided_by=""), end=lambda *end: ends.append(end)
    )
    runner = SimpleNamespace(run_task=lambda *job: ran.append(job))
    tasks = Tasks(
        cast(Any, Threads()), cast(Any, records), cast(Any, runner), cast(Any, None), cast(Any, None)
    )

    def begin(attempt: Attempt, _request_id: str, **_: Any) -> Ruling | None:
        free = GatewayCall.objects.filter(pk=attempt.call_id, state=CallState.WAITING)
        return None if free.update(state=CallState.RUNNING) else Ruling(ASK, "The call was begun already.")

    async def original(*_: Any) -> Any:
        return _exchange()

    monkeypatch.setattr(gateway_calls, "begin", begin)
    monkeypatch.setattr(tasks, "_original", original)

    async def both() -> None:
        for _ in range(2):
            await tasks._decided(cast(Any, None), call, request)

    async_to_sync(both)()
    assert (len(ran), ends) == (1, [])
    assert GatewayCall.objects.get(pk=call.pk).state == CallState.RUNNING


def _task(request_id: str) -> GatewayCall:
    attempt = Attempt(gateway_calls.new_id(), BINDING, Caller("agent.one"), CallPlace(None))
    return gateway_calls.create_task(attempt, request_id, kept_message(_exchange()), now=timezone.now())


def _exchange() -> Any:
    key = SimpleNamespace(actor=BINDING.by)
    return SimpleNamespace(message=read(BODY), headers={}, caller=Caller("agent.one"), key=key)
