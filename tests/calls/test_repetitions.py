"""Rules about the same call, or the same error, again and again: counted from what is recorded of a session."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from coordinator.actions.sessions.events import record_events
from coordinator.errors import UnprocessableRequest
from coordinator.models import Event, ToolRule
from coordinator.policy.rules import history_queries, tool_rules
from coordinator.policy.rules.call_history import (
    HistoryNeeds,
    Repetition,
    TimedCall,
    parse_repetition_condition,
)
from coordinator.policy.rules.call_text import CallText, build_call_text_from_input
from coordinator.policy.rules.tool_rules import ASK, DENY, OBSERVE, DecisionRule, PartialCall
from coordinator.policy.suggestions.history import WalkTimeLimit
from coordinator.policy.suggestions.rule_trials import (
    RecordedCallJudge,
    TrialCallFilter,
    load_judged_call_page,
)
from coordinator.sessions.events import NewEvent
from dashboard.rules.recorded import READER
from dashboard.rules.sentences import build_rule_sentence_parts
from tests.approvals.cards import served_form
from tests.claude_code.double import Claude
from tests.claude_code.recorded import NOW, called, ran
from tests.claude_code.test_deciding import let_workers_read_rules, pending
from tests.people import signed_in
from tests.served import Served

CALL_RULE = DecisionRule(1, "*", ASK, repeats="same call 3 times in 10 minutes")
ERROR_RULE = DecisionRule(1, "*", ASK, repeats="same error 3 times in 10 minutes")
TEST = {"command": "pytest -q", "description": "Run the tests"}


def moment(tool_input: Any, session: str, *, tool: str = "Bash", **more: Any) -> TimedCall:
    return TimedCall(session, tool, tool_input, NOW, **more)


def find_session() -> str:
    return str(Event.objects.order_by("-id").values_list("session_id", flat=True)[0])


def fail(*errors: str | None, tool: str = "Bash", command: str = "make") -> str:
    """Record ends of calls of one session: failed ones with these errors, None for one that succeeded."""
    for error in errors:
        (event_id,) = called(tool, {"command": command})
        row = Event.objects.select_related("context").get(pk=event_id)
        ended = NewEvent(
            event_type="post_tool",
            session_id=row.session_id,
            timestamp=row.timestamp,
            tool_name=tool,
            tool_input=row.tool_input,
            tool_use_id=row.context.tool_use_id,
            error=error,
            source="claude-code",
        )
        record_events([ended], NOW)
    return find_session()


# --- what a person writes ---------------------------------------------------------------------------------


def test_a_repetition_reads_as_people_write_it() -> None:
    assert parse_repetition_condition("The same call 5 times within 1 minute") == Repetition("call", 5, 1)
    assert (
        str(parse_repetition_condition(" same  error 2 times in 60 minutes "))
        == "same error 2 times in 60 minutes"
    )
    assert parse_repetition_condition("") is None
    for text in ("same call", "same call 1 times in 5 minutes", "same error 3 times in 0 minutes", "x"):
        with pytest.raises(UnprocessableRequest):
            parse_repetition_condition(text)


@pytest.mark.parametrize("verdict", ["allow", "observe"])
def test_only_what_restricts_can_be_about_a_repetition(verdict: str) -> None:
    with pytest.raises(UnprocessableRequest, match="for rules that deny or ask"):
        tool_rules.validate_tool_rule(
            DecisionRule(1, "*", verdict, repeats="same call 3 times in 10 minutes")
        )
    with pytest.raises(UnprocessableRequest, match="only a rule that denies"):
        tool_rules.validate_tool_rule(DecisionRule(1, "*", ASK, stops_turn=True))


def test_its_sentence_says_when() -> None:
    def sentence(rule: DecisionRule) -> str:
        return " ".join(part.text for part in build_rule_sentence_parts(rule))

    assert sentence(CALL_RULE) == (
        "Ask a person before every agent may use any tool 3 times in 10 minutes with the same input"
    )
    assert sentence(DecisionRule(1, "*", DENY, repeats=ERROR_RULE.repeats, stops_turn=True)) == (
        "Do not allow every agent to use any tool after it met the same error 3 times in 10 minutes"
        " , and end the turn"
    )
    assert sentence(DecisionRule(1, "*", ASK, repeats="marked result in 60 minutes")) == (
        "Ask a person before every agent may use any tool after a marked result in 60 minutes"
    )


# --- counting ---------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_the_same_call_counts_whatever_its_description() -> None:
    called("Bash", TEST, TEST | {"description": "Again"}, {"command": "pytest -q", "timeout": 9000})
    ran("pytest -q tests/a.py")
    session = find_session()
    assert history_queries.count_same_calls(moment(TEST, session), 10, 9) == 4
    assert history_queries.count_same_calls(moment(TEST, session), 10, 2) == 2
    assert history_queries.count_same_calls(moment({"command": "pytest"}, session), 10, 9) == 1
    assert history_queries.count_same_calls(moment(TEST, session, tool="bash"), 10, 9) == 1
    assert history_queries.count_same_calls(moment(TEST, "another"), 10, 9) == 1


@pytest.mark.django_db
def test_only_its_session_and_its_minutes_count() -> None:
    called("Bash", TEST, by="agent.other")
    called("Bash", TEST, at=NOW - timedelta(minutes=11))
    called("Bash", TEST, at=NOW - timedelta(minutes=9))
    session = find_session()
    assert history_queries.count_same_calls(moment(TEST, session), 10, 9) == 2
    assert history_queries.count_same_calls(moment(TEST, session), 12, 9) == 3


@pytest.mark.django_db
def test_a_call_that_is_recorded_already_counts_once() -> None:
    (event_id,) = called("Bash", TEST)
    row = Event.objects.select_related("context").get(pk=event_id)
    count = history_queries.count_same_calls
    assert count(moment(TEST, row.session_id, call_id=row.context.tool_use_id), 10, 9) == 1
    assert count(moment(TEST, row.session_id, is_recorded=True), 10, 9) == 1
    assert count(moment(TEST, row.session_id, event_id=event_id), 10, 9) == 1
    assert count(moment(TEST, row.session_id), 10, 9) == 2


@pytest.mark.django_db
def test_secrets_and_long_inputs_are_compared_as_they_are_stored() -> None:
    secret = {"command": "curl -H 'Authorization: Bearer ghp_0123456789abcdefghijABCDEFGHIJ012345' http://a"}
    long = {"file_path": "/srv/shop/a", "content": "x" * 20_000}
    called("Bash", secret)
    called("Write", long, long | {"content": "y" * 20_000})
    session = find_session()
    assert history_queries.count_same_calls(moment(secret, session), 10, 9) == 2
    assert history_queries.count_same_calls(moment(long, session, tool="Write"), 10, 9) == 2


@pytest.mark.django_db
def test_the_same_error_counts_whatever_its_numbers_until_a_call_succeeds() -> None:
    session = fail("1 failed in 0.12s", "cannot open x", "2 failed in 3.40s", "7 failed in 1s")
    assert history_queries.count_repeats_of_last_error(moment(TEST, session), 10, 9) == 3
    fail(None)
    assert history_queries.count_repeats_of_last_error(moment(TEST, session), 10, 9) == 0


@pytest.mark.django_db
def test_an_error_that_says_little_counts_for_the_same_call_alone() -> None:
    fail("Exit code 1", command="grep a src")
    session = fail("Exit code 1", "Exit code 1", command="grep b src")
    assert history_queries.count_repeats_of_last_error(moment(TEST, session), 10, 9) == 2


@pytest.mark.django_db
def test_counting_takes_one_statement_and_few_rows_however_long_the_session_is() -> None:
    called("Bash", *[TEST] * 30)
    session = find_session()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert history_queries.count_same_calls(moment(TEST, session), 10, 5) == 5
    assert len(queries) == 1
    sql = queries[0]["sql"]
    assert f"LIMIT {history_queries.MOST_EVENTS}" in sql
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
            plan = " ".join(str(row) for row in cursor.fetchall())
            assert "sbx_event_context_timeline (session_id=? AND instant_us>?)" in plan
            assert "SCAN e" not in plan


# --- deciding ---------------------------------------------------------------------------------------------


def decide(rules: list[DecisionRule], needs_session: str, tool_input: Any = TEST) -> str:
    text = build_call_text_from_input(tool_input, "command")
    assert isinstance(text, CallText)
    needs = tool_rules.find_history_needs_of_rules(rules, "Bash", text, None)
    if needs:
        text = text.copy_with_call_history(
            history_queries.evaluate_history_conditions(needs, moment(tool_input, needs_session))
        )
    return tool_rules.tool_ruling_or_no_opinion(rules, "Bash", text, None).decision


@pytest.mark.django_db
def test_it_decides_from_the_nth_time_on_and_only_where_the_rest_fits() -> None:
    called("Bash", TEST)
    session = find_session()
    assert decide([CALL_RULE], session) == OBSERVE
    called("Bash", TEST)
    assert decide([CALL_RULE], session) == ASK
    assert decide([CALL_RULE], session, {"command": "ls"}) == OBSERVE
    of_make = DecisionRule(1, "*", DENY, repeats=CALL_RULE.repeats, runs="make")
    assert decide([of_make], session) == OBSERVE
    assert decide([DecisionRule(1, "*", DENY, repeats=CALL_RULE.repeats, runs="pytest")], session) == DENY
    allowed = DecisionRule(1, "Bash", "allow", "pytest -q")
    assert decide([allowed, CALL_RULE], session) == "allow"
    assert decide([CALL_RULE, allowed], session) == ASK


def test_nothing_is_counted_for_a_call_that_an_earlier_rule_decides() -> None:
    allowed, text = DecisionRule(1, "Bash", "allow", "pytest -q"), build_call_text_from_input(TEST, "command")
    assert not tool_rules.find_history_needs_of_rules([allowed, CALL_RULE], "Bash", text, None)
    found = tool_rules.find_history_needs_of_rules([ERROR_RULE, CALL_RULE, allowed], "Bash", text, None)
    assert found == HistoryNeeds(frozenset({Repetition("call", 3, 10), Repetition("error", 3, 10)}))


def test_what_is_not_counted_may_be_a_repetition_at_worst() -> None:
    call = PartialCall(
        "Bash", build_call_text_from_input(TEST, "command"), None, agent_known=True, program="codex"
    )
    assert tool_rules.strictest_ruling_for_partial_call([CALL_RULE], call).decision == ASK
    assert (
        tool_rules.tool_ruling_or_no_opinion([CALL_RULE], "Bash", call.text or "", None).decision == OBSERVE
    )


@pytest.mark.django_db
def test_a_saved_rule_is_no_rule_about_every_call_for_an_earlier_version() -> None:
    page = signed_in("approver").post("/ui/rules/ready-made/same-call/", {"is_on": "1"}, follow=True)
    assert "Repeats a call" in page.content.decode()
    row = ToolRule.objects.get()
    assert (row.pattern, row.repeats) == (tool_rules.TERMS_ALONE, "same call 5 times in 10 minutes")
    (saved,) = tool_rules.load_saved_tool_rules()
    assert (saved.pattern, saved.repeats) == ("", "same call 5 times in 10 minutes")


@pytest.mark.django_db
def test_the_replay_says_at_which_calls_it_would_have_asked() -> None:
    ids = ran("make", "make", "ls", "make", "make")
    judge = RecordedCallJudge([CALL_RULE], NOW)
    page = load_judged_call_page(
        READER, judge, judge, TrialCallFilter(decision=ASK), before=0, most=9, budget=WalkTimeLimit(60)
    )
    assert [one.call.event_id for one in page.calls] == [ids[4], ids[3]]
    assert page.calls[0].after.reason.endswith("This is the same call 3 times in 10 minutes.")


@pytest.mark.django_db
def test_a_person_edits_how_often_and_is_told_how_to_write_it() -> None:
    approver = signed_in("approver")
    approver.post("/ui/rules/ready-made/same-error/", {"is_on": "1"})
    form = {
        "form-TOTAL_FORMS": "1", "form-INITIAL_FORMS": "1", "form-MIN_NUM_FORMS": "0", "form-MAX_NUM_FORMS": "200",
        "form-0-tool": "*", "form-0-verdict": "deny", "form-0-agents": "*", "form-0-agents_listed": "1",
        "form-0-ORDER": "1", "form-0-stops_turn": "1", "do": "save",
        "version": tool_rules.digest_tool_rules(tool_rules.load_saved_tool_rules()),
    }  # fmt: skip
    refused = approver.post("/ui/rules/save/", form | {"form-0-repeats": "often"})
    assert refused.status_code == 422
    assert "Write it like this: same call 5 times in 10 minutes" in refused.content.decode()
    assert 'value="often"' in refused.content.decode()
    saved = approver.post(
        "/ui/rules/save/", form | {"form-0-repeats": "The same error 2 times within 5 minutes"}
    )
    assert saved.status_code == 302
    (rule,) = tool_rules.load_saved_tool_rules()
    assert (rule.verdict, rule.repeats, rule.stops_turn) == (DENY, "same error 2 times in 5 minutes", True)


# --- over the wire ----------------------------------------------------------------------------------------


@pytest.fixture
def served(one_server: Any) -> Served:
    server: Served = one_server.emptied()
    return server


def switch_on(served: Served, name: str, **changes: Any) -> httpx.Client:
    approver = served.sign_in("approver")
    page = approver.get("/ui/rules/").text
    token = page.split('name="csrfmiddlewaretoken" value="')[1].split('"')[0]
    answer = approver.post(f"/ui/rules/ready-made/{name}/", data={"csrfmiddlewaretoken": token, "is_on": "1"})
    assert answer.status_code in {200, 302}
    for column, value in changes.items():
        served.sql(f"UPDATE tool_rules SET {column} = ? WHERE ready_made = ?", (value, name))
    let_workers_read_rules()
    return approver


@pytest.mark.served
def test_a_person_is_asked_about_the_third_equal_call_and_the_agent_goes_on(served: Served) -> None:
    approver = switch_on(served, "same-call", repeats=CALL_RULE.repeats)
    claude = Claude(served, wait="60")
    claude.prompt("Test it.")
    assert [claude.call("Bash", TEST).outcome for _ in range(2)] == ["ran", "ran"]
    assert claude.call("Bash", {"command": "ls"}).outcome == "ran"
    third = claude.new_call("Bash", TEST | {"description": "Once more"})
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(claude.before, third)
        (request_id,) = pending(served, claude)
        card = approver.get(f"/ui/approvals/{request_id}/").text
        approver.post("/ui/approvals/decide/", data=served_form(approver, request_id, "approved"))
        assert answer.result()["permissionDecision"] == "allow"
    assert "This is the same call 3 times in 10 minutes." in card


@pytest.mark.served
def test_the_same_error_ends_the_turn_where_the_rule_says_so(served: Served) -> None:
    switch_on(served, "same-error", repeats=ERROR_RULE.repeats, verdict="deny", stops_turn=True)
    claude = Claude(served, wait="60")
    claude.prompt("Build it.")
    for number in range(3):
        call = claude.new_call("Bash", {"command": f"make step{number}"})
        assert claude.before(call) == {}
        claude.hook(
            "PostToolUseFailure", tool_name="Bash", tool_input=call.tool_input, tool_use_id=call.id,
            error=f"make: *** [Makefile:{number}: all] Error 2: no rule to make target",
        )  # fmt: skip
    last = claude.new_call("Read", {"file_path": "/home/dev/shop/Makefile"})
    answer = claude.hook("PreToolUse", tool_name="Read", tool_input=last.tool_input, tool_use_id=last.id)
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert answer["continue"] is False
    assert "the same error 3 times in 10 minutes" in answer["stopReason"]
    assert "The turn ends here" in answer["hookSpecificOutput"]["permissionDecisionReason"]
