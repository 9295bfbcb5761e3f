"""While a brake holds whoever asked, nothing that was approved may run; once it is released, it may."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.http import HttpResponse
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.policy import brakes
from coordinator.identity.actors import Actor
from coordinator.models import PermissionContext, Session
from coordinator.policy.requests.approvals import Scope, Validity
from tests.approvals.factories import asked as asked_here
from tests.approvals.factories import person
from tests.approvals.test_wait import asked, decide, held
from tests.people import signed_in
from tests.served import Served

Call = Callable[..., HttpResponse]
URL = "/api/permission-requests"
BODY = {"plugin_id": "mind.x", "permission_type": "NetworkAccess", "justification": "To look something up"}
BOB = Actor("user", "bob")
LASTING: dict[str, Any] = {"validity": Validity.HOUR, "scope": Scope.EVERYWHERE}


def put_on(reach: str = "everything", name: str = "") -> int:
    return brakes.apply_brake_and_stop_runs(reach, name, "Odd.", actor=BOB, now=timezone.now()).id


def approved(call: Call, **changes: Any) -> str:
    request_id = str(call("post", URL, BODY | changes).json()["request_id"])
    approvals.decide_request(request_id, person=person(), verdict="approved", **LASTING)
    return request_id


@pytest.mark.django_db
def test_every_machine_door_says_that_nothing_may_run_and_why(call: Call) -> None:
    request_id = approved(call)
    brake = put_on()
    told = [
        call("get", f"{URL}/{request_id}").json(),
        call("post", URL, BODY).json(),
        call("get", URL, scope="read").json()["requests"][0],
    ]
    check = call("get", f"{URL}/check?plugin_id=mind.x&permission_type=NetworkAccess").json()
    assert [one["allowed"] for one in told] == [False] * 3
    assert check["approved"] is False
    words = {one["brake"] for one in (*told, check)}
    assert len(words) == 1
    assert words.pop().startswith("bob put the brake on everything: Odd. No call runs until")
    brakes.lift_brake(brake, actor=BOB, now=timezone.now())
    after = call("get", f"{URL}/{request_id}").json()
    assert (after["allowed"], after["brake"]) == (True, None)


@pytest.mark.django_db
def test_no_edited_call_may_run_either(call: Call) -> None:
    request_id = approved(call, tool_input={"command": "rm x"})
    context = PermissionContext.objects.filter(request_id=request_id)
    context.update(answer={"updated_input": {"command": "ls x"}})
    put_on("agent", "mind.x")
    told = call("get", f"{URL}/{request_id}").json()
    assert (told["allowed"], told["edited"], told["edited_input"]) == (False, False, None)


@pytest.mark.django_db
def test_an_approval_that_others_share_is_held_where_whoever_asks_now_is(call: Call) -> None:
    approved(call, host="laptop", agent_id="a")
    put_on("host", "build-7")
    hosts = {
        host: call("post", URL, BODY | {"host": host, "agent_id": "a"}).json()
        for host in ("laptop", "build-7")
    }
    assert {host: told["allowed"] for host, told in hosts.items()} == {"laptop": True, "build-7": False}


@pytest.mark.django_db
@pytest.mark.parametrize(("host", "is_allowed"), [("h", False), ("other", True), (None, False)])
def test_where_it_runs_is_known_by_its_session(call: Call, host: str | None, is_allowed: bool) -> None:
    Session.objects.create(session_id="ses_1", status="running", created_at=timezone.now())
    request_id = approved(call, session_id="ses_1")
    Session.objects.filter(pk="ses_1").update(hostname=host)
    put_on("host", "h")
    assert call("get", f"{URL}/{request_id}").json()["allowed"] is is_allowed


@pytest.fixture
def served(one_server: Served) -> Iterator[Served]:
    yield one_server.emptied("permission_requests")
    one_server.emptied("brakes")


@pytest.mark.served
def test_who_waits_hears_of_an_approval_once_the_brake_is_released(served: Served) -> None:
    request_id = asked(served)
    decide(served, request_id)
    browser = served.sign_in("approver")
    browser.post("/ui/brake/put-on/", data={"reach": "everything", "name": ""}).raise_for_status()
    ((brake,),) = served.sql("SELECT id FROM brakes")
    short = served.client("agent").get(f"{URL}/{request_id}/wait?timeout=0.5").json()
    assert (short["status"], short["allowed"]) == ("approved", False)
    assert "No call runs until a person releases it" in short["brake"]
    with held(served, request_id) as [waiter]:
        assert waiter.answer is None
        browser.post(f"/ui/brake/{brake}/release/").raise_for_status()
        told = waiter.told()
    assert (told["status"], told["allowed"], told["brake"]) == ("approved", True, None)


@pytest.mark.django_db
def test_a_card_of_a_held_agent_offers_no_approval_and_says_why() -> None:
    browser = signed_in("approver")
    for host in ("build-7", "laptop"):
        asked_here(now=timezone.now(), host=host, target_resource=host)
    put_on("host", "build-7")
    cards = browser.get("/ui/approvals/").content.decode().split("<article")[1:]
    held = {host: next(card for card in cards if host in card) for host in ("build-7", "laptop")}
    assert 'value="approved"' not in held["build-7"]
    assert "Nobody can approve this until the brake is released" in held["build-7"]
    assert 'value="denied"' in held["build-7"]
    assert 'value="approved"' in held["laptop"]
    assert "brake is released" not in held["laptop"]
