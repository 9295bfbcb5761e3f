"""A verdict that comes between two questions of a server beside its agent, where policy then allows the call."""

from __future__ import annotations

import pytest

from coordinator.actions import approvals
from coordinator.actions.mcp import gateway_calls
from coordinator.actions.mcp.gateway_calls import CallAttempt, CallOrigin
from coordinator.models import GatewayCall
from coordinator.policy.rules.tool_rules import ASK, Ruling
from tests.approvals.factories import NOW, person
from tests.gateway.test_begin import CALLER, binding, server  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db


def verdict_between_two_questions(verdict: str) -> tuple[CallAttempt, str]:
    """Return a call that was asked about and decided, and that a rule has come to allow since."""
    this = CallAttempt("sbx-1", binding(), CALLER, CallOrigin("ses_1"), is_local=True)
    row = gateway_calls.request_agent_local_call_approval(this, Ruling(ASK, "Asks.", "rule 1"), now=NOW)
    approvals.decide_request(row.request_id, person=person(), verdict=verdict, now=NOW)
    return this, row.request_id


def test_an_approval_is_not_left_for_another_call_once_policy_allows_this_one() -> None:
    this, request_id = verdict_between_two_questions("approved")
    gateway_calls.begin_local_call(this, now=NOW)  # the rule allows it by now
    gateway_calls.require_and_end_local_call("sbx-1", key_id=1, agent_id="agent.one", now=NOW)
    other = CallAttempt("sbx-2", this.binding, CALLER, CallOrigin("ses_1"), is_local=True)
    begun = gateway_calls.begin_approved_call_or_return_ruling(other, request_id, now=NOW)
    assert begun is not None, "one approval, two calls"
    assert GatewayCall.objects.count() == 1
