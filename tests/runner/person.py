"""Somebody who orders runs for one runner of a served program, and answers what its agents ask."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from tests.approvals.cards import served_form
from tests.runner.driving import runner_apart
from tests.served import KEYS, Served


class Person:
    """Orders go to a host of its own, so that no other runner takes them."""

    def __init__(self, served: Served, work: Path) -> None:
        self.served = served
        self.work = work
        self.host = f"host-{uuid.uuid4().hex[:8]}"
        self.http = served.client("operator")

    def runner(self, **environ: str) -> Any:
        return runner_apart(self.served.url, self.work, self.host, SIGNALBOX_KEY=KEYS["runner"], **environ)

    def order(
        self, prompt: str, session_id: str | None = None, *, agent: str = "scripted", **more: Any
    ) -> tuple[str, str]:
        """Order a run; returns its id and its session's."""
        body: dict[str, Any] = {
            "type": "resume_session" if session_id else "start_session",
            "parameters": {"prompt": prompt, "agent": agent},
            "project_dir": str(self.work),
            "additional_demands": {"hostname": self.host},
            **more,
        }
        if session_id:
            body["session_id"] = session_id
        answer = self.http.post("/runs", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["run_id"], answer.json()["session_id"]

    def until(self, check: Callable[[], Any], within: float = 90.0) -> Any:
        """Return the first true answer of `check`."""
        pause = threading.Event()
        for _ in range(int(within / 0.05)):
            if found := check():
                return found
            pause.wait(0.05)
        raise AssertionError("it did not come to that")

    def status(self, run_id: str, *wanted: str) -> str:
        """Wait until a run stands as wanted."""
        return self.until(
            lambda: (now := self.http.get(f"/runs/{run_id}").json()["status"]) in wanted and now
        )

    def said(self, session_id: str) -> str:
        """Return what the agent has said, put together."""
        rows = self.served.sql(
            "SELECT content FROM events WHERE session_id = ? AND event_type = 'message' AND role = 'assistant'"
            " ORDER BY id",
            (session_id,),
        )
        return " ".join(str(row[0]) for row in rows)

    def card(self, session_id: str) -> str:
        """Wait for a question of the session's agent."""
        return str(
            self.until(
                lambda: self.served.sql(
                    "SELECT r.request_id FROM permission_requests r JOIN permission_context c"
                    " ON c.request_id = r.request_id WHERE r.status = 'pending' AND c.session_id = ?",
                    (session_id,),
                )
            )[0][0]
        )

    def form(self, person: httpx.Client, request_id: str) -> dict[str, str]:
        """Return the fields of a request's card, as the page has them."""
        return served_form(person, request_id)

    def decide(self, request_id: str, verdict: str, **said: str) -> None:
        person = self.served.sign_in("approver")
        form = self.form(person, request_id)
        answer = person.post("/ui/approvals/decide/", data={**form, "verdict": verdict, **said})
        assert answer.status_code in {200, 302}, answer.text
