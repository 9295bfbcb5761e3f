"""A call that a rule denies is denied at `POST /api/permission-requests` as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.http import HttpResponse

from coordinator.actions import approvals
from coordinator.models import AuditLog, PermissionRequest, ToolRule
from coordinator.policy.requests.approvals import Scope, Validity
from tests.approvals.conftest import call  # noqa: F401 - a fixture
from tests.approvals.factories import person

pytestmark = pytest.mark.django_db
Call = Callable[..., HttpResponse]
URL = "/api/permission-requests"
PUSH = {
    "plugin_id": "codex",
    "permission_type": "tool",
    "justification": "To publish",
    "tool_name": "Bash",
    "tool_input": {"command": 'g"i"t push'},
}


@pytest.fixture(name="rule")
def add_rule() -> ToolRule:
    return ToolRule.objects.create(
        position=1, tool="*", verdict="deny", runs="git push", reason="Not from here", changed_by="a",
        changed_at="2026-01-01T00:00:00Z"
    )  # fmt: skip


def ask(call: Call, **changes: Any) -> Any:  # noqa: F811
    return call("post", URL, PUSH | changes)


def test_a_denied_call_waits_for_nobody(call: Call, rule: ToolRule) -> None:  # noqa: F811
    answer = ask(call)
    told = answer.json()
    assert answer.status_code == 201
    assert (told["status"], told["allowed"], told["reason"], told["approved_by"]) == (
        "denied", False, "Not from here", "rule 1",
    )  # fmt: skip
    assert call("get", f"{URL}/{told['request_id']}").json()["status"] == "denied"
    row = AuditLog.objects.get(event_type="PERMISSION_REQUEST_DENIED")
    assert (row.actor_id, row.metadata["by"]) == ("system:rules", "rule 1")


def test_a_loop_of_denied_calls_writes_one_request(call: Call, rule: ToolRule) -> None:  # noqa: F811
    first, second = ask(call), ask(call)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["request_id"] == second.json()["request_id"]
    assert ask(call, idempotency_key="k").status_code == 201
    assert ask(call, idempotency_key="k").status_code == 200
    assert (
        ask(call, idempotency_key="k", justification="x", tool_input={"command": "git push x"}).status_code
        == 409
    )
    assert PermissionRequest.objects.count() == 2


def test_other_calls_wait_for_a_person(call: Call, rule: ToolRule) -> None:  # noqa: F811
    assert ask(call, tool_input={"command": "git status"}).json()["status"] == "pending"
    assert ask(call, tool_name=None, tool_input=None).json()["status"] == "pending"


def test_a_rule_outdoes_an_earlier_approval(call: Call) -> None:  # noqa: F811
    request_id = ask(call).json()["request_id"]
    approvals.decide_request(
        request_id, person=person(), verdict="approved", validity=Validity.HOUR, scope=Scope.EVERYWHERE
    )
    assert ask(call).json()["allowed"] is True
    ToolRule.objects.create(
        position=1,
        tool="Bash",
        verdict="deny",
        pattern="git push",
        changed_by="a",
        changed_at="2026-01-01T00:00:00Z",
    )
    assert ask(call).json()["status"] == "denied"


def test_a_call_that_is_named_by_its_target_is_denied(call: Call, rule: ToolRule) -> None:  # noqa: F811
    assert ask(call, tool_input=None, target_resource="cd x && git push").json()["status"] == "denied"


def test_an_allow_rule_decides_nothing_here(call: Call) -> None:  # noqa: F811
    ToolRule.objects.create(
        position=1, tool="*", verdict="allow", changed_by="a", changed_at="2026-01-01T00:00:00Z"
    )
    assert ask(call).json()["status"] == "pending"
