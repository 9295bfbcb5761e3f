"""Who takes a request, and who looks at it later; how the inbox is grouped, sorted and narrowed."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.approvals import triage
from coordinator.errors import BadRequest, Conflict, Forbidden
from coordinator.models import AuditLog, PermissionRequest, RequestAssignment, RequestSnooze
from coordinator.policy.requests.judged_content import judged_card_digest
from dashboard.approvals import inbox
from dashboard.approvals.verdicts import MOST_ON_A_CARD
from dashboard.approvals.views.sets import find_tomorrow_morning
from tests.approvals import cards
from tests.approvals.factories import AGENT, MINUTE, NOW, asked, fresh, key_actor_by_name, person, trail
from tests.deciders.factories import row as deciding_row

pytestmark = pytest.mark.django_db

URL, TRIAGE = "/ui/approvals/", "/ui/approvals/triage/"
HTMX = {"HX-Request": "true"}


def ask_now(target: str, **changes: Any) -> PermissionRequest:
    return asked(now=timezone.now(), target_resource=target, **changes)


def choice(*rows: PermissionRequest) -> str:
    return json.dumps([f"{judged_card_digest(fresh(row))}:{row.request_id}" for row in rows])


def targets(browser: Client, query: str = "") -> list[str]:
    return cards.targets(browser.get(f"{URL}{query}").content.decode())


def events(answer: Any) -> dict[str, Any]:
    return json.loads(answer.headers["HX-Trigger"])


# --- assigning --------------------------------------------------------------------------------------------


def test_a_request_is_taken_given_to_another_and_released_each_with_its_audit_row() -> None:
    row, anna = asked(), person("anna")
    person("bob")
    assert approvals.assign_requests([row.request_id], "anna", person=anna, now=NOW) == 1
    assert approvals.assign_requests([row.request_id], "anna", person=anna, now=NOW) == 0
    assert approvals.assign_requests([row.request_id], "bob", person=anna, now=NOW) == 1
    assert RequestAssignment.objects.get().person == "bob"
    assert approvals.unassign_requests([row.request_id], person=anna, now=NOW) == 1
    assert approvals.unassign_requests([row.request_id], person=anna, now=NOW) == 0
    assert trail(row)[1:] == [*["PERMISSION_REQUEST_ASSIGNED"] * 2, "PERMISSION_REQUEST_RELEASED"]
    last = AuditLog.objects.filter(event_type="PERMISSION_REQUEST_ASSIGNED").latest("id")
    assert (last.metadata["before"], last.metadata["after"]) == ({"person": "anna"}, {"person": "bob"})


def test_only_approvers_assign_and_only_to_somebody_who_decides() -> None:
    row, anna = asked(), person("anna")
    person("vera", "viewer")
    for nobody in ("vera", "nobody"):
        with pytest.raises(BadRequest, match="cannot decide"):
            approvals.assign_requests([row.request_id], nobody, person=anna, now=NOW)
    with pytest.raises(Forbidden):
        approvals.assign_requests([row.request_id], "anna", person=person("vic", "viewer"), now=NOW)
    with pytest.raises(BadRequest, match="at most 1,000"):
        approvals.assign_requests([row.request_id] * 1001, "anna", person=anna, now=NOW)
    assert not RequestAssignment.objects.exists()


def test_what_is_decided_or_unknown_changes_no_hands() -> None:
    row, anna = asked(), person("anna")
    approvals.decide_request(row.request_id, person=anna, verdict="denied", now=NOW)
    assert approvals.assign_requests([row.request_id, "req_nope"], "anna", person=anna, now=NOW) == 0


def test_the_card_says_whose_turn_it_is_and_anybody_may_still_decide(signed_in) -> None:
    row, alice = ask_now("a"), signed_in("alice")
    person("bob")
    answer = alice.post(TRIAGE, {"chosen": choice(row), "do": "assign", "to": "bob"}, headers=HTMX)
    assert events(answer)["toast"]["text"] == "1 request assigned to bob."
    assert "for bob" in " ".join(alice.get(URL).content.decode().split())
    assert targets(alice, "?taken=me") == []
    assert targets(alice, "?taken=nobody") == []
    approvals.decide_request(row.request_id, person=User.objects.get(username="alice"), verdict="approved")
    assert fresh(row).status == "approved"


# --- cards on which many wait ---------------------------------------------------------------------------


@pytest.fixture
def crowd(signed_in) -> Client:
    """The browser of somebody at an inbox with one card, on which more wait than it draws."""
    for number in range(MOST_ON_A_CARD + 3):
        ask_now("same", by=key_actor_by_name(f"agent-{number}"))
    return signed_in("alice")


def whole_card(browser: Client) -> list[str]:
    """Return what the form below the only card says of whom it stands for."""
    [tools] = re.findall(r'<form\s+class="ask-tools.*?</form>', browser.get(URL).content.decode(), re.DOTALL)
    return [one.replace("&quot;", '"') for one in re.findall(r'name="chosen" value="([^"]*)"', tools)]


def test_a_card_is_snoozed_and_brought_back_assigned_and_released_however_many_wait_on_it(
    crowd: Client,
) -> None:
    answer = crowd.post(TRIAGE, {"chosen": whole_card(crowd), "do": "snooze-15m"}, headers=HTMX)
    assert events(answer)["toast"]["text"] == "203 requests snoozed. Deadlines still apply."
    assert targets(crowd) == []
    assert events(answer)["arranged"] == {"ids": [], "all": True}
    assert len(answer.headers["HX-Trigger"]) < 4_000, "proxies take headers of a few kilobytes"
    everything = PermissionRequest.objects.all()
    answer = crowd.post(TRIAGE, {"chosen": choice(*everything), "do": "wake"}, headers=HTMX)
    assert events(answer)["toast"]["text"] == "203 requests back in your inbox."
    assert targets(crowd) == ["same"]
    for said, words in (("take", "assigned to you"), ("release", "unassigned")):
        answer = crowd.post(TRIAGE, {"chosen": whole_card(crowd), "do": said}, headers=HTMX)
        assert events(answer)["toast"]["text"] == f"203 requests {words}."
    assert AuditLog.objects.filter(event_type="PERMISSION_REQUEST_ASSIGNED").count() == 203


def test_more_than_a_thousand_are_not_arranged_with_one_press(signed_in) -> None:
    many = json.dumps([f":req_{number}" for number in range(1_001)])
    answer = signed_in().post(TRIAGE, {"chosen": many, "do": "snooze-1h"}, headers=HTMX)
    assert "at most 1,000" in events(answer)["toast"]["text"]


# --- snoozing ---------------------------------------------------------------------------------------------


def test_a_snoozed_request_leaves_one_persons_inbox_and_comes_back_by_itself(signed_in) -> None:
    row, alice, bob = ask_now("a"), signed_in("alice"), signed_in("bob")
    answer = alice.post(TRIAGE, {"chosen": choice(row), "do": "snooze-15m"}, headers=HTMX)
    assert events(answer)["arranged"]["ids"] == [row.request_id]
    assert (targets(alice), targets(bob), targets(alice, "?snoozed=1")) == ([], ["a"], ["a"])
    html = alice.get(f"{URL}?group=same").content.decode()
    assert "You snoozed 1 request" in html
    assert "0 requests wait" in html  # what a screen reader hears agrees with the badge
    assert 'data-returns="' in html
    RequestSnooze.objects.update(until=timezone.now())
    assert targets(alice, "?group=same") == ["a"]


def test_snoozing_again_moves_the_time_and_waking_ends_it(signed_in) -> None:
    row, alice = ask_now("a"), signed_in("alice")
    for what in ("snooze-15m", "snooze-1h"):
        alice.post(TRIAGE, {"chosen": choice(row), "do": what})
    assert RequestSnooze.objects.get().until > timezone.now() + 50 * MINUTE
    alice.post(TRIAGE, {"chosen": choice(row), "do": "wake"})
    assert targets(alice, "?group=same") == ["a"]


def test_a_snooze_ends_before_the_deadline_and_never_stops_it() -> None:
    anna = person("anna")
    row = asked(deadline=NOW + 20 * MINUTE)
    approvals.snooze_requests_for_person([row.request_id], NOW + 60 * MINUTE, person=anna, now=NOW)
    assert RequestSnooze.objects.get().until == NOW + 15 * MINUTE
    approvals.expire_due_requests(NOW + 21 * MINUTE)
    assert fresh(row).status == "expired"
    near = asked(deadline=NOW + 4 * MINUTE, target_resource="near")
    with pytest.raises(Conflict, match="5 minutes"):
        approvals.snooze_requests_for_person([near.request_id], NOW + 60 * MINUTE, person=anna, now=NOW)
    for until in (NOW, NOW + timedelta(days=8)):
        with pytest.raises(BadRequest):
            approvals.snooze_requests_for_person([near.request_id], until, person=anna, now=NOW)


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Europe/Berlin", "2026-03-29T07:00"),  # the night in which the clocks go forward
        ("America/Los_Angeles", "2026-03-28T16:00"),
        ("", "2026-03-29T09:00"),
        ("Nowhere/Else", "2026-03-29T09:00"),
    ],
)
def test_tomorrow_morning_is_nine_where_the_person_is(zone: str, expected: str) -> None:
    now = datetime(2026, 3, 28, 4, 0, tzinfo=UTC)
    assert find_tomorrow_morning(now, zone).astimezone(UTC).isoformat()[:16] == expected


# --- arranging --------------------------------------------------------------------------------------------


LANES = re.compile(r'<h2 class="lane-name">([^<]*)</h2>\s*<span class="chip">([^<]*)</span>')


def test_the_inbox_is_grouped_with_its_numbers(signed_in) -> None:
    for number, agent in enumerate(["coder", "coder", "tester"]):
        ask_now(str(number), agent_id=agent, session_id=f"ses_{agent}")
    html = signed_in().get(f"{URL}?group=agent").content.decode()
    assert LANES.findall(html) == [("coder", "2 requests"), ("tester", "1 request")]
    assert html.count("Approve group") == 1  # what decides a group is offered where there are several


def test_no_name_leads_into_the_group_of_another(signed_in) -> None:
    for number, agent in enumerate(
        ["agent.39162", "agent.45401"]
    ):  # whose SHA-256 begin with the same 32 bits
        ask_now(str(number), agent_id=agent)
    html = signed_in().get(f"{URL}?group=agent").content.decode()
    assert LANES.findall(html) == [("agent.39162", "1 request"), ("agent.45401", "1 request")]


def test_the_same_call_of_two_sessions_is_one_card_or_one_in_each_group(signed_in) -> None:
    for session in ("ses_1", "ses_2"):
        ask_now("a", session_id=session, by=AGENT)
    browser = signed_in()
    assert len(targets(browser)) == 1
    assert len(targets(browser, "?group=session")) == 2


def test_sorting(signed_in) -> None:
    ask_now("late", deadline=timezone.now() + 60 * MINUTE)
    ask_now("soon", deadline=timezone.now() + 20 * MINUTE)
    ask_now("never")
    browser = signed_in()
    assert targets(browser, "?sort=oldest") == ["late", "soon", "never"]
    assert targets(browser, "?sort=newest") == ["never", "soon", "late"]
    assert targets(browser, "?sort=deadline") == ["soon", "late", "never"]


def test_filters_narrow_and_say_what_they_hide(signed_in) -> None:
    ask_now("one", agent_id="coder", host="box", tool_input={"command": "rm -rf build"})
    ask_now("two", agent_id="tester", tool_name="Write", session_id="ses_2", permission_type="FileWrite")
    browser = signed_in()
    for query in ("agent=coder", "tool=Bash", "host=box", "type=ProcessExecution", "marked=1"):
        assert targets(browser, f"?{query}") == ["one"], query
    assert targets(browser, "?session=ses_2") == ["two"]
    html = browser.get(f"{URL}?agent=coder").content.decode()
    assert "The filters hide 1 request." in " ".join(html.split())
    assert "No requests to show" in browser.get(f"{URL}?agent=nobody").content.decode()


def test_what_was_not_looked_through_for_marks_is_said(signed_in, monkeypatch) -> None:
    monkeypatch.setattr(inbox, "MOST_READ", 2)
    for name in ("old", "mid", "new"):
        ask_now(name, tool_input={"command": f"rm -rf {name}"})
    browser = signed_in()
    html = " ".join(browser.get(f"{URL}?marked=1").content.decode().split())
    assert targets(browser, "?marked=1") == ["old", "mid"]
    assert "1 newer request was not checked and not shown." in html
    assert "not checked and not shown" not in browser.get(f"{URL}?marked=").content.decode()


def test_the_browser_of_a_person_keeps_how_they_arranged_it(signed_in) -> None:
    ask_now("old")
    ask_now("new")
    browser = signed_in()
    assert targets(browser, "?group=tool&sort=newest") == ["new", "old"]
    assert targets(browser) == ["new", "old"]
    assert "lane-name" in browser.get(URL).content.decode()
    browser.get(f"{URL}?group=same")
    assert targets(browser) == ["old", "new"]


@pytest.mark.parametrize(
    "query", ["?group=x&sort=y&taken=' or 1=1&page=-1", "?agent=a&session=" + "x" * 5000]
)
def test_an_odd_address_is_as_if_it_said_nothing(signed_in, query: str) -> None:
    ask_now("a")
    assert signed_in().get(f"{URL}{query}").status_code == 200


def test_a_refresh_keeps_what_was_closed_in_place_and_drops_what_was_put_off(signed_in) -> None:
    rows = [ask_now(name) for name in ("a", "b", "c")]
    browser = signed_in()
    browser.post(TRIAGE, {"chosen": choice(rows[0]), "do": "snooze-1h"})
    approvals.decide_request(rows[1].request_id, person=person("bob"), verdict="denied")
    query = "&".join(f"ids={row.request_id}" for row in rows)
    html = browser.get(f"{URL}?{query}", headers=HTMX).content.decode()
    assert cards.targets(html) == ["", "c"]  # the closed one on a line, by its headline alone
    assert "Bob denied it" in html


def test_who_may_not_decide_it_does_not_arrange_it_for_others() -> None:
    anna, bob, boss = person("anna"), person("bob"), person("boss", "admin")
    deciding_row(anna)
    row = asked()
    with pytest.raises(Forbidden, match="Nothing was changed"):
        approvals.assign_requests([row.request_id], "anna", person=bob, now=NOW)
    assert approvals.assign_requests([row.request_id], "anna", person=boss, now=NOW) == 1
    with pytest.raises(Forbidden, match="You are not among them"):
        approvals.unassign_requests([row.request_id], person=bob, now=NOW)
    assert approvals.unassign_requests([row.request_id], person=anna, now=NOW) == 1


def test_a_request_that_is_deleted_while_it_is_snoozed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    anna, stays, goes = person("anna"), asked(), asked(target_resource="/other")

    def end_and_delete(row: PermissionRequest, until: datetime) -> datetime:
        PermissionRequest.objects.filter(pk=goes.pk).delete()
        return until

    monkeypatch.setattr(triage, "cap_snooze_end", end_and_delete)
    ids = [stays.request_id, goes.request_id]
    assert approvals.snooze_requests_for_person(ids, NOW + timedelta(hours=1), person=anna, now=NOW) == 1
    assert RequestSnooze.objects.get().request_id == stays.request_id


def test_badge_overview_and_inbox_count_the_same_when_something_is_snoozed(signed_in) -> None:
    first, _second = ask_now("/a"), ask_now("/b")
    browser, other = signed_in("anna"), signed_in("bob")
    now = timezone.now()
    approvals.snooze_requests_for_person(
        [first.request_id], now + timedelta(minutes=15), person=User.objects.get(username="anna"), now=now
    )

    def counts(client: Client) -> tuple[int, ...]:
        badge = client.get("/ui/rail/approvals/badge/", headers=HTMX).content.decode()
        body = client.get("/ui/", headers=HTMX).content.decode()
        stat = re.search(r'Waiting for you</span><span class="stat-number">(\d+)', body)
        assert stat, body
        return (int(re.search(r'data-badge="(\d+)"', badge)[1]), int(stat[1]), len(targets(client)))

    assert counts(browser) == (1, 1, 1)
    assert counts(other) == (2, 2, 2)
    assert "1 snoozed" in browser.get("/ui/", headers=HTMX).content.decode()


def test_the_badge_asks_again_when_a_snoozed_request_is_back(signed_in) -> None:
    row = ask_now("/a")
    browser = signed_in("anna")
    now = timezone.now()
    approvals.snooze_requests_for_person(
        [row.request_id], now + timedelta(minutes=15), person=User.objects.get(username="anna"), now=now
    )
    badge = browser.get("/ui/rail/approvals/badge/", headers=HTMX).content.decode()
    seconds = int(re.search(r"load delay:(\d+)s", badge)[1])
    assert 14 * 60 < seconds <= 15 * 60


def test_an_overview_with_nothing_but_a_snoozed_request_is_no_empty_installation(signed_in) -> None:
    row = ask_now("/a")
    browser = signed_in("anna")
    now = timezone.now()
    approvals.snooze_requests_for_person(
        [row.request_id], now + timedelta(minutes=15), person=User.objects.get(username="anna"), now=now
    )
    assert "1 snoozed" in browser.get("/ui/", headers=HTMX).content.decode()
