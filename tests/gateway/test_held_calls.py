"""A call that asks: the card shows the exact arguments, the approval frees exactly that call, once."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.utils import timezone

from coordinator.edge.gateway.calls import ANOTHER
from coordinator.policy.limits import budgets
from tests.gateway.agents import LONG_AGO, Wire, furnish, rule, text_of
from tests.gateway.conftest import TABLES
from tests.gateway.example_server import Example
from tests.patience import PATIENCE, until
from tests.served import Served

pytestmark = pytest.mark.served
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {"form": {}}}
DENIALS = "SELECT count(*) FROM audit_logs WHERE event_type = 'TOOL_CALL_DENIED'"


@pytest.fixture
def asking(box: Served) -> Served:
    rule(box, "mcp__example__write", "ask")
    rule(box, "mcp__example__slow", "ask")
    return box


def pending(box: Served, count: int = 1) -> list[str]:
    """Return the requests that wait, once there are so many."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        rows = box.sql("SELECT request_id FROM permission_requests WHERE status = 'pending' ORDER BY id")
        if len(rows) >= count:
            return [row[0] for row in rows]
        time.sleep(0.02)
    raise AssertionError("nobody asks")


def decide(box: Served, request_id: str, verdict: str = "approved", **form: str) -> None:
    """Decide as a person does, by the form on the card's page."""
    person = box.sign_in("approver")
    page = person.get(f"/ui/approvals/{request_id}/").text
    judged = re.findall(r'name="judged"\s+value="([^"]+)"', page)
    form_ = {"ids": [request_id], "judged": judged, "verdict": verdict, "scope": "call"} | form
    answer = person.post("/ui/approvals/decide/", data=form_)
    assert answer.status_code == 200, answer.text
    found = box.sql("SELECT status FROM permission_requests WHERE request_id = ?", (request_id,))
    assert found == [(verdict,)], found


class InBackground:
    """Something that another thread does; `result` waits for it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._outcome: list[Any] = []
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome.append(self._work())
        except Exception as problem:
            self._outcome.append(problem)

    def result(self, within: float = PATIENCE) -> Any:
        self._thread.join(within)
        assert self._outcome, "it is not done"
        if isinstance(self._outcome[0], Exception):
            raise self._outcome[0]
        return self._outcome[0]


def session(box: Served, **options: Any) -> Wire:
    wire = Wire(box, **options)
    wire.initialize()
    return wire


def test_an_older_client_waits_on_its_line_with_progress(asking: Served, example: Example) -> None:
    wire = session(asking)
    message = wire.message(
        "tools/call", {"name": "write", "arguments": {"path": "/a"}, "_meta": {"progressToken": 7}}
    )
    waiting = InBackground(lambda: wire.response(wire.post(message)))
    (request_id,) = pending(asking)
    card = asking.sign_in("approver").get(f"/ui/approvals/{request_id}/").text
    assert "/a" in card
    assert not example.calls
    decide(asking, request_id)
    assert text_of(waiting.result()["result"]) == "wrote /a"
    assert example.calls == {"write /a": 1}
    told = [one["params"] for one in wire.heard if one.get("method") == "notifications/progress"]
    assert told
    assert told[0]["progressToken"] == 7
    assert request_id in told[0]["message"]


def test_an_approval_is_used_once_and_for_the_same_arguments(asking: Served, example: Example) -> None:
    wire = session(asking, name="codex-mcp-client")
    first = InBackground(lambda: wire.call("write", path="/a"))
    (request_id,) = pending(asking)
    decide(asking, request_id)
    assert text_of(first.result()) == "wrote /a"
    await_delivery(asking)
    for arguments in ({"path": "/a"}, {"path": "/b"}):
        again = session(asking)
        InBackground(lambda again=again, arguments=arguments: again.call("write", **arguments))
        (request_id,) = pending(asking)
        decide(asking, request_id, "denied")
    assert example.calls == {"write /a": 1}


def test_a_client_that_left_calls_again_and_the_call_runs_at_once(asking: Served, example: Example) -> None:
    wire = session(asking)
    body = wire.message("tools/call", {"name": "write", "arguments": {"path": "/left"}})
    with pytest.raises(httpx.ReadTimeout):
        wire.http.post(wire.path, content=json.dumps(body), headers=wire.headers_for(body), timeout=1.0)
    (request_id,) = pending(asking)
    decide(asking, request_id)
    assert not example.calls
    assert text_of(session(asking).call("write", path="/left")) == "wrote /left"
    assert example.calls == {"write /left": 1}


def test_a_person_s_no_reaches_the_model_with_their_reason(asking: Served, example: Example) -> None:
    wire = session(asking)
    waiting = InBackground(lambda: wire.call("write", path="/no"))
    (request_id,) = pending(asking)
    decide(asking, request_id, "denied", reason="not on a Friday")
    result = waiting.result()
    assert result["isError"]
    assert "not on a Friday" in text_of(result)
    assert not example.calls


def test_a_client_that_opens_addresses_is_given_the_card_s(asking: Served, example: Example) -> None:
    wire = Wire(asking, stateless=True, capabilities={"elicitation": {"url": {}}})
    first = wire.call("write", path="/i")
    assert first["resultType"] == "input_required"
    asked = first["inputRequests"]["approval"]
    (request_id,) = pending(asking)
    assert asked["method"] == "elicitation/create"
    assert asked["params"]["url"].endswith(f"/ui/approvals/{request_id}/")
    retry = {
        "name": "write",
        "arguments": {"path": "/i"},
        "inputResponses": {"approval": {"action": "accept"}},
        "requestState": first["requestState"],
    }
    waiting = InBackground(lambda: wire.ask("tools/call", retry))
    decide(asking, request_id)
    assert text_of(waiting.result()) == "wrote /i"
    other = retry | {"arguments": {"path": "/other"}}
    assert wire.ask("tools/call", other)["isError"]
    again = InBackground(lambda: wire.ask("tools/call", retry))
    (request_id,) = pending(asking)
    decide(asking, request_id, "denied")
    assert again.result()["isError"]
    assert example.calls == {"write /i": 1}


OPENS = {"elicitation": {"url": {}}}


def tried_again(wire: Wire, first: dict[str, Any], path: str) -> dict[str, Any]:
    """Call once more with the state that the first try brought."""
    retry = {"name": "write", "arguments": {"path": path}, "requestState": first["requestState"]}
    return wire.ask("tools/call", retry)


def await_delivery(box: Served) -> None:
    """Wait until all calls' answers count as delivered."""
    undelivered = "SELECT count(*) FROM mcp_gateway_calls WHERE delivered_at IS NULL"
    deadline = time.monotonic() + PATIENCE
    while box.sql(undelivered) != [(0,)]:
        assert time.monotonic() < deadline, "an answer does not count as delivered"
        time.sleep(0.02)


def outputs(box: Served, count: int) -> list[str]:
    """Return the texts with which the calls of the timelines ended, once there are so many."""
    asked = "SELECT tool_output FROM events WHERE event_type = 'post_tool' ORDER BY id"
    deadline = time.monotonic() + PATIENCE
    while len(rows := box.sql(asked)) < count and time.monotonic() < deadline:
        time.sleep(0.02)
    return [text_of(json.loads(row[0])) for row in rows if row[0]]


def test_a_state_with_other_arguments_does_not_end_its_call_in_the_timeline(
    asking: Served, example: Example
) -> None:
    asking.emptied("events", "event_origins")
    wire = Wire(asking, stateless=True, capabilities=OPENS)
    first = wire.call("write", path="/right")
    assert "differs from the earlier one" in text_of(tried_again(wire, first, "/other"))
    (request_id,) = pending(asking)
    decide(asking, request_id)
    assert text_of(tried_again(wire, first, "/right")) == "wrote /right"
    calls = "SELECT c.tool_use_id, e.event_type, e.tool_output FROM events e JOIN event_context c ON c.event_id = e.id"
    outputs(asking, 2)
    told: dict[str, list[str]] = {}
    for call_id, _, output in asking.sql(f"{calls} WHERE e.tool_name IS NOT NULL ORDER BY e.id"):
        told.setdefault(call_id, []).append(text_of(json.loads(output)) if output else "begins")
    assert sorted(told.values()) == [["begins", ANOTHER], ["begins", "wrote /right"]]


def test_a_call_made_again_with_the_state_of_one_that_ran_runs_once_for_its_own_approval(
    asking: Served, example: Example
) -> None:
    asking.emptied("events", "event_origins")
    wire = Wire(asking, stateless=True, capabilities=OPENS)
    first = wire.call("write", path="/twice")
    for _ in range(2):
        waiting = InBackground(lambda: tried_again(wire, first, "/twice"))
        (request_id,) = pending(asking)
        decide(asking, request_id)
        assert text_of(waiting.result()) == "wrote /twice"
        # Until the program has noted that the answer went out, the same state is given the same answer again.
        await_delivery(asking)
    assert example.calls == {"write /twice": 2}
    used = "SELECT count(*) FROM permission_context WHERE used_at IS NOT NULL"
    assert asking.sql(used) == [(2,)]
    assert outputs(asking, 2) == ["wrote /twice"] * 2


def test_nobody_is_asked_anew_about_a_call_that_is_allowed_by_now(asking: Served, example: Example) -> None:
    wire = Wire(asking, stateless=True, capabilities=OPENS)
    first = wire.call("write", path="/eased")
    pending(asking)
    asking.sql("DELETE FROM tool_rules")
    assert "differs from the earlier one" in text_of(tried_again(wire, first, "/other"))
    assert text_of(tried_again(wire, first, "/eased")) == "wrote /eased"
    assert asking.sql("SELECT status FROM permission_requests") == [("withdrawn",)]
    assert text_of(tried_again(wire, first, "/eased")) == "wrote /eased"
    assert example.calls == {"write /eased": 2}


def test_a_call_that_a_person_approved_and_policy_denies_by_then_is_audited(
    asking: Served, example: Example
) -> None:
    ((before,),) = asking.sql(DENIALS)
    wire = session(asking)
    waiting = InBackground(lambda: wire.call("write", path="/late"))
    (request_id,) = pending(asking)
    asking.sql("UPDATE tool_rules SET verdict = 'deny'")
    decide(asking, request_id)
    assert "Denied" in text_of(waiting.result())
    assert asking.sql(DENIALS) == [(before + 1,)]
    assert not example.calls


def test_a_result_that_nobody_heard_is_kept_for_the_same_call(asking: Served, example: Example) -> None:
    wire = session(asking)
    message = wire.message("tools/call", {"name": "slow", "arguments": {"path": "/s"}})
    stream = wire.http.stream(
        "POST", wire.path, content=json.dumps(message), headers=wire.headers_for(message)
    )
    with stream as answer:
        (request_id,) = pending(asking)
        decide(asking, request_id)
        for line in answer.iter_lines():
            if "data" in line and "half" in line:
                break
            if example.began.is_set():
                break
    assert example.began.wait(PATIENCE)
    example.release.set()
    assert text_of(wire.call("slow", path="/s")) == "slow /s"
    assert example.calls == {"slow /s": 1}


def test_a_brake_stops_an_approved_call_and_the_audit_log_says_so(asking: Served, example: Example) -> None:
    wire = session(asking)
    waiting = InBackground(lambda: wire.call("write", path="/a"))
    (request_id,) = pending(asking)
    put = "INSERT INTO brakes (reach, name, reason, set_at, set_by) VALUES ('agent', 'codex', '', ?, 'user:ann')"
    asking.sql(put, (LONG_AGO,))
    try:  # nothing proves that the caller is not Codex, so the brake counts for it, too
        decide(asking, request_id)
        assert "put the brake on" in text_of(waiting.result())
    finally:
        asking.sql("DELETE FROM brakes")
    denials = "SELECT metadata FROM audit_logs WHERE event_type = 'TOOL_CALL_DENIED'"
    assert "brake" in asking.sql(f"{denials} AND reason LIKE '%put the brake on%'")[0][0]
    assert not example.calls


def test_an_approval_is_used_up_also_where_nobody_would_be_asked_by_then(
    asking: Served, example: Example
) -> None:
    wire = Wire(asking, stateless=True, capabilities=TASKS)
    task = {"taskId": wire.call("write", path="/eased")["taskId"]}
    (request_id,) = pending(asking)
    decide(asking, request_id)
    asking.sql("DELETE FROM tool_rules")
    found = ended(wire, task)
    assert text_of(found["result"]) == "wrote /eased"
    used = "SELECT count(*) FROM permission_context WHERE used_at IS NOT NULL"
    assert asking.sql(used) == [(1,)]


def test_a_budget_that_is_used_up_meanwhile_denies_a_task(asking: Served, example: Example) -> None:
    wire = Wire(asking, stateless=True, capabilities=TASKS)
    task = {"taskId": wire.call("write", path="/spent")["taskId"]}
    (request_id,) = pending(asking)
    decide(asking, request_id)
    asking.sql(
        "INSERT INTO budgets (reach, name, span, measure, amount, at_limit, changed_at, changed_by)"
        " VALUES ('everything', '', 'day', 'calls', 0.5, 'hold', ?, 'user:ann')",
        (LONG_AGO,),
    )
    asking.sql(
        "INSERT INTO usage_days (day, session_id, model, calls, input_tokens, output_tokens, cache_read_tokens,"
        " cache_write_tokens) VALUES (?, 'ses_other', '', 1, 0, 0, 0, 0)",
        (budgets.installation_local_iso_date(timezone.now()),),
    )
    ((before,),) = asking.sql(DENIALS)
    try:
        found = ended(wire, task)
    finally:
        asking.emptied("budgets", "usage_days")
    assert "is used up" in text_of(found["result"])
    assert asking.sql(DENIALS) == [(before + 1,)]
    assert not example.calls


def ended(wire: Wire, task: dict[str, Any]) -> dict[str, Any]:
    """Return a task once it has ended."""
    deadline = time.monotonic() + PATIENCE
    while (found := wire.ask("tasks/get", task))["status"] == "working" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found["status"] in {"completed", "failed"}, found
    return found


@pytest.fixture
def restarted(one_server: Served, example: Example) -> Served:
    """A server of this module's own, whose calls ask: `asking` would have to be started anew for the next test."""
    one_server.emptied(*TABLES)
    furnish(one_server, example.url)
    rule(one_server, "mcp__example__write", "ask")
    rule(one_server, "mcp__example__slow", "ask")
    return one_server


def request_for(box: Served, path: str) -> str:
    """Return the request that waits for the call with this path."""
    asked = (
        "SELECT r.request_id, c.tool_input FROM permission_requests r JOIN permission_context c"
        " ON c.request_id = r.request_id WHERE r.status = 'pending'"
    )

    def found() -> list[str]:
        return [one for one, given in box.sql(asked) if json.loads(given or "{}").get("path") == path]

    (request_id,) = until(found, "nobody asks")
    return request_id


def test_the_verdict_reaches_the_caller_and_who_polls_a_task_through_a_restart(
    restarted: Served, example: Example
) -> None:
    wire = session(restarted)
    waiting = InBackground(lambda: wire.call("write", path="/r"))
    polling = Wire(restarted, stateless=True, capabilities=TASKS)
    created = polling.call("write", path="/t")
    assert (created["resultType"], created["status"]) == ("task", "working")
    task = {"taskId": created["taskId"]}
    assert polling.ask("tasks/get", task)["status"] == "working"
    requests = [request_for(restarted, path) for path in ("/r", "/t")]
    restarted.stop()
    assert "Waiting for approval" in text_of(waiting.result())
    restarted.start()
    for request_id in requests:
        decide(restarted, request_id)
    assert text_of(wire.call("write", path="/r")) == "wrote /r"
    found = ended(polling, task)
    assert found["status"] == "completed", found
    assert text_of(found["result"]) == "wrote /t"
    assert example.calls == {"write /r": 1, "write /t": 1}
    assert polling.ask("tasks/get", task)["result"] == found["result"]


def test_through_a_crash_the_verdict_reaches_the_caller_and_a_call_in_the_middle_may_have_run(
    restarted: Served, example: Example
) -> None:
    asks, runs = session(restarted), session(restarted)
    waiting = InBackground(lambda: asks.call("write", path="/r"))
    unanswered = request_for(restarted, "/r")
    running = InBackground(lambda: runs.call("slow", path="/k"))
    decide(restarted, request_for(restarted, "/k"))
    assert example.began.wait(PATIENCE)
    for pid in restarted.worker_pids():
        os.kill(pid, signal.SIGKILL)
    restarted.stop()
    for cut_off in (waiting, running):
        with pytest.raises(httpx.TransportError):
            cut_off.result()
    restarted.start()
    decide(restarted, unanswered)
    assert text_of(asks.call("write", path="/r")) == "wrote /r"
    result = runs.call("slow", path="/k")
    assert result["isError"]
    assert "may have run" in text_of(result)
    assert example.calls == {"write /r": 1, "slow /k": 1}
    assert restarted.sql("SELECT count(*) FROM audit_logs WHERE event_type = 'MCP_CALL_LOST'") == [(1,)]
