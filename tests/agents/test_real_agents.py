"""Claude Code, Codex, Gemini CLI and OpenCode themselves, connected by `signalbox connect`: told, held, decided, lost.

The agents of a test work at the same time, each in a home of its own. What each runs is real, its model is a script.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from coordinator.client.connecting.connectable_agents import HOOK_FAILED
from tests.agents import programs
from tests.agents.asking import asked, decide, hold
from tests.agents.real_agents import AGENTS, ENDED_WITHIN, PROMPT, Run
from tests.patience import until
from tests.served import Served, children_of

pytestmark = [pytest.mark.served, pytest.mark.real_agent]
REASON = "Not on a Friday."
NOTE = "Leave the branch alone."
# Seconds that an agent gives a hook where the test wants its end; and where all calls are to wait at the same time.
DEADLINE, LONGER = 8, 12


@pytest.fixture(scope="module", autouse=True)
def agents() -> None:
    programs.needed(*AGENTS)


def held(served: Served, run: Run, command: str) -> str:
    """Return the request that waits for the agent's call, as soon as it does."""
    found = asked(served, run.home.agent.name, command)
    assert found is not None, f"{command} is not asked about: {run.output()}"
    return found


def told(run: Run) -> str:
    """Wait until the agent has ended, and return what its model was told last."""
    return json.dumps(run.ended()[-1])


def events(served: Served, agent: str) -> list[tuple[Any, ...]]:
    """Return what the agent's session holds: each event's type, tool's input and error, and role and words."""
    return served.sql(
        "SELECT e.event_type, e.tool_input, e.error, e.role, e.content FROM events e"
        " WHERE e.session_id = (SELECT session_id FROM permission_context JOIN sessions USING (session_id)"
        "   WHERE executor_profile = ? LIMIT 1) ORDER BY e.id",
        (agent,),  # connecting made a session, too: that of its test
    )


def crash(served: Served, how: signal.Signals = signal.SIGKILL) -> None:
    """End the server and its workers at once, or freeze them."""
    assert served.process is not None
    pids = [served.process.pid, *children_of(served.process.pid), *served.worker_pids()]
    for pid in pids:
        os.kill(pid, how)
    if how == signal.SIGKILL:
        served.process.wait()
        served.process = None


def test_told_held_approved_and_denied_and_sent_a_note(served, homes, start, subtests):
    hold(served)
    runs = start(homes(served), "echo one > one", "touch approved", "touch denied")
    approver = served.sign_in("approver")
    for name, run in runs.items():
        with subtests.test("held", agent=name):
            request_id = held(served, run, "touch approved")
            assert run.home.ran("one")
            assert not run.home.ran("approved")
            write_note(served, approver, request_id)
            decide(approver, request_id, "approved")
    for name, run in runs.items():
        with subtests.test("decided", agent=name):
            request_id = held(served, run, "touch denied")
            assert run.home.ran("approved")
            decide(approver, request_id, "denied", reason=REASON)
            model_was_told = told(run)
            assert REASON in model_was_told
            assert model_was_told.count(NOTE) == 1
            assert not run.home.ran("denied")
    for name in runs:
        with subtests.test("told", agent=name):
            was_told(events(served, name))


def write_note(served: Served, approver: httpx.Client, request_id: str) -> None:
    """Write a note to the agent whose call waits."""
    asked_in = "SELECT session_id FROM permission_context WHERE request_id = ?"
    ((session,),) = served.sql(asked_in, (request_id,))
    assert approver.post(f"/ui/sessions/{session}/-/note/", data={"text": NOTE}).status_code == 200


def was_told(session: list[tuple[Any, ...]]) -> None:
    """Check what the session shows of a run: its beginning, the prompt, each call and what came of it."""
    assert session[0][0] == "session_start"
    words = {role: content for kind, _, _, role, content in session if kind == "message"}
    assert PROMPT in words["user"]
    assert "Done." in words["assistant"]
    begun = [json.loads(given)["command"] for kind, given, *_ in session if kind == "pre_tool"]
    assert begun == ["echo one > one", "touch approved", "touch denied"]
    ended = [
        (json.loads(given)["command"], error) for kind, given, error, *_ in session if kind == "post_tool"
    ]
    assert [command for command, _ in ended] == begun
    assert [error is None for _, error in ended] == [True, True, False]
    assert REASON in ended[2][1]


@pytest.mark.browser
def test_a_person_approves_in_a_browser(served, homes, start, person_at):
    hold(served)
    (run,) = start(homes(served, only="codex"), "touch approved").values()
    held(served, run, "touch approved")
    page, _ = person_at(served, "approver")
    page.goto("/ui/approvals/")
    card = page.locator("article.ask", has_text="touch approved")
    card.get_by_role("button", name="Approve").click()
    expect(card).to_contain_text("Decided by you")
    run.ended()
    assert run.home.ran("approved")


def test_away_from_the_start_it_holds_what_is_held_for_certain_and_nothing_else(
    serve, homes, start, subtests
):
    served = serve()
    free = homes(served)
    hold(served)
    certain = homes(served, deadline=DEADLINE)
    served.stop()
    let, stopped = start(free, "touch free"), start(certain, "touch certain")
    for name, run in let.items():
        with subtests.test("nothing is held", agent=name):
            run.ended()
            assert run.home.ran("free")
    for name, run in stopped.items():
        with subtests.test("held for certain", agent=name):
            assert "Signalbox" in told(run)
            assert not run.home.ran("certain")


def test_no_call_runs_at_the_agents_own_deadline_or_whose_server_is_lost_while_it_waits(
    serve, homes, start, subtests
):
    served = serve()
    hold(served)
    ways = ("touch late", "touch killed", "touch frozen")
    runs = start(homes(served, deadline=LONGER), *ways, up_to=1)
    for number, way in enumerate(ways):
        for run in runs.values():  # all at the same time, however long each took to begin
            run.home.script.goes_on(up_to=number + 1)
        if way != "touch late":
            waiting = [asked(served, name, way, within=LONGER) for name in runs]
            assert any(waiting)
            crash(served, signal.SIGSTOP if way == "touch frozen" else signal.SIGKILL)
        if way == "touch killed":
            served.start()
        for name, run in runs.items():
            with subtests.test(way, agent=name):
                assert says_more_of_signalbox(run, number)
                assert not run.home.ran(way.removeprefix("touch "))
    for name, run in runs.items():
        with subtests.test("ended", agent=name):
            run.ended()
    crash(served)


def says_more_of_signalbox(run: Run, number: int) -> bool:
    """Say whether what came of a call tells its model of Signalbox, as soon as it is told."""
    requests = run.home.script.requests
    until(lambda: len(requests) > number + 1, run.output, within=ENDED_WITHIN)
    return requests[number + 1].count("Signalbox") > requests[number].count("Signalbox")


def hooks_of(pid: int) -> list[int]:
    """Return the process ids of the hook commands below a process."""
    found = []
    tasks = Path(f"/proc/{pid}/task").glob("*/children")  # any thread of an agent starts hooks
    for child in {int(one) for task in tasks for one in task.read_text().split()}:
        words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        if b"hook" in words and b"sh" not in words:
            found.append(child)
        found += hooks_of(child)
    return found


@pytest.mark.parametrize("name", AGENTS)
def test_a_call_whose_hook_is_killed_does_not_run(served, homes, start, name):
    hold(served)
    (run,) = start(homes(served, only=name), "touch certain").values()
    held(served, run, "touch certain")
    hooks = hooks_of(run.process.pid)
    assert hooks
    for hook in hooks:
        os.kill(hook, signal.SIGKILL)
    assert HOOK_FAILED in told(run)
    assert not run.home.ran("certain")
