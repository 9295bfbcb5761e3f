"""Whose a session, a runner and a request is: no key reaches into another's, nor learns that it is there."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.agents import runners
from coordinator.actions.sessions import tool_calls, writers
from coordinator.actions.sessions.events import record_events
from coordinator.actions.sessions.reported_sessions import (
    find_or_create_reported_session,
    find_or_create_telemetry_session,
    find_session_id_by_executor_id,
    reopen_or_create_session,
)
from coordinator.errors import Forbidden, NotFound
from coordinator.identity import ownership
from coordinator.identity.actors import key_actor_by_name as key_actor
from coordinator.identity.keys import LOCAL_PROGRAM, KeyIdentity
from coordinator.models import DrivenSession, Event, PermissionRequest, Run, Runner, Session, SessionWriter
from coordinator.policy.requests.approvals import PermissionSubject, Scope, Validity
from coordinator.policy.requests.tool_calls import ToolCallRequest
from coordinator.sessions.events import DedupedEvent
from coordinator.sessions.reports import SessionLocation
from tests.guards.callers import key, with_key
from tests.people import person

pytestmark = pytest.mark.django_db

NOBODY = '{"detail":"Session not found"}'


def caller(name: str, *scopes: str, agent_id: str | None = None) -> KeyIdentity:
    return KeyIdentity(0, name, frozenset(scopes), agent_id)


ANNA = caller("anna", "agent", agent_id="agent.anna")
BERT = caller("bert", "agent", agent_id="agent.bert")


@pytest.fixture
def session() -> Session:
    """A session of agent.anna's that nobody in particular made."""
    return Session.objects.create(
        session_id="ses_anna", status="running", created_at=timezone.now(), agent_name="agent.anna"
    )


def client(name: str, *scopes: str, agent_id: str | None = None) -> Client:
    return with_key(key(name, *scopes, agent_id=agent_id))


def send(client: Client, method: str, path: str, body: Any = None) -> tuple[int, str]:
    answer = client.generic(method, path, json.dumps(body or {}), "application/json")
    return answer.status_code, answer.content.decode()


def test_a_bound_agent_writes_into_its_agents_sessions_and_into_those_it_made(session: Session) -> None:
    Session.objects.create(session_id="ses_made", status="running", created_at=timezone.now())
    writers.record_session_creator_key("ses_made", key_actor("bert"))
    assert set(ownership.find_session_write_refusals(ANNA, ["ses_anna", "ses_made", "ses_none"])) == {
        "ses_made",
        "ses_none",
    }
    assert set(ownership.find_session_write_refusals(BERT, ["ses_anna", "ses_made", "ses_none"])) == {
        "ses_anna",
        "ses_none",
    }


def test_another_agents_session_is_refused_in_the_words_of_an_unknown_one(session: Session) -> None:
    for unknown in ("ses_anna", "ses_none"):
        with pytest.raises(NotFound, match=r"^Session not found$"):
            ownership.require_session_write_access(BERT, unknown)


def test_agents_without_a_name_and_operators_write_everywhere(session: Session) -> None:
    for anybody in (caller("x", "agent"), caller("x", "operator"), LOCAL_PROGRAM):
        assert ownership.find_session_write_refusals(anybody, ["ses_anna"]) == {}


@pytest.mark.parametrize("what", ["", "/result", "/affinity", "/events"])
def test_a_bound_agent_reads_its_own_sessions_alone(session: Session, what: str) -> None:
    bert, anna = (
        client("bert", "agent", agent_id="agent.bert"),
        client("anna", "agent", agent_id="agent.anna"),
    )
    assert send(bert, "GET", f"/sessions/ses_anna{what}") == (404, NOBODY)
    assert send(bert, "GET", f"/sessions/ses_none{what}") == (404, NOBODY)
    assert send(anna, "GET", f"/sessions/ses_anna{what}")[0] in {200, 400}


def test_lists_and_the_status_word_leak_no_session_of_others(session: Session) -> None:
    Run.objects.create(
        run_id="run_a", session=session, type="start_session", prompt="x", created_at=timezone.now()
    )
    bert, anna = (
        client("bert", "agent", agent_id="agent.bert"),
        client("anna", "agent", agent_id="agent.anna"),
    )
    told = [send(bert, "GET", path)[1] for path in ("/sessions", "/runs", "/sessions/ses_anna/status")]
    assert told == ['{"sessions":[]}', '{"runs":[]}', '{"status":"not_existent"}']
    assert send(bert, "GET", "/runs/run_a") == send(bert, "GET", "/runs/run_none")
    for cursor in ("/sessions?cursor=ses_anna", "/runs?cursor=run_a"):
        assert send(bert, "GET", cursor)[0] == 400
    assert "ses_anna" in send(anna, "GET", "/sessions")[1]
    assert "run_a" in send(anna, "GET", "/runs")[1]


def test_an_agents_key_with_the_scope_read_reads_all(session: Session) -> None:
    assert send(client("b", "agent", "read", agent_id="agent.bert"), "GET", "/sessions/ses_anna")[0] == 200


def test_a_hook_with_another_agents_session_id_gets_a_session_of_its_own() -> None:
    now = timezone.now()
    annas = find_or_create_reported_session(
        "claude-1", SessionLocation(agent_name="agent.anna", by=ANNA), now
    ).session_id
    later = now + timedelta(seconds=1)
    berts = find_or_create_reported_session(
        "claude-1", SessionLocation(agent_name="agent.bert", by=BERT), later
    ).session_id
    assert annas != berts
    assert find_or_create_reported_session("claude-1", SessionLocation(by=ANNA), now).session_id == annas
    assert find_or_create_reported_session("claude-1", SessionLocation(by=BERT), now).session_id == berts
    assert (
        find_or_create_reported_session(
            "claude-1", SessionLocation(by=caller("any", "agent")), now
        ).session_id
        == annas
    )


@pytest.fixture
def driven(session: Session) -> Session:
    """ses_anna, in which a runner drives the agent that calls itself claude-1."""
    now = timezone.now()
    run = {"type": "start_session", "status": "running", "prompt": "x", "created_at": now, "started_at": now}
    Run.objects.create(run_id="run_a", session=session, **run)
    DrivenSession.objects.create(session=session, runner_id="r", run_id="run_a")
    return session


@pytest.mark.parametrize(
    "named",  # the agent's own id, the header, and what the runner has said of the agent's own id
    [("anything", "ses_anna", None), ("claude-1", None, "claude-1"), ("claude-1", "ses_anna", "claude-1")],
)
@pytest.mark.parametrize(
    ("by", "is_let_in"),
    [
        (ANNA, True),
        (BERT, False),
        (caller("unbound", "agent"), True),
        (caller("o", "operator"), True),
        (caller("other-runner", "runner"), True),  # no runner has taken it
        (caller("bert-and-reads", "agent", "read", agent_id="agent.bert"), False),
    ],
)
def test_a_driven_session_is_found_by_keys_that_may_write_into_it(
    driven: Session, by: KeyIdentity, is_let_in: bool, named: tuple[str, str | None, str | None]
) -> None:
    executor_id, header, agents_own_id = named
    DrivenSession.objects.update(agent_session_id=agents_own_id)
    where = SessionLocation(agent_name=by.agent_id, by=by, driven=header)
    now = timezone.now()
    for find in (find_or_create_reported_session, reopen_or_create_session):
        assert (find(executor_id, where, now).session_id == driven.pk) is is_let_in
    observed = find_or_create_telemetry_session(executor_id, where, now, now, now)
    assert (observed.session_id == driven.pk, observed.driven) == (is_let_in, is_let_in)


def test_a_runner_whose_session_another_has_taken_finds_it_neither(driven: Session) -> None:
    SessionWriter.objects.create(session_id=driven.pk, writer="one", is_runner=True)
    now = timezone.now()
    for name, is_let_in in (("one", True), ("two", False)):
        where = SessionLocation(by=caller(name, "runner"), driven=driven.pk)
        assert (find_or_create_reported_session("anything", where, now).session_id == driven.pk) is is_let_in


def test_two_driven_agents_with_one_id_are_each_their_own(driven: Session) -> None:
    now = timezone.now()
    berts = Session.objects.create(
        session_id="ses_0", status="running", created_at=now, agent_name="agent.bert"
    )
    run = {"type": "start_session", "status": "running", "prompt": "x", "created_at": now, "started_at": now}
    Run.objects.create(run_id="run_0", session=berts, **run)
    DrivenSession.objects.create(session=berts, runner_id="r", run_id="run_0")
    DrivenSession.objects.update(agent_session_id="claude-1")
    for by, session_id in ((ANNA, "ses_anna"), (BERT, "ses_0")):
        assert (
            find_or_create_reported_session("claude-1", SessionLocation(by=by), now).session_id == session_id
        )


def test_telemetry_of_known_sessions_knows_the_keys_own_alone(driven: Session) -> None:
    Session.objects.update(executor_session_id="claude-1")
    assert find_session_id_by_executor_id("claude-1", ANNA) == driven.pk
    assert find_session_id_by_executor_id("claude-1", BERT) is None


def test_nobody_claims_what_is_told_in_a_session_of_others() -> None:
    """A forged twin of a tool's result, told first in a session of one's own, does not silence the true one."""
    now = timezone.now()
    told = {"event_type": "post_tool", "timestamp": now.isoformat(), "origin": "result of call 7"}
    for session_id in ("ses_a", "ses_b"):
        Session.objects.create(session_id=session_id, status="running", created_at=now)
        record_events(
            [DedupedEvent(session_id=session_id, **told), DedupedEvent(session_id=session_id, **told)], now
        )
    assert sorted(Event.objects.values_list("session_id", flat=True)) == ["ses_a", "ses_b"]


def test_a_bound_key_gives_no_session_the_executors_id_of_another(session: Session) -> None:
    Session.objects.filter(pk="ses_anna").update(executor_session_id="claude-1")
    Session.objects.create(
        session_id="ses_bert", status="running", created_at=timezone.now(), agent_name="agent.bert"
    )
    place = {"hostname": "h", "executor_profile": "p"}

    def named(by: Client, executor_id: str) -> list[int]:
        body = {"executor_session_id": executor_id}
        return [
            send(by, "POST", "/sessions/ses_bert/bind", body | place)[0],
            send(by, "PATCH", "/sessions/ses_bert/metadata", body)[0],
        ]

    bert = client("bert", "agent", "runner", agent_id="agent.bert")
    assert named(bert, "claude-1") == [409, 409]
    assert Session.objects.get(pk="ses_bert").executor_session_id is None
    assert named(bert, "claude-2") == named(bert, "claude-2") == [200, 200]
    assert named(client("two", "runner"), "claude-1") == [200, 200]


def test_a_session_made_for_claudes_id_comes_before_an_older_one_that_was_given_it() -> None:
    now = timezone.now()
    Session.objects.create(
        session_id="ses_bert", status="running", created_at=now - timedelta(days=1), agent_name="agent.bert"
    )
    annas = find_or_create_reported_session(
        "claude-1", SessionLocation(agent_name="agent.anna", by=ANNA), now
    ).session_id
    Session.objects.filter(pk="ses_bert").update(executor_session_id="claude-1")
    assert (
        find_or_create_reported_session(
            "claude-1", SessionLocation(by=caller("any", "agent")), now
        ).session_id
        == annas
    )
    assert find_session_id_by_executor_id("claude-1") == annas


@pytest.fixture
def taken(session: Session) -> Run:
    """A run of ses_anna that a runner of the key `one` has taken."""
    run = Run.objects.create(
        run_id="run_a",
        session=session,
        type="start_session",
        prompt="x",
        created_at=timezone.now(),
        status="pending",
    )
    register("one")
    runners.claim_next_runner_work(Runner.objects.get().pk, timezone.now(), key=caller("one", "runner"))
    run.refresh_from_db()
    assert run.status == "claimed"
    return run


def register(name: str) -> str:
    """Register the runner with a key of that name and return its id."""
    registration = runners.RunnerRegistration("host", "/x", "p")
    return runners.register_runner_and_recover_runs(
        registration, timezone.now(), key=caller(name, "runner")
    ).pk


def test_only_the_key_that_a_runner_registered_with_speaks_for_it(taken: Run) -> None:
    other = client("two", "runner")
    report = {"runner_id": taken.runner_id}
    doors = [
        ("POST", "/runner/heartbeat"),
        ("POST", "/runner/runs/run_a/started"),
        ("POST", "/runner/runs/run_a/completed"),
        ("POST", "/runner/runs/run_a/failed"),
        ("POST", "/runner/runs/run_a/stopped"),
        ("DELETE", f"/runners/{taken.runner_id}?self=true"),
        ("DELETE", f"/runners/{taken.runner_id}"),
    ]
    assert {send(other, *door, report)[0] for door in doors} == {403}
    with pytest.raises(Forbidden):
        runners.claim_next_runner_work(str(taken.runner_id), timezone.now(), key=caller("two", "runner"))
    taken.refresh_from_db()
    assert (taken.status, Runner.objects.count()) == ("claimed", 1)


def test_a_runner_that_registered_before_keys_were_noted_belongs_to_the_first_that_speaks_for_it() -> None:
    register("one")
    Runner.objects.update(registered_by=None)
    runners.record_runner_heartbeat(Runner.objects.get().pk, timezone.now(), key=caller("two", "runner"))
    assert Runner.objects.get().registered_by == "two"


def test_without_keys_no_runner_is_bound_to_one() -> None:
    runners.register_runner_and_recover_runs(
        runners.RunnerRegistration("h", "/", "p"), timezone.now(), key=LOCAL_PROGRAM
    )
    assert Runner.objects.get().registered_by is None


def test_another_runners_key_may_not_touch_a_session_that_was_taken(taken: Run) -> None:
    two = client("two", "runner")
    bound = {"executor_session_id": "e", "hostname": "h", "executor_profile": "p"}
    order = {"type": "start_session", "prompt": "x", "parent_session_id": "ses_anna"}
    tries = [
        ("POST", "/sessions/ses_anna/bind", bound),
        ("PATCH", "/sessions/ses_anna/metadata", {"agent_name": "agent.bert"}),
        ("POST", "/sessions/ses_anna/stop", {}),
        ("DELETE", "/sessions/ses_anna", {}),
        ("POST", "/runs/run_a/stop", {}),
        ("POST", "/runs", {"type": "resume_session", "session_id": "ses_anna", "prompt": "leave"}),
        ("POST", "/runs", {"type": "start_session", "parameters": {"prompt": "x", "fork_of": "ses_anna"}}),
        ("POST", "/runs", {**order, "execution_mode": "async_callback"}),
    ]
    assert [send(two, *one)[0] for one in tries] == [403] * len(tries)
    assert ownership.find_session_write_refusals(caller("two", "runner"), ["ses_anna"]).keys() == {"ses_anna"}
    assert (Session.objects.count(), Run.objects.count()) == (1, 1)


def test_its_own_runners_key_and_the_key_that_ordered_it_may(taken: Run) -> None:
    assert ownership.find_session_write_refusals(caller("one", "runner"), ["ses_anna"]) == {}
    two = client("two", "runner")
    status, made = send(two, "POST", "/runs", {"type": "start_session", "prompt": "child"})
    assert status == 201
    assert SessionWriter.objects.get(session_id=json.loads(made)["session_id"]).writer == "two"
    SessionWriter.objects.create(session_id=json.loads(made)["session_id"], writer="one", is_runner=True)
    assert send(two, "POST", f"/sessions/{json.loads(made)['session_id']}/stop")[0] == 200


def test_a_session_that_no_runner_has_taken_is_open_to_runners(session: Session) -> None:
    assert ownership.find_session_write_refusals(caller("two", "runner"), ["ses_anna"]) == {}


def asked(by: str, **more: Any) -> PermissionRequest:
    subject = PermissionSubject("mind.x", "FileWrite", more.pop("target", "/etc/hosts"))
    ask = approvals.NewPermissionRequest(subject, "because", **more)
    return approvals.request_permission(ask, actor=key_actor(by), now=timezone.now()).request


API = "/api/permission-requests"


def test_a_request_is_there_for_who_asked_for_its_agent_and_for_readers() -> None:
    row = asked("one", agent_id="agent.anna")
    here = f"{API}/{row.request_id}"
    seeing = [
        client("one", "runner"),
        client("a", "agent", agent_id="agent.anna"),
        client("r", "read"),
        client("o", "operator"),
    ]
    blind = [client("x", "agent"), client("y", "runner"), client("b", "agent", agent_id="agent.bert")]
    for what in ("", "/wait?timeout=0"):
        assert [send(one, "GET", here + what)[0] for one in seeing] == [200] * 4
        assert {send(one, "GET", here + what) for one in blind} == {send(blind[0], "GET", f"{API}/req_none")}
    assert {send(one, "DELETE", here)[0] for one in blind} == {404}
    assert send(seeing[1], "DELETE", here)[0] == 403
    assert send(seeing[2], "DELETE", here)[0] == 403
    row.refresh_from_db()
    assert row.status == "pending"


def test_who_is_answered_with_an_approval_in_force_may_look_at_it() -> None:
    for_anna, for_bert = (asked("one", agent_id=name) for name in ("agent.anna", "agent.bert"))
    for_its_key = asked("one", target="/etc/passwd")
    approver = person("approver")
    lasting = {"validity": Validity.UNTIL_REVOKED, "scope": Scope.EVERYWHERE}
    for one in (for_anna, for_bert, for_its_key):
        approvals.decide_request(one.request_id, person=approver, verdict="approved", **lasting)
    bert = client("bert", "agent", agent_id="agent.bert")
    assert send(bert, "GET", f"{API}/{for_bert.request_id}")[0] == 200
    assert send(bert, "GET", f"{API}/{for_anna.request_id}")[0] == 404
    assert send(bert, "GET", f"{API}/{for_its_key.request_id}")[0] == 404


ASK = {"plugin_id": "mind.x", "permission_type": "FileWrite", "justification": "because"}


def test_no_card_is_opened_in_anothers_session_nor_at_an_event_of_another(session: Session) -> None:
    Session.objects.create(
        session_id="ses_bert", status="running", created_at=timezone.now(), agent_name="agent.bert"
    )
    event = Event.objects.create(session_id="ses_anna", event_type="pre_tool", timestamp="t")
    bert = client("bert", "agent", agent_id="agent.bert")
    tries = [
        ({"session_id": "ses_anna"}, 404),
        ({"session_id": "ses_bert", "event_id": event.pk}, 400),
        ({"session_id": "ses_bert"}, 201),
        ({"session_id": "ses_none"}, 201),
    ]
    assert [send(bert, "POST", API, ASK | named)[0] for named, _ in tries] == [code for _, code in tries]
    here = {"session_id": "ses_anna", "event_id": event.pk}
    assert send(client("anna", "agent", agent_id="agent.anna"), "POST", API, ASK | here)[0] == 201


@pytest.mark.parametrize(
    ("tool", "tool_input", "answered"),
    [
        ("Bash", {"command": "ls"}, False),  # it was edited: what was asked for is not approved
        ("Bash", {"command": "ls -a"}, True),
        ("Bash", {"command": "rm -rf /"}, False),
        ("Bash", None, False),
        ("Write", {"command": "ls"}, False),
    ],
)
def test_a_verdict_on_a_call_answers_for_what_was_judged_alone(
    session: Session, tool: str, tool_input: dict[str, Any] | None, answered: bool
) -> None:
    """A card may name any call's id, whatever it shows."""
    subject = PermissionSubject("claude-code", tool_calls.PERMISSION, None, "Bash", {"command": "ls"})
    ask = approvals.NewPermissionRequest(
        subject, "because", metadata={"tool_use_id": "toolu_1"}, session_id=session.pk
    )
    row = approvals.request_permission(ask, actor=key_actor("anna")).request
    edit = tool_calls.ApprovalAdditions("ls -a", "command")
    tool_calls.decide_call_with_additions(
        row.request_id, person=person("approver"), verdict="approved", additions=edit
    )
    asks = ToolCallRequest(
        "PermissionRequest", session.pk, None, 0, tool, tool_input, "", "claude-code", True, call_id="toolu_1"
    )
    settled = tool_calls.consume_earlier_answer_to_call(asks, timezone.now(), actor=key_actor("anna"))
    assert (settled is not None and settled["status"] == "approved") is answered


@pytest.mark.parametrize("lie", ["folder", "host", "agent_id", "no host", None])
def test_a_verdict_on_a_call_answers_for_where_it_was_said_to_run_alone(
    session: Session, lie: str | None
) -> None:
    """Who may decide can depend on it, and whoever asks by the hook's names says it."""
    place: dict[str, Any] = {"agent_id": "agent.anna", "folder": "/srv/app", "host": "production"}
    told = place | ({"host": None} if lie == "no host" else {lie: "agent.bert"} if lie else {})
    subject = PermissionSubject("claude-code", tool_calls.PERMISSION, None, "Bash", {"command": "ls"})
    ask = approvals.NewPermissionRequest(
        subject, "because", metadata={"tool_use_id": "toolu_1"}, session_id=session.pk, **told
    )
    row = approvals.request_permission(ask, actor=key_actor("anna")).request
    approvals.decide_request(row.request_id, person=person("approver"), verdict="approved")
    asks = ToolCallRequest(
        "PermissionRequest", session.pk, place["agent_id"], 0, "Bash", {"command": "ls"}, "", "claude-code", True,
        call_id="toolu_1", folder=place["folder"], host=place["host"],
    )  # fmt: skip
    settled = tool_calls.consume_earlier_answer_to_call(asks, timezone.now(), actor=key_actor("anna"))
    assert (settled is not None and settled["status"] == "approved") is (lie is None)
