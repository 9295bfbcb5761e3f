"""Hooks that wait for a person, until a verdict, an answer at the terminal, a timeout or a disconnect."""

from __future__ import annotations

import asyncio
import functools
import logging
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django.db import Error as DatabaseError
from django.utils import timezone

from coordinator.actions.sessions import tool_calls
from coordinator.actions.sessions.tool_calls import ELSEWHERE, GONE
from coordinator.edge.http.concurrency import ConcurrencyLimit
from coordinator.edge.http.messages import ClientDisconnected
from coordinator.edge.polling.waits import DisconnectWatcher, LongPollWaiters
from coordinator.errors import ServiceRestarting, Unauthorized
from coordinator.identity.actors import Actor
from coordinator.lib.asgi import Receive
from coordinator.lib.threads import EdgeThreads
from coordinator.mcp.gateway import workers
from coordinator.models import PermissionRequest
from coordinator.policy.requests.tool_calls import Settled, ToolCallRequest
from coordinator.policy.rules.tool_rules import Ruling

log = logging.getLogger(__name__)

MOST_WAITING = 2_000  # held at a time per process
LEAVE_WITHIN = 1.0  # seconds an answer waits until its card is closed; closing it goes on
MOST_TRIES = 5  # how often a question is repeated after a client that shared it has left
RESTART = "Signalbox was restarted while the call waited."
RESTARTED = "Signalbox was restarted; the terminal's own prompt decides."
BROKEN = "Signalbox met an error; the terminal's own prompt decides."
KEY_OVER = "The agent's key was revoked or has expired; the terminal's own prompt decides."
ANOTHER_LEFT = frozenset({GONE, RESTARTED, BROKEN})  # why a card is closed by which others may still wait
SILENCE: Settled = {"status": "expired"}
TERMINAL: Settled = {"status": "elsewhere"}


@dataclass(frozen=True, slots=True)
class HookWaiter:
    """Whose hook waits, for how long, whether its key still holds, and whether it has left.

    Where its silence is a denial, its request `outlasts` it: the call can still be approved, and made again.
    `sent_as` is the id under which it is sent again without an answer; None where it is not.
    """

    by: Actor
    wait: float
    deadline: datetime
    outlasts: bool
    still_allowed: Callable[[], Awaitable[object]]
    disconnect: DisconnectWatcher
    sent_as: str | None = None


class HookApprovalWaiter:
    """Who waits in this process, and for what."""

    def __init__(self, waits: LongPollWaiters, threads: EdgeThreads) -> None:
        self._waits = waits
        self._threads = threads
        self._sharing: Counter[str] = Counter()  # how many wait for a request
        # Calls that somebody waits for, by the hook that asks about them.
        self._calls: Counter[tuple[str, str]] = Counter()
        self._pending_limit = ConcurrencyLimit(MOST_WAITING, "calls that wait for people")
        self._leaving: set[asyncio.Task[None]] = set()

    async def request_and_await_hook_verdict(
        self,
        call_request: ToolCallRequest,
        ruling: Ruling,
        *,
        actor: Actor,
        wait: float,
        outlasts: bool,
        still_allowed: Callable[[], Awaitable[object]],
        receive: Receive,
        sent_as: str | None = None,
    ) -> tuple[ToolCallRequest, Settled]:
        """Put the call before people and return it, with its id where it was found, and how it was settled.

        `status` is approved, denied, expired (nobody answered), elsewhere (the session went on meanwhile) or,
        where the request `outlasts` the hook, held (tool_calls.hold): nobody answered yet. Raises
        ClientDisconnected where the hook's connection has dropped, what `still_allowed` does, and why the
        call could not be put before people: too large, too many, a restart. After a restart the question
        is still open for a hook that is sent again as `sent_as`.
        """
        deadline = timezone.now() + timedelta(seconds=wait)
        with (
            self._pending_limit.reserve_slot_during_block(actor.name),
            DisconnectWatcher(receive) as disconnect_watcher,
        ):
            call_request = replace(call_request, waiter=uuid.uuid4().hex)
            taken_calls = [call_id for hook, call_id in self._calls if hook == call_request.hook_name]
            call_request = await self._threads.run_in_thread(
                tool_calls.copy_request_with_call_id, call_request, taken_calls
            )
            calls = [(call_request.hook_name, call_request.call_id)] if call_request.call_id else []
            self._calls.update(calls)
            try:
                waiter = HookWaiter(
                    actor, wait, deadline, outlasts, still_allowed, disconnect_watcher, sent_as
                )
                return call_request, await self.consume_or_await_hook_verdict(call_request, ruling, waiter)
            finally:
                self._calls -= Counter(calls)

    async def consume_or_await_hook_verdict(
        self, call_request: ToolCallRequest, ruling: Ruling, waiter: HookWaiter
    ) -> Settled:
        settled_call = await self._threads.run_in_thread(
            tool_calls.consume_earlier_answer_to_call, call_request, timezone.now(), actor=waiter.by
        )
        if settled_call is not None:
            return settled_call
        for attempt in range(MOST_TRIES):
            now = timezone.now()
            if waiter.disconnect.happened:
                raise ClientDisconnected
            if waiter.deadline <= now:
                break
            row = await self._threads.run_in_thread(
                tool_calls.request_tool_approval,
                call_request,
                ruling,
                actor=waiter.by,
                deadline=waiter.deadline,
                outlasts=waiter.outlasts,
                now=now,
                # A question that was closed because its asker seemed gone is asked again.
                sent_as=waiter.sent_as and f"{waiter.sent_as}:{attempt}",
                waited_by=workers.get_own_worker_name(),
            )
            settled = await self.await_hook_request_or_close(row, call_request, waiter)
            if settled["status"] == "withdrawn":
                if settled["reason"] not in ANOTHER_LEFT:
                    return TERMINAL
            elif await self.try_consume_verdict_for_call(settled, call_request, waiter):
                return settled
        return SILENCE if waiter.deadline <= timezone.now() else TERMINAL

    async def try_consume_verdict_for_call(
        self, settled: Settled, call_request: ToolCallRequest, waiter: HookWaiter
    ) -> bool:
        """Say whether this call may have what was settled. An approval of one call is the first's who takes it."""
        if "allowed" not in settled:  # no person's verdict
            return True
        if waiter.disconnect.happened:  # nobody would receive it; the call can be made again
            raise ClientDisconnected
        now = timezone.now()
        settled_verdict = await self._threads.run_in_thread(
            tool_calls.try_consume_call_verdict, settled["request_id"], call_request, actor=waiter.by, now=now
        )
        return settled_verdict or not settled["allowed"]

    async def await_hook_request_or_close(
        self, row: PermissionRequest, call_request: ToolCallRequest, waiter: HookWaiter
    ) -> Settled:
        try:
            settled = await self.wait_for_hook_request_decision(row, call_request, waiter)
            await waiter.still_allowed()
        except asyncio.CancelledError:  # the line is dead, and the server will not wait until we have noticed
            self.create_close_hook_request_task(row, waiter, GONE)
            raise
        except Unauthorized:
            await asyncio.wait(
                [self.create_close_hook_request_task(row, waiter, KEY_OVER)], timeout=LEAVE_WITHIN
            )
            raise
        except Exception:
            self.create_close_hook_request_task(row, waiter, BROKEN)
            raise
        if settled is not None and settled["status"] != "elsewhere":
            return settled
        has_caller_gone = waiter.disconnect.happened
        if (
            settled is None
            and not has_caller_gone
            and waiter.sent_as is not None
            and waiter.deadline > timezone.now()
        ):
            raise ServiceRestarting(RESTART)
        if settled is None and not has_caller_gone and waiter.deadline <= timezone.now():
            await self._threads.run_in_thread(tool_calls.expire_due_permission_requests, timezone.now())
            # Not simply silence: a verdict that was given in time may have been committed just after our last look.
            shared_request = await self._threads.run_in_thread(
                tool_calls.find_call_question_answer, row.request_id, call_request, timezone.now()
            )
            return shared_request or await self.defer_outlasting_request_or_silence(
                row, waiter, f"Nobody answered in Signalbox within {waiter.wait:.0f} s."
            )
        if settled is None and not has_caller_gone and waiter.outlasts:
            pending_hook = await self.defer_outlasting_request_or_silence(row, waiter, RESTART)
            if pending_hook is not SILENCE:
                return pending_hook
        leaving = self.create_close_hook_request_task(
            row, waiter, ELSEWHERE if settled else GONE if has_caller_gone else RESTARTED
        )
        await asyncio.wait([leaving], timeout=LEAVE_WITHIN)
        if has_caller_gone:
            raise ClientDisconnected
        if settled is None:
            raise ServiceRestarting(RESTART)
        return TERMINAL

    async def defer_outlasting_request_or_silence(
        self, row: PermissionRequest, waiter: HookWaiter, reason: str
    ) -> Settled:
        """Record that the agent is asked to wait, where its request outlasts this hook; else return SILENCE."""
        if not waiter.outlasts:
            return SILENCE
        now = timezone.now()
        return (
            await self._threads.run_in_thread(
                tool_calls.defer_tool_call, row.request_id, actor=waiter.by, reason=reason, now=now
            )
            or SILENCE
        )

    async def wait_for_hook_request_decision(
        self, row: PermissionRequest, call_request: ToolCallRequest, waiter: HookWaiter
    ) -> Settled | None:
        """Wait by the card, and be counted among those who do."""
        self._sharing[row.request_id] += 1
        try:
            return await self._waits.wait_until(
                functools.partial(find_hook_request_verdict, row.request_id, call_request),
                topics=[f"permission_requests:{row.pk}", f"events:{call_request.session_id}"],
                timeout=max(0.0, (waiter.deadline - timezone.now()).total_seconds()),
                still_allowed=waiter.still_allowed,
                disconnect=waiter.disconnect,
            )
        finally:
            self._sharing -= Counter([row.request_id])

    def create_close_hook_request_task(
        self, row: PermissionRequest, waiter: HookWaiter, reason: str
    ) -> asyncio.Future[None]:
        """Have the card closed, whatever becomes of the hook meanwhile; once done, it is."""
        task = asyncio.ensure_future(self.close_hook_request_if_unawaited(row, waiter, reason))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return task

    async def close_hook_request_if_unawaited(
        self, row: PermissionRequest, waiter: HookWaiter, reason: str
    ) -> None:
        """Close the card, unless somebody with the same question still waits by it."""
        if self._sharing[row.request_id]:
            return
        now = timezone.now()
        try:
            await self._threads.run_in_thread(
                tool_calls.withdraw_call_question_if_open,
                row.request_id,
                actor=waiter.by,
                reason=reason,
                unless_deferred=waiter.outlasts,
                now=now,
            )
        except DatabaseError:
            log.exception("The card of %s could not be closed; it expires at its deadline.", row.request_id)


def find_hook_request_verdict(request_id: str, call_request: ToolCallRequest) -> Settled | None:
    question_answer = tool_calls.find_call_question_answer(request_id, call_request, timezone.now())
    return None if question_answer is not None and question_answer["status"] == "expired" else question_answer
