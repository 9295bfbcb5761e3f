"""One session of an agent that posts its hooks to the served program, as its hook command would."""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from coordinator.lib import instants
from tests.approvals.cards import served_form
from tests.patience import PATIENCE
from tests.served import Served

DATA = Path(__file__).resolve().parents[1] / "data"


def recorded(agent: str, file: str = "hooks.jsonl") -> list[dict[str, Any]]:
    """Return what was recorded of an agent, a payload a line."""
    return [json.loads(line) for line in (DATA / agent / file).open()]


def as_of(
    payloads: Sequence[dict[str, Any]], now: datetime, field: str = "timestamp"
) -> list[dict[str, Any]]:
    """Return payloads that tell the time as if the last had happened just now."""
    moments = [instants.parse_instant_or_none(payload[field]) for payload in payloads]
    late = now - max(moment for moment in moments if moment)
    return [
        payload | {field: instants.format_canonical_instant(moment + late)} if moment else payload
        for payload, moment in zip(payloads, moments, strict=True)
    ]


class Agent:
    """A session of the agent named `name`."""

    name = ""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.session = str(uuid.uuid4())
        self.http = served.client("agent")
        self.http.headers["X-Signalbox-Host"] = "laptop"  # as whoever posts for an agent says

    def post(self, hook: dict[str, Any], *, wait: float = 0) -> dict[str, Any]:
        """Post a hook and return its answer, {} for an empty one."""
        answer = self.http.post(f"/hooks/{self.name}", params={"wait": wait}, json=hook)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.text) if answer.text else {}

    def told(self, columns: str) -> list[tuple[Any, ...]]:
        """Return these columns of the session's events (e) and their contexts (c)."""
        return self.served.sql(
            f"SELECT {columns} FROM events e JOIN event_context c ON c.event_id = e.id"
            " JOIN sessions s ON s.session_id = e.session_id WHERE s.executor_session_id = ? ORDER BY e.id",
            (self.session,),
        )

    def pending(self) -> str:
        """Return the id of the request that the session waits for."""
        until = time.monotonic() + PATIENCE
        while True:
            found = self.served.sql(
                "SELECT r.request_id FROM permission_requests r JOIN permission_context c"
                " ON c.request_id = r.request_id JOIN sessions s ON s.session_id = c.session_id"
                " WHERE r.status = 'pending' AND s.executor_session_id = ?",
                (self.session,),
            )
            if found:
                return str(found[0][0])
            assert time.monotonic() < until, "no request came"
            time.sleep(0.02)

    def held(self, hook: dict[str, Any], verdict: str, **more: Any) -> dict[str, Any]:
        """Post a hook that waits, decide its request on its page, and return its answer."""
        with ThreadPoolExecutor(1) as pool:
            waiting: Future[dict[str, Any]] = pool.submit(self.post, hook, wait=100)
            self.decide(self.pending(), verdict, **more)
            return waiting.result(PATIENCE)

    def decide(self, request_id: str, verdict: str, **more: Any) -> None:
        """Decide a request as an approver does."""
        approver = self.served.sign_in("approver")
        form = served_form(approver, request_id, verdict, **more)
        answer: httpx.Response = approver.post("/ui/approvals/decide/", data=form)
        assert answer.status_code == 200, answer.text

    def session_id(self) -> str:
        """Return the id that Signalbox gave the session."""
        found = self.served.sql(
            "SELECT session_id FROM sessions WHERE executor_session_id = ?", (self.session,)
        )
        assert len(found) == 1
        return str(found[0][0])

    def page(self) -> str:
        """Return the session's page as an approver sees it."""
        return self.served.sign_in("approver").get(f"/ui/sessions/{self.session_id()}/").text

    def calls(self) -> tuple[int, int, int]:
        """Return how many calls the session's page shows: with a result, failed ones among them, and without one."""
        page = self.page()
        without = page.count("No result") + page.count("Running <") + page.count("Refused by its agent")
        all_of_them = page.count('class="entry-body call-body"')
        return all_of_them - without, len(re.findall(r'call-body" data-fold open', page)), without


def later(payload: dict[str, Any], seconds: float, field: str = "timestamp") -> dict[str, Any]:
    """Return a payload as of some seconds later."""
    moment = instants.parse_instant_or_none(payload[field])
    assert moment is not None
    return payload | {field: instants.format_canonical_instant(moment + timedelta(seconds=seconds))}
