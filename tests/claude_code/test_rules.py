"""The rules for tools: what fits, what cannot be saved, and that no pattern can hold up the door."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from coordinator.actions.policy import tool_rules
from coordinator.actions.sessions import reported_sessions
from coordinator.actions.sessions.events import record_events
from coordinator.errors import Conflict, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import Agent, AuditLog, Grant, McpServer, ToolRule
from coordinator.policy.rules import tool_rules as policy
from coordinator.policy.rules.tool_rules import DecisionRule, PartialCall
from coordinator.sessions.events import NewEvent
from coordinator.sessions.reports import SessionLocation
from tests.people import signed_in

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ANN = Actor("user", "ann")
DENY_ENV = DecisionRule(1, "Read|Edit", "deny", r"\.env$", reason="Secrets stay here.")


def decision(rules: list[DecisionRule], tool: str, text: str, agent: str | None = None) -> str:
    return policy.tool_ruling_or_no_opinion(rules, tool, text, agent).decision


@pytest.mark.parametrize(
    ("names", "tool", "fits"),
    [
        ("Bash", "Bash", True),
        ("Bash", "BashOutput", False),
        ("Edit|Write", "Write", True),
        ("Edit, Write", "Write", True),
        ("mcp__github__*", "mcp__github__merge", True),
        ("mcp__github__*", "mcp__gitlab__merge", False),
        ("*", "anything", True),
    ],
)
def test_tools_are_named_whole_or_by_stars(names: str, tool: str, fits: bool) -> None:
    assert (decision([DecisionRule(1, names, "deny")], tool, "x") == "deny") is fits


@pytest.mark.parametrize(
    ("names", "verdict", "of_a", "of_a__b"),
    [
        ("mcp__a__*", "allow", "allow", "observe"),
        ("mcp__a__b__*", "allow", "observe", "allow"),
        ("mcp__a__* | mcp__a__b__r?n", "allow", "allow", "allow"),
        ("mcp__a*", "allow", "allow", "allow"),
        ("mcp__*", "allow", "allow", "allow"),
        ("mcp__a__*", "ask", "ask", "ask"),
        ("mcp__a__*", "deny", "deny", "deny"),
        ("mcp__a__*", "another program's", "ask", "ask"),
    ],
)
def test_what_allows_a_servers_tools_allows_no_other_servers(
    names: str, verdict: str, of_a: str, of_a__b: str
) -> None:
    rules, servers = [DecisionRule(1, names, verdict)], ["a", "a__b"]
    tools = ("mcp__a__run", "mcp__a__b__run")
    found = [
        policy.tool_ruling_or_no_opinion(rules, tool, "x", None, servers=servers).decision for tool in tools
    ]
    assert found == [of_a, of_a__b]
    call = [PartialCall(tool, "x", agent_known=True, program="") for tool in tools]
    assert [policy.strictest_ruling_for_partial_call(rules, one, servers).decision for one in call] == found
    if names == "mcp__a__*":
        alone = policy.tool_ruling_or_no_opinion(rules, "mcp__a__b__run", "x", None, servers=["a"])
        assert alone.decision == of_a, "it is a tool of a"


@pytest.mark.parametrize(
    ("names", "of_a", "of_a__b"),
    [
        ("mcp__plugin_P_a__*", "allow", "observe"),
        ("mcp__plugin_P_a__b__*", "observe", "allow"),
        ("mcp__plugin_P_*", "allow", "allow"),
    ],
)
def test_what_allows_a_plugins_server_allows_no_other_servers(names: str, of_a: str, of_a__b: str) -> None:
    rules, servers = [DecisionRule(1, names, "allow")], ["a", "a__b"]
    tools = ("mcp__plugin_P_a__run", "mcp__plugin_P_a__b__run")
    assert [
        policy.tool_ruling_or_no_opinion(rules, tool, "x", None, servers=servers).decision for tool in tools
    ] == [
        of_a,
        of_a__b,
    ]
    assert policy.wildcard_covers_other_servers(names, servers) is (names == "mcp__plugin_P_a__*")


def test_allow_must_match_the_whole_of_one_line_deny_and_ask_look_anywhere() -> None:
    allow, deny = [DecisionRule(1, "Bash", "allow", "git .*")], [DecisionRule(1, "Bash", "deny", "rm -rf")]
    assert decision(allow, "Bash", "git status") == "allow"
    assert decision(allow, "Bash", "git status\nrm -rf ~") == "observe"
    assert decision(allow, "Bash", "sudo git status") == "observe"
    assert decision(deny, "Bash", "cd /\nsudo rm -rf ~") == "deny"


@pytest.mark.parametrize("pattern", [r"ls [^;&|]*", r"ls\s.+\s*.*", r"(?i)ls [^;]+", r"ls (\D|x)*"])
def test_an_allow_pattern_written_for_one_line_lets_no_second_line_through(pattern: str) -> None:
    rules = [DecisionRule(1, "Bash", "allow", pattern)]
    assert decision(rules, "Bash", "ls docs x") == "allow"
    assert decision(rules, "Bash", "ls docs x\nrm -rf ~") == "observe"


@pytest.mark.parametrize("pattern", [r"(?s)cat <<E.*", r"cat <<E(\n[^\n]*)*", r"(?is)cat .*"])
def test_an_allow_pattern_that_speaks_of_lines_fits_several(pattern: str) -> None:
    assert decision([DecisionRule(1, "Bash", "allow", pattern)], "Bash", "cat <<E\none\nE") == "allow"


def test_a_rule_for_some_agents_leaves_the_others_alone() -> None:
    rules = [DecisionRule(1, "*", "deny", agents=("agent.a",))]
    found = [decision(rules, "Bash", "x", agent) for agent in ("agent.a", "agent.b", None)]
    assert found == ["deny", "observe", "observe"]


def test_no_pattern_takes_long_on_any_text() -> None:
    began = time.process_time()
    for pattern in (r"(a+)+$", r"(a|aa)+$", r"(.*a){12}$", r"^(\w+\s?)*$"):
        decision([DecisionRule(1, "Bash", "deny", pattern)], "Bash", "a" * 100_000 + "!")
    decision([DecisionRule(1, "*a*a*a*a*a*a*a*b", "deny")], "a" * 2_000, "x")
    assert time.process_time() - began < 5  # a backtracking engine would not come back at all


@pytest.mark.parametrize(
    "rule",
    [
        DecisionRule(1, " ", "deny"),
        DecisionRule(1, "Bash", "perhaps"),
        DecisionRule(1, "Bash", "deny", "("),
        DecisionRule(1, "Bash", "deny", r"(?=look)"),
        DecisionRule(1, "Bash", "deny", "x" * 3_000),
        DecisionRule(1, "Bash", "ask", wait_seconds=0),
    ],
)
def test_a_rule_that_cannot_be_followed_is_not_saved(rule: DecisionRule) -> None:
    with pytest.raises(UnprocessableRequest, match="ule 1"):
        tool_rules.replace_tool_rules([rule], seen_version=policy.digest_tool_rules([]), actor=ANN, now=NOW)
    assert not ToolRule.objects.exists()


def test_two_editors_do_not_overwrite_one_another() -> None:
    seen = policy.digest_tool_rules(policy.load_saved_tool_rules())
    tool_rules.replace_tool_rules([DENY_ENV], seen_version=seen, actor=ANN, now=NOW)
    with pytest.raises(Conflict, match="Somebody else"):
        tool_rules.replace_tool_rules([], seen_version=seen, actor=Actor("user", "ben"), now=NOW)
    assert policy.load_saved_tool_rules() == (DENY_ENV,)


def test_saving_is_audited_with_before_and_after() -> None:
    tool_rules.replace_tool_rules([DENY_ENV], seen_version=policy.digest_tool_rules([]), actor=ANN, now=NOW)
    row = AuditLog.objects.get(event_type="TOOL_RULES_SAVED")
    assert (row.actor_id, row.metadata["before"]) == ("user:ann", [])
    assert row.metadata["after"][0]["pattern"] == DENY_ENV.pattern


def form(*rules: dict[str, Any], do: str = "save", version: str | None = None) -> dict[str, Any]:
    data: dict[str, Any] = {"form-TOTAL_FORMS": len(rules), "form-INITIAL_FORMS": 0, "do": do}
    data["version"] = policy.digest_tool_rules(policy.load_saved_tool_rules()) if version is None else version
    for number, rule in enumerate(rules):
        data |= {
            f"form-{number}-{name}": value
            for name, value in ({"verdict": "deny", "agents": "*"} | rule).items()
        }
    return data


def test_the_page_saves_in_the_order_given_and_drops_what_is_ticked() -> None:
    client = signed_in("approver")
    rules = [
        {"tool": "Bash", "ORDER": 2},
        {"tool": "Read", "ORDER": 1},
        {"tool": "Gone", "ORDER": 3, "DELETE": "on"},
        {"tool": ""},
    ]
    answer = client.post("/ui/rules/save/", form(*rules))
    assert answer.status_code == 302
    assert [(rule.number, rule.tool) for rule in policy.load_saved_tool_rules()] == [(1, "Read"), (2, "Bash")]


def test_trying_out_changes_nothing() -> None:
    answer = signed_in("approver").post("/ui/rules/save/", form({"tool": "Bash"}, do="try"))
    assert answer.status_code == 200
    assert b"Effect of your changes" in answer.content
    assert policy.load_saved_tool_rules() == ()


def test_a_bad_pattern_and_a_stale_page_are_told_in_words() -> None:
    client = signed_in("approver")
    answer = client.post("/ui/rules/save/", form({"tool": "Bash", "pattern": "("}))
    assert (answer.status_code, b"the pattern cannot be read" in answer.content) == (422, True)
    answer = client.post("/ui/rules/save/", form({"tool": "Bash"}, version="stale"))
    assert (answer.status_code, b"Somebody else has saved" in answer.content) == (409, True)


def test_viewers_look_and_approvers_edit() -> None:
    viewer = signed_in("viewer")
    page = viewer.get("/ui/rules/")
    assert page.status_code == 200
    assert "<fieldset disabled>" in page.content.decode()
    assert "An approver can change them." in page.content.decode()
    assert "New rule" not in page.content.decode()
    assert "New rule" in signed_in("approver").get("/ui/rules/").content.decode()
    assert viewer.post("/ui/rules/save/", form()).status_code == 403
    assert viewer.post("/ui/connections/key/", {"name": "x", "program": "codex"}).status_code == 403


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("", "connections/"),
        ("rules/", "rules/"),
        ("rules/calls/?tool=Bash", "rules/calls/?tool=Bash"),
        ("rules/suggestions/", "rules/suggestions/"),
        ("costs/?since=30", "costs/?since=30"),
    ],
)
def test_addresses_that_people_have_kept_lead_to_where_the_pages_are_now(former: str, now: str) -> None:
    assert signed_in("viewer").get(f"/ui/claude-code/{former}")["Location"] == f"/ui/{now}"
    assert Client().get(f"/ui/claude-code/{former}")["Location"].startswith("/ui/sign-in/")


def test_the_page_tells_what_would_happen_to_a_call(agent_with_a_grant: str) -> None:
    tool_rules.replace_tool_rules(
        [DecisionRule(1, "mcp__shopdb__drop", "deny", reason="Never.")],
        seen_version=policy.digest_tool_rules([]),
        actor=ANN,
        now=NOW,
    )
    client = signed_in("viewer")

    def answer(tool: str, agent: str = agent_with_a_grant) -> str:
        page = client.get("/ui/rules/", {"tool": tool, "about": "x", "agent": agent}).content.decode()
        return " ".join(page.partition('id="asked"')[2].partition("</section>")[0].split())

    read = answer("mcp__shopdb__read")
    assert "Allowed for this tool by user:ann: For the report." in read
    assert "The call runs without asking anyone." in read
    assert "Rule 1: Never." in answer("mcp__shopdb__drop")
    assert "denies calls without a grant" in answer("mcp__shopdb__read", "")
    assert "There is no MCP server 'elsewhere' here." in answer("mcp__elsewhere__read").replace("&#x27;", "'")
    McpServer.objects.update(default_policy="opt-out")
    Grant.objects.all().delete()
    assert "No server elsewhere is registered here" in answer("mcp__elsewhere__read")
    assert "not an MCP tool" in answer("Bash")


def test_trying_rules_out_counts_the_grants_in(agent_with_a_grant: str) -> None:
    record_calls(agent_with_a_grant, "mcp__shopdb__read", "mcp__shopdb__write")
    data = form({"tool": "mcp__shopdb__*", "verdict": "allow"}, do="try")
    page = signed_in("approver").post("/ui/rules/save/", data)
    trial = page.context["trial"]
    # The one is granted already, and no rule opens what the grants keep shut.
    assert {count.label: count.number for count in trial.totals} == {
        "Denied": 1, "Asked": 0, "Allowed": 1, "Observed": 0,
    }  # fmt: skip
    assert (trial.calls, trial.changed.number, page.context["listed"].calls) == (2, 0, [])


def record_calls(agent: str, *tools: str) -> None:
    made = reported_sessions.find_or_create_reported_session(
        "made-up", SessionLocation(agent_name=agent), NOW
    ).session_id
    calls = [
        NewEvent(
            event_type="pre_tool", session_id=made, timestamp="", tool_name=tool, tool_input={}, source=source
        )
        for tool, source in zip(tools, ("claude-code", "transcript"), strict=True)
    ]
    record_events(calls, NOW)


@pytest.fixture
def agent_with_a_grant() -> str:
    """An agent that may read, and nothing else, on a server that denies what is not granted."""
    row = Agent.objects.create(
        id="agent.shop", name="Shop", description="", status="online", default_engine_id="e", metadata={}
    )
    McpServer.objects.create(name="shopdb", command="x", args=[], default_policy="opt-in", created_at=NOW)
    Grant.objects.create(
        entry_type="tool_grant", agent_id=row.pk, server_id="shopdb", tool_name="read", permission="allow",
        granted_by="user:ann", granted_at=NOW, justification="For the report.",
    )  # fmt: skip
    return row.pk


def test_a_rule_for_a_program_leaves_the_others_and_unknown_ones_alone() -> None:
    rules = [DecisionRule(1, "Bash", "deny", program="codex"), DecisionRule(2, "Bash", "allow")]
    found = [
        policy.tool_ruling_or_no_opinion(rules, "Bash", "x", None, name).decision
        for name in ("codex", "gemini", "")
    ]
    assert found == ["deny", "allow", "allow"]


def test_of_a_call_that_cannot_be_read_a_rule_for_another_program_says_nothing() -> None:
    rules = [DecisionRule(1, "*", "deny", program="codex")]
    found = [
        policy.strictest_ruling_for_partial_call(rules, PartialCall(program=name)).decision
        for name in ("codex", "gemini", None)
    ]
    assert found == ["deny", "observe", "deny"]


def test_a_rule_for_a_program_that_nobody_knows_is_not_saved() -> None:
    with pytest.raises(UnprocessableRequest, match="hal-9000"):
        tool_rules.replace_tool_rules(
            [DecisionRule(1, "*", "deny", program="hal-9000")],
            seen_version=policy.digest_tool_rules([]),
            actor=ANN,
            now=NOW,
        )


def test_the_page_saves_a_rule_for_a_program_and_tells_what_it_does_to_a_call() -> None:
    client = signed_in("approver")
    client.post("/ui/rules/save/", form({"tool": "Bash", "program": "codex", "ORDER": 1}))
    assert [rule.program for rule in policy.load_saved_tool_rules()] == ["codex"]
    page = client.get("/ui/rules/").content.decode()
    assert '<option value="codex" selected>' in page
    for program, word in (("codex", "The call does not run."), ("gemini", "The call is only recorded.")):
        asked = {"tool": "Bash", "about": "ls", "program": program}
        assert word in client.get("/ui/rules/", asked).content.decode()
    refused = client.post("/ui/rules/save/", form({"tool": "Bash", "program": "hal", "ORDER": 1}))
    assert refused.status_code == 422
