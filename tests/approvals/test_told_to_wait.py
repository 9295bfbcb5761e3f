"""A call that was told to wait: approved or denied later, and then it runs once, exactly as it was judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import time_machine

from coordinator.actions import approvals
from coordinator.actions.approvals import pending_calls as holding
from coordinator.actions.sessions import tool_calls
from coordinator.identity.actors import Actor, key_actor_by_name, system_actor
from coordinator.models import PermissionRequest, Session
from coordinator.policy.requests.approvals import Scope, Validity, single_use_valid_until
from coordinator.policy.requests.tool_calls import Settled, ToolCallRequest
from coordinator.policy.rules.tool_rules import ASK, Ruling
from coordinator.sessions import inactivity
from tests.approvals.factories import AGENT, MINUTE, NOW, fresh, person, trail
from tests.runs.test_races import at_once

pytestmark = pytest.mark.django_db
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
RULE = Ruling(ASK, "Ask about pushes.", "rule 1", None, deny_at_deadline=True)


def call(call_id: str | None = "toolu_1", command: str = "git push", **changes: Any) -> ToolCallRequest:
    """Return a call of Bash as Claude Code's dialect hands it over."""
    given = ToolCallRequest(
        hook_name="PreToolUse",
        session_id="ses_1",
        agent_id="coder",
        since_us=0,
        tool="Bash",
        tool_input={"command": command},
        about=command,
        program="claude-code",
        is_editable=True,
        call_id=call_id,
        folder="/home/dev/shop",
        host="laptop",
    )
    return replace(given, **changes)


def ask_about_call(asked: ToolCallRequest, now: Any = NOW, by: Actor = AGENT) -> PermissionRequest:
    """Have the call's hook ask, for a minute, and return the request that stands for it."""
    return tool_calls.request_tool_approval(
        asked, RULE, actor=by, deadline=now + MINUTE, outlasts=True, now=now
    )


def told_to_wait(asked: ToolCallRequest | None = None, now: Any = NOW) -> PermissionRequest:
    """Have the call ask, and be told to wait a minute later."""
    row = ask_about_call(asked or call(), now)
    assert (
        tool_calls.defer_tool_call(row.request_id, actor=AGENT, reason="Nobody answered.", now=now + MINUTE)
        is not None
    )
    return fresh(row)


def decide(row: PermissionRequest, verdict: Any = "approved", after: timedelta = HOUR, **more: Any) -> None:
    approvals.decide_request(row.request_id, person=person(), verdict=verdict, now=NOW + after, **more)


def settled(asked: ToolCallRequest, after: timedelta = 2 * HOUR) -> Settled | None:
    """Return what the call is answered at once when it is made again; None where it has to wait for a person."""
    now = NOW + after
    row = ask_about_call(asked, now)
    found = tool_calls.find_call_question_answer(row.request_id, asked, now)
    if found is None:
        return None
    taken = tool_calls.try_consume_call_verdict(row.request_id, asked, actor=AGENT, now=now)
    return found if taken or not found["allowed"] else None


def test_a_request_outlives_the_hook_that_asked() -> None:
    row = told_to_wait()
    assert (row.status, row.expires_at) == ("pending", NOW + DAY)
    assert row.context.held_at == NOW + MINUTE
    assert trail(row) == ["PERMISSION_REQUEST_CREATED", "PERMISSION_REQUEST_HELD"]
    assert approvals.expire_due_requests(NOW + HOUR) == 0
    assert approvals.expire_due_requests(NOW + DAY) == 1


def test_an_approval_lets_the_same_call_run_once() -> None:
    row = told_to_wait()
    decide(row, reason="Release day.")
    again = settled(call("toolu_2"))
    assert again is not None
    assert (again["allowed"], again["reason"], again["request_id"]) == (True, "Release day.", row.request_id)
    assert trail(row)[-1] == "PERMISSION_APPROVAL_USED"
    third = ask_about_call(call("toolu_3"), NOW + 3 * HOUR)
    assert third != row
    assert third.status == "pending"


def test_an_approval_that_no_call_has_used_can_be_ended_without_a_person() -> None:
    unused, used = told_to_wait(), told_to_wait(call("toolu_9", "make"))
    decide(unused)
    approvals.decide_request(used.request_id, person=person("bob"), verdict="approved", now=NOW + HOUR)
    assert settled(call("toolu_8", "make")) is not None
    by = system_actor("restore")
    assert (
        approvals.revoke_unused_single_use_approvals(actor=by, reason="It may have run.", now=NOW + 2 * HOUR)
        == 1
    )
    assert (
        approvals.revoke_unused_single_use_approvals(actor=by, reason="It may have run.", now=NOW + 2 * HOUR)
        == 0
    )
    context = fresh(unused).context
    assert (context.revoked_by, context.revoke_reason) == ("system:restore", "It may have run.")
    assert trail(unused)[-1] == "PERMISSION_APPROVAL_REVOKED"
    assert settled(call("toolu_2")) is None
    assert fresh(used).context.revoked_at is None


def test_a_denial_answers_the_next_call_at_once_and_the_one_after_asks_anew() -> None:
    row = told_to_wait()
    decide(row, "denied", reason="Not on a Friday.")
    again = settled(call("toolu_2"))
    assert again is not None
    assert (again["status"], again["allowed"], again["reason"]) == ("denied", False, "Not on a Friday.")
    assert trail(row)[-1] == "PERMISSION_DENIAL_TOLD"
    assert settled(call("toolu_3")) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"command": "git push --force"},
        {"tool_input": {"command": "git push", "description": "Push"}},
        {"tool": "Shell"},
        {"program": "codex"},
        {"folder": "/home/dev/other"},
        {"host": "server"},
        {"host": None},
        {"agent_id": "other"},
        {"agent_id": None},
        {"session_id": "ses_2"},
    ],
    ids=str,
)
def test_an_approval_is_for_nothing_but_the_very_call(changes: dict[str, Any]) -> None:
    Session.objects.create(session_id="ses_1", status="running", created_at=NOW)
    row = told_to_wait()
    decide(row)
    other = call("toolu_2", **changes)
    assert settled(other) is None
    assert not tool_calls.try_consume_call_verdict(
        row.request_id, call("toolu_2", "git push --force"), actor=AGENT, now=NOW + 2 * HOUR
    )
    assert settled(call("toolu_3")) is not None


def test_another_key_of_the_same_agent_asks_for_itself() -> None:
    decide(told_to_wait())
    assert ask_about_call(call("toolu_2"), NOW + 2 * HOUR, key_actor_by_name("another")).status == "pending"


@pytest.mark.parametrize(
    ("status", "place", "joins"),
    [
        ("finished", {}, True),
        ("running", {}, False),
        ("finished", {"host": None}, False),
        ("finished", {"folder": None}, False),
    ],
)
def test_an_agent_that_was_started_anew_goes_on_where_it_was_told_to_wait(
    status: str, place: dict[str, None], joins: bool
) -> None:
    Session.objects.create(session_id="ses_1", status=status, created_at=NOW)
    row = told_to_wait(call(**place))
    waiting = ask_about_call(call("toolu_2", session_id="ses_2", **place), NOW + 10 * MINUTE)
    assert (waiting == row) is joins
    decide(row)
    assert (settled(call("toolu_3", session_id="ses_3", **place)) is not None) is joins


def test_a_call_made_again_while_the_request_waits_joins_it() -> None:
    row = told_to_wait()
    again = call("toolu_2")
    assert ask_about_call(again, NOW + HOUR) == row
    assert fresh(row).context.waits_until == NOW + HOUR + MINUTE
    assert tool_calls.find_call_question_answer(row.request_id, again, NOW + HOUR) is None
    assert (
        tool_calls.defer_tool_call(row.request_id, actor=AGENT, reason="Nobody answered.", now=NOW + HOUR)
        is not None
    )
    assert trail(row).count("PERMISSION_REQUEST_HELD") == 1


@pytest.mark.parametrize("verdict", ["approved", "denied"])
def test_a_call_that_joins_a_request_while_a_person_decides_it_undoes_no_verdict(
    monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    row = told_to_wait()
    look = holding.find_request_for_call

    def looked_just_before_the_person_decided(*given: Any, **more: Any) -> PermissionRequest | None:
        found = look(*given, **more)
        decide(row, verdict)
        return found

    monkeypatch.setattr(holding, "find_request_for_call", looked_just_before_the_person_decided)
    assert ask_about_call(call("toolu_2"), NOW + HOUR).request_id == row.request_id
    assert fresh(row).status == verdict


def test_the_hook_that_still_waits_uses_the_approval_up() -> None:
    row = ask_about_call(call())
    decide(row, after=timedelta(seconds=30))
    assert tool_calls.try_consume_call_verdict(row.request_id, call(), actor=AGENT, now=NOW + MINUTE)
    assert trail(row)[-1] == "PERMISSION_REQUEST_APPROVED"
    assert settled(call("toolu_2"), MINUTE) is None


def test_the_same_call_may_be_told_its_own_verdict_again() -> None:
    """Its program may ask twice about one call, by two hooks; that is one run."""
    row = told_to_wait()
    decide(row)
    prompted = call("toolu_2", hook_name="PermissionRequest", is_prompted=True)
    assert settled(call("toolu_2")) is not None
    shown = tool_calls.consume_earlier_answer_to_call(prompted, NOW + 2 * HOUR + MINUTE, actor=AGENT)
    assert shown is not None
    assert shown["allowed"]
    assert (
        tool_calls.consume_earlier_answer_to_call(prompted, NOW + 2 * HOUR + 3 * MINUTE, actor=AGENT) is None
    )
    other = replace(prompted, tool_input={"command": "git push --force"})
    assert tool_calls.consume_earlier_answer_to_call(other, NOW + 2 * HOUR + MINUTE, actor=AGENT) is None
    assert tool_calls.try_consume_call_verdict(
        row.request_id, call("toolu_2"), actor=AGENT, now=NOW + 2 * HOUR + MINUTE
    )
    assert not tool_calls.try_consume_call_verdict(
        row.request_id, call("toolu_2"), actor=AGENT, now=NOW + 2 * HOUR + 3 * MINUTE
    )
    assert not tool_calls.try_consume_call_verdict(
        row.request_id, call("toolu_3"), actor=AGENT, now=NOW + 2 * HOUR + MINUTE
    )
    nameless = call(None)
    assert not tool_calls.try_consume_call_verdict(
        row.request_id, nameless, actor=AGENT, now=NOW + 2 * HOUR + MINUTE
    )


def test_an_approval_that_nobody_used_ends() -> None:
    row = told_to_wait()
    decide(row)
    last, over = NOW + HOUR + DAY - MINUTE, NOW + HOUR + DAY
    assert (single_use_valid_until(fresh(row), last), single_use_valid_until(fresh(row), over)) == (
        over,
        None,
    )
    assert not tool_calls.try_consume_call_verdict(row.request_id, call("toolu_2"), actor=AGENT, now=over)
    assert ask_about_call(call("toolu_2"), over) != row


def test_an_approval_that_nobody_used_can_be_taken_back() -> None:
    row = told_to_wait()
    decide(row)
    approvals.revoke_approval(row.request_id, person=person("bob"), now=NOW + 2 * HOUR)
    assert settled(call("toolu_2")) is None
    assert not tool_calls.try_consume_call_verdict(
        row.request_id, call("toolu_2"), actor=AGENT, now=NOW + 2 * HOUR
    )


def test_a_wider_approval_goes_on_as_it_says_and_ends_as_it_says() -> None:
    row = told_to_wait()
    decide(row, validity=Validity.HOUR, scope=Scope.SESSION)
    for number in (2, 3):
        again = settled(call(f"toolu_{number}"), HOUR + number * MINUTE)
        assert again is not None
        assert again["allowed"]
    assert settled(call("toolu_4"), 3 * HOUR) is None


def test_an_edited_call_runs_as_it_was_edited() -> None:
    row = told_to_wait()
    additions = tool_calls.ApprovalAdditions(edited="git push --dry-run", edited_field="command")
    tool_calls.decide_call_with_additions(
        row.request_id, verdict="approved", additions=additions, person=person(), now=NOW + HOUR
    )
    again = settled(call("toolu_2"))
    assert again is not None
    assert again["answer"] == {"updated_input": {"command": "git push --dry-run"}}


def test_an_agent_that_leaves_again_does_not_close_what_it_was_told_to_wait_for() -> None:
    row = told_to_wait()
    tool_calls.withdraw_call_question_if_open(
        row.request_id, actor=AGENT, reason="gone", unless_deferred=True, now=NOW + HOUR
    )
    assert fresh(row).status == "pending"
    first = ask_about_call(call(command="ls"))
    tool_calls.withdraw_call_question_if_open(
        first.request_id, actor=AGENT, reason="gone", unless_deferred=True, now=NOW
    )
    assert fresh(first).status == "withdrawn"
    assert tool_calls.defer_tool_call(first.request_id, actor=AGENT, reason="too late", now=NOW) is None


def test_a_session_that_was_told_to_wait_may_end_by_silence(settings) -> None:
    long = timedelta(seconds=settings.SESSION_SILENT_AFTER + 1)
    Session.objects.create(
        session_id="ses_1", status="running", created_at=NOW - long, executor_session_id="x",
        executor_profile="claude-code",
    )  # fmt: skip
    row = ask_about_call(call())
    assert inactivity.silent_session_ids_to_end(NOW + MINUTE / 2) == []
    tool_calls.defer_tool_call(row.request_id, actor=AGENT, reason="Nobody answered.", now=NOW)
    assert inactivity.silent_session_ids_to_end(NOW + MINUTE) == ["ses_1"]


@pytest.mark.django_db(transaction=True)
def test_of_many_who_make_the_call_again_one_runs_it(transactional_db: None) -> None:
    row = told_to_wait()
    decide(row)
    here = [call(f"toolu_{number}") for number in range(2, 8)]
    tasks: list[Callable[[], bool]] = [
        lambda one=one: tool_calls.try_consume_call_verdict(
            row.request_id, one, actor=AGENT, now=NOW + 2 * HOUR
        )
        for one in here
    ]
    assert sorted(at_once(tasks)) == [False] * 5 + [True]
    assert trail(row).count("PERMISSION_APPROVAL_USED") == 1


@pytest.mark.django_db(transaction=True)
def test_a_call_that_runs_and_a_person_who_takes_it_back_cannot_both_win(transactional_db: None) -> None:
    row = told_to_wait()
    decide(row)
    bob = person("bob")
    tasks: list[Callable[[], Any]] = [
        lambda: tool_calls.try_consume_call_verdict(
            row.request_id, call("toolu_2"), actor=AGENT, now=NOW + 2 * HOUR
        ),
        lambda: approvals.revoke_approval(row.request_id, person=bob, now=NOW + 2 * HOUR),
    ]
    ran, _ = at_once(tasks)
    assert ran is (fresh(row).context.revoked_at is None)


def test_the_card_says_what_approving_does(signed_in: Any) -> None:
    client = signed_in("bob")
    row = told_to_wait()
    page = f"/ui/approvals/{row.request_id}/"
    with time_machine.travel(NOW + HOUR, tick=False):
        told = "The agent was told to wait. Approving lets the same call run once."
        assert told in words(client.get(page))
        assert told in words(client.get("/ui/approvals/"))
        decide(row)
        assert "It has not run yet." in words(client.get(page))
        assert "Revoke approval" in words(client.get(page))
        tool_calls.try_consume_call_verdict(row.request_id, call("toolu_2"), actor=AGENT, now=NOW + HOUR)
        assert "It has not run yet." not in words(client.get(page))
        assert "Revoke approval" not in words(client.get(page))
        assert "Sent to the agent" in words(client.get(page))


def words(answer: Any) -> str:
    return " ".join(answer.content.decode().split())
