"""How a call ended is told to whom it concerns: a client that has left is told by the same call made again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.utils import timezone

from coordinator.actions.mcp import gateway_calls, gateway_upkeep
from coordinator.actions.mcp.gateway_calls import CallOrigin
from coordinator.edge.gateway.pending_calls import PendingCall, PendingCalls
from coordinator.edge.http.messages import ClientDisconnected
from coordinator.edge.polling.waits import DisconnectWatcher
from coordinator.identity.actors import Actor
from coordinator.mcp.gateway.binding import CallBinding
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.protocol.messages import parse_mcp_message
from coordinator.models import GatewayCall, PermissionContext, PermissionRequest
from coordinator.models.gateway import CallState
from coordinator.policy.rules.tool_rules import ASK, Ruling

pytestmark = pytest.mark.django_db

BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{"path":"/a"}}}'
BINDING = CallBinding(Actor("key", "one"), 1, "agent.one", "example", "write", {"path": "/a"}, "a", "d", "p")
RULING = Ruling(ASK, "it writes", "rule 1")
RESULT = b'{"jsonrpc":"2.0","id":9,"result":{"content":[{"type":"text","text":"wrote /a"}]}}'


class Threads:
    """Threads that are all the test's own; what stands in `after` is called after the step of that name."""

    def __init__(self) -> None:
        self.after: dict[str, Callable[[], object]] = {}

    async def run_in_thread(self, work: Callable[..., Any], *args: Any, **options: Any) -> Any:
        def step() -> Any:
            found = work(*args, **options)
            name = getattr(getattr(work, "func", work), "__name__", "")
            self.after.pop(name, lambda: None)()
            return found

        return await sync_to_async(step)()


class Line:
    """What its client is told."""

    is_stream = False

    def __init__(self) -> None:
        self.told: list[bytes] = []

    async def send_answer(self, body: bytes, status: int = 200) -> None:
        self.told.append(body)


async def _nothing() -> None:
    return


async def _stays() -> dict[str, str]:
    await asyncio.Event().wait()
    return {}


class Client:
    """One call on its way, and its line."""

    def __init__(self) -> None:
        self.line = Line()
        self.gone = DisconnectWatcher(cast(Any, _stays))
        self.x: Any = SimpleNamespace(
            client=None,
            caller_key=SimpleNamespace(name="one"),
            message=parse_mcp_message(BODY),
            line=self.line,
            disconnect=self.gone,
            admission=SimpleNamespace(require_still_allowed=_nothing),
            accepts_event_stream=False,
            caller=GatewayCaller("agent.one"),
        )
        record: Any = SimpleNamespace(
            call_id=gateway_calls.new_gateway_call_id(), decided_by="", waited=0.0, goes_on=False
        )
        self.held = PendingCall(self.x, BINDING, RULING, CallOrigin(None), record)

    def leaves(self) -> None:
        self.gone.simulate_client_disconnect()


def calling(*clients: Callable[[Client, Threads], None]) -> list[list[bytes]]:
    """Make the call once for each, one after the other; return what each was told."""

    async def run() -> list[list[bytes]]:
        told = []
        for prepare in clients:
            threads, client = Threads(), Client()
            records: Any = SimpleNamespace(
                end_call_record=lambda *_: None, record_refused_retry=lambda *_: None
            )
            holding = PendingCalls(cast(Any, Waits(threads)), cast(Any, threads), records, cast(Any, None))
            await sync_to_async(prepare)(client, threads)
            with client.gone, contextlib.suppress(ClientDisconnected):
                await holding.await_decision_and_answer_call(client.held)
            told.append(client.line.told)
        return told

    return async_to_sync(run)()


class Waits:
    """Waits that end with what stands there now."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads

    async def wait_until(self, check: Callable[[], Any], **_: Any) -> Any:
        return await self._threads.run_in_thread(check)


def begun(state: CallState, **fields: Any) -> GatewayCall:
    now = timezone.now()
    call = gateway_calls.build_gateway_call(
        gateway_calls.new_gateway_call_id(),
        BINDING,
        CallOrigin(None),
        now,
        state=state,
        started_at=now,
        run_until=now + timedelta(minutes=1),
        worker="elsewhere:1:1",
        **fields,
    )
    call.save(force_insert=True)
    return call


def stays(_client: Client, _threads: Threads) -> None:
    return


def leaves_while_it_is_told(client: Client, threads: Threads) -> None:
    threads.after["try_claim_call_result"] = client.leaves


def test_that_a_call_may_have_run_is_told_again_where_the_client_had_left() -> None:
    begun(CallState.LOST)
    first, second = calling(leaves_while_it_is_told, stays)
    assert not first
    assert b"may have run" in second[0]
    assert not PermissionRequest.objects.exists()  # nobody is asked about it before that


def test_a_result_is_told_again_where_the_client_had_left() -> None:
    call = begun(CallState.RUNNING)
    gateway_calls.end_gateway_call(call.call_id, RESULT, now=timezone.now())
    first, second = calling(leaves_while_it_is_told, stays)
    assert not first
    assert b"wrote /a" in second[0]
    assert b'"id":1' in second[0]


def test_a_person_s_no_is_kept_for_a_client_that_had_left() -> None:
    def denied(client: Client, threads: Threads) -> None:
        request = gateway_calls.request_person_approval(
            BINDING, RULING, CallOrigin(None), until=None, now=timezone.now()
        )
        now = timezone.now()
        PermissionRequest.objects.filter(pk=request.pk).update(status="denied", approved_by="ada")
        PermissionContext.objects.filter(request=request).update(closed_at=now)
        client.leaves()

    first, second = calling(denied, stays)
    assert not first
    assert b"A person denied" in second[0]


def test_a_call_that_says_the_same_as_one_that_is_heard_is_a_question_of_its_own() -> None:
    call = begun(CallState.RUNNING)

    def ends(_client: Client, threads: Threads) -> None:
        def heard() -> None:
            gateway_calls.mark_delivered_and_delete_result(call.call_id, now=timezone.now())

        threads.after["find_undelivered_call_marking_lost"] = lambda: gateway_calls.end_gateway_call(
            call.call_id, RESULT, now=timezone.now()
        )
        threads.after["find_ended_call_marking_lost"] = heard

    ((told,),) = calling(ends)
    assert b"Waiting for approval" in told
    assert PermissionRequest.objects.count() == 1


def test_a_person_is_not_asked_about_a_call_that_began_a_moment_ago() -> None:
    def begins_between(_client: Client, threads: Threads) -> None:
        threads.after["find_undelivered_call_marking_lost"] = lambda: begun(CallState.RUNNING)

    ((told,),) = calling(begins_between)
    assert b"is running now" in told
    assert not PermissionRequest.objects.exists()


def test_a_call_that_its_client_cancelled_is_not_begun_though_it_was_approved() -> None:
    now = timezone.now()
    place, call_id = CallOrigin(None, "gws-one"), gateway_calls.new_gateway_call_id()
    asked = gateway_calls.request_approval_unless_call_begun(
        BINDING, RULING, place, until=None, now=now, known_call=(call_id, 7)
    )
    assert asked is not None
    assert not gateway_calls.try_cancel_waiting_call(
        "gws-one", "7", BINDING.by, now=now
    )  # another id: a text
    assert not gateway_calls.try_cancel_waiting_call("gws-two", 7, BINDING.by, now=now)
    assert gateway_calls.try_cancel_waiting_call("gws-one", 7, BINDING.by, keeps_card=True, now=now)
    assert PermissionRequest.objects.get(pk=asked.pk).status == "pending"
    with pytest.raises(gateway_calls.CallCancelled):
        gateway_calls.raise_if_call_cancelled(call_id)
    attempt = gateway_calls.CallAttempt(call_id, BINDING, GatewayCaller("agent.one"), place)
    assert not gateway_calls.mark_call_running(
        attempt, asked.request_id, cast(Any, SimpleNamespace(call_timeout_seconds_of_tool=lambda *_: 1)), now
    )
    assert not gateway_calls.try_cancel_waiting_call("gws-one", 7, BINDING.by, now=now), "twice"


def cancel(number: Any = 7, **options: Any) -> bool:
    now = options.get("now", timezone.now())
    return gateway_calls.cancel_existing_or_future_call(
        "gws-one", number, BINDING.by, key_id=1, agent_id="agent.one", now=now
    )


def ask(number: Any = 7, session: str = "gws-one") -> PermissionRequest | None:
    kept = (gateway_calls.new_gateway_call_id(), number)
    return gateway_calls.request_approval_unless_call_begun(
        BINDING, RULING, CallOrigin(None, session), until=None, now=timezone.now(), known_call=kept
    )


def test_nobody_is_asked_about_a_call_whose_cancellation_came_first() -> None:
    assert not cancel()
    with pytest.raises(gateway_calls.CallCancelled):
        ask()
    assert not PermissionRequest.objects.exists()
    assert ask("7") is not None, "another call"
    assert ask(session="gws-two") is not None, "another client's"


def test_a_card_is_closed_whose_calls_cancellation_came_while_it_was_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    really = gateway_calls.request_person_approval

    def cancelled_meanwhile(*given: Any, **options: Any) -> PermissionRequest:
        assert not cancel()
        return really(*given, **options)

    monkeypatch.setattr(gateway_calls, "request_person_approval", cancelled_meanwhile)
    with pytest.raises(gateway_calls.CallCancelled):
        ask()
    assert [row.status for row in PermissionRequest.objects.all()] == ["withdrawn"]
    assert not GatewayCall.objects.filter(state=CallState.WAITING).exists()


def test_a_cancellation_that_found_its_call_or_is_old_is_about_no_other() -> None:
    ask()
    assert cancel()
    assert ask() is not None
    GatewayCall.objects.all().delete()
    assert not cancel(now=timezone.now() - 2 * gateway_calls.OVERTAKEN_FOR)
    gateway_upkeep.clean_gateway_tables(timezone.now())
    assert not GatewayCall.objects.exists()
    assert ask() is not None
