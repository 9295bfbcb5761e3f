"""The server as a runner uses it: each request is repeated until it is answered, each refusal is an exception."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import random
import time
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from coordinator.runner.errors import ServerRefused, ServerTimedOut

log = logging.getLogger("signalbox.runner")

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
AWAY = {429, 502, 503, 504}  # the server, or a proxy in front of it, is not ready
BROKEN_TRIES = 5  # a 500 is tried again this often, then counts as a refusal
HOLD = 60.0  # seconds an answer may take: a poll is held for 30


class SignalboxServer:
    """The runner's endpoints. `runner_id` is set by `register`."""

    def __init__(self, url: str, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={**headers, "User-Agent": "signalbox-runner"},
            timeout=httpx.Timeout(HOLD, connect=10, pool=None),
            trust_env=not is_url_on_this_machine(url),  # no proxy is in front of this machine itself
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64),
        )
        self._url = url
        self.runner_id = ""
        self.is_away = False

    async def close_server_http_client(self) -> None:
        await self._client.aclose()

    async def post_runner_registration(self, body: dict[str, Any]) -> dict[str, Any]:
        """Register and keep the id. Raises ServerRefused: 409 while another of the same identity is alive."""
        answer = await self.request_until_answered("POST", "/runner/register", body)
        self.runner_id = str(answer["runner_id"])
        return answer

    async def deregister_runner_at_server(self) -> None:
        """Deregister. Raises ServerTimedOut and ServerRefused."""
        await self.request_until_answered(
            "DELETE", f"/runners/{quote(self.runner_id, safe='')}?self=true", patience=3
        )

    async def poll_for_work_or_empty(self, free: int) -> dict[str, Any]:
        """Wait for something to do; {} where there is nothing. `free`: how many runs may be taken now."""
        path = f"/runner/runs?runner_id={quote(self.runner_id, safe='')}&free={free}"
        return await self.request_until_answered("GET", path)

    async def report_run_state(
        self, run_id: str, report_kind: str, *, patience: float | None = None, **fields: Any
    ) -> None:
        """Report on a run: started, completed, failed or stopped. Raises ServerRefused and ServerTimedOut."""
        path = f"/runner/runs/{quote(run_id, safe='')}/{report_kind}"
        await self.request_until_answered(
            "POST", path, {"runner_id": self.runner_id, **fields}, patience=patience
        )

    async def post_to_session_endpoint(
        self, session_id: str, endpoint: str, *, patience: float | None = None, **fields: Any
    ) -> dict[str, Any]:
        """Post to a runner's endpoint of a session. Raises ServerRefused and ServerTimedOut."""
        path = f"/runner/sessions/{quote(session_id, safe='')}/{endpoint}"
        return await self.request_until_answered(
            "POST", path, {"runner_id": self.runner_id, **fields}, patience=patience
        )

    async def report_agent_session_binding(self, session_id: str, **fields: Any) -> None:
        """Say by which id the agent knows the session, and where it works. Raises ServerRefused."""
        await self.request_until_answered("POST", f"/sessions/{quote(session_id, safe='')}/bind", fields)

    async def fetch_session(self, session_id: str) -> dict[str, Any]:
        """Return a session's row. Raises ServerRefused."""
        answer = await self.request_until_answered("GET", f"/sessions/{quote(session_id, safe='')}")
        row = answer.get("session")
        return row if isinstance(row, dict) else {}

    async def request_until_answered(
        self, method: str, path: str, body: Any = None, *, patience: float | None = None
    ) -> dict[str, Any]:
        """Send a request until it is answered; `patience` in seconds, None: as long as it takes.

        Raises ServerRefused for an answer that another try would not change, ServerTimedOut when patience ends.
        """
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = {} if body is None else {"Content-Type": "application/json"}
        until = None if patience is None else time.monotonic() + patience
        pause, broken = FIRST_PAUSE, 0
        while True:
            try:
                answer = await self._client.request(method, path, content=content, headers=headers)
                self._update_server_availability(answer.status_code in AWAY, f"it says {answer.status_code}")
                if answer.status_code < 300:
                    return json_object_answer_or_empty(answer)
                broken += answer.status_code == 500
                if not self.is_away and (answer.status_code != 500 or broken >= BROKEN_TRIES):
                    raise ServerRefused(answer.status_code, parse_error_detail_from_response(answer))
            except httpx.TransportError as problem:
                self._update_server_availability(True, str(problem) or type(problem).__name__)
            if until is not None and time.monotonic() + pause > until:
                raise ServerTimedOut("The server did not answer")
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))  # noqa: S311 - no secret
            pause = min(2 * pause, LONGEST_PAUSE)

    def _update_server_availability(self, is_away: bool, reason: str) -> None:
        """Say it once when the server goes, and when it is back."""
        if is_away and not self.is_away:
            log.warning(
                "Signalbox does not answer at %s (%s). Trying again; agents go on meanwhile.",
                self._url,
                reason,
            )
        elif self.is_away and not is_away:
            log.warning("Signalbox answers again.")
        self.is_away = is_away


def is_url_on_this_machine(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def json_object_answer_or_empty(answer: httpx.Response) -> dict[str, Any]:
    if answer.status_code == 204 or not answer.content:
        return {}
    try:
        value = answer.json()
    except (ValueError, RecursionError):
        raise ServerRefused(answer.status_code, "What answers at this address is not Signalbox") from None
    return value if isinstance(value, dict) else {}


def parse_error_detail_from_response(answer: httpx.Response) -> str:
    try:
        detail = answer.json()["detail"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return answer.text[:300]
    if isinstance(detail, dict) and isinstance(detail.get("message"), str):
        return str(detail["message"])
    return detail if isinstance(detail, str) else json.dumps(detail)[:1000]
