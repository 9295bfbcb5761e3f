"""Calls that policy or a person decides: Claude Code is answered in its own words, and nothing is left waiting."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from django.utils import timezone

from coordinator.actions.people.keys import hash_api_key
from coordinator.actions.sessions.tool_calls import GONE, compute_offered_rule_digest
from coordinator.lib import instants
from tests.approvals.cards import served_form
from tests.claude_code.double import Call, Claude, cut
from tests.claude_code.test_recording import events
from tests.live.connections import connect
from tests.patience import AT_ONCE, PATIENCE
from tests.served import KEYS, Served, running

pytestmark = pytest.mark.served

AGENT_KEY = "sbx_served-test-key-of-the-shop-agent"
SUGGESTION = {
    "type": "addRules",
    "rules": [{"toolName": "Bash", "ruleContent": "npm test"}],
    "behavior": "allow",
    "destination": "localSettings",
}


@pytest.fixture(scope="module")
def served(served_template: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with running(served_template, tmp_path_factory.mktemp("deciding") / "server") as server:
        prepare(server)
        yield server


def prepare(served: Served) -> None:
    """Add an agent with a key of its own and an MCP server that grants it one tool."""
    from coordinator.actions.people.keys import hash_api_key

    at = "2026-02-20T00:00:00.000000+00:00"
    served.sql("INSERT INTO agents (id, name, default_engine_id) VALUES ('agent.shop', 'Shop', 'mind.x')")
    served.sql(
        "INSERT INTO api_keys (name, prefix, key_hash, scopes, agent_id, created_at, created_by)"
        " VALUES ('shop', 'sbx_', ?, '[\"agent\"]', 'agent.shop', ?, 'user:admin')",
        (hash_api_key(AGENT_KEY), at),
    )
    served.sql("INSERT INTO mcp_servers (name, command, created_at) VALUES ('shopdb', 'python3', 1)")
    served.sql(
        "INSERT INTO mcp_access_control"
        " (entry_type, agent_id, server_id, tool_name, permission, granted_by, granted_at)"
        " VALUES ('tool_grant', 'agent.shop', 'shopdb', 'read_orders', 'allow', 'ann', ?)",
        (at,),
    )


@pytest.fixture
def claude(served: Served) -> Claude:
    rules(served)
    claude = Claude(served, key=AGENT_KEY, wait="100")
    claude.prompt("Get going.")
    return claude


def rules(served: Served, *wanted: dict[str, Any]) -> None:
    """Put these rules in place, as a person's saving would, and wait until every worker knows."""
    served.sql("DELETE FROM tool_rules")
    columns = (
        "tool",
        "pattern",
        "verdict",
        "reason",
        "wait_seconds",
        "program",
        "touches",
        "deny_at_deadline",
    )
    for number, rule in enumerate(wanted, 1):
        values = tuple(rule.get(name, None if name == "wait_seconds" else "") for name in columns[:-1])
        served.sql(
            f"INSERT INTO tool_rules (position, {', '.join(columns)}, changed_at, changed_by)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, '2026-02-20T00:00:00.000000+00:00', 'user:admin')",
            (number, *values, bool(rule.get("deny_at_deadline"))),
        )
    let_workers_read_rules()


def let_workers_read_rules() -> None:
    """Wait until every worker has read rules that were just written."""
    time.sleep(0.4)  # the feed's pace where nobody waits: the workers' memory of the rules is not to be asked


def pending(served: Served, claude: Claude, count: int = 1) -> list[str]:
    """Return the ids of the session's waiting requests as soon as there are `count`."""
    deadline = time.monotonic() + 60
    while True:
        rows = served.sql(
            "SELECT r.request_id FROM permission_requests r JOIN permission_context c ON c.request_id = r.request_id"
            " JOIN sessions s ON s.session_id = c.session_id"
            " WHERE r.status = 'pending' AND s.executor_session_id = ? ORDER BY r.id",
            (claude.session,),
        )
        if len(rows) >= count:
            return [row[0] for row in rows]
        assert time.monotonic() < deadline, f"{len(rows)} of {count} requests came"
        time.sleep(0.02)


def ends(served: Served, request_id: str) -> tuple[str, str | None]:
    """Return status and reason of a request as soon as it does not wait any more."""
    deadline = time.monotonic() + 60
    while True:
        (row,) = served.sql(
            "SELECT r.status, c.reason FROM permission_requests r"
            " JOIN permission_context c ON c.request_id = r.request_id WHERE r.request_id = ?",
            (request_id,),
        )
        if row[0] != "pending":
            return row[0], row[1]
        assert time.monotonic() < deadline, "the request still waits"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def approver(served: Served) -> httpx.Client:
    return served.sign_in("approver")


def decide(approver: httpx.Client, request_id: str, verdict: str = "approved", **more: Any) -> None:
    answer = approver.post("/ui/approvals/decide/", data=served_form(approver, request_id, verdict, **more))
    assert answer.status_code == 200, answer.text


def test_nothing_is_decided_where_nobody_laid_down_anything(served: Served, claude: Claude) -> None:
    assert claude.before(claude.new_call("Bash", {"command": "rm -rf /"})) == {}


def test_a_server_that_nobody_registered_is_denied_where_grants_are_in_force(
    served: Served, claude: Claude
) -> None:
    denied = claude.before(claude.new_call("mcp__unheard__of", {}))
    assert denied["permissionDecision"] == "deny"
    assert "no MCP server 'unheard'" in denied["permissionDecisionReason"]


def test_a_grant_allows_and_its_absence_denies_in_words(served: Served, claude: Claude) -> None:
    allowed = claude.before(claude.new_call("mcp__shopdb__read_orders", {"day": 1}))
    assert allowed["permissionDecision"] == "allow"
    assert "ann" in allowed["permissionDecisionReason"]
    denied = claude.before(claude.new_call("mcp__shopdb__drop_orders", {}))
    assert denied["permissionDecision"] == "deny"
    assert "denies calls without a grant" in denied["permissionDecisionReason"]
    through_plugin = claude.before(claude.new_call("mcp__plugin_shop_shopdb__drop_orders", {}))
    assert through_plugin["permissionDecision"] == "deny"


@contextlib.contextmanager
def at_gateway(served: Served) -> Iterator[None]:
    """The agent's key has a session at the gateway, used just now."""
    served.sql(
        "INSERT INTO mcp_gateway_sessions (session_id, door, key_id, agent_id, protocol_version, created_at, used_at)"
        " SELECT 'gws-t', '', id, coalesce(agent_id, 'a'), '2025-11-25', ?, ? FROM api_keys WHERE key_hash = ?",
        (*[instants.format_canonical_instant(timezone.now())] * 2, hash_api_key(AGENT_KEY)),
    )
    yield
    served.sql("DELETE FROM mcp_gateway_sessions WHERE session_id = 'gws-t'")


def test_a_call_through_the_gateway_is_judged_as_what_it_means_and_asked_there(
    served: Served, claude: Claude
) -> None:
    denied = claude.before(claude.new_call("mcp__signalbox__shopdb__drop_orders", {}))
    assert denied["permissionDecision"] == "deny"
    rules(served, {"tool": "mcp__shopdb__*", "verdict": "ask"})
    at_once = Claude(
        served, key=AGENT_KEY, wait="1"
    )  # another server may call itself so: nobody is at the gateway
    assert at_once.before(at_once.new_call("mcp__signalbox__shopdb__read_orders", {"day": 2})) != {}
    with at_gateway(served):
        assert claude.before(claude.new_call("mcp__signalbox__shopdb__read_orders", {"day": 2})) == {}
    rules(served, {"tool": "mcp__shopdb__*", "verdict": "deny", "reason": "Stocktaking."})
    denied = claude.before(claude.new_call("mcp__signalbox__shopdb__read_orders", {"day": 3}))
    assert "Stocktaking." in denied["permissionDecisionReason"]
    unknown = claude.before(claude.new_call("mcp__signalbox__unheard__of", {}))
    assert unknown["permissionDecision"] == "deny"


def test_a_call_by_the_gateways_call_tool_is_judged_as_the_call_that_it_names(
    served: Served, claude: Claude
) -> None:
    def judged(name: str, arguments: dict) -> dict:
        call = claude.new_call("mcp__signalbox__call_tool", {"name": name, "arguments": arguments})
        return claude.before(call)

    assert judged("shopdb__read_orders", {"day": 11})["permissionDecision"] == "allow"
    assert judged("shopdb__drop_orders", {})["permissionDecision"] == "deny"
    assert judged("unheard__of", {})["permissionDecision"] == "deny"
    rules(served, {"tool": "mcp__shopdb__*", "verdict": "deny", "reason": "Stocktaking.", "pattern": "12"})
    assert "Stocktaking." in judged("shopdb__read_orders", {"day": 12})["permissionDecisionReason"]
    assert judged("shopdb__read_orders", {"day": 13})["permissionDecision"] == "allow"
    rules(served, {"tool": "mcp__shopdb__*", "verdict": "ask"})
    with at_gateway(served):
        assert judged("shopdb__read_orders", {"day": 14}) == {}
    rules(served, {"tool": "mcp__signalbox__call_tool", "verdict": "deny", "reason": "Not by this."})
    assert "Not by this." in judged("shopdb__read_orders", {"day": 15})["permissionDecisionReason"]


def test_find_tools_needs_no_grant_of_an_agent_that_is_to_search_at_the_gateway(
    served: Served, claude: Claude
) -> None:
    def found() -> dict:
        return claude.before(claude.new_call("mcp__signalbox__find_tools", {"query": "orders"}))

    assert found()["permissionDecision"] == "deny"
    (agent_id,) = served.sql(
        "SELECT coalesce(agent_id, 'a') FROM api_keys WHERE key_hash = ?", (hash_api_key(AGENT_KEY),)
    )[0]
    with at_gateway(served):
        assert found()["permissionDecision"] == "deny"
        now = instants.format_canonical_instant(timezone.now())
        served.sql("INSERT INTO agent_tool_listings VALUES (?, 'search', '[]', 'test', ?)", (agent_id, now))
        rules(served)
        try:
            assert found() == {}
            rules(served, {"tool": "mcp__signalbox__*", "verdict": "deny", "reason": "Not now."})
            assert "Not now." in found()["permissionDecisionReason"]
        finally:
            served.sql("DELETE FROM agent_tool_listings")


def test_the_first_rule_that_fits_decides(served: Served, claude: Claude) -> None:
    rules(
        served,
        {"tool": "Bash", "pattern": "git status", "verdict": "allow"},
        {
            "tool": "Bash|Write",
            "pattern": r"rm\s+-rf|\.env$",
            "verdict": "deny",
            "reason": "Not on my machine.",
        },
        {"tool": "*", "verdict": "observe"},
        {"tool": "Bash", "verdict": "deny"},
    )

    def decision(tool: str, **tool_input: Any) -> str | None:
        found: str | None = claude.before(claude.new_call(tool, tool_input)).get("permissionDecision")
        return found

    assert decision("Bash", command="git status") == "allow"
    assert decision("Bash", command="git status; rm -rf ~") == "deny"
    assert decision("Bash", command="git status; ls") is None
    assert decision("Write", file_path="/srv/.env", content="x") == "deny"
    assert decision("Read", file_path="/srv/.env") is None


def test_a_server_is_found_under_the_name_that_claude_gives_it(served: Served, claude: Claude) -> None:
    for name in ("my__server", "tool.terminal", "claude.ai Gmail"):
        served.sql("INSERT INTO mcp_servers (name, command, created_at) VALUES (?, 'x', 1)", (name,))
    time.sleep(0.4)
    for name in ("my__server", "tool_terminal", "claude_ai_Gmail"):
        denied = claude.before(claude.new_call(f"mcp__{name}__run", {}))
        assert "denies calls without a grant" in denied["permissionDecisionReason"]


def test_a_rule_and_a_grant_together_let_less_happen(served: Served, claude: Claude) -> None:
    rules(served, {"tool": "mcp__shopdb__*", "verdict": "deny", "reason": "Stocktaking."})
    assert claude.before(claude.new_call("mcp__shopdb__read_orders", {}))["permissionDecision"] == "deny"
    rules(served, {"tool": "mcp__shopdb__*", "verdict": "allow"})
    assert claude.before(claude.new_call("mcp__shopdb__drop_orders", {}))["permissionDecision"] == "deny"


def test_what_policy_decides_is_in_the_timeline_and_in_the_audit_log(served: Served, claude: Claude) -> None:
    rules(served, {"tool": "Bash", "pattern": "curl", "verdict": "deny", "reason": "No downloads."})
    call = claude.call("Bash", {"command": "curl x | sh"})
    assert (call.outcome, "No downloads." in call.why) == ("denied", True)
    assert [event["error"] for event in events(served, claude)[1:]] == [
        None,
        "Signalbox (rule 1): No downloads.",
    ]
    (row,) = served.sql(
        "SELECT l.actor_id, l.result, l.reason FROM audit_logs l JOIN sessions s ON s.session_id = l.target_id"
        " WHERE l.event_type = 'TOOL_CALL_DENIED' AND s.executor_session_id = ?",
        (claude.session,),
    )
    assert row == ("key:shop", "denied", "No downloads.")


def test_a_person_approves_from_elsewhere(served: Served, claude: Claude, approver: httpx.Client) -> None:
    call = claude.new_call("Bash", {"command": "npm test", "description": "Run the tests"})
    claude.before(call)
    asking = claude.asking(call, permission_suggestions=[SUGGESTION])
    (request_id,) = pending(served, claude)
    time.sleep(0.3)
    assert asking.waits
    began = time.monotonic()
    decide(approver, request_id, reason="Go on.")
    assert asking.result() == {"behavior": "allow"}
    assert time.monotonic() - began < AT_ONCE  # freed by the feed, not by a timer


def test_always_allow_echoes_what_was_offered(served: Served, claude: Claude, approver: httpx.Client) -> None:
    call = claude.new_call("Bash", {"command": "npm test"})
    asking = claude.asking(call, permission_suggestions=[{"type": "setMode"}, SUGGESTION])
    decide(approver, pending(served, claude)[0], suggestion=compute_offered_rule_digest(SUGGESTION))
    assert asking.result() == {"behavior": "allow", "updatedPermissions": [SUGGESTION]}


def test_a_rule_that_was_not_offered_cannot_be_picked(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    asking = claude.asking(claude.new_call("Bash", {"command": "npm test"}))
    (request_id,) = pending(served, claude)
    decide(approver, request_id, suggestion=compute_offered_rule_digest(SUGGESTION))
    assert asking.waits
    decide(approver, request_id, "denied", reason="Not now.")
    assert asking.result()["behavior"] == "deny"


def test_an_edited_input_is_what_runs(served: Served, claude: Claude, approver: httpx.Client) -> None:
    call = claude.new_call("Bash", {"command": "git push --force", "timeout": 5})
    asking = claude.asking(call)
    decide(approver, pending(served, claude)[0], edited="git push", edited_field="command")
    assert asking.result() == {"behavior": "allow", "updatedInput": {"command": "git push", "timeout": 5}}


def test_no_is_told_to_claude_and_shown_as_the_calls_result(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    call = claude.new_call("Bash", {"command": "make deploy"})
    claude.before(call)
    asking = claude.asking(call)
    decide(approver, pending(served, claude)[0], "denied", reason="It is Friday.")
    answer = asking.result()
    assert answer["behavior"] == "deny"
    assert answer["message"] == "Denied by approver in Signalbox: It is Friday."
    assert events(served, claude)[-1]["error"] == answer["message"]
    assert events(served, claude)[-1]["tool_use_id"] == call.id


def test_a_denial_that_ends_the_turn_is_sent_to_claude_and_on_the_timeline(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    call = claude.new_call("Bash", {"command": "touch loop"})
    claude.before(call)
    asking = claude.asking(call)
    decide(approver, pending(served, claude)[0], "denied-turn-ended", reason="It loops.")
    answer = asking.result()
    assert (answer["behavior"], answer["interrupt"]) == ("deny", True)
    assert answer["message"].startswith("Denied by approver in Signalbox, turn ended: It loops.")
    assert events(served, claude)[-1]["error"] == answer["message"]
    [(session_id,)] = served.sql(
        "SELECT session_id FROM sessions WHERE executor_session_id = ?", (claude.session,)
    )
    assert "Signalbox, turn ended: It loops." in approver.get(f"/ui/sessions/{session_id}/").text


def test_a_rule_may_ask_before_any_prompt(served: Served, claude: Claude, approver: httpx.Client) -> None:
    rules(served, {"tool": "Write", "verdict": "ask", "reason": "Look at it first."})
    import threading

    call = claude.new_call("Write", {"file_path": "/srv/a.txt", "content": "x"})
    answers: list[dict[str, Any]] = []
    other = Claude(served, key=AGENT_KEY, wait="100")
    other.session = claude.session
    hook = threading.Thread(target=lambda: answers.append(other.before(call)))
    hook.start()
    decide(approver, pending(served, claude)[0])
    hook.join(60)
    assert answers[0]["permissionDecision"] == "allow"
    # Some versions show the prompt all the same: the verdict on the same call answers that one too.
    assert claude.asked(call) == {"behavior": "allow"}


def test_silence_leaves_the_prompt_in_charge_or_denies_where_a_rule_says_so(
    served: Served, claude: Claude
) -> None:
    rules(
        served,
        {"tool": "Bash", "pattern": "later", "verdict": "ask", "wait_seconds": 1},
        {"tool": "Bash", "pattern": "never", "verdict": "ask", "wait_seconds": 1, "deny_at_deadline": True},
        {"tool": "Bash", "pattern": "plain", "verdict": "observe", "wait_seconds": 1},
    )
    before = claude.before(claude.new_call("Bash", {"command": "later"}))
    assert before["permissionDecision"] == "ask"  # the terminal's prompt
    assert claude.before(claude.new_call("Bash", {"command": "never"}))["permissionDecision"] == "deny"
    assert claude.asked(claude.new_call("Bash", {"command": "plain"})) == {}
    assert claude.asked(claude.new_call("Bash", {"command": "later on"})) == {}  # its prompt stands already
    assert claude.asked(claude.new_call("Bash", {"command": "never again"}))["behavior"] == "deny"
    rows = served.sql(
        "SELECT r.status FROM permission_requests r JOIN permission_context c ON c.request_id = r.request_id"
        " JOIN sessions s ON s.session_id = c.session_id WHERE s.executor_session_id = ? ORDER BY r.id",
        (claude.session,),
    )
    # What was denied can still be approved (test_told_to_wait); what its prompt decides cannot.
    assert [status for (status,) in rows] == ["expired", "pending", "expired", "expired", "pending"]


def test_a_call_that_no_card_could_show_whole_is_left_to_the_terminal(served: Served, claude: Claude) -> None:
    call = claude.new_call("Bash", {"command": "token a " * 50_001 + "; reboot"})

    before = served.sql("SELECT count(*) FROM permission_requests")
    assert claude.asked(call) == {}
    assert served.sql("SELECT count(*) FROM permission_requests") == before


@pytest.mark.parametrize(
    ("more", "content"),
    [("x" * 1_000_100, "x"), ("", "é" * 175_000), ("", "pwd=a\n" * 50_100)],
    ids=["a megabyte", "wide letters", "look-alikes of secrets"],
)
def test_what_no_card_could_show_is_asked_in_the_terminal_or_denied(
    served: Served, claude: Claude, more: str, content: str
) -> None:
    call = {"file_path": "/x", "content": content, "description": more}
    rules(served, {"tool": "Write", "verdict": "ask"})
    answer = claude.before(claude.new_call("Write", call))
    assert answer["permissionDecision"] == "ask"
    assert "Signalbox could not ask anyone" in answer["permissionDecisionReason"]
    rules(served, {"tool": "Write", "verdict": "ask", "deny_at_deadline": True})
    assert claude.before(claude.new_call("Write", call))["permissionDecision"] == "deny"


def test_a_session_that_seems_to_go_on_frees_no_call_that_a_rule_asks(served: Served, claude: Claude) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask"})
    call = claude.new_call("Bash", {"command": "x"})
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(claude.before, call)
        pending(served, claude)
        claude.hook(
            "PostToolUse", tool_name="Bash", tool_input={}, tool_use_id=call.id
        )  # as an agent may post
        assert asked.result(PATIENCE)["permissionDecision"] == "ask"


def test_a_restart_and_a_revoked_key_free_no_call_that_a_rule_asks(
    served_template: Any, tmp_path: Any
) -> None:
    with running(served_template, tmp_path / "server") as served, ThreadPoolExecutor(2) as pool:
        rules(served, {"tool": "Bash", "verdict": "ask"}, {"tool": "Write", "verdict": "deny"})
        one, other = Claude(served, wait="100"), Claude(served, wait="100")
        asked = pool.submit(one.before, one.new_call("Bash", {"command": "x"}))
        pending(served, one)
        served.sql(
            "UPDATE api_keys SET revoked_at = '2026-03-01T00:00:00.000000+00:00' WHERE name = 'test-agent'"
        )
        assert asked.result(PATIENCE)["permissionDecision"] == "ask"
        assert other.before(other.new_call("Write", {}))["permissionDecision"] == "deny"
        third = Claude(served, key=KEYS["all"], wait="100")
        asked = pool.submit(third.before, third.new_call("Bash", {"command": "x"}))
        pending(served, third)
        served.stop()
        assert asked.result(PATIENCE)["permissionDecision"] == "ask"


@pytest.mark.parametrize("trace", ["result", "failure", "turn", "prompt", "end"])
def test_a_card_is_closed_by_any_trace_of_an_answer_in_the_terminal(
    served: Served, claude: Claude, trace: str
) -> None:
    call = claude.new_call("Bash", {"command": f"make {trace}"})
    claude.before(call)
    asking = claude.asking(call)
    (request_id,) = pending(served, claude)
    if trace == "result":
        claude.ran(call)
    elif trace == "failure":
        claude.hook(
            "PostToolUseFailure",
            tool_name="Bash",
            tool_input=call.tool_input,
            error="exit 2",
            tool_use_id=call.id,
        )
    else:
        {"turn": claude.stop, "prompt": lambda: claude.prompt("No, wait."), "end": claude.end}[trace]()
    assert asking.result() == {}
    assert ends(served, request_id) == ("withdrawn", "Answered in the terminal.")


def test_another_calls_result_closes_nothing(served: Served, claude: Claude, approver: httpx.Client) -> None:
    one, other = (claude.new_call("Bash", {"command": f"make {name}"}) for name in ("one", "other"))
    claude.before(one)
    claude.before(other)
    asking_one, asking_other = claude.asking(one), claude.asking(other)
    pending(served, claude, 2)
    claude.ran(one)
    assert asking_one.result() == {}
    assert asking_other.waits
    decide(approver, pending(served, claude)[0])
    assert asking_other.result() == {"behavior": "allow"}


def test_a_result_that_overtook_its_question_answers_it(served: Served, claude: Claude) -> None:
    call = claude.new_call("Bash", {"command": "quick"})
    claude.before(call)
    claude.ran(call)
    began = time.monotonic()
    assert claude.asked(call) == {}
    assert time.monotonic() - began < AT_ONCE


def test_the_same_command_as_before_is_a_new_question(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    command = {"command": "npm test"}
    claude.call("Bash", command)
    call = claude.new_call("Bash", command)
    claude.before(call)
    asking = claude.asking(call)
    decide(approver, pending(served, claude)[0])
    assert asking.result() == {"behavior": "allow"}


def test_a_dropped_connection_withdraws(served: Served, claude: Claude) -> None:
    call = claude.new_call("Bash", {"command": "sleep 9"})
    body = claude.fields("PermissionRequest", tool_name="Bash", tool_input=call.tool_input)
    cut(served, claude, body)
    (row,) = served.sql("SELECT request_id FROM permission_requests ORDER BY id DESC LIMIT 1")
    status, reason = ends(served, row[0])
    assert status == "withdrawn"
    assert "agent disconnected" in (reason or "")


@pytest.mark.parametrize("where", ["the same worker", "another worker"])
def test_twins_share_a_card_and_one_of_them_may_leave(
    served: Served, claude: Claude, approver: httpx.Client, where: str
) -> None:
    call = claude.new_call("Bash", {"command": "twice"})
    here, there = served.all_worker_pids()
    leaving = raw_asking(served, claude, call, to=here)
    (request_id,) = pending(served, claude)
    staying = raw_asking(served, claude, call, to=here if where == "the same worker" else there)
    time.sleep(0.3)  # so that it stands by the same card already; if not, it is merely asked later
    leaving.close()
    if where == "another worker":  # which knows nothing of ours: it closes the card, and ours is put anew
        assert ends(served, request_id)[0] == "withdrawn"
    (request_id,) = pending(served, claude)
    decide(approver, request_id)
    assert raw_decision(staying) == {"behavior": "allow"}


def test_who_stays_is_asked_anew_however_often_another_leaves(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    asking = claude.asking(claude.new_call("Bash", {"command": "thrice"}))
    for _ in range(3):
        (request_id,) = pending(served, claude)
        closed = "UPDATE permission_context SET pending_key = NULL, reason = ? WHERE request_id = ?"
        served.sql(closed, (GONE, request_id))
        served.sql("UPDATE permission_requests SET status = 'withdrawn' WHERE request_id = ?", (request_id,))
    decide(approver, pending(served, claude)[0])
    assert asking.result() == {"behavior": "allow"}


def raw_asking(served: Served, claude: Claude, call: Call, *, to: int) -> http.client.HTTPConnection:
    """Tell PermissionRequest on a connection to one worker, and return that connection."""
    line = connect(served, to=to)
    body = claude.fields("PermissionRequest", tool_name=call.tool, tool_input=call.tool_input)
    line.request("POST", claude.url.removeprefix(served.url), json.dumps(body), claude.headers)
    return line


def raw_decision(line: http.client.HTTPConnection) -> Any:
    answer = line.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return json.loads(text)["hookSpecificOutput"]["decision"]


def test_a_subagents_question_outlives_the_main_turn(
    served: Served, claude: Claude, approver: httpx.Client
) -> None:
    nested = {"agent_id": "a1", "agent_type": "Explore"}
    call = claude.new_call("Bash", {"command": "ls -R"})
    claude.before(call, **nested)
    asking = claude.asking(call, **nested)
    (request_id,) = pending(served, claude)
    claude.stop("I wait for my helper.")
    time.sleep(0.3)
    assert asking.waits
    claude.hook("SubagentStop", **nested, last_assistant_message="Done.")
    assert asking.result() == {}
    assert ends(served, request_id)[0] == "withdrawn"


def test_a_restart_leaves_nobody_waiting(served_template: Any, tmp_path: Any) -> None:
    with running(served_template, tmp_path / "server") as served:
        claude = Claude(served, wait="100")
        asking = claude.asking(claude.new_call("Bash", {"command": "x"}))
        (request_id,) = pending(served, claude)
        assert served.stop() < 5
        assert asking.result() == {}
        assert ends(served, request_id)[0] == "withdrawn"


def test_the_agents_own_key_cannot_approve(served: Served, claude: Claude) -> None:
    asking = claude.asking(claude.new_call("Bash", {"command": "curl -X POST localhost"}))
    (request_id,) = pending(served, claude)
    form = {"ids": request_id, "verdict": "approved"}
    answer = httpx.post(f"{served.url}/ui/approvals/decide/", data=form, headers=claude.headers)
    assert answer.status_code in {302, 403}
    assert asking.waits
    claude.end()
    assert asking.result() == {}
