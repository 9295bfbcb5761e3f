"""No key fills the inbox: askers can take turns, every request is on one of its pages, and each key has a limit."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from django.http import HttpResponse
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.errors import TooManyRequests
from coordinator.identity.actors import key_actor_by_name
from tests.approvals.cards import targets
from tests.approvals.factories import AGENT, MINUTE, NOW, asked, fresh, person, stored, trail
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import rules
from tests.served import Served

pytestmark = pytest.mark.django_db
URL = "/ui/approvals/"


def flood(number: int, **more: object) -> None:
    for place in range(number):
        asked(by=key_actor_by_name("flood"), target_resource=f"flood {place}", now=timezone.now(), **more)


def page_of(browser, number: int = 1, **options: object) -> str:
    return str(browser.get(f"{URL}?sort=fair&page={number}", **options).content.decode())


def test_a_key_with_many_requests_does_not_hide_those_that_come_later(signed_in) -> None:
    flood(70)
    asked(by=key_actor_by_name("quiet"), target_resource="mine", now=timezone.now())
    stored(target_resource="api of another program")
    first = targets(page_of(signed_in()))
    assert first[:3] == ["flood 0", "mine", "api of another program"]


def test_as_long_as_nothing_else_is_chosen_who_waits_longest_comes_first(signed_in) -> None:
    flood(2)
    asked(by=key_actor_by_name("quiet"), target_resource="mine", now=timezone.now())
    page = signed_in().get(URL).content.decode()
    assert targets(page) == ["flood 0", "flood 1", "mine"]
    assert "Longest waiting" in page


def test_the_pages_hold_every_request_once(signed_in) -> None:
    flood(70)
    asked(by=key_actor_by_name("quiet"), target_resource="mine", now=timezone.now())
    browser = signed_in()
    shown = [target for number in range(1, 4) for target in targets(page_of(browser, number))]
    assert sorted(shown) == sorted(["mine", *(f"flood {place}" for place in range(70))])
    assert "71 requests are waiting, page 3 of 3" in page_of(browser, 3)
    assert targets(page_of(browser, 99)) == targets(page_of(browser, 3))


def test_the_sessions_of_one_key_take_turns(signed_in) -> None:
    flood(3, session_id="ses_1")
    asked(by=key_actor_by_name("flood"), target_resource="mine", session_id="ses_2", now=timezone.now())
    assert targets(page_of(signed_in())) == ["flood 0", "mine", "flood 1", "flood 2"]


def test_what_arrives_moves_no_card_that_is_on_the_page(signed_in) -> None:
    flood(40)
    browser = signed_in()
    before = page_of(browser)
    ids = re.findall(r'name="ids" value="([^"]+)"', before)
    approvals.decide_request(ids[1], person=person("bob"), verdict="denied")
    asked(by=key_actor_by_name("quiet"), target_resource="mine", now=timezone.now())
    query = "&".join(f"ids={one}" for one in ids)
    after = browser.get(f"{URL}?sort=fair&{query}", headers={"HX-Request": "true"}).content.decode()
    assert re.findall(r'name="ids" value="([^"]+)"', after)[:30] == ids
    assert "mine" in targets(after)[30:]


def test_a_key_has_so_many_requests_waiting_and_no_more(settings) -> None:
    settings.MAX_PENDING_REQUESTS = 3
    first = asked(target_resource="0")
    for target in ("1", "2"):
        asked(target_resource=target)
    with pytest.raises(TooManyRequests, match="key:agent-key already has 3 waiting requests"):
        asked(target_resource="3")
    assert asked(target_resource="0") == first  # who joins adds nothing
    asked(by=key_actor_by_name("another"), target_resource="3")
    approvals.withdraw_request(first.request_id, actor=AGENT, now=NOW)
    assert fresh(asked(target_resource="3")).status == "pending"


def test_a_call_that_was_told_to_wait_makes_way_for_one_whose_agent_waits(settings) -> None:
    settings.MAX_PENDING_REQUESTS = 3
    waits = {"deadline": NOW + 60 * MINUTE, "outlasts": True, "waits_until": NOW + 3 * MINUTE}
    asked(target_resource="0")
    gone = asked(target_resource="1", **waits | {"waits_until": NOW + MINUTE})
    asked(target_resource="2", **waits)
    with pytest.raises(TooManyRequests):
        asked(target_resource="3", **waits)
    later = asked(target_resource="3", now=NOW + 2 * MINUTE, **waits)
    assert (fresh(gone).status, fresh(later).status) == ("withdrawn", "pending")
    assert "It can ask again" in fresh(gone).context.reason
    assert trail(gone)[-1] == "PERMISSION_REQUEST_WITHDRAWN"
    with pytest.raises(TooManyRequests):  # the others' agents wait, and one has no second chance
        asked(target_resource="4", now=NOW + 2 * MINUTE, **waits)


def test_what_expired_does_not_count(settings) -> None:
    settings.MAX_PENDING_REQUESTS = 1
    asked(target_resource="0", deadline=NOW + MINUTE)
    assert asked(target_resource="1", now=NOW + 2 * MINUTE).status == "pending"


def test_over_the_limit_the_api_answers_429_and_when_to_come_back(
    call: Callable[..., HttpResponse], settings
) -> None:
    settings.MAX_PENDING_REQUESTS = 1
    body = {"plugin_id": "p", "permission_type": "FileRead", "justification": "x"}
    assert call("post", "/api/permission-requests", body).status_code == 201
    answer = call("post", "/api/permission-requests", body | {"target_resource": "b"})
    assert (answer.status_code, answer["Retry-After"]) == (429, "30")
    assert "withdraw some" in answer.json()["detail"]


@pytest.mark.served
def test_over_the_limit_a_call_that_a_rule_asks_is_still_asked(serve: Callable[..., Served]) -> None:
    served = serve(workers=1, SIGNALBOX_MAX_PENDING_REQUESTS="1")
    rules(served, {"tool": "Bash", "verdict": "ask"})
    body = {"plugin_id": "p", "permission_type": "FileRead", "justification": "x"}
    assert served.client("agent").post("/api/permission-requests", json=body).status_code == 201
    claude = Claude(served)
    answer = claude.before(claude.new_call("Bash", {"command": "ls"}))
    assert answer["permissionDecision"] == "ask"
    assert served.sql("SELECT count(*) FROM permission_requests") == [(1,)]
