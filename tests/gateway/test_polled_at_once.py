"""Two polls of one task that find it approved at the same time: one runs it, the other says nothing of its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_calls import CallAttempt, CallOrigin
from coordinator.edge.gateway.approved_calls import encode_task_request_for_storage
from coordinator.edge.gateway.tasks import GatewayTasks
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.protocol.messages import parse_mcp_message
from coordinator.models import GatewayCall
from coordinator.models.gateway import CallState
from coordinator.policy.rules.tool_rules import ASK, Ruling
from tests.gateway.test_told_to_who_is_there import BINDING, BODY, RULING, Threads

pytestmark = pytest.mark.django_db


def test_a_poll_that_comes_second_does_not_end_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    request = gateway_calls.request_person_approval(
        BINDING, RULING, CallOrigin(None), until=None, now=timezone.now()
    )
    request.status = "approved"
    call = _task(request.request_id)
    ends: list[Any] = []
    ran: list[Any] = []
    records = SimpleNamespace(
        resume_call_record=lambda *_: SimpleNamespace(decided_by=""),
        end_call_record=lambda *end: ends.append(end),
    )
    runner = SimpleNamespace(start_task_call_in_background=lambda *job: ran.append(job))
    tasks = GatewayTasks(
        cast(Any, Threads()), cast(Any, records), cast(Any, runner), cast(Any, None), cast(Any, None)
    )

    def begin(attempt: CallAttempt, _request_id: str, **_: Any) -> Ruling | None:
        free = GatewayCall.objects.filter(pk=attempt.call_id, state=CallState.WAITING)
        return None if free.update(state=CallState.RUNNING) else Ruling(ASK, "The call was begun already.")

    async def original(*_: Any) -> Any:
        return _exchange()

    monkeypatch.setattr(gateway_calls, "begin_approved_call_or_return_ruling", begin)
    monkeypatch.setattr(tasks, "require_restored_task_exchange", original)

    async def both() -> None:
        for _ in range(2):
            await tasks.apply_task_verdict(cast(Any, None), call, request)

    async_to_sync(both)()
    assert (len(ran), ends) == (1, [])
    assert GatewayCall.objects.get(pk=call.pk).state == CallState.RUNNING


def _task(request_id: str) -> GatewayCall:
    attempt = CallAttempt(
        gateway_calls.new_gateway_call_id(), BINDING, GatewayCaller("agent.one"), CallOrigin(None)
    )
    return gateway_calls.create_call_task(
        attempt, request_id, encode_task_request_for_storage(_exchange()), now=timezone.now()
    )


def _exchange() -> Any:
    key = SimpleNamespace(caller_actor=BINDING.by)
    return SimpleNamespace(
        message=parse_mcp_message(BODY), headers={}, caller=GatewayCaller("agent.one"), caller_key=key
    )
