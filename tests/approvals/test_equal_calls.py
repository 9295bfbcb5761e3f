"""Which questions are about one call, and that an approval of one call is taken by one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions.sessions import tool_calls
from coordinator.actions.sessions.tool_calls import copy_request_with_call_id
from coordinator.models import Event, EventContext, PermissionRequest
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.policy.rules.tool_rules import ASK, Ruling
from tests.approvals.cards import form
from tests.approvals.factories import AGENT, MINUTE, NOW, fresh
from tests.approvals.factories import asked as asked_for
from tests.approvals.test_inbox import html_of
from tests.approvals.test_told_to_wait import call as call_of
from tests.approvals.test_told_to_wait import decide
from tests.claude_code.test_finding_a_call import asked, begun
from tests.runs.test_races import at_once

pytestmark = pytest.mark.django_db
SOON = timedelta(seconds=30)
RULE = Ruling(ASK, "Ask.", "rule 1")


def ask(question: ToolCallRequest) -> PermissionRequest:
    return tool_calls.request_tool_approval(question, RULE, actor=AGENT, deadline=NOW + MINUTE, now=NOW)


def end(call_id: str, at_us: int) -> None:
    """Record a call's result."""
    row = Event.objects.create(session_id="ses_1", event_type="post_tool", timestamp="t", tool_name="Bash")
    EventContext.objects.create(
        event=row, session_id="ses_1", instant_us=at_us, received_at=timezone.now(), tool_use_id=call_id
    )


def waiting(waiter: str, **changes: Any) -> ToolCallRequest:
    """Return a question that names no call."""
    return replace(asked(), waiter=waiter, **changes)


def test_equal_calls_are_requests_of_their_own_and_one_call_is_one() -> None:
    rows = [ask(call_of(call_id)) for call_id in ("a", "b", "a")]
    assert rows[0] == rows[2] != rows[1]


def test_two_questions_without_ids_are_about_the_two_open_calls() -> None:
    begun("a", asked().tool_input)
    begun("b", asked().tool_input)
    first = copy_request_with_call_id(waiting("1"))
    ask(first)  # as another worker's, which this one knows from the database alone
    second = copy_request_with_call_id(waiting("2"))
    assert [first.call_id, second.call_id] == ["b", "a"]
    ask(second)
    third = copy_request_with_call_id(waiting("3"))
    assert (third.call_id, third.slot) == (None, "3")
    assert len({ask(question).pk for question in (first, second, third)}) == 3


def test_two_questions_about_the_only_open_call_are_about_that() -> None:
    begun("over", asked().tool_input)
    end("over", 1)
    begun("open", asked().tool_input)
    late = waiting("1", since_us=60_000_000)
    assert copy_request_with_call_id(late).call_id == "open"
    ask(copy_request_with_call_id(late))
    assert copy_request_with_call_id(replace(late, waiter="2"), taken_ids=["open"]).call_id == "open"


@pytest.mark.django_db(transaction=True)
def test_of_two_that_race_for_an_approval_of_one_call_one_gets_it() -> None:
    for call_id in ("a", "b"):
        begun(call_id, asked().tool_input)
    same = [replace(copy_request_with_call_id(waiting(name)), waiter=name) for name in ("1", "2")]
    assert same[0].call_id == same[1].call_id  # two workers that looked at the same instant
    row = ask(same[0])
    assert ask(same[1]) == row
    decide(row, after=SOON)
    tasks = [
        partial(tool_calls.try_consume_call_verdict, row.request_id, question, actor=AGENT, now=NOW + MINUTE)
        for question in same
    ]
    assert sorted(at_once(tasks)) == [False, True]
    assert sorted(at_once(tasks)) == [False, True]  # whoever has it keeps it


def test_a_call_delivered_twice_has_its_approval_twice() -> None:
    begun("a", asked().tool_input)
    twice = [copy_request_with_call_id(waiting(name)) for name in ("1", "2")]
    row = ask(twice[0])
    decide(row, after=SOON)
    assert all(
        tool_calls.try_consume_call_verdict(row.request_id, one, actor=AGENT, now=NOW + MINUTE)
        for one in twice
    )
    named = replace(asked("b"), waiter="3")
    assert not tool_calls.try_consume_call_verdict(row.request_id, named, actor=AGENT, now=NOW + MINUTE)


def test_a_no_answers_everybody_who_waits_by_it() -> None:
    row = ask(waiting("1"))
    decide(row, "denied", SOON)
    assert all(
        tool_calls.try_consume_call_verdict(row.request_id, waiting(name), actor=AGENT, now=NOW + MINUTE)
        for name in ("1", "2")
    )


def test_another_idempotency_key_is_another_call(call: Any) -> None:
    body = {
        "plugin_id": "mind.x",
        "permission_type": "ToolCall",
        "justification": "Needed.",
        "tool_name": "Bash",
        "tool_input": {"command": "npm test"},
    }
    url = "/api/permission-requests"
    ids = [
        call("post", url, body | {"idempotency_key": name}).json()["request_id"] for name in ("1", "2", "1")
    ]
    assert ids[0] == ids[2] != ids[1]


def test_a_card_of_equal_calls_approves_one_or_all(signed_in: Any) -> None:
    rows = [asked_for(now=timezone.now(), idempotency_key=f"{n}", slot=f"{n}") for n in range(3)]
    browser: Client = signed_in()
    html = html_of(browser)
    assert html.count('class="card ask') == 1
    words = " ".join(html.split())
    assert "3 equal calls wait: each approval runs one" in words
    assert "Approve one" in words
    assert "Approve all 3" in words
    browser.post("/ui/approvals/decide/", form(html, verdict="approved-one"))
    assert [fresh(row).status for row in rows] == ["approved", "pending", "pending"]
    browser.post("/ui/approvals/decide/", form(html_of(browser)))
    assert [fresh(row).status for row in rows] == ["approved"] * 3


@pytest.mark.parametrize("sort", ["oldest", "newest"])
def test_approve_one_approves_the_one_that_waits_longest_in_every_order(signed_in: Any, sort: str) -> None:
    now = timezone.now()
    old, new = (asked_for(now=now - age, slot=f"{age}") for age in (2 * MINUTE, MINUTE))
    browser: Client = signed_in()
    page = browser.get(f"/ui/approvals/?sort={sort}").content.decode()
    browser.post("/ui/approvals/decide/", form(page, "approved-one"))
    assert (fresh(old).status, fresh(new).status) == ("approved", "pending")


def test_approve_one_approves_no_other_where_the_oldest_was_decided_meanwhile(signed_in: Any) -> None:
    now = timezone.now()
    old, new = (asked_for(now=now - age, slot=f"{age}") for age in (2 * MINUTE, MINUTE))
    browser: Client = signed_in("bob")
    page = browser.get("/ui/approvals/?sort=newest").content.decode()
    decide(old, "denied", after=timedelta(0))
    browser.post("/ui/approvals/decide/", form(page, "approved-one"))
    assert (fresh(old).status, fresh(new).status) == ("denied", "pending")
