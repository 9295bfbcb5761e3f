"""Requests that wait: a runner for a run, an agent for a verdict. The waiting is edge.waits, the rule an action."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from django.conf import settings
from django.utils import timezone

from coordinator.actions import runners
from coordinator.edge.auth import Admission, Authenticator
from coordinator.edge.http import headers_of, query_of, send_empty, send_json
from coordinator.edge.waits import Disconnect, Waits
from coordinator.errors import Invalid
from coordinator.identity import scopes
from coordinator.identity.keys import KeyIdentity
from coordinator.lib.asgi import Receive, Scope, Send
from coordinator.lib.threads import EdgeThreads
from coordinator.policy import approvals, verdicts

VERDICT_TIMEOUT = 30.0  # seconds a wait for a verdict is held where the caller does not say
LONGEST_VERDICT_WAIT = 600.0
FULL_FOR = 2.0  # seconds that the poll of a runner without room is held: it may have room again

Check = Callable[[], dict[str, Any] | None]


class Polls:
    """The doors behind which requests are held."""

    def __init__(self, auth: Authenticator, waits: Waits, threads: EdgeThreads) -> None:
        self._auth = auth
        self._waits = waits
        self._threads = threads

    async def runner(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /runner/runs?runner_id=`: 200 with what there is to tell the runner, 204 after the poll's length.

        With `free=0` it is given no run: it has no room for another.
        """
        admission = await self._auth.admit(scope, headers_of(scope), *scopes.RUNNERS)
        runner_id = required(scope, "runner_id")
        has_room = seconds(scope, "free", default=1.0, most=1.0) > 0
        with Disconnect(receive) as gone:
            answer = await self._held(
                gone,
                admission,
                functools.partial(_poll_runner, runner_id, admission.caller, gone, has_room=has_room),
                topics=runners.poll_topics(runner_id),
                timeout=settings.RUNNER_POLL_TIMEOUT if has_room else FULL_FOR,
            )
        if gone.happened:
            await self._threads.run(_runner_gone, runner_id, answer)
            return
        try:
            await admission.still_allowed()
        except Exception:  # nobody may be told: a run that was claimed meanwhile goes back
            await self._threads.run(_runner_gone, runner_id, answer)
            raise
        if answer is None:
            await send_empty(send)
        else:
            await send_json(send, 200, answer)

    async def verdict(self, request_id: str, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /api/permission-requests/{id}/wait?timeout=`: 200 with the verdict, or as it stands after the timeout.

        However it ends, a client that still waits asks again: nothing is lost by a restart.
        """
        admission = await self._auth.admit(scope, headers_of(scope), *scopes.READERS)
        timeout = seconds(scope, "timeout", default=VERDICT_TIMEOUT, most=LONGEST_VERDICT_WAIT)
        asked = await self._threads.run(approvals.visible, request_id, admission.caller, timezone.now())
        standing = approvals.standing(asked, timezone.now())
        if (
            standing.waiting and standing.until is not None
        ):  # the deadline is an answer too, and nothing reports it
            timeout = min(timeout, max(0.0, (standing.until - timezone.now()).total_seconds() + 0.01))
        check = functools.partial(verdicts.verdict, request_id)
        topics = [f"permission_requests:{asked.pk}", "brakes"]
        with Disconnect(receive) as gone:
            answer = await self._held(gone, admission, check, topics=topics, timeout=timeout)
        if not gone.happened:
            await admission.still_allowed()
            await send_json(send, 200, answer or await self._threads.run(_as_it_stands, request_id))

    async def _held(
        self,
        gone: Disconnect,
        admission: Admission,
        check: Check,
        *,
        topics: Iterable[str],
        timeout: float,
    ) -> dict[str, Any] | None:
        """Wait for an answer; end early, with what the check found meanwhile, if the client goes away."""
        with self._waits.places.place(admission.caller.name):
            return await self._waits.wait_until(
                check, topics=topics, timeout=timeout, still_allowed=admission.still_allowed, gone=gone
            )


def required(scope: Scope, name: str) -> str:
    """Return a query parameter. Raises Invalid, as recorded, where it is missing."""
    values = query_of(scope["query_string"]).get(name)
    if not values:
        fault = {"type": "missing", "loc": ["query", name], "msg": "Field required", "input": None}
        raise Invalid([fault])
    return values[-1]


def seconds(scope: Scope, name: str, *, default: float, most: float) -> float:
    """Return a query parameter as a length of time, at most `most`. Raises Invalid for what is none."""
    text = query_of(scope["query_string"]).get(name, [""])[-1]
    if not text:
        return default
    try:
        length = float(text)
    except ValueError:
        length = -1.0
    if not 0 <= length < float("inf"):
        raise Invalid(f"{name} must be a number of seconds, not {text!r}.")
    return min(length, most)


def is_on(scope: Scope, name: str) -> bool:
    """Say whether a query parameter is `on`."""
    return query_of(scope["query_string"]).get(name, [""])[-1] == "on"


def _as_it_stands(request_id: str) -> dict[str, Any]:
    return verdicts.answer(approvals.find(request_id), timezone.now())


def _poll_runner(
    runner_id: str, key: KeyIdentity, gone: Disconnect, *, has_room: bool
) -> dict[str, Any] | None:
    if gone.happened:
        return None
    return runners.poll(runner_id, timezone.now(), key=key, takes_runs=has_room)


def _runner_gone(runner_id: str, answer: dict[str, Any] | None) -> None:
    runners.poll_broke_off(runner_id, answer, timezone.now())
