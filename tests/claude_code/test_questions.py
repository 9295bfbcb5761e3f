"""Claude Code's questions and plans: answered by a person in the form that its tools take, and by nobody else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.approvals.cards import served_form
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import AGENT_KEY, ends, pending, prepare, rules
from tests.served import KEYS, Served, running

pytestmark = pytest.mark.served

COLOUR = {
    "question": "Which colour?",
    "header": "Colour",
    "options": [
        {"label": "Red", "description": "warm", "preview": "# red"},
        {"label": "Blue, dark", "description": "cold"},
    ],
    "multiSelect": False,
}
FRUITS = {
    "question": "Which fruits?",
    "header": "Fruit",
    "options": [{"label": "Apple", "description": "a"}, {"label": "Pear, ripe", "description": "p"}],
    "multiSelect": True,
}
PLAN = {"plan": "# Paint\n\n1. Paint it", "planFilePath": "/home/dev/.claude/plans/paint.md"}


@pytest.fixture(scope="module")
def served(served_template: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with running(served_template, tmp_path_factory.mktemp("questions") / "server") as server:
        prepare(server)
        yield server


@pytest.fixture
def claude(served: Served) -> Claude:
    rules(served)
    claude = Claude(served, key=AGENT_KEY, wait="100")
    claude.prompt("Get going.")
    return claude


@pytest.fixture(scope="module")
def approver(served: Served) -> httpx.Client:
    return served.sign_in("approver")


def ask(claude: Claude, tool: str, tool_input: dict[str, Any]) -> Any:
    """Ask as Claude Code does, by both hooks of a call; the second's answer comes when a person answered."""
    call = claude.new_call(tool, tool_input)
    before = claude.before(call)
    assert before == {}, before
    return claude.hook("PermissionRequest", tool_name=tool, tool_input=tool_input)


def answer(
    approver: httpx.Client, request_id: str, verdict: str = "answered", **fields: Any
) -> httpx.Response:
    form = served_form(approver, request_id, verdict, **fields)
    return approver.post("/ui/approvals/answer/", data=form)


def decision(reply: Any) -> dict[str, Any]:
    return reply["hookSpecificOutput"]["decision"]


def test_answers_reach_the_tool_as_it_takes_them(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    asked = {"questions": [COLOUR, FRUITS]}
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, claude, "AskUserQuestion", asked)
        (request_id,) = pending(served, claude)
        fields = {"questions": 2, "answer-0": "0", "answer-0-text": "not too bright", "answer-1": ["0", "1"]}
        assert answer(approver, request_id, **fields).status_code == 200
        decided = decision(reply.result())
    assert decided["behavior"] == "allow"
    assert decided["updatedInput"] == asked | {
        "answers": {"Which colour?": "Red", "Which fruits?": 'Apple, "Pear, ripe"'},
        "annotations": {"Which colour?": {"notes": "not too bright", "preview": "# red"}},
    }
    (row,) = served.sql(
        "SELECT status, approved_by FROM permission_requests WHERE request_id = ?", (request_id,)
    )
    assert tuple(row) == ("approved", "approver")


@pytest.mark.parametrize(
    "fields",
    [
        {"questions": 1},
        {"questions": 1, "answer-0": "2"},
        {"questions": 1, "answer-0": ["0", "1"]},
        {"questions": 2, "answer-0": "0", "answer-1": "0"},
        {"questions": 0},
    ],
    ids=["nothing", "not offered", "two of one", "another question", "none"],
)
def test_an_answer_that_was_not_on_offer_is_refused(
    served: Served, claude: Claude, approver: httpx.Client, fields: dict[str, Any]
) -> None:
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, claude, "AskUserQuestion", {"questions": [COLOUR]})
        (request_id,) = pending(served, claude)
        answer(approver, request_id, **fields)
        assert pending(served, claude) == [request_id]
        answer(approver, request_id, **{"questions": 1, "answer-0": "1"})
        assert decision(reply.result())["updatedInput"]["answers"] == {"Which colour?": "Blue, dark"}


def test_a_question_is_never_approved_without_an_answer(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, claude, "AskUserQuestion", {"questions": [COLOUR]})
        (request_id,) = pending(served, claude)
        for path in ("decide/", "set/decide/"):
            approver.post(f"/ui/approvals/{path}", data=served_form(approver, request_id))
        listed = approver.post(
            "/ui/approvals/set/",
            data={"verdict": "approved", "chosen": json.dumps([f"x:{request_id}"])},
        )
        assert "It is a question" in listed.text or "changed" in listed.text
        always = approver.get(f"/ui/approvals/{request_id}/always/")
        assert "answered each time" in always.text or "Only administrators" in always.text
        assert pending(served, claude) == [request_id]
        answer(approver, request_id, "denied", reason="Ask the designers.")
        decided = decision(reply.result())
    assert decided["behavior"] == "deny"
    assert "Ask the designers." in decided["message"]


def test_no_rule_answers_and_a_rule_that_denies_still_denies(served: Served, claude: Claude) -> None:
    rules(served, {"tool": "*", "verdict": "allow"})
    assert claude.before(claude.new_call("AskUserQuestion", {"questions": [COLOUR]})) == {}
    assert claude.before(claude.new_call("ExitPlanMode", PLAN)) == {}
    rules(served, {"tool": "AskUserQuestion", "verdict": "deny", "reason": "Decide yourself."})
    denied = claude.before(claude.new_call("AskUserQuestion", {"questions": [COLOUR]}))
    assert denied["permissionDecision"] == "deny"


def test_a_question_that_a_rule_wants_asked_is_answered_at_the_first_hook(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    rules(served, {"tool": "*", "verdict": "ask", "deny_at_deadline": True})
    with ThreadPoolExecutor(1) as pool:
        call = claude.new_call("AskUserQuestion", {"questions": [COLOUR]})
        reply = pool.submit(claude.before, call)
        (request_id,) = pending(served, claude)
        answer(approver, request_id, **{"questions": 1, "answer-0-text": "Green"})
        decided = reply.result()
    assert decided["permissionDecision"] == "allow"
    assert decided["updatedInput"]["answers"] == {"Which colour?": "Green"}


@pytest.mark.parametrize(("mode", "sets"), [("ask", "default"), ("edits", "acceptEdits")])
def test_a_plan_is_approved_with_the_mode_to_go_on_in(
    served: Served, claude: Claude, approver: httpx.Client, mode: str, sets: str
) -> None:
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, claude, "ExitPlanMode", PLAN)
        (request_id,) = pending(served, claude)
        assert "<h1>Paint</h1>" in approver.get(f"/ui/approvals/{request_id}/").text
        answer(approver, request_id, "", mode=mode)
        decided = decision(reply.result())
    assert decided == {
        "behavior": "allow",
        "updatedInput": PLAN,
        "updatedPermissions": [{"type": "setMode", "mode": sets, "destination": "session"}],
    }


def test_a_plan_is_sent_back_with_what_the_person_says(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, claude, "ExitPlanMode", PLAN)
        (request_id,) = pending(served, claude)
        answer(approver, request_id, "denied", reason="Sand it first.")
        decided = decision(reply.result())
    assert decided["behavior"] == "deny"
    assert "Sand it first." in decided["message"]


def test_an_answer_in_the_terminal_closes_the_card(served: Served, claude: Claude) -> None:
    tool_input = {"questions": [COLOUR]}
    with ThreadPoolExecutor(1) as pool:
        call = claude.new_call("AskUserQuestion", tool_input)
        claude.before(call)
        reply = pool.submit(claude.hook, "PermissionRequest", tool_name=call.tool, tool_input=tool_input)
        (request_id,) = pending(served, claude)
        claude.hook(
            "PostToolUse",
            tool_name=call.tool,
            tool_input=tool_input | {"answers": {"Which colour?": "Red"}},
            tool_response={"questions": [COLOUR], "answers": {"Which colour?": "Red"}},
            tool_use_id=call.id,
        )
        assert reply.result() == {}
    assert ends(served, request_id) == ("withdrawn", "Answered in the terminal.")


def test_no_program_answers(served: Served, claude: Claude, approver: httpx.Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        reply = pool.submit(ask, claude, "AskUserQuestion", {"questions": [COLOUR]})
        (request_id,) = pending(served, claude)
        form = served_form(approver, request_id, "answered", **{"questions": 1, "answer-0": "0"})
        for key in KEYS.values():
            headers = {"Authorization": f"Bearer {key}"}
            refused = httpx.post(f"{served.url}/ui/approvals/answer/", data=form, headers=headers)
            assert refused.status_code in {302, 401, 403}
        viewer = served.sign_in("viewer")
        assert viewer.post("/ui/approvals/answer/", data=form).status_code == 403
        assert pending(served, claude) == [request_id]
        stale = form | {"judged": [f"{'0' * 64}:{request_id}"]}
        approver.post("/ui/approvals/answer/", data=stale)
        assert pending(served, claude) == [request_id]
        answer(approver, request_id, "denied")
        assert decision(reply.result())["behavior"] == "deny"
