"""Long-poll endpoints: runners wait for runs, agents for verdicts. `waits` implements the waiting."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.utils import timezone

from coordinator.actions.agents import runners
from coordinator.edge.http.auth import Admission, Authenticator
from coordinator.edge.http.messages import (
    get_request_headers,
    parse_query_string,
    send_empty_response,
    send_json,
)
from coordinator.edge.polling.waits import DisconnectWatcher, LongPollWaiters
from coordinator.errors import UnprocessableRequest
from coordinator.identity.keys import KeyIdentity
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.policy.requests import approvals, verdicts

VERDICT_TIMEOUT = 30.0  # seconds a wait for a verdict is held where the caller does not say
LONGEST_VERDICT_WAIT = 600.0
FULL_FOR = 2.0  # seconds that the poll of a runner without room is held: it may have room again

Check = Callable[[], dict[str, Any] | None]


class LongPollEndpoint:
    """The endpoints behind which requests are held."""

    def __init__(self, auth: Authenticator, waits: LongPollWaiters, threads: EdgeThreads) -> None:
        self._auth = auth
        self._waits = waits
        self._threads = threads

    async def poll_runner_work(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /runner/runs?runner_id=`: 200 with the runner's work, 204 after the poll's length.

        With `free=0` it is given no run: it has no room for another.
        """
        admission = await self._auth.admit_api_key_caller(scope, get_request_headers(scope))
        runner_id = get_required_parameter(scope, "runner_id")
        has_room = get_seconds_query_parameter(scope, "free", default=1.0, most=1.0) > 0
        with DisconnectWatcher(receive) as disconnect_watcher:
            answer = await self.wait_for_poll_answer(
                disconnect_watcher,
                admission,
                functools.partial(
                    claim_runner_work_if_connected,
                    runner_id,
                    admission.caller,
                    disconnect_watcher,
                    has_room=has_room,
                ),
                topics=runners.list_runner_poll_topics(runner_id),
                timeout=settings.RUNNER_POLL_TIMEOUT if has_room else FULL_FOR,
            )
        if disconnect_watcher.happened:
            await self._threads.run_in_thread(requeue_answer_of_disconnected_runner, runner_id, answer)
            return
        try:
            await admission.require_still_allowed()
        except Exception:  # no answer may arrive: a run that was claimed meanwhile goes back
            await self._threads.run_in_thread(requeue_answer_of_disconnected_runner, runner_id, answer)
            raise
        if answer is None:
            await send_empty_response(send)
        else:
            await send_json(send, 200, answer)

    async def wait_for_request_verdict(
        self, request_id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """`GET /api/permission-requests/{id}/wait?timeout=`: 200 with the verdict, or the state after the timeout.

        However it ends, a client that still waits asks again: nothing is lost by a restart.
        """
        admission = await self._auth.admit_api_key_caller(scope, get_request_headers(scope))
        timeout = get_seconds_query_parameter(
            scope, "timeout", default=VERDICT_TIMEOUT, most=LONGEST_VERDICT_WAIT
        )
        request_row = await self._threads.run_in_thread(
            approvals.require_visible_request, request_id, admission.caller, timezone.now()
        )
        current_request_state = approvals.current_request_state(request_row, timezone.now())
        if (
            current_request_state.waiting and current_request_state.until is not None
        ):  # the deadline is an answer too, and nothing reports it
            timeout = min(
                timeout, max(0.0, (current_request_state.until - timezone.now()).total_seconds() + 0.01)
            )
        check = functools.partial(verdicts.find_final_answer, request_id)
        topics = [f"permission_requests:{request_row.pk}", "brakes"]
        with DisconnectWatcher(receive) as disconnect_watcher:
            answer = await self.wait_for_poll_answer(
                disconnect_watcher, admission, check, topics=topics, timeout=timeout
            )
        if not disconnect_watcher.happened:
            await admission.require_still_allowed()
            await send_json(
                send,
                200,
                answer or await self._threads.run_in_thread(load_current_verdict_answer, request_id),
            )

    async def wait_for_poll_answer(
        self,
        disconnect: DisconnectWatcher,
        admission: Admission,
        check: Check,
        *,
        topics: Iterable[str],
        timeout: float,
    ) -> dict[str, Any] | None:
        """Wait for an answer; end early, with what the check found meanwhile, if the client goes away."""
        with self._waits.poll_limit.reserve_slot_during_block(admission.caller.name):
            return await self._waits.wait_until(
                check,
                topics=topics,
                timeout=timeout,
                still_allowed=admission.require_still_allowed,
                disconnect=disconnect,
            )


def get_required_parameter(scope: Scope, name: str) -> str:
    """Return a query parameter. Raises UnprocessableRequest, as recorded, where it is missing."""
    values = parse_query_string(scope["query_string"]).get(name)
    if not values:
        validation_error = {"type": "missing", "loc": ["query", name], "msg": "Field required", "input": None}
        raise UnprocessableRequest([validation_error])
    return values[-1]


def get_seconds_query_parameter(scope: Scope, name: str, *, default: float, most: float) -> float:
    """Return a query parameter as a length of time, at most `most`. Raises UnprocessableRequest for what is none."""
    text = parse_query_string(scope["query_string"]).get(name, [""])[-1]
    if not text:
        return default
    try:
        length = float(text)
    except ValueError:
        length = -1.0
    if not 0 <= length < float("inf"):
        raise UnprocessableRequest(f"{name} must be a number of seconds, not {text!r}.")
    return min(length, most)


def is_query_parameter_on(scope: Scope, name: str) -> bool:
    """Say whether a query parameter is `on`."""
    return parse_query_string(scope["query_string"]).get(name, [""])[-1] == "on"


def load_current_verdict_answer(request_id: str) -> dict[str, Any]:
    return verdicts.build_requester_answer_with_brake(
        approvals.require_permission_request(request_id), timezone.now()
    )


def claim_runner_work_if_connected(
    runner_id: str, key: KeyIdentity, disconnect: DisconnectWatcher, *, has_room: bool
) -> dict[str, Any] | None:
    if disconnect.happened:
        return None
    return runners.claim_next_runner_work(runner_id, timezone.now(), key=key, takes_runs=has_room)


def requeue_answer_of_disconnected_runner(runner_id: str, answer: dict[str, Any] | None) -> None:
    runners.requeue_undelivered_poll_answer(runner_id, answer, timezone.now())
