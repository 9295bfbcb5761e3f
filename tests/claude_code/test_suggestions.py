"""Rules and grants are suggested from what was called and how people answered, narrowly, and accepted one by one."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import timedelta
from html import unescape
from itertools import count
from typing import Any

import pytest
from django.test import Client
from time_machine import TimeMachineFixture

from coordinator.actions.policy import tool_rules
from coordinator.dialects.dialect_registry import build_call_subject_text
from coordinator.identity.actors import Actor
from coordinator.models import Agent, AuditLog, Event, Grant, McpServer, PermissionRequest
from coordinator.policy.grants import end_parsing as grant_lengths
from coordinator.policy.rules import tool_rules as policy
from coordinator.policy.rules.call_text import copy_call_text_with_folder
from coordinator.policy.rules.tool_rules import DecisionRule
from coordinator.policy.suggestions.history import WalkTimeLimit
from coordinator.policy.suggestions.search import (
    RuleSuggestion,
    SuggestionSearch,
    insert_rules_after_last_deny,
)
from tests.claude_code.recorded import (
    FOLDER,
    NOW,
    SHOP,
    agent,
    answered,
    called,
    ran,
    reader,
    rejected_in_the_terminal,
)
from tests.people import person, signed_in

pytestmark = pytest.mark.django_db

PAGE, ACCEPT = "/ui/rules/suggestions/", "/ui/rules/suggestions/accept/"


@pytest.fixture(autouse=True)
def _the_shops_agent_is_known(db: None) -> None:
    agent()


def spent() -> WalkTimeLimit:
    ticks = count(step=10)
    return WalkTimeLimit(5, clock=lambda: next(ticks))


def searched(saved: Sequence[DecisionRule] = ()) -> SuggestionSearch:
    """Search to the end, a stretch at a time, carrying the search along as JSON."""
    search = SuggestionSearch.start_suggestion_search_over_history(reader())
    for _ in range(500):
        search = SuggestionSearch.deserialize_suggestion_search(
            json.loads(json.dumps(search.serialize_suggestion_search_as_list()))
        )
        search.continue_suggestion_search(reader(), saved, NOW, spent())
        if search.is_done:
            return search
    raise AssertionError("The search does not end.")


def call_text(tool: str, text: str, folder: str = FOLDER) -> str:
    field = "command" if tool == "Bash" else "file_path"
    return copy_call_text_with_folder(build_call_subject_text("claude-code", tool, {field: text}), folder)


def lets_run(
    found: Sequence[RuleSuggestion], tool: str, text: str, by: str = SHOP, program: str = "claude-code"
) -> bool:
    return any(
        one.suggested_rule(1).matches_call(tool, call_text(tool, text), by, program)
        for one in found
        if not one.is_grant
    )


def test_what_made_up_people_said_counts_for_nothing() -> None:
    ran("git log -5", "git log --oneline -3", "git log -2 cart")
    for verdict, command in (("approved", "git log -9"), ("denied", "git log -8")):
        row = answered(verdict, "Bash", {"command": command})
        PermissionRequest.objects.filter(pk=row.pk).update(approved_by="maria (demo)")
    log = next(one for one in searched().tried if "log" in one.runs)
    assert (log.calls, log.approved, log.refused) == (3, 0, 0)


def test_the_narrowest_rules_that_let_the_calls_run_come_with_their_evidence() -> None:
    ran("git log -5", "git log --oneline -3", "git log -2 cart", "pytest -q", "pytest -q", "pytest -q")
    called("Read", {"file_path": "/srv/shop/a.py"}, {"file_path": "/srv/shop/b/c.py"})
    answered("approved", "Bash", {"command": "git log -9"})
    search = searched()
    assert [(one.tool, one.runs) for one in search.tried] == [
        ("Bash", "git log -*"), ("Bash", "pytest -q"), ("Read", ""),
    ]  # fmt: skip
    log = next(one for one in search.tried if "log" in one.runs)
    assert (log.calls, log.approved, log.refused, log.agents) == (3, 1, 0, [SHOP])
    assert (len(log.examples), log.callers, log.now) == (3, {SHOP: 3}, {"observe": 3})
    assert "other numbers" in log.loosely
    assert log.touches == "in /srv/shop\n!.env*"
    assert (
        search.share_of_calls_suggestions_allow(search.tried),
        search.count_calls_allowed_by_suggestions(search.tried),
    ) == (1.0, 8)
    assert lets_run(search.tried, "Bash", "git log -7")
    assert not lets_run(search.tried, "Bash", "git log -7", by="agent.other")
    assert lets_run(search.tried, "Read", "/srv/shop/c.py")
    assert not lets_run(search.tried, "Read", "/srv/shop/.env")
    assert not lets_run(search.tried, "Read", "/srv/other/a.py")


def test_what_people_denied_here_is_never_suggested() -> None:
    ran("make lint", "make lint", "git log -1", "git log -2", "git status", "git status")
    answered("denied", "Bash", {"command": "make lint"}, by="agent.other")
    answered("denied", "Bash", {"command": "git log -1"})
    found = searched().tried
    assert not lets_run(found, "Bash", "make lint")
    assert not lets_run(found, "Bash", "git log -1")
    assert not lets_run(found, "Bash", "git log -2")  # nor others of the same sub-command
    assert lets_run(found, "Bash", "git status")


@pytest.mark.parametrize(
    "words",
    [
        "Rejected in the terminal. No.",
        "Denied by ann in Signalbox: not now",
        "The user doesn't want to proceed with this tool use. The tool use was rejected.",
    ],
)
def test_what_people_refused_in_the_terminal_is_never_suggested(words: str) -> None:
    ids = ran("make lint", "make lint", "make lint", "ls", "ls")
    rejected_in_the_terminal(ids[1], words)
    search = searched()
    assert not lets_run(search.tried, "Bash", "make lint")
    assert lets_run(search.tried, "Bash", "ls")
    assert (search.refused_calls, search.count_calls_that_may_be_allowed) == (1, 4)


def test_what_the_agent_itself_denied_is_no_persons_word() -> None:
    ids = ran("ls", "ls")
    rejected_in_the_terminal(ids[0], "Denied by Claude Code: no permission")
    assert lets_run(searched().tried, "Bash", "ls")


def test_an_approval_that_was_taken_back_counts_as_a_no_and_an_edited_one_as_nothing() -> None:
    ran("ls", "ls", "pwd", "pwd")
    taken_back = answered("approved", "Bash", {"command": "ls"}).context
    taken_back.revoked_at = NOW
    taken_back.save()
    edited = answered("approved", "Bash", {"command": "pwd"}).context
    edited.answer = {"updated_input": {"command": "pwd -P"}}
    edited.save()
    found = searched().tried
    assert [(one.runs, one.approved) for one in found] == [("pwd -*", 0)]


def test_what_a_rule_denies_stays_denied_and_what_one_asks_may_be_let_run() -> None:
    ran("git status", "git status", "git diff x", "git diff x")
    answered("approved", "Bash", {"command": "git status"})
    saved = [
        DecisionRule(1, "Bash", "ask", "git"),
        DecisionRule(2, "Bash", "deny", "diff"),
        DecisionRule(3, "*", "ask"),
    ]
    search = searched(saved)
    # Behind the rule that denies, the first rule asks already: a suggestion makes no difference there.
    assert search.tried == []
    search = searched([saved[1], replace_number(saved[0], 2), saved[2]])
    assert [one.runs for one in search.tried] == ["git status -*"]
    assert (search.denied, search.count_calls_that_may_be_allowed, search.tried[0].now) == (
        2,
        2,
        {"ask rule 2": 2},
    )


def replace_number(rule: DecisionRule, number: int) -> DecisionRule:
    return DecisionRule(number, rule.tool, rule.verdict, rule.pattern)


def test_what_is_asked_is_suggested_only_where_a_person_approved_one() -> None:
    ran("make", "make", "ls", "ls")
    answered("approved", "Bash", {"command": "ls"})
    search = searched([DecisionRule(1, "*", "ask")])
    assert [(one.runs, one.approval_needed, one.approved) for one in search.tried] == [("ls -*", 2, 1)]


def test_that_nobody_approved_what_was_never_asked_is_said() -> None:
    ran("make", "make")
    client = signed_in("approver")
    page = searched_by(client)
    assert "Nobody approved any" in page
    client.post(ACCEPT, {"suggestion": cards(page)[0]})
    assert policy.load_saved_tool_rules()[0].reason == (
        "Suggested from 2 recorded calls; nobody approved any, and nobody refused one."
    )


def test_a_rule_is_for_the_registered_agents_and_else_for_their_program() -> None:
    ran("make", "make", "ls", "ls")
    ran("make", "make", "pwd", "pwd", by="claude-code")
    ran("make", by="agent.second")
    ran("make", "make", by="nobody.known", source="transcript")
    agent("agent.second")
    search = searched()
    assert {(one.runs, *(one.agents or ()), one.program) for one in search.tried} == {
        ("make !*", "agent.second", SHOP, "claude-code"),
        ("make !*", "claude-code"),
        ("ls -*", SHOP, "claude-code"),
        ("pwd -*", "claude-code"),
    }
    assert search.strangers == 2
    page = searched_by(signed_in("viewer"))
    assert "2 calls come from agents that are not registered here" in " ".join(page.split())


def test_something_is_suggested_though_no_agent_is_registered() -> None:
    Agent.objects.all().delete()
    ran("git status", "git status", by="claude-code")
    (one,) = searched().tried
    assert (one.agents, one.program, one.touches) == (None, "claude-code", "in /srv/shop")
    # The endpoint knows no agent of a key that has none.
    assert one.suggested_rule(1).matches_call("Bash", call_text("Bash", "git status"), None, "claude-code")
    assert not one.suggested_rule(1).matches_call("Bash", call_text("Bash", "git status"), None, "codex")


def test_a_rule_is_for_the_program_of_which_its_calls_are_and_for_all_where_there_are_several() -> None:
    ran("make test", "make test")
    ran("git diff -5", "git diff -6")
    ran("git diff -7", "git diff -8", source="codex")
    answered("approved", "Bash", {"command": "make test"})
    answered("approved", "Bash", {"command": "make test"}, program="codex")
    found = {"make" if "make" in one.runs else "diff": one for one in searched().tried}
    assert {name: (one.program, one.approved) for name, one in found.items()} == {
        "make": ("claude-code", 1), "diff": ("", 0),
    }  # fmt: skip
    diff = call_text("Bash", "git diff -1")
    assert (
        not found["make"]
        .suggested_rule(1)
        .matches_call("Bash", call_text("Bash", "make test"), SHOP, "codex")
    )
    assert found["diff"].suggested_rule(1).matches_call("Bash", diff, SHOP, "codex")
    assert "in Claude Code" in searched_by(signed_in("viewer"))


def test_what_people_refused_in_one_program_is_suggested_in_none() -> None:
    ran("make lint", "make lint", "ls", "ls")
    answered("denied", "Bash", {"command": "make lint"}, program="codex")
    assert not lets_run(searched().tried, "Bash", "make lint")


def test_a_rule_for_many_agents_names_each() -> None:
    names = [agent(f"agent.{place:02}") for place in range(45)]
    for name in names:
        ran("make", "make", by=name)
    (one,) = searched().tried[:1]
    assert one.agents is not None
    assert len(one.agents) == 40


def test_new_rules_stand_behind_the_last_that_denies() -> None:
    saved = [
        DecisionRule(1, "Bash", "ask"),
        DecisionRule(2, "Bash", "deny", "x"),
        DecisionRule(3, "*", "ask"),
    ]
    rules = insert_rules_after_last_deny(saved, [DecisionRule(9, "Read", "allow")])
    assert [(rule.number, rule.verdict) for rule in rules] == [
        (1, "ask"),
        (2, "deny"),
        (3, "allow"),
        (4, "ask"),
    ]


def test_tools_of_managed_servers_are_granted_to_the_agents_that_called_them() -> None:
    McpServer.objects.create(name="shopdb", command="x", args=[], default_policy="opt-out", created_at=NOW)
    called("mcp__shopdb__read", {"q": 1}, {"q": 2})
    called("mcp__shopdb__read", {"q": 1}, {"q": 2}, by="nobody.known")
    search = searched()
    assert [one.slot for one in search.tried] == [[SHOP, "shopdb", "read"]]
    assert (
        search.count_calls_allowed_by_suggestions(search.tried),
        search.count_calls_that_may_be_allowed,
    ) == (2, 4)


def test_the_first_grant_says_that_it_closes_unregistered_servers() -> None:
    called("mcp__elsewhere__read", {"q": 1}, {"q": 1})
    assert [(one.tool, one.pattern) for one in searched().tried] == [("mcp__elsewhere__read", r'\{"q": 1\}')]
    McpServer.objects.create(name="shopdb", command="x", args=[], default_policy="opt-out", created_at=NOW)
    called("mcp__shopdb__read", {"q": 1}, {"q": 2}, {"q": 3})
    (grant,) = searched().tried  # no rule opens what the first grant closes
    assert "servers that are not registered here are denied" in grant.loosely


def test_what_a_servers_default_denies_is_suggested_only_where_people_approved_it() -> None:
    McpServer.objects.create(name="shopdb", command="x", args=[], default_policy="opt-in", created_at=NOW)
    called("mcp__shopdb__read", {}, {})
    called("mcp__shopdb__drop", {}, {})
    answered("approved", "mcp__shopdb__read", {})
    assert [one.slot for one in searched().tried] == [[SHOP, "shopdb", "read"]]


def test_no_more_is_suggested_than_reaches_the_goal() -> None:
    ran(*["ls"] * 96, *["make"] * 4)
    search = searched()
    assert [one.runs for one in search.tried] == ["ls -*"]
    assert search.share_of_calls_suggestions_allow(search.tried) == 0.96


def test_calls_that_run_unasked_already_need_no_rule() -> None:
    ran(*["ls"] * 96, *["pwd"] * 4)
    search = searched([DecisionRule(1, "Bash", "allow", "ls")])
    assert (search.tried, search.allowed) == ([], 96)


def test_masked_and_lonely_calls_are_not_suggested() -> None:
    ran(*["curl -H [masked: GitHub token 3f9a1c2e] x"] * 3, "rm -rf a", "rm -rf b")
    search = searched()
    assert (search.tried, search.count_calls_allowed_by_suggestions([])) == ([], 0)


# --- the pages --------------------------------------------------------------------------------------------


def cards(page: str) -> list[str]:
    """Return what the cards' forms would send."""
    return list(dict.fromkeys(unescape(v) for v in re.findall(r'name="suggestion"\s+value="([^"]*)"', page)))


def searched_by(client: Client, monkeypatch: pytest.MonkeyPatch | None = None) -> str:
    """Let the page search to its end, as a browser does; return it."""
    if monkeypatch is not None:
        monkeypatch.setattr("dashboard.rules.views.suggestions.READER", reader())
        monkeypatch.setattr("dashboard.rules.views.suggestions.WalkTimeLimit", lambda _seconds: spent())
    page = client.get(PAGE).content.decode()
    while carried := re.search(r'name="carried"\s+value="([^"]+)"', page):
        answer = client.post(PAGE, {"carried": unescape(carried[1])}, headers={"HX-Request": "true"})
        assert answer.status_code == 200
        page = answer.content.decode()
    return page


def test_the_page_searches_on_by_itself_and_shows_each_with_its_evidence(monkeypatch) -> None:
    ran("git log -5", "git log -3", "git log -2")
    answered("approved", "Bash", {"command": "git log -9"})
    page = " ".join(searched_by(signed_in("viewer"), monkeypatch).split())
    assert "100 %</strong> would with 1 suggestion" in page
    assert "approved 1 matching, refused none" in page
    assert "git log -5" in page
    assert "Also allows" in page


def test_the_calls_behind_a_suggestion_are_those_it_would_let_run() -> None:
    ran("git log -5", "git log -3", "make")
    client = signed_in("approver")
    page = searched_by(client)
    form = re.search(r'<form\s+id="behind-1".*?</form>', page, re.S)
    assert form is not None
    fields = {name: unescape(value) for name, value in re.findall(r'name="(\w+)"\s+value="([^"]*)"', form[0])}
    listed = client.post("/ui/rules/calls/?changed=1", fields).context["listed"]
    assert [one.call.about for one in listed.calls] == ["git log -3", "git log -5"]
    page = " ".join(searched_by(signed_in("viewer")).split())
    assert ("2 calls," in page, "behind-1" in page) == (True, False)  # viewers try nothing that is not saved


def test_one_suggestion_is_accepted_as_a_rule_behind_the_denials_and_audited() -> None:
    saved = [DecisionRule(1, "Bash", "deny", "push"), DecisionRule(2, "Bash", "ask")]
    tool_rules.replace_tool_rules(
        saved,
        seen_version=policy.digest_tool_rules([]),
        actor=Actor("user", "a"),
        now=NOW,
    )
    ran("git log -5", "git log -3", "make", "make")
    for command in ("git log -5", "make"):
        answered("approved", "Bash", {"command": command})
    client = signed_in("approver")
    first, second = cards(searched_by(client))
    answer = client.post(ACCEPT, {"suggestion": first}, headers={"HX-Request": "true"})
    assert "Rule 2 allows it from now on." in answer.content.decode()
    assert [rule.verdict for rule in policy.load_saved_tool_rules()] == ["deny", "allow", "ask"]
    assert "Suggested from 2 recorded calls; people approved 1," in policy.load_saved_tool_rules()[1].reason
    assert AuditLog.objects.filter(event_type="TOOL_RULES_SAVED").latest("id").actor_id == "user:approver"
    # The other one still can be, without the page being read again; the same one cannot be twice.
    since = since_of(answer)
    answer = client.post(ACCEPT, {"suggestion": second, "since": since}, headers={"HX-Request": "true"})
    assert [rule.verdict for rule in policy.load_saved_tool_rules()] == ["deny", "allow", "allow", "ask"]
    since = since_of(answer)
    answer = client.post(ACCEPT, {"suggestion": first, "since": since}, headers={"HX-Request": "true"})
    assert "already exists" in answer.headers["HX-Trigger"]
    assert len(policy.load_saved_tool_rules()) == 4


def since_of(answer: Any) -> str:
    """Return what an accepted card leaves in the page for the next one."""
    found = re.search(r'id="accepted-since"\s+name="since"\s+value="([^"]+)"', answer.content.decode())
    assert found is not None
    return unescape(found[1])


def test_a_suggestion_made_against_other_rules_conflicts() -> None:
    ran("git log -5", "git log -3", "make", "make")
    client = signed_in("approver")
    first, second = cards(searched_by(client))
    since = since_of(client.post(ACCEPT, {"suggestion": first}, headers={"HX-Request": "true"}))
    mine = (*policy.load_saved_tool_rules(), DecisionRule(2, "Bash", "ask", "make"))
    tool_rules.replace_tool_rules(
        mine,
        seen_version=policy.digest_tool_rules(policy.load_saved_tool_rules()),
        actor=Actor("user", "ann"),
        now=NOW,
    )
    for fields in ({}, {"since": since}):
        answer = client.post(ACCEPT, {"suggestion": second} | fields, headers={"HX-Request": "true"})
        assert "Somebody else has saved the rules" in answer.headers["HX-Trigger"]
    assert policy.load_saved_tool_rules() == mine


def test_a_suggestion_is_for_one_person_and_for_an_hour(time_machine: TimeMachineFixture) -> None:
    time_machine.move_to(NOW, tick=False)
    ran("make", "make")
    ann, ben = signed_in("approver"), Client()
    ben.force_login(person("approver", "ben"))
    (card,) = cards(searched_by(ann))
    answer = ben.post(ACCEPT, {"suggestion": card}, headers={"HX-Request": "true"})
    assert "belongs to somebody else" in answer.headers["HX-Trigger"]
    time_machine.move_to(NOW + timedelta(minutes=61), tick=False)
    answer = ann.post(ACCEPT, {"suggestion": card}, headers={"HX-Request": "true"})
    assert "more than an hour old" in answer.headers["HX-Trigger"]
    assert policy.load_saved_tool_rules() == ()
    time_machine.move_to(NOW + timedelta(minutes=59), tick=False)
    assert (
        "allows it" in ann.post(ACCEPT, {"suggestion": card}, headers={"HX-Request": "true"}).content.decode()
    )


def test_a_search_begins_anew_where_the_rules_changed_meanwhile(monkeypatch) -> None:
    ran("make", "make", "ls", "ls", "pwd")
    monkeypatch.setattr("dashboard.rules.views.suggestions.READER", reader())
    monkeypatch.setattr("dashboard.rules.views.suggestions.WalkTimeLimit", lambda _seconds: spent())
    client = signed_in("viewer")
    page = client.get(PAGE)
    tool_rules.replace_tool_rules(
        [DecisionRule(1, "Bash", "deny", "make")],
        seen_version=policy.digest_tool_rules([]),
        actor=Actor("user", "a"),
        now=NOW,
    )
    page = client.post(PAGE, {"carried": page.context["carried"]}, headers={"HX-Request": "true"})
    assert (page.context["search"].phase, page.context["search"].calls) == (
        "learn",
        3,
    )  # again the newest three


def test_one_suggestion_is_accepted_as_a_grant_of_the_default_length(monkeypatch) -> None:
    monkeypatch.setattr(grant_lengths, "DEFAULT", "30 days")
    McpServer.objects.create(name="shopdb", command="x", args=[], default_policy="opt-out", created_at=NOW)
    called("mcp__shopdb__read", {"q": 1}, {"q": 2})
    client = signed_in("approver")
    (card,) = cards(searched_by(client))
    answer = client.post(ACCEPT, {"suggestion": card}, headers={"HX-Request": "true"})
    assert "Accepted" in answer.content.decode()
    grant = Grant.objects.get()
    assert (grant.agent_id, grant.tool_name, grant.permission) == (SHOP, "read", "allow")
    assert grant.expires_at == grant.granted_at + timedelta(days=30)
    assert AuditLog.objects.filter(event_type="GRANT_CREATED").exists()


def test_a_grant_that_somebody_changed_meanwhile_is_not_overwritten() -> None:
    McpServer.objects.create(name="shopdb", command="x", args=[], default_policy="opt-out", created_at=NOW)
    called("mcp__shopdb__read", {"q": 1}, {"q": 2})
    client = signed_in("approver")
    (card,) = cards(searched_by(client))
    Grant.objects.create(
        entry_type="tool_grant", agent_id=SHOP, server_id="shopdb", tool_name="read", permission="deny",
        granted_by="user:ann", granted_at=NOW,
    )  # fmt: skip
    answer = client.post(ACCEPT, {"suggestion": card}, headers={"HX-Request": "true"})
    assert "Somebody else changed" in answer.headers["HX-Trigger"]
    assert Grant.objects.get().permission == "deny"
    assert AuditLog.objects.filter(event_type="GRANTS_REFUSED").exists()


def test_what_somebody_denied_meanwhile_cannot_be_accepted_any_more() -> None:
    ran("make lint", "make lint")
    client = signed_in("approver")
    (card,) = cards(searched_by(client))
    answered("denied", "Bash", {"command": "make lint"})
    answer = client.post(ACCEPT, {"suggestion": card}, headers={"HX-Request": "true"})
    assert "has denied such a call since" in answer.headers["HX-Trigger"]
    assert policy.load_saved_tool_rules() == ()


def test_only_what_was_suggested_can_be_accepted_and_only_by_approvers() -> None:
    ran("make", "make")
    viewer = signed_in("viewer")
    (card,) = cards(searched_by(viewer))
    assert viewer.post(ACCEPT, {"suggestion": card}).status_code == 403
    approver = signed_in("approver")
    for text in ("", "x", card[:-2], json.dumps([["Bash", ""], None])):
        answer = approver.post(ACCEPT, {"suggestion": text}, headers={"HX-Request": "true"})
        assert (answer.status_code, "HX-Trigger" in answer.headers) == (204, True)
    assert policy.load_saved_tool_rules() == ()


def test_several_suggestions_are_accepted_at_once_or_none() -> None:
    ran("git log -5", "git log -3", "make", "make")
    client = signed_in("approver")
    suggested = cards(searched_by(client))
    assert len(suggested) == 2
    answer = client.post(ACCEPT, {"suggestion": suggested}, follow=True)
    assert "2 rules are saved and apply from now on." in answer.content.decode()
    assert [rule.runs for rule in policy.load_saved_tool_rules()] == ["git log -*", "make !*"]
    answer = client.post(ACCEPT, {"suggestion": suggested}, follow=True)
    assert "This rule already exists." in answer.content.decode()
    answer = client.post(ACCEPT, {}, follow=True)
    assert "Select a suggestion first." in answer.content.decode()
    assert len(policy.load_saved_tool_rules()) == 2


def test_a_dismissed_suggestion_is_not_made_again_until_somebody_restores_it() -> None:
    ran("git log -5", "git log -3")
    client = signed_in("approver")
    (card,) = cards(searched_by(client))
    answer = client.post(f"{PAGE}dismiss/", {"suggestion": card}, headers={"HX-Request": "true"})
    assert "Dismissed" in answer.content.decode()
    assert AuditLog.objects.filter(event_type="SUGGESTION_DISMISSED").count() == 1
    ran("git diff -1", "git diff -2")
    page = " ".join(searched_by(client).split())
    assert (cards(page), "1 suggestion is dismissed." in page) == ([], True)
    assert signed_in("viewer").post(f"{PAGE}dismiss/", {"restore": "1"}).status_code == 403
    client.post(f"{PAGE}dismiss/", {"restore": "1"})
    assert len(cards(searched_by(client))) == 1
    assert AuditLog.objects.filter(event_type="SUGGESTIONS_RESTORED").count() == 1


def test_a_suggestion_shows_the_calls_that_it_would_allow_and_the_nearest_that_it_would_not() -> None:
    ran("git log -5", "git log -3", "git log --all -2 x", "git log --output=x", "git push", "make")
    called(
        "Read", {"file_path": "/srv/shop/a.py"}, {"file_path": "/srv/shop/b.py"}, {"file_path": "/srv/x/a.py"}
    )
    search = searched()
    by_tool = {one.tool: one for one in search.tried}
    texts = {
        call.event_id: str(call.about)
        for call in reader().load_recorded_calls_of_ids(list(Event.objects.values_list("id", flat=True)))
    }
    bash, read = by_tool["Bash"], by_tool["Read"]
    assert {texts[event] for event in bash.examples.values()} == {
        "git log -5",
        "git log -3",
        "git log --all -2 x",
    }
    assert {texts[int(event)] for _, event in bash.nearest.values()} == {"git log --output=x", "git push"}
    assert [texts[int(event)] for _, event in read.nearest.values()] == ["/srv/x/a.py"]
