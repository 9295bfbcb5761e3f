"""A connect code becomes one key, once, within ten minutes; for whoever holds it, and nobody else."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from coordinator.actions.people import connecting, keys
from coordinator.errors import Conflict, Forbidden, SignalboxError, TooManyRequests, UnprocessableRequest
from coordinator.identity.actors import person_actor as actor
from coordinator.models import Agent, ApiKey, AuditLog, ConnectCode
from tests.people import person, signed_in

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
DOOR = "/api/connect/exchange"


@pytest.fixture
def ann(db: None) -> User:
    return person("admin", "ann")


def code_for(ann: User, **more: Any) -> str:
    return connecting.issue_connect_code(key_name="ann-laptop", user=ann, now=NOW, **more)[1]


def exchange(code: str, at: datetime = NOW, source: str = "192.0.2.1") -> tuple[ApiKey, str]:
    return connecting.redeem_code_and_issue_key(code, source=source, host="laptop", now=at)


def post(body: Any, **headers: str) -> Any:
    return Client(headers=headers).post(DOOR, json.dumps(body), content_type="application/json")


def test_a_code_brings_a_key_of_an_agent_that_counts_as_its_makers(ann: User) -> None:
    Agent.objects.create(id="agent.a", name="A", description="", default_engine_id="x")
    row, raw = exchange(code_for(ann, agent_id="agent.a"))
    assert (row.name, row.scope_names, row.agent_id, row.created_by) == (
        "ann-laptop", ["agent"], "agent.a", "user:ann",
    )  # fmt: skip
    assert keys.authenticate_api_key(raw, NOW).agent_id == "agent.a"
    assert list(AuditLog.objects.order_by("id").values_list("event_type", "actor_id")) == [
        ("CONNECT_CODE_CREATED", "user:ann"),
        ("API_KEY_CREATED", "user:ann"),
        ("CONNECT_CODE_USED", "user:ann"),
    ]


def test_however_it_is_written_it_is_the_same_code(ann: User) -> None:
    code = code_for(ann)
    assert (
        exchange(f" {code.lower().replace('-', ' ').replace('0', 'o').replace('1', 'l')}\n")[0].name
        == "ann-laptop"
    )


def test_a_code_works_once_and_then_its_use_is_known(ann: User) -> None:
    code = code_for(ann)
    exchange(code)
    with pytest.raises(Forbidden, match="was used"):
        exchange(code)
    assert ApiKey.objects.count() == 1
    assert ConnectCode.objects.get().used_from == "192.0.2.1"
    assert AuditLog.objects.get(event_type="CONNECT_CODE_REFUSED").target_id == "ann-laptop"


@pytest.mark.parametrize("after", [timedelta(minutes=10), timedelta(days=3), timedelta(seconds=-1)])
def test_a_code_is_good_for_ten_minutes_and_not_before_it_was_made(ann: User, after: timedelta) -> None:
    code = code_for(ann)
    with pytest.raises(Forbidden):
        exchange(code, NOW + after)
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("change", [{"is_active": False}, {"role": "approver"}])
def test_who_is_no_admin_any_more_connects_nothing(ann: User, change: dict[str, Any]) -> None:
    code = code_for(ann)
    if "role" in change:
        ann.groups.clear()
    else:
        User.objects.filter(pk=ann.pk).update(**change)
    with pytest.raises(Forbidden):
        exchange(code)
    assert not ApiKey.objects.exists()


def test_only_admins_make_codes_with_a_free_name_for_an_agent_that_there_is(ann: User) -> None:
    with pytest.raises(Forbidden):
        connecting.issue_connect_code(key_name="x", user=person("approver", "bob"), now=NOW)
    for name, agent_id in (("  ", None), ("x", "agent.nobody")):
        with pytest.raises(UnprocessableRequest):
            connecting.issue_connect_code(key_name=name, agent_id=agent_id, user=ann, now=NOW)
    exchange(code_for(ann))
    with pytest.raises(Conflict):
        code_for(ann)


def test_a_code_that_nobody_used_is_replaced_by_the_next_for_the_same_agent(ann: User) -> None:
    first = code_for(ann)
    for seconds in (30, 60):
        later = NOW + timedelta(seconds=seconds)
        _, code = connecting.issue_connect_code(key_name="ann-laptop", user=ann, now=later)
    with pytest.raises(Forbidden):
        exchange(first, at=later)
    key, _ = exchange(code, at=later)
    assert key.agent_id == "agent.ann_laptop"
    assert Agent.objects.filter(pk__startswith="agent.ann").count() == 1


def test_an_agent_that_was_there_before_its_code_is_not_taken_for_a_new_one(ann: User) -> None:
    Agent.objects.create(id="agent.ann_laptop", name="ann-laptop", default_engine_id="external")
    code_for(ann, agent_id="agent.ann_laptop")
    with pytest.raises(Conflict, match="Choose it"):
        code_for(ann)


def test_another_persons_unused_code_is_not_replaced(ann: User) -> None:
    code = code_for(ann)
    with pytest.raises(Conflict, match="Choose it"):
        connecting.issue_connect_code(key_name="ann-laptop", user=person("admin", "eve"), now=NOW)
    assert exchange(code)[0].agent_id == "agent.ann_laptop"


def test_a_name_that_was_taken_meanwhile_leaves_the_code_good(ann: User) -> None:
    code = code_for(ann)
    other = keys.issue_api_key(name="ann-laptop", scopes=["read"], actor=actor(ann), now=NOW)[0]
    with pytest.raises(Conflict):
        exchange(code)
    assert ConnectCode.objects.get().used_at is None
    other.delete()
    assert exchange(code)[0].name == "ann-laptop"


def test_wrong_codes_are_soon_refused_without_standing_in_the_way_of_a_right_one(ann: User) -> None:
    code = code_for(ann)
    for _ in range(connecting.REFUSED.tries):
        with pytest.raises(Forbidden):
            exchange("0000-0000-0000")
    with pytest.raises(TooManyRequests):
        exchange("0000-0000-0000")
    assert exchange(code)[0].name == "ann-laptop"
    with pytest.raises(TooManyRequests):
        exchange(code)


def test_the_database_holds_no_code_and_old_ones_go(ann: User) -> None:
    code = code_for(ann)
    held = str(list(ConnectCode.objects.values())) + str(list(AuditLog.objects.values()))
    assert code not in held
    assert code.replace("-", "") not in held
    connecting.issue_connect_code(key_name="later", user=ann, now=NOW + timedelta(days=2))
    assert ConnectCode.objects.get().key_name == "later"


@pytest.mark.django_db(transaction=True)
def test_of_two_at_once_one_has_the_key() -> None:
    code, start, told = code_for(person("admin", "ann")), Barrier(2), []

    def one() -> None:
        start.wait()
        try:
            told.append(exchange(code)[0].name)
        except SignalboxError as refusal:
            told.append(type(refusal).__name__)
        finally:
            connection.close()

    threads = [Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(told) == ["Forbidden", "ann-laptop"]
    assert ApiKey.objects.count() == 1


# --- the door ---------------------------------------------------------------------------------------------


def test_the_door_answers_the_key_and_lets_nobody_keep_the_answer(ann: User) -> None:
    with time_machine.travel(NOW, tick=False):
        answer = post({"code": code_for(ann), "host": "laptop"})
    assert answer.status_code == 200
    assert answer.json()["key"].startswith("sbx_")
    assert answer["Cache-Control"] == "no-store"
    assert answer.json()["key"] not in str(list(ConnectCode.objects.values()))


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}])
def test_a_page_cannot_make_a_browser_try_codes(ann: User, headers: dict[str, str]) -> None:
    assert post({"code": "x"}, **headers).status_code == 403
    assert not AuditLog.objects.filter(event_type="CONNECT_CODE_REFUSED").exists()


@pytest.mark.parametrize(
    "body", [{}, {"code": ""}, {"code": 1}, {"code": "\x00"}, {"code": "A" * 101}, [], "x"]
)
def test_what_is_no_code_is_refused_in_words(db: None, body: Any) -> None:
    answer = post(body)
    assert answer.status_code in {403, 422}
    assert answer.json()["detail"]


# --- the page ---------------------------------------------------------------------------------------------


def test_the_page_shows_a_code_once_to_admins_alone(db: None) -> None:
    client = signed_in("admin")
    page = client.post("/ui/connections/code/", {"name": "bobs-desk"})
    assert page.context["code"] in page.content.decode()
    assert page.context["code"] not in client.get("/ui/connections/").content.decode()
    assert signed_in("approver").post("/ui/connections/code/", {"name": "x"}).status_code == 403
    again = client.post("/ui/connections/code/", {"name": " "})
    assert again.status_code == 422
