"""Rules and grants are tried out on the whole history, in pieces that add up, with the calls behind each number."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from django.db import connection
from django.http import QueryDict
from django.test import Client

from coordinator.actions.policy import tool_rules
from coordinator.errors import UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import Agent, Event, EventContext, Grant, McpServer
from coordinator.policy.grants.edits import GrantEdit
from coordinator.policy.rules import tool_rules as policy
from coordinator.policy.rules.tool_rules import DecisionRule
from coordinator.policy.suggestions import rule_trials
from coordinator.policy.suggestions.history import BIGGEST_ID, WalkTimeLimit
from coordinator.policy.suggestions.rule_trials import CHANGED, RecordedCallJudge, RuleTrial, TrialCallFilter
from coordinator.policy.suggestions.search import SuggestionSearch
from dashboard.rules import question
from dashboard.rules.trial_tables import build_trial_tables
from tests.claude_code.recorded import NOW, SHOP, agent, called, ran, reader, rejected_in_the_terminal
from tests.people import signed_in

pytestmark = pytest.mark.django_db

NO_PUSH = DecisionRule(1, "Bash", "deny", "git push", reason="People push.")
LOOKING = DecisionRule(2, "Bash", "allow", "git (status|log)")


def spent() -> WalkTimeLimit:
    """A budget that is spent after the first stretch."""
    ticks = count(step=10)
    return WalkTimeLimit(5, clock=lambda: next(ticks))


def walked(
    now: list[DecisionRule], then: list[DecisionRule] | None = None, edits: tuple[GrantEdit, ...] = ()
) -> tuple[RuleTrial, int]:
    """Walk through the history a stretch at a time, carrying the trial along as JSON; return it and the steps."""
    trial, steps = RuleTrial.start_rule_trial_over_history(reader()), 0
    while not trial.is_done:
        judge = RecordedCallJudge(now, NOW)
        other = (
            judge
            if then is None and not edits
            else RecordedCallJudge(now if then is None else then, NOW, edits)
        )
        trial = RuleTrial.deserialize_rule_trial(json.loads(json.dumps(trial.serialize_rule_trial_as_list())))
        trial.continue_rule_trial(reader(), judge, other, spent())
        steps += 1
    return trial, steps


def a_history() -> None:
    ran("git status", "git push", "make", at=NOW - timedelta(days=10))
    ran("git status", "git log", "git push origin x", "rm -rf build")
    called("Read", {"file_path": "/srv/a.py"}, by="agent.other", source="transcript")


def test_every_call_is_counted_by_rule_agent_and_week() -> None:
    a_history()
    trial, steps = walked([NO_PUSH, LOOKING])
    assert (trial.tally.calls, trial.tally.then[:4]) == (8, [2, 0, 3, 3])  # denied, asked, allowed, observed
    assert {by: row[:4] for by, row in trial.tally.by.items()} == {
        "rule 1": [2, 0, 0, 0],
        "rule 2": [0, 0, 3, 0],
        "nothing": [0, 0, 0, 3],
    }
    assert {name: sum(row[:4]) for name, row in trial.tally.agents.items()} == {SHOP: 7, "agent.other": 1}
    assert {week: sum(row[:4]) for week, row in trial.tally.weeks.items()} == {
        "2026-11-09": 3,
        "2026-11-16": 5,
    }
    assert steps > 2  # a stretch of three events at a time


def test_what_would_change_is_counted_beside_what_holds_now() -> None:
    a_history()
    trial, _ = walked([NO_PUSH], [NO_PUSH, LOOKING])
    assert trial.tally.now == [2, 0, 0, 6]
    assert (trial.tally.then[CHANGED], trial.tally.by["rule 2"][CHANGED]) == (3, 3)


def test_edits_of_grants_are_tried_out_like_rules() -> None:
    agent()
    McpServer.objects.create(name="shopdb", command="x", args=[], default_policy="opt-in", created_at=NOW)
    called("mcp__shopdb__read", {}, {}, {})
    trial, _ = walked([], edits=(GrantEdit(SHOP, "shopdb", "read", "allow"),))
    assert (trial.tally.now, trial.tally.then) == ([3, 0, 0, 0], [0, 0, 3, 0, 3])
    assert not Grant.objects.exists()


def test_events_of_others_take_no_call_from_the_count() -> None:
    """A stretch is so many events, not so many ids and not so many calls."""
    ran("one")
    for _ in range(9):
        called("Bash", {"command": "x"}, source="executor")
    Event.objects.filter(context__source="executor", id__lt=Event.objects.latest("id").pk - 2).delete()
    ran("two")
    assert walked([])[0].tally.calls == 2


def test_odd_rows_are_judged_and_not_an_error() -> None:
    (event_id,) = ran("x")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE events SET tool_input = %s WHERE id = %s", ["{broken", event_id])
        cursor.execute("UPDATE sessions SET agent_name = NULL")
    EventContext.objects.filter(pk=event_id).update(instant_us=-1)
    trial, _ = walked([LOOKING])
    assert (trial.tally.calls, list(trial.tally.agents)) == (1, [""])


def test_the_calls_behind_a_number_are_listed_in_pages() -> None:
    a_history()
    judge = RecordedCallJudge([NO_PUSH, LOOKING], NOW)
    wanted, found, before, pages = TrialCallFilter(decision="allow", by="rule 2", agent=SHOP), [], 0, 0
    while pages == 0 or before:
        listed = rule_trials.load_judged_call_page(
            reader(), judge, judge, wanted, before=before, most=2, budget=WalkTimeLimit(60)
        )
        found += [one.call.about for one in listed.calls]
        before, pages = listed.before, pages + 1
    assert (found, pages) == (["git log", "git status", "git status"], 2)


def test_a_list_that_runs_out_of_time_says_where_it_goes_on() -> None:
    ids = ran("git push", *["make"] * 8)
    judge = RecordedCallJudge([NO_PUSH], NOW)
    wanted = TrialCallFilter(decision="deny")
    listed = rule_trials.load_judged_call_page(
        reader(), judge, judge, wanted, before=0, most=5, budget=spent()
    )
    assert (listed.calls, listed.is_full, listed.before > ids[0]) == ([], False, True)
    listed = rule_trials.load_judged_call_page(
        reader(), judge, judge, wanted, before=listed.before, most=5, budget=WalkTimeLimit(60)
    )
    assert ([one.call.event_id for one in listed.calls], listed.before) == ([ids[0]], 0)


def test_the_clock_is_looked_at_within_a_stretch_and_every_call_is_counted_once() -> None:
    ran(*["git push"] * 120, "make")
    whole, judge = reader(2_000), RecordedCallJudge([NO_PUSH], NOW)
    trial, counted = RuleTrial.start_rule_trial_over_history(whole), []
    while not trial.is_done:
        trial.continue_rule_trial(whole, judge, judge, spent())
        counted.append(trial.tally.calls)
    assert (counted, trial.tally.then[:4]) == ([50, 100, 121], [120, 0, 0, 1])
    listed = rule_trials.load_judged_call_page(
        whole, judge, judge, TrialCallFilter(by="nothing"), before=0, most=5, budget=spent()
    )
    assert (len(listed.calls), listed.before > 0) == (1, True)


def test_a_search_stops_within_a_stretch_and_knows_what_was_refused_behind_it() -> None:
    agent()
    ids = ran(*["make lint"] * 60, *["ls"] * 60)
    rejected_in_the_terminal(ids[0])
    whole = reader(2_000)
    search, learnt = SuggestionSearch.start_suggestion_search_over_history(whole), []
    while not search.is_done:
        search.continue_suggestion_search(whole, (), NOW, spent())
        learnt.append(search.calls)
    assert (learnt[:3], search.refused, search.refused_calls) == ([50, 100, 120], [ids[0]], 1)
    assert [(one.runs, one.calls) for one in search.tried] == [("ls -*", 60)]


def test_refused_calls_are_read_in_two_queries(django_assert_num_queries: Any) -> None:
    ids = ran(*["make"] * 9)
    others = ran(*["make"] * 9, by="agent.other")
    for event_id in (*ids[:5], others[7]):
        rejected_in_the_terminal(event_id)
    with django_assert_num_queries(2):
        assert reader().find_refused_call_ids(BIGGEST_ID, 0) == [others[7], *ids[4::-1]]


# --- the pages --------------------------------------------------------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages whose time is up after three events."""
    for module in ("trials", "suggestions"):
        monkeypatch.setattr(f"dashboard.rules.views.{module}.READER", reader())
        monkeypatch.setattr(f"dashboard.rules.views.{module}.WalkTimeLimit", lambda _seconds: spent())


def fields_of(page: str, form_id: str) -> dict[str, str]:
    """Return the hidden fields of the first form whose id begins so."""
    form = re.search(rf'<form\s+id="{form_id}.*?</form>', page, re.S)
    return {} if form is None else dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[0]))


def counted_to_the_end(client: Client, page: Any) -> Any:
    """Send what the page's form carries along until it has no more to send."""
    steps = 0
    while fields := fields_of(page.content.decode(), "trial-"):
        if "carried" not in fields:
            break
        fields = {name: value.replace("&quot;", '"') for name, value in fields.items()}
        page = client.post("/ui/rules/trial/", fields, headers={"HX-Request": "true"})
        assert page.status_code == 200
        steps += 1
    assert steps > 1
    return page


def test_the_page_counts_on_by_itself_until_all_is_counted(small_pieces: None) -> None:
    a_history()
    client = signed_in("viewer")
    page = client.get("/ui/rules/")
    assert "Counting" in page.content.decode()
    page = counted_to_the_end(client, page)
    assert page.context["trial"].calls == 8
    assert "are counted" in page.content.decode()


def test_rules_on_trial_go_along_from_piece_to_piece_and_to_the_calls(small_pieces: None) -> None:
    a_history()
    client = signed_in("approver")
    form = {
        "form-TOTAL_FORMS": 1, "form-INITIAL_FORMS": 0, "do": "try", "version": policy.digest_tool_rules(()),
        "form-0-tool": "Bash", "form-0-pattern": "git push", "form-0-verdict": "deny",
        "form-0-agents": "*",
    }  # fmt: skip
    page = counted_to_the_end(client, client.post("/ui/rules/save/", form))
    assert page.context["trial"].changed.number == 2
    assert "2 calls would get a different answer" in " ".join(page.content.decode().split())
    rules = fields_of(page.content.decode(), "trial-calls")["rules"].replace("&quot;", '"')
    before, found = "", []
    for _ in range(9):
        listed = client.post(f"/ui/rules/calls/?changed=1{before}", {"rules": rules})
        found += [one.call.about for one in listed.context["listed"].calls]
        if not listed.context["older"]:
            break
        before = f"&before={listed.context['listed'].before}"
    assert found == ["git push origin x", "git push"]
    assert policy.load_saved_tool_rules() == ()


def test_every_number_leads_to_its_calls() -> None:
    a_history()
    tool_rules.replace_tool_rules(
        [NO_PUSH, LOOKING], seen_version=policy.digest_tool_rules([]), actor=Actor("user", "ann"), now=NOW
    )
    client = signed_in("viewer")
    page = client.get("/ui/rules/")
    tables = page.context["trial"].tables
    counts = [one for table in tables for line in table.lines for one in line.counts if one.query]
    assert len(counts) >= 8
    for one in counts:
        assert f'href="/ui/rules/calls/{one.query.replace("&", "&amp;")}"' in page.content.decode()
        listed = client.get(f"/ui/rules/calls/{one.query}").context["listed"]
        assert len(listed.calls) == one.number


@pytest.mark.parametrize("field", ["carried", "rules", "edits"])
@pytest.mark.parametrize(
    "value", ["x", "[]x", "[1]", '[["Bash","deny","(",null,"",null,false]]', "null", '{"a": 1}']
)
def test_what_did_not_come_from_the_page_is_refused_in_words(field: str, value: str) -> None:
    answer = signed_in("approver").post("/ui/rules/trial/", {field: value})
    assert answer.status_code == 422
    assert "notice bad" in answer.content.decode()


@pytest.mark.parametrize("page", ["trial", "calls"])
def test_what_is_not_saved_is_tried_by_approvers_only(page: str) -> None:
    a_history()
    asked = question.build_trial_of_rules([NO_PUSH], [GrantEdit(SHOP, "db", "read", "allow")])
    url = f"/ui/rules/{page}/"
    viewer, approver = signed_in("viewer"), signed_in("approver")
    for fields in ({"rules": asked.packed_rules}, {"edits": asked.packed_edits}):
        assert viewer.post(url, fields).status_code == 403
        assert approver.post(url, fields).status_code == 200
    assert viewer.post(url).status_code == 200  # by the saved rules


def test_only_so_many_rules_that_are_not_saved_are_tried_at_once() -> None:
    rules = [DecisionRule(place, "Bash", "deny", f"x{place}") for place in range(1, 52)]
    form = {"rules": question.serialize_trial_rules(rules)}
    with pytest.raises(UnprocessableRequest, match="At most 50 unsaved rules"):
        question.build_trial_of_rules(rules)
    client = signed_in("approver")
    answer = client.post("/ui/rules/trial/", form)
    assert (answer.status_code, "At most 50 unsaved rules" in answer.content.decode()) == (422, True)
    tool_rules.replace_tool_rules(
        rules[1:2], seen_version=policy.digest_tool_rules([]), actor=Actor("user", "ann"), now=NOW
    )
    assert client.post("/ui/rules/trial/", form).status_code == 200


def test_a_question_comes_back_from_its_form_as_it_went() -> None:
    rules = (NO_PUSH, DecisionRule(2, "*", "ask", "x", ("agent.a",), "why", 30, True))
    asked = question.build_trial_of_rules(rules, [GrantEdit("agent.a", "db", None, "deny", NOW)])
    form = QueryDict(mutable=True)
    form.update({"rules": asked.packed_rules, "edits": asked.packed_edits})
    assert question.parse_rules_on_trial(form) == asked


def test_a_preview_of_grants_leads_to_a_trial_on_every_recorded_call() -> None:
    agent()
    McpServer.objects.create(name="shopdb", command="x", args=[], default_policy="opt-in", created_at=NOW)
    called("mcp__shopdb__read", {}, {}, at=NOW - timedelta(days=300))  # long before what a preview looks at
    client = signed_in("approver")
    slot = json.dumps([SHOP, "shopdb", "read", "inherit", None])
    page = client.post("/ui/mcp/access/preview/", {"slot": slot, "choice-0": "allow"}).content.decode()
    form = page.partition('action="/ui/rules/trial/"')[2].partition("</form>")[0]
    edits = re.search(r'name="edits" value="([^"]*)"', form)
    assert edits is not None
    page = client.post("/ui/rules/trial/", {"edits": edits[1].replace("&quot;", '"')})
    assert "2 calls would get a different answer" in " ".join(page.content.decode().split())
    assert not Grant.objects.exists()


def test_a_rule_for_a_program_is_tried_on_its_calls_alone() -> None:
    ran("git push")
    ran("git push", "git push", by="agent.other", source="codex")
    trial, _ = walked([DecisionRule(1, "Bash", "deny", "git push", program="codex")])
    assert trial.tally.then[rule_trials.DECISIONS.index("deny")] == 2
    assert question.parse_rules_on_trial(QueryDict(mutable=True)).rules is None


def test_a_question_about_rules_keeps_the_program_that_a_rule_is_for() -> None:
    asked = question.build_trial_of_rules([DecisionRule(1, "Bash", "deny", program="codex")])
    carried = QueryDict(mutable=True)
    carried["rules"] = asked.packed_rules
    assert question.parse_rules_on_trial(carried).rules == (DecisionRule(1, "Bash", "deny", program="codex"),)


def test_counts_and_calls_say_whose_they_are_by_the_agents_name() -> None:
    ran("make", by=agent("agent.tester"))
    Agent.objects.filter(pk="agent.tester").update(name="The tester")
    trial, _ = walked([])
    tables = {table.title: table for table in build_trial_tables(trial.tally, is_open=True)}
    assert [line.name for line in tables["Agent"].lines] == ["The tester"]
    assert "The tester" in signed_in("viewer").get("/ui/rules/calls/").content.decode()
