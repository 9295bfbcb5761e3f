"""A verdict that comes between two questions of a server beside its agent, where policy then allows the call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.actions import approvals
from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_calls import CallAttempt, CallOrigin
from coordinator.models import GatewayCall, PermissionContext, PermissionRequest
from coordinator.models.gateway import CallState
from coordinator.policy.rules.tool_rules import ASK, Ruling
from tests.approvals.factories import NOW, person
from tests.gateway.test_begin import CALLER, binding, server  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db


def ask(call_id: str = "sbx-1") -> tuple[CallAttempt, PermissionRequest]:
    """Ask about a call; return it as it is once a rule has come to allow it, and the request."""
    asked = CallAttempt(call_id, binding(), CALLER, CallOrigin("ses_1"), is_local=True)
    request = gateway_calls.request_agent_local_call_approval(asked, Ruling(ASK, "Asks.", "rule 1"), now=NOW)
    return replace(asked, binding=binding(policy_version="of the rule that allows it")), request


def decide(request: PermissionRequest, verdict: str) -> None:
    approvals.decide_request(request.request_id, person=person(), verdict=verdict, now=NOW)


def begin(allowed: CallAttempt) -> PermissionRequest | None:
    return gateway_calls.begin_local_call_or_return_denial(allowed, now=NOW)


def test_an_approval_is_not_left_for_another_call_once_policy_allows_this_one() -> None:
    allowed, request = ask()
    decide(request, "approved")
    assert begin(allowed) is None
    assert PermissionContext.objects.get().used_by == "ses_1 sbx-1"
    gateway_calls.require_and_end_local_call("sbx-1", key_id=1, agent_id="agent.one", now=NOW)
    other = CallAttempt("sbx-2", binding(), CALLER, CallOrigin("ses_1"), is_local=True)
    refusal = gateway_calls.begin_approved_call_or_return_ruling(other, request.request_id, now=NOW)
    assert refusal is not None
    assert refusal.decision == ASK
    assert [call.pk for call in GatewayCall.objects.all()] == ["sbx-1"]


def test_a_call_that_a_person_denied_is_not_begun_once_though_policy_allows_it() -> None:
    allowed, request = ask()
    decide(request, "denied")
    assert begin(allowed) == request
    assert not GatewayCall.objects.exists()
    assert begin(allowed) is None, "the denial was sent"
    assert GatewayCall.objects.get().state == CallState.RUNNING


def test_a_card_is_closed_unless_another_call_waits_for_it() -> None:
    first, request = ask()
    second, same_request = ask("sbx-2")
    assert same_request == request
    assert begin(first) is None
    assert PermissionRequest.objects.get().status == PermissionRequest.Status.PENDING
    assert begin(second) is None
    assert PermissionRequest.objects.get().status == PermissionRequest.Status.WITHDRAWN
    assert set(GatewayCall.objects.values_list("state", flat=True)) == {CallState.RUNNING}


def test_an_approval_for_one_of_two_calls_is_taken_by_the_first() -> None:
    first, request = ask()
    second, _ = ask("sbx-2")
    decide(request, "approved")
    assert [begin(first), begin(second)] == [None, None]
    assert PermissionContext.objects.get().used_by == "ses_1 sbx-1"


def test_a_verdict_about_other_arguments_is_left() -> None:
    allowed, request = ask()
    decide(request, "approved")
    assert begin(replace(allowed, binding=replace(allowed.binding, arguments_digest="other"))) is None
    assert PermissionContext.objects.get().used_at is None
