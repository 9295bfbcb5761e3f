"""An approved call begins once, as it was approved, and only while nothing that it was judged by has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings

from coordinator.actions import approvals
from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_calls import CallAttempt, CallOrigin, QuestionOutcome
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import key_actor_by_name
from coordinator.mcp.gateway import policy as deciding
from coordinator.mcp.gateway import servers, states
from coordinator.mcp.gateway.binding import (
    CallBinding,
    hash_raw_call_arguments,
    hash_ruling_as_policy_version,
)
from coordinator.mcp.gateway.policy import GatewayCaller
from coordinator.mcp.gateway.states import ContinuationState, WaitState
from coordinator.models import (
    AcceptedOnlyServer,
    AskingGrant,
    AuditLog,
    Brake,
    Budget,
    GatewayCall,
    Grant,
    McpServer,
    McpTool,
    McpUpstream,
    PermissionContext,
    PermissionRequest,
    ToolRule,
    UsageDay,
)
from coordinator.models.gateway import CallState
from coordinator.policy.grants.access import Verdict
from coordinator.policy.limits import brakes
from coordinator.policy.limits import budgets as policy_budgets
from coordinator.policy.requests.approvals import Scope, Validity
from coordinator.policy.rules.tool_rules import ALLOW, ASK, DENY, Ruling
from tests.approvals.factories import NOW, person

pytestmark = pytest.mark.django_db

BY, CALLER, PLACE = (
    key_actor_by_name("agent-key"),
    GatewayCaller("agent.one"),
    CallOrigin("ses_1", "client-1"),
)
RAW = b'{"path": "/a"}'


@pytest.fixture(autouse=True)
def server() -> None:
    McpServer.objects.create(name="files", command="", created_at=NOW, default_policy="opt-out")
    McpUpstream.objects.create(
        server_id="files", url="http://127.0.0.1:9/mcp", private_network=True, changed_at=NOW
    )
    for tool in ("write", "read"):
        McpTool.objects.create(
            server_id="files",
            name=tool,
            definition_hash="d1",
            accepted_hash="d1",
            first_listed_at=NOW,
            listed_at=NOW,
        )
    ToolRule.objects.create(position=1, tool="mcp__files__*", verdict="ask", changed_at=NOW, changed_by="ann")


def judged(tool: str = "write") -> Ruling:
    known = servers.load_upstream_server("files")
    assert known is not None
    return deciding.load_ruling_and_access_verdict(known, tool, CALLER, {"path": "/a"}, NOW)[0]


def binding(**changes: Any) -> CallBinding:
    values: dict[str, Any] = {
        "by": BY,
        "key_id": 1,
        "agent_id": "agent.one",
        "server_id": "files",
        "tool": "write",
        "arguments": {"path": "/a"},
        "arguments_digest": hash_raw_call_arguments(RAW),
        "definition_digest": "d1",
        "policy_version": hash_ruling_as_policy_version(judged()),
    }
    return CallBinding(**values | changes)


def attempt(call_id: str = "sbx-1", **changes: Any) -> CallAttempt:
    return CallAttempt(call_id, binding(**changes), CALLER, PLACE)


def asked(this: CallAttempt | None = None) -> PermissionRequest:
    this = this or attempt()
    return gateway_calls.request_person_approval(
        this.binding, Ruling(ASK, "Asks.", "rule 1"), PLACE, until=None, now=NOW
    )


def approved(this: CallAttempt | None = None) -> PermissionRequest:
    row = asked(this)
    return approvals.decide_request(
        row.request_id,
        person=person(f"ann{row.pk}"),
        verdict="approved",
        validity=Validity.ONCE,
        scope=Scope.CALL,
        now=NOW,
    )


def is_unused(row: PermissionRequest) -> bool:
    return PermissionContext.objects.get(pk=row.request_id).used_at is None


def test_an_approved_call_begins_once() -> None:
    row = approved()
    assert gateway_calls.begin_approved_call_or_return_ruling(attempt(), row.request_id, now=NOW) is None
    assert GatewayCall.objects.get(pk="sbx-1").state == CallState.RUNNING
    for call_id in ("sbx-1", "sbx-2"):
        refusal = gateway_calls.begin_approved_call_or_return_ruling(
            attempt(call_id), row.request_id, now=NOW
        )
        assert refusal is not None
        assert refusal.decision == ASK
    assert GatewayCall.objects.count() == 1


def change_definition() -> None:
    McpTool.objects.update(definition_hash="d2", accepted_hash="d2")


def change_policy() -> None:
    ToolRule.objects.update(pattern="path")


def change_ground() -> None:
    ToolRule.objects.all().delete()
    Grant.objects.create(
        entry_type="server_grant",
        agent_id="agent.one",
        server_id="files",
        permission="deny",
        granted_by="ann",
        granted_at=NOW,
    )
    AskingGrant.objects.create(grant=Grant.objects.get())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_definition, "The tool's definition changed since this was asked."),
        (change_policy, "The policy changed since this was asked."),
        (change_ground, "The policy changed since this was asked."),
    ],
)
def test_a_call_does_not_begin_where_what_it_was_judged_by_has_changed(
    change: Callable[[], None], reason: str
) -> None:
    row, this = approved(), attempt()
    change()
    refusal = gateway_calls.begin_approved_call_or_return_ruling(this, row.request_id, now=NOW)
    assert refusal is not None
    assert (refusal.decision, refusal.reason) == (ASK, reason)
    assert is_unused(row)
    assert not GatewayCall.objects.exists()


def deny_by_rule() -> None:
    ToolRule.objects.update(verdict="deny")


def deny_by_grant() -> None:
    Grant.objects.create(
        entry_type="tool_grant",
        agent_id="agent.one",
        server_id="files",
        tool_name="write",
        permission="deny",
        granted_at=NOW,
    )


def deny_by_budget() -> None:
    Budget.objects.create(
        reach="everything",
        span="day",
        measure="calls",
        amount=3,
        at_limit="hold",
        changed_at=NOW,
        changed_by="ann",
    )
    UsageDay.objects.create(
        day=policy_budgets.installation_local_iso_date(NOW),
        session_id="ses_2",
        model="",
        agent="agent.one",
        calls=3,
        **{f"{kind}_tokens": 0 for kind in ("input", "output", "cache_read", "cache_write")},
    )


def hold_change_back() -> None:
    AcceptedOnlyServer.objects.create(server_id="files")
    McpTool.objects.update(definition_hash="d2", changed_at=NOW)


def switch_off() -> None:
    McpServer.objects.update(is_active=False)


def switch_upstream_off() -> None:
    McpUpstream.objects.update(enabled=False)


def delete_server() -> None:
    McpServer.objects.all().delete()


def remove_tool() -> None:
    McpTool.objects.filter(name="write").update(gone_at=NOW)


def have_a_longer_name() -> None:
    McpTool.objects.filter(name="write").update(name="b__write")
    McpServer.objects.create(name="files__b", command="", created_at=NOW)


def leave_no_address() -> None:
    McpUpstream.objects.all().delete()


@pytest.mark.parametrize(
    "deny",
    [
        deny_by_rule,
        deny_by_grant,
        deny_by_budget,
        hold_change_back,
        switch_off,
        switch_upstream_off,
        delete_server,
        remove_tool,
        leave_no_address,
    ],
)
def test_a_call_does_not_begin_that_policy_denies_by_now(deny: Callable[[], None]) -> None:
    row, this = approved(), attempt()
    deny()
    refusal = gateway_calls.begin_approved_call_or_return_ruling(this, row.request_id, now=NOW)
    assert refusal is not None
    assert refusal.decision == DENY
    assert is_unused(row)
    assert not GatewayCall.objects.exists()
    assert AuditLog.objects.filter(event_type="TOOL_CALL_DENIED").count() == 1


def test_a_tool_whose_name_in_calls_is_another_server_s_is_denied() -> None:
    have_a_longer_name()
    ToolRule.objects.all().delete()
    assert judged("b__write").decision == DENY


def test_a_changed_tool_is_held_back_though_the_grants_in_memory_do_not_know_of_it() -> None:
    AcceptedOnlyServer.objects.create(server_id="files")
    McpTool.objects.update(definition_hash="d2")
    known = servers.load_upstream_server("files")
    assert known is not None
    verdict = Verdict(ALLOW, "server_grant", "files")
    assert (
        deciding.judge_by_rules_and_grants([], verdict, known, "write", caller=CALLER, arguments={}).decision
        == DENY
    )


def test_a_read_is_judged_by_the_server_as_a_whole() -> None:
    ToolRule.objects.all().delete()
    known = servers.load_upstream_server("files")
    assert known is not None

    def read() -> str:
        return deciding.load_ruling_and_access_verdict(
            known, "resources/read", CALLER, {"uri": "x:1"}, NOW, is_read=True
        )[0].decision

    assert read() not in {DENY, ASK}
    McpServer.objects.update(default_policy="opt-in")
    Grant.objects.create(
        entry_type="tool_grant",
        agent_id="agent.one",
        server_id="files",
        tool_name="resources/read",
        permission="allow",
        granted_at=NOW,
    )
    assert read() == DENY
    Grant.objects.create(
        entry_type="server_grant",
        agent_id="agent.one",
        server_id="files",
        permission="allow",
        granted_at=NOW,
    )
    assert read() == ALLOW
    off = servers.UpstreamServer("files", None, "is switched off", is_off=True)
    assert (
        deciding.load_ruling_and_access_verdict(off, "resources/read", CALLER, {}, NOW, is_read=True)[
            0
        ].decision
        == DENY
    )


def test_a_program_s_rule_holds_whatever_program_the_client_says_it_is() -> None:
    ToolRule.objects.update(program="codex", verdict="deny")
    assert judged().decision == DENY
    ToolRule.objects.update(verdict="allow")
    assert judged().decision != ALLOW


def revoke(row: PermissionRequest) -> None:
    approvals.revoke_approval(row.request_id, person=person("bob"), now=NOW)


def deny(row: PermissionRequest) -> None:
    PermissionRequest.objects.filter(pk=row.pk).update(status="denied")


def wait(row: PermissionRequest) -> None:
    PermissionRequest.objects.filter(pk=row.pk).update(status="pending")


@pytest.mark.parametrize("change", [revoke, deny, wait])
def test_a_call_does_not_begin_without_an_approval_in_force(
    change: Callable[[PermissionRequest], None],
) -> None:
    row = approved()
    change(row)
    refusal = gateway_calls.begin_approved_call_or_return_ruling(attempt(), row.request_id, now=NOW)
    assert refusal is not None
    assert refusal.reason == "The approval was used, or has ended."
    assert not GatewayCall.objects.exists()


def test_an_approval_ends_some_time_after_it_was_given() -> None:
    row = approved()
    refusal = gateway_calls.begin_approved_call_or_return_ruling(
        attempt(), row.request_id, now=NOW + timedelta(seconds=settings.HELD_FOR)
    )
    assert refusal is not None
    assert not GatewayCall.objects.exists()


@pytest.mark.parametrize(
    "other",
    [
        {"arguments": {"path": "/b"}, "arguments_digest": hash_raw_call_arguments(b'{"path": "/b"}')},
        {"arguments_digest": hash_raw_call_arguments(b'{"path":  "/a"}')},
        {"tool": "read"},
        {"definition_digest": "d2"},
        {"policy_version": "another"},
    ],
)
def test_an_approval_is_for_no_other_call(other: dict[str, Any]) -> None:
    row = approved()
    refusal = gateway_calls.begin_approved_call_or_return_ruling(attempt(**other), row.request_id, now=NOW)
    assert refusal is not None
    assert is_unused(row)
    assert attempt(**other).binding.approval_question_digest != binding().approval_question_digest


def test_names_that_calls_cannot_tell_apart_are_bound_apart() -> None:
    assert binding(tool="a.b").tool_name == binding(tool="a_b").tool_name
    assert binding(tool="a.b").approval_question_digest != binding(tool="a_b").approval_question_digest
    assert (
        binding(server_id="my files").approval_question_digest
        != binding(server_id="my_files").approval_question_digest
    )


@pytest.mark.parametrize("other", [{"by": key_actor_by_name("other-key")}, {"agent_id": "agent.two"}])
def test_a_question_is_its_asker_s(other: dict[str, Any]) -> None:
    assert attempt(**other).binding.approval_question_digest != binding().approval_question_digest
    row = approved()
    joined = asked(attempt(**other))
    assert joined.request_id != row.request_id


@pytest.mark.parametrize("state", [CallState.RUNNING, CallState.DONE, CallState.CANCELLED, CallState.LOST])
def test_an_id_that_is_taken_begins_nothing(state: CallState) -> None:
    row = approved()
    gateway_calls.create_call_task(attempt(), row.request_id, b"{}", now=NOW)
    GatewayCall.objects.update(state=state)
    assert gateway_calls.begin_approved_call_or_return_ruling(attempt(), row.request_id, now=NOW) is not None
    assert is_unused(row)


@pytest.mark.parametrize("other", [{"key_id": 2}, {"agent_id": "agent.two"}])
def test_a_waiting_call_of_another_caller_is_not_begun(other: dict[str, Any]) -> None:
    row = approved()
    gateway_calls.create_call_task(attempt(), row.request_id, b"{}", now=NOW)
    GatewayCall.objects.update(**other)
    assert gateway_calls.begin_approved_call_or_return_ruling(attempt(), row.request_id, now=NOW) is not None
    assert is_unused(row)


def test_a_call_that_is_allowed_by_now_uses_its_approval_up() -> None:
    this = attempt()
    row = approved(this)
    ToolRule.objects.all().delete()
    assert gateway_calls.begin_approved_call_or_return_ruling(this, row.request_id, now=NOW) is None
    assert not is_unused(row)


def test_a_call_that_was_not_sent_gives_its_approval_back() -> None:
    row = approved()
    assert gateway_calls.begin_approved_call_or_return_ruling(attempt(), row.request_id, now=NOW) is None
    gateway_calls.undo_call_start("sbx-1", now=NOW)
    assert is_unused(row)
    gateway_calls.undo_call_start("sbx-1", now=NOW)
    assert (
        gateway_calls.begin_approved_call_or_return_ruling(attempt("sbx-2"), row.request_id, now=NOW) is None
    )
    gateway_calls.end_gateway_call("sbx-2", b"{}", now=NOW)
    gateway_calls.undo_call_start("sbx-2", now=NOW)
    assert not is_unused(row), "it has run"


# --- calls that go on -----------------------------------------------------------------------------------


def going_on() -> CallAttempt:
    this = attempt()
    row = approved(this)
    assert gateway_calls.begin_approved_call_or_return_ruling(this, row.request_id, now=NOW) is None
    gateway_calls.end_gateway_call(this.call_id, b'{"id":1}', asks_for_input=True, now=NOW)
    return this


def test_a_call_goes_on_once_for_each_question() -> None:
    this = going_on()
    assert gateway_calls.resume_call_or_return_denial(this, 0, now=NOW) is None
    refusal = gateway_calls.resume_call_or_return_denial(this, 0, now=NOW)
    assert refusal is not None
    assert GatewayCall.objects.get().rounds == 1


@pytest.mark.parametrize(
    ("change", "decision"),
    [
        (change_definition, ASK),
        (change_policy, ASK),
        (deny_by_rule, DENY),
        (deny_by_budget, DENY),
        (switch_off, DENY),
    ],
)
def test_a_call_does_not_go_on_where_what_it_was_judged_by_has_changed(
    change: Callable[[], None], decision: str
) -> None:
    this = going_on()
    change()
    refusal = gateway_calls.resume_call_or_return_denial(this, 0, now=NOW)
    assert refusal is not None
    assert refusal.decision == decision
    assert GatewayCall.objects.get().rounds == 0


@pytest.mark.parametrize(
    "other",
    [
        {"key_id": 2},
        {"agent_id": "agent.two"},
        {"tool": "read"},
        {"arguments_digest": hash_raw_call_arguments(b"{}")},
    ],
)
def test_another_call_does_not_go_on_in_its_place(other: dict[str, Any]) -> None:
    this = going_on()
    assert (
        gateway_calls.resume_call_or_return_denial(
            replace(this, binding=replace(this.binding, **other)), 0, now=NOW
        )
        is not None
    )
    assert GatewayCall.objects.get().rounds == 0


# --- states that clients carry ---------------------------------------------------------------------------


def test_a_state_is_of_its_own_call_alone() -> None:
    row = asked()
    waiting = WaitState("sbx-1", row.request_id, binding().approval_question_digest, time.time() + 60, 0)
    assert gateway_calls.is_call_state_current(binding(), waiting)
    assert not gateway_calls.is_call_state_current(
        binding(arguments_digest=hash_raw_call_arguments(b"{}")), waiting
    )
    assert not gateway_calls.is_call_state_current(binding(), replace(waiting, request_id="req_none"))
    GatewayCall.objects.create(
        call_id="sbx-1", key_id=1, agent_id="agent.one", state=CallState.DONE, created_at=NOW, expires_at=NOW,
        delivered_at=NOW,
    )  # fmt: skip
    assert not gateway_calls.is_call_state_current(binding(), waiting)


def test_a_state_that_goes_on_is_of_its_call_and_round() -> None:
    this = going_on()
    state = ContinuationState(this.call_id, this.binding.approval_question_digest, time.time() + 60, 0, None)
    assert gateway_calls.is_call_state_current(this.binding, state)
    assert not gateway_calls.is_call_state_current(this.binding, replace(state, round=1))
    assert not gateway_calls.is_call_state_current(replace(this.binding, key_id=2), state)


def test_states_are_sealed_and_end() -> None:
    state = WaitState("sbx-1", "req_1", "k", time.time() + 60, 0)
    packed = states.seal_call_state(state)
    assert states.unseal_call_state_or_none(packed) == state
    assert states.unseal_call_state_or_none(packed[:-2]) is None
    assert states.unseal_call_state_or_none(packed.removeprefix(states.PREFIX)) is None
    assert (
        states.unseal_call_state_or_none(states.seal_call_state(replace(state, until=time.time() - 1)))
        is None
    )


def test_a_question_is_settled_by_its_own_call_alone() -> None:
    row, this = asked(), attempt()
    settled, _ = gateway_calls.close_request_allowed_by_policy(this, row.request_id, "another key", now=NOW)
    assert settled is QuestionOutcome.ANOTHER
    other = attempt(arguments_digest=hash_raw_call_arguments(b"{}"))
    assert (
        gateway_calls.close_request_allowed_by_policy(
            other, row.request_id, this.binding.approval_question_digest, now=NOW
        )[0]
        is QuestionOutcome.ANOTHER
    )
    assert PermissionRequest.objects.get().status == "pending"
    assert (
        gateway_calls.close_request_allowed_by_policy(
            this, row.request_id, this.binding.approval_question_digest, now=NOW
        )[0]
        is QuestionOutcome.CLOSED
    )


def test_a_person_s_no_is_told_once_where_policy_allows_by_now() -> None:
    row, this = asked(), attempt()
    approvals.decide_request(row.request_id, person=person(), verdict="denied", now=NOW)
    settled = [
        gateway_calls.close_request_allowed_by_policy(
            this, row.request_id, this.binding.approval_question_digest, now=NOW
        )[0]
        for _ in range(2)
    ]
    assert settled == [QuestionOutcome.DENIED, QuestionOutcome.OVER]


# --- whose calls are whose -------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [{"key_id": 2}, {"agent_id": "agent.two"}])
def test_a_task_is_its_caller_s(other: dict[str, Any]) -> None:
    gateway_calls.create_call_task(attempt(), asked().request_id, b"{}", now=NOW)
    own = {"key_id": 1, "agent_id": "agent.one"}
    assert gateway_calls.require_call_task_marking_lost("sbx-1", **own, now=NOW).pk == "sbx-1"
    with pytest.raises(NotFound):
        gateway_calls.require_call_task_marking_lost("sbx-1", **own | other, now=NOW)


@pytest.mark.parametrize("other", [{"key_id": 2}, {"agent_id": "agent.two"}])
def test_a_call_beside_its_agent_is_its_caller_s(other: dict[str, Any]) -> None:
    this = CallAttempt("sbx-1", binding(), CALLER, CallOrigin("ses_1"), is_local=True)
    gateway_calls.begin_local_call_or_return_denial(this, now=NOW)
    own = {"key_id": 1, "agent_id": "agent.one"}
    with pytest.raises(NotFound):
        gateway_calls.require_and_end_local_call("sbx-1", **own | other, now=NOW)
    assert gateway_calls.cancel_local_call_before_start("sbx-1", BY, **own | other, now=NOW) is None
    assert GatewayCall.objects.get().state == CallState.RUNNING
    gateway_calls.require_and_end_local_call("sbx-1", **own, now=NOW)
    with pytest.raises(Conflict):
        gateway_calls.require_and_end_local_call("sbx-1", **own, now=NOW)


@pytest.mark.parametrize("other", [{"key_id": 2}, {"agent_id": "agent.two"}])
def test_an_approval_begins_no_waiting_call_of_another_beside(other: dict[str, Any]) -> None:
    this = CallAttempt("sbx-1", binding(), CALLER, CallOrigin("ses_1"), is_local=True)
    row = gateway_calls.request_agent_local_call_approval(this, Ruling(ASK, "Asks.", "rule 1"), now=NOW)
    approvals.decide_request(row.request_id, person=person(), verdict="approved", now=NOW)
    GatewayCall.objects.update(**other)
    assert gateway_calls.begin_approved_call_or_return_ruling(this, row.request_id, now=NOW) is not None


def test_an_id_beside_an_agent_is_one_call_s() -> None:
    this = CallAttempt("sbx-1", binding(), CALLER, CallOrigin("ses_1"), is_local=True)
    gateway_calls.begin_local_call_or_return_denial(this, now=NOW)
    gateway_calls.begin_local_call_or_return_denial(this, now=NOW)
    other = replace(this, binding=binding(arguments_digest=hash_raw_call_arguments(b"{}")))
    with pytest.raises(Conflict):
        gateway_calls.begin_local_call_or_return_denial(other, now=NOW)


def test_a_cancelled_call_is_not_asked_about_again() -> None:
    this = CallAttempt("sbx-1", binding(), CALLER, CallOrigin("ses_1"), is_local=True)
    own = {"key_id": 1, "agent_id": "agent.one"}
    assert gateway_calls.cancel_local_call_before_start("sbx-1", BY, **own, now=NOW) is None
    with pytest.raises(gateway_calls.CallCancelled):
        gateway_calls.request_agent_local_call_approval(this, Ruling(ASK, "Asks.", "rule 1"), now=NOW)
    with pytest.raises(gateway_calls.CallCancelled):
        gateway_calls.raise_if_call_cancelled("sbx-1")


def test_the_same_call_is_not_asked_about_while_it_runs() -> None:
    row = approved()
    assert gateway_calls.begin_approved_call_or_return_ruling(attempt(), row.request_id, now=NOW) is None
    asked_again = gateway_calls.request_approval_unless_call_begun(
        binding(), Ruling(ASK, "Asks.", "rule 1"), PLACE, until=None, now=NOW
    )
    assert asked_again is None


def test_a_result_is_told_by_one_line() -> None:
    this = attempt()
    assert gateway_calls.begin_approved_call_or_return_ruling(this, approved().request_id, now=NOW) is None
    gateway_calls.end_gateway_call(this.call_id, b"{}", now=NOW)
    assert [gateway_calls.try_claim_call_result(this.call_id, now=NOW) for _ in range(2)] == [True, False]


@pytest.mark.parametrize(
    ("reach", "name", "is_held"),
    [
        ("everything", "", True),
        ("agent", "agent.one", True),
        ("agent", "codex", True),
        ("agent", "agent.two", False),
    ],
)
def test_a_brake_holds_an_agent_by_every_name(reach: str, name: str, is_held: bool) -> None:
    brake = Brake.objects.create(reach=reach, name=name, reason="Odd.", set_at=NOW, set_by="user:ann")
    assert (brakes.find_brake_on_agent("agent.one", ["claude-code", "codex"]) is not None) == is_held
    Brake.objects.filter(pk=brake.pk).update(released_at=NOW)
    assert brakes.find_brake_on_agent("agent.one", ["claude-code", "codex"]) is None
