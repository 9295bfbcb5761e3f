"""The runner and the served program: what a person starts, answers, stops and takes up again over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import is_gone
from tests.runner.person import Person
from tests.served import Served

pytestmark = pytest.mark.served


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
        assert not is_gone(pid), "the turn was stopped, the agent kept"
        run, _ = person.order("hello again", session)
        person.status(run, "completed")
        person.until(lambda: "I was told: hello again" in person.said(session))
        assert person.http.post(f"/sessions/{session}/stop").status_code == 200
        person.until(lambda: is_gone(pid))


def test_over_a_restart_no_event_and_no_question_is_lost_and_a_killed_runner_s_session_is_taken_up(
    serve: Callable[..., Served], work: Path
) -> None:
    served = serve(SIGNALBOX_LIFECYCLE_INTERVAL="0.5")
    person = Person(served, work)

    def calls(session: str) -> tuple[int, ...]:
        counts = "SELECT count(*) FROM events WHERE session_id = ? AND event_type = ?"
        return tuple(served.sql(counts, (session, kind))[0][0] for kind in ("pre_tool", "post_tool"))

    with person.runner() as program:
        hangs, hanging = person.order("do: pid; ask one; steps 20; hang")
        orders = [person.order("do: ask one; steps 20; say and out") for _ in range(6)]
        sessions = [session for _, session in orders] + [hanging]
        cards = [person.card(session) for session in sessions]
        for card in cards[:3]:
            person.decide(card, "approved")
        served.stop()
        served.start()
        assert [person.card(session) for session in sessions[3:]] == cards[3:], "the same questions"
        for card in cards[3:]:
            person.decide(card, "approved")
        for run, _ in orders:
            assert person.status(run, "completed", "failed") == "completed"
        for _, session in orders:
            person.until(lambda session=session: "and out" in person.said(session))
            assert calls(session) == (21, 21)
        assert served.sql("SELECT count(*) FROM permission_requests WHERE status = 'pending'") == [(0,)]
        person.until(lambda: calls(hanging) == (21, 21))
        pid = int(person.said(hanging).split("pid ")[1].split()[0])
        program.kill()
        person.until(lambda: is_gone(pid))
    with person.runner():
        person.status(hangs, "failed")
        run, _ = person.order("hello again", hanging)
        person.status(run, "completed")
        person.until(lambda: "I was told: hello again" in person.said(hanging))
    assert served.sql("SELECT count(*) FROM driven_sessions WHERE session_id = ?", (hanging,)) == [(1,)]


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
