"""`signalbox_sdk.ask` approves only what is clearly approved."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from signalbox_sdk import Connection, NotApproved, ToolQuestion, ask, session
from signalbox_sdk.asking import parse_verdict_answer

from tests.agents.asking import decide
from tests.served import KEYS, Served

YES = {
    "request_id": "req_1",
    "status": "approved",
    "allowed": True,
    "edited": False,
    "edited_input": None,
    "brake": None,
    "validity": "once",
    "expires_at": None,
    "revoked_at": None,
}
EDITED: dict[str, Any] = {"allowed": False, "edited": True, "edited_input": {"path": "b"}}


def question(**more: Any) -> ToolQuestion:
    return ToolQuestion("delete_file", {"path": "a"}, conversation="talk-1", **more)


def connect(served: Served) -> Connection:
    return Connection(served.url, KEYS["agent"])


@pytest.mark.parametrize(
    "changes",
    [
        {"allowed": False},
        {"allowed": "true"},
        {"allowed": 1},
        {"edited": True},
        {"edited": None},
        {"edited": True, "allowed": False, "edited_input": "rm"},
        {"brake": "Stopped."},
        {"brake": ""},
        {"status": "pending", "allowed": False},
        {"status": None},
        {"status": "revoked", "allowed": False, "edited": True, "edited_input": {"path": "b"}},
        {"status": "denied"},
        EDITED | {"revoked_at": "2026-01-01T00:00:00+00:00"},
        EDITED | {"validity": "hour", "expires_at": "2026-01-01T00:00:00+00:00"},
        EDITED | {"validity": "hour", "expires_at": "later"},
        {"request_id": None},
    ],
)
def test_what_is_not_clearly_a_yes_is_none(changes: dict[str, Any]) -> None:
    assert parse_verdict_answer(YES, {"path": "a"}).is_approved
    verdict = parse_verdict_answer(YES | changes, {"path": "a"})
    assert not verdict.is_approved
    assert verdict.arguments == {}
    with pytest.raises(NotApproved):
        verdict.require_approval()


def test_what_a_person_edited_is_what_may_run() -> None:
    assert parse_verdict_answer(YES | EDITED, {"path": "a"}).require_approval() == {"path": "b"}


def test_a_server_that_is_away_approves_nothing() -> None:
    verdict = ask(question(), connection=Connection("http://127.0.0.1:1", "sbx_x", patience=0))
    assert verdict.status == "unavailable"


def test_arguments_that_are_not_json_are_asked_about_nowhere() -> None:
    verdict = ask(
        ToolQuestion("delete_file", {"path": object()}), connection=Connection("http://127.0.0.1:1")
    )
    assert verdict.status == "refused"


@pytest.mark.served
def test_the_arguments_that_run_are_those_of_the_moment_of_asking(served: Served) -> None:
    arguments = {"path": "a"}
    asked = ToolQuestion("delete_file", arguments, key="snapshot-1")
    pending = ask(asked, timeout=0, connection=connect(served))
    assert pending.is_pending
    assert pending.request_id is not None
    verdicts = []
    waiting = threading.Thread(target=lambda: verdicts.append(ask(asked, connection=connect(served))))
    waiting.start()
    decide(served.sign_in("approver"), pending.request_id, "approved")
    waiting.join()
    arguments["path"] = "/"
    assert verdicts[0].require_approval() == {"path": "a"}


@pytest.mark.served
@pytest.mark.parametrize(("claim", "offered"), [({}, False), ({"runs_edited_input": True}, True)])
def test_only_the_field_says_that_a_program_runs_an_edited_input(
    served: Served, claim: dict[str, Any], offered: bool
) -> None:
    rule = {"type": "addRules", "rules": [{"toolName": "delete_file"}], "behavior": "allow"}
    body = {
        "plugin_id": "sdk",
        "permission_type": "ToolCall",
        "justification": "To clean up",
        "tool_name": "delete_file",
        "tool_input": {"path": f"claims {offered}"},
        "metadata": {"runs_edited_input": True, "permission_suggestions": [rule]},
    }
    request_id = (
        served.client("agent").post("/api/permission-requests", json=body | claim).json()["request_id"]
    )
    approver = served.sign_in("approver")
    page = approver.get(f"/ui/approvals/{request_id}/").text
    assert ('name="edited"' in page) == offered
    assert 'name="suggestion"' not in page
    decide(approver, request_id, "approved", edited='{"path": "b"}', edited_field="")
    answer = served.client("agent").get(f"/api/permission-requests/{request_id}").json()
    assert (answer["status"], answer["edited"]) == (("approved", True) if offered else ("pending", False))


@pytest.mark.served
def test_a_key_asks_about_one_call_alone(served: Served) -> None:
    first = ask(question(key="one-call"), timeout=0, connection=connect(served))
    again = ask(question(key="one-call"), timeout=0, connection=connect(served))
    assert first.request_id == again.request_id
    other = ToolQuestion("delete_file", {"path": "/"}, conversation="talk-1", key="one-call")
    assert ask(other, timeout=0, connection=connect(served)).status == "refused"


@pytest.mark.served
def test_a_session_and_its_cards_are_one(served: Served) -> None:
    pending = ask(question(key="linked"), timeout=0, connection=connect(served))
    reports = session("talk-1", connection=connect(served))
    for _ in range(2):
        reports.report_model_request(
            "gpt-5", prompt="Clean up", answer="Done", input_tokens=70, output_tokens=30, key="1"
        )
        reports.report_tool_call("delete_file", {"path": "a"}, "deleted", key="2")
    rows = served.sql(
        "SELECT e.event_type, c.input_tokens, c.output_tokens FROM events e JOIN event_context c"
        " ON c.event_id = e.id WHERE e.session_id = ?",
        (pending.session_id,),
    )
    assert [(tokens, out) for _, tokens, out in rows if tokens] == [(70, 30)]
    assert [kind for kind, *_ in rows].count("post_tool") == 1
    assert "Clean up" in json.dumps(
        served.client("read").get(f"/sessions/{pending.session_id}/events").json()
    )
