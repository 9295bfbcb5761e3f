"""The runner and the served program: what a person starts, answers, stops and takes up again over HTTP."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.approvals.cards import served_form
from tests.runner.driving import lives, runner_apart
from tests.served import KEYS, Served

pytestmark = pytest.mark.served


class Person:
    """Somebody who orders runs for one runner, and answers what its agents ask."""

    def __init__(self, served: Served, work: Path) -> None:
        self.served = served
        self.work = work
        self.host = f"host-{uuid.uuid4().hex[:8]}"
        self.http = served.client("operator")

    def runner(self, **environ: str) -> Any:
        return runner_apart(self.served.url, self.work, self.host, SIGNALBOX_KEY=KEYS["runner"], **environ)

    def order(self, prompt: str, session_id: str | None = None) -> tuple[str, str]:
        """Order a run; returns its id and its session's."""
        body: dict[str, Any] = {
            "type": "resume_session" if session_id else "start_session",
            "parameters": {"prompt": prompt, "agent": "scripted"},
            "project_dir": str(self.work),
            "additional_demands": {"hostname": self.host},
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

    def decide(self, request_id: str, verdict: str, **said: str) -> None:
        person = self.served.sign_in("approver")
        form = served_form(person, request_id)
        answer = person.post("/ui/approvals/decide/", data={**form, "verdict": verdict, **said})
        assert answer.status_code in {200, 302}, answer.text


def test_an_agent_is_started_asked_for_told_more_stopped_and_ended(served: Served, work: Path) -> None:
    person = Person(served, work)
    with person.runner():
        run, session = person.order("do: pid; ask git push; say pushed")
        person.decide(person.card(session), "approved")
        person.status(run, "completed")
        person.until(lambda: "pushed" in person.said(session))
        assert "git push: yes" in person.said(session)
        pid = int(person.said(session).split("pid ")[1].split()[0])
        run, _ = person.order("do: ask rm -rf", session)
        person.decide(person.card(session), "denied", reason="Use the trash.")
        person.status(run, "completed")
        person.until(lambda: "Use the trash." in person.said(session))
        run, _ = person.order("do: hang", session)
        person.until(lambda: person.served.sql("SELECT 1 FROM drafts WHERE session_id = ?", (session,)))
        assert person.http.post(f"/runs/{run}/stop").status_code == 200
        person.status(run, "stopped")
        assert lives(pid), "the turn was stopped, the agent kept"
        run, _ = person.order("hello again", session)
        person.status(run, "completed")
        person.until(lambda: "I was told: hello again" in person.said(session))
        assert person.http.post(f"/sessions/{session}/stop").status_code == 200
        person.until(lambda: not lives(pid))


def test_a_server_that_restarts_and_a_runner_that_is_killed_lose_nothing(
    serve: Callable[..., Served], work: Path
) -> None:
    served = serve(SIGNALBOX_LIFECYCLE_INTERVAL="0.5")
    person = Person(served, work)
    with person.runner() as program:
        run, session = person.order("do: pid; ask one; steps 40; hang")
        card = person.card(session)
        served.stop()
        served.start()
        assert person.card(session) == card, "the same question"
        person.decide(card, "approved")
        calls = "SELECT count(*) FROM events WHERE session_id = ? AND event_type = 'pre_tool'"
        person.until(lambda: served.sql(calls, (session,)) == [(41,)])
        pid = int(person.said(session).split("pid ")[1].split()[0])
        program.kill()
        person.until(lambda: not lives(pid))
    with person.runner():
        person.status(run, "failed")
        run, _ = person.order("hello again", session)
        person.status(run, "completed")
        person.until(lambda: "I was told: hello again" in person.said(session))
    assert served.sql("SELECT count(*) FROM driven_sessions WHERE session_id = ?", (session,)) == [(1,)]


def test_a_runner_without_room_is_given_no_run(served: Served, work: Path) -> None:
    person = Person(served, work)
    runner = served.client("runner")
    identity = {"hostname": person.host, "project_dir": str(work), "executor_profile": "signalbox"}
    offers = {"agents": [{"name": "scripted", "title": "S", "version": ""}], "directories": [str(work)]}
    body = {**identity, "executor": {"type": "autonomous", "lifecycle": "persistent"}, "offers": offers}
    runner_id = runner.post("/runner/register", json=body).json()["runner_id"]
    run, _session = person.order("hello")
    poll = {"runner_id": runner_id}
    assert runner.get("/runner/runs", params={**poll, "free": 0}).status_code == 204
    assert runner.get("/runner/runs", params={**poll, "free": 2}).json()["run"]["run_id"] == run
