from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.http import HttpResponse
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.models import PermissionRequest
from coordinator.policy.requests.approvals import Scope, Validity
from tests.approvals.factories import person

pytestmark = pytest.mark.django_db
Call = Callable[..., HttpResponse]

URL = "/api/permission-requests"
BODY = {
    "plugin_id": "mind.x",
    "permission_type": "NetworkAccess",
    "target_resource": "api.example.org",
    "justification": "To look something up",
}


def test_asking_answers_201_with_the_request(call: Call) -> None:
    deadline = (timezone.now() + timedelta(minutes=5)).isoformat()
    answer = call(
        "post", URL, BODY | {"session_id": "ses_1", "tool_input": {"url": "x"}, "deadline": deadline}
    )
    told = answer.json()
    assert answer.status_code == 201
    assert (told["status"], told["allowed"], told["approved_by"], told["reason"]) == (
        "pending",
        False,
        None,
        None,
    )
    assert told["request_id"].startswith("req_")
    assert told["expires_at"] == told["deadline"]
    assert told["tool_input"] == {"url": "x"}


def test_asking_again_answers_200_with_the_pending_twin(call: Call) -> None:
    first, twin = call("post", URL, BODY), call("post", URL, BODY)
    assert twin.status_code == 200
    assert twin.json()["request_id"] == first.json()["request_id"]


def test_a_living_approval_answers_200_at_once(call: Call) -> None:
    request_id = call("post", URL, BODY).json()["request_id"]
    approvals.decide_request(
        request_id,
        person=person(),
        verdict="approved",
        validity=Validity.HOUR,
        scope=Scope.EVERYWHERE,
        reason="ok",
    )
    again = call("post", URL, BODY)
    assert again.status_code == 200
    told = again.json()
    assert (told["status"], told["allowed"], told["validity"], told["reason"]) == (
        "approved",
        True,
        "1h",
        "ok",
    )


@pytest.mark.parametrize(
    "fault",
    [
        {"plugin_id": ""},
        {"plugin_id": None},
        {"justification": "  "},
        {"permission_type": "a\0b"},
        {"deadline": "2020-01-01T00:00:00Z"},
        {"deadline": "2030-01-01T00:00:00"},
        {"deadline": "soon"},
        {"deadline": "9999-12-31T23:59:59-14:00"},
        {"event_id": 2**63},
        {"status": "approved"},
        {"approved_by": "alice"},
        {"request_id": "mine"},
        {"expires_at": None},
    ],
)
def test_what_does_not_fit_is_422_and_leaves_nothing(call: Call, fault: dict[str, Any]) -> None:
    answer = call("post", URL, BODY | fault)
    assert answer.status_code == 422
    assert answer.json()["detail"]
    assert PermissionRequest.objects.count() == 0


def test_looking_shows_the_verdict(call: Call) -> None:
    request_id = call("post", URL, BODY).json()["request_id"]
    approvals.decide_request(request_id, person=person(), verdict="denied", reason="not today")
    told = call("get", f"{URL}/{request_id}", scope="read").json()
    assert (told["status"], told["approved_by"], told["reason"]) == ("denied", "alice", "not today")


def test_withdrawing_closes_the_request(call: Call) -> None:
    request_id = call("post", URL, BODY).json()["request_id"]
    answer = call("delete", f"{URL}/{request_id}?reason=gone")
    assert (answer.status_code, answer.json()["status"], answer.json()["reason"]) == (
        200,
        "withdrawn",
        "gone",
    )


def test_withdrawing_too_late_is_409_and_says_who_decided(call: Call) -> None:
    request_id = call("post", URL, BODY).json()["request_id"]
    approvals.decide_request(request_id, person=person(), verdict="approved")
    answer = call("delete", f"{URL}/{request_id}")
    assert answer.status_code == 409
    assert "alice approved it" in answer.json()["detail"]


def test_another_key_cannot_withdraw_but_an_operators_can(call: Call) -> None:
    request_id = call("post", URL, BODY).json()["request_id"]
    assert call("delete", f"{URL}/{request_id}", scope="runner").status_code == 404
    assert call("delete", f"{URL}/{request_id}", scope="operator").status_code == 200


@pytest.mark.parametrize("method", ["get", "delete"])
def test_an_unknown_request_is_404(call: Call, method: str) -> None:
    assert call(method, f"{URL}/req_nope").status_code == 404


def test_an_agents_key_speaks_and_sees_for_that_agent_alone(call: Call) -> None:
    mine = call("post", URL, BODY, agent_id="coder").json()
    other = call("post", URL, BODY | {"agent_id": "writer"}).json()
    assert mine["agent_id"] == "coder"
    assert call("post", URL, BODY | {"agent_id": "writer"}, agent_id="coder").status_code == 403
    assert call("get", f"{URL}/{other['request_id']}", agent_id="coder").status_code == 404
    assert call("get", f"{URL}/{mine['request_id']}", agent_id="coder").status_code == 200


def test_a_reading_key_cannot_ask_or_withdraw(call: Call) -> None:
    request_id = call("post", URL, BODY).json()["request_id"]
    assert call("post", URL, BODY, scope="read").status_code == 403
    assert call("delete", f"{URL}/{request_id}", scope="read").status_code == 403


def test_checking_says_whether_an_approval_covers_it_without_asking(call: Call) -> None:
    query = {name: BODY[name] for name in ("plugin_id", "permission_type", "target_resource")}
    path = f"{URL}/check?" + "&".join(f"{name}={value}" for name, value in query.items())
    assert call("get", path, scope="read").json() == {
        "approved": False,
        "brake": None,
        "request_id": None,
        "expires_at": None,
    }
    request_id = call("post", URL, BODY).json()["request_id"]
    approvals.decide_request(
        request_id, person=person(), verdict="approved", validity=Validity.HOUR, scope=Scope.EVERYWHERE
    )
    assert not call("get", path, scope="read").json()["approved"]  # it covers its own asker alone
    told = call("get", f"{path}&asked_by=key:agent-None", scope="read").json()
    assert (told["approved"], told["request_id"]) == (True, request_id)
    assert call("get", f"{path}&asked_by=key:agent-None", scope="runner").status_code == 403
    assert PermissionRequest.objects.count() == 1


def test_the_list_is_ordered_by_when_requests_were_made(call: Call) -> None:
    """Another program may write a row late, and several at one time."""
    ids = [call("post", URL, BODY | {"target_resource": f"{n}"}).json()["request_id"] for n in range(5)]
    for name, hour in zip(ids, (3, 1, 5, 3, 2), strict=True):
        made = datetime(2026, 2, 20, hour, tzinfo=UTC)
        PermissionRequest.objects.filter(request_id=name).update(created_at=made)
    listed, cursor = [], ""
    while cursor is not None:
        page = call("get", f"{URL}?limit=2{cursor}", scope="read").json()
        listed += [row["request_id"] for row in page["requests"]]
        cursor = f"&cursor={page['next_cursor']}" if "next_cursor" in page else None
    assert listed == [ids[place] for place in (2, 3, 0, 4, 1)]
