"""Lasting answers, written ends, rights and figures of approvals at their edges."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.approvals import RequestAnswer, get_or_create_denied_request
from coordinator.errors import Forbidden
from coordinator.identity.actors import Actor
from coordinator.models import DecidingRule, PermissionRequest
from coordinator.policy.deciders.decider_book import load_decider_book
from coordinator.policy.deciders.waiting import load_waiting_and_snoozed_requests
from coordinator.policy.grants.end_parsing import parse_approval_end
from coordinator.policy.requests.judged_content import judged_card_digest
from coordinator.policy.rules.tool_rules import Ruling
from dashboard.approvals.statistics import compute_approval_statistics, ninetieth_percentile_duration
from dashboard.deciders.preview import preview_deciders
from tests.approvals.cards import form_for, values
from tests.approvals.factories import AGENT, MINUTE, NOW, ask, asked, fresh, person
from tests.deciders.factories import row as deciding_row

pytestmark = pytest.mark.django_db
URL = "/ui/approvals/"


def options_request(*kinds: str) -> PermissionRequest:
    """Return the question of a driven agent that offers an answer of each kind."""
    options = [
        {"optionId": f"o{place}", "name": f"Way {place}", "kind": kind} for place, kind in enumerate(kinds)
    ]
    return asked(
        now=timezone.now(),
        plugin_id="claude-code",
        permission_type="ToolCall",
        target_resource=None,
        tool_name="Edit",
        tool_input={"file_path": "/a"},
        metadata={"hook": "session/request_permission", "options": options},
        session_id="ses_q",
    )


def answer(row: PermissionRequest, option: str, by: User) -> PermissionRequest:
    return approvals.answer_request(
        row.request_id, RequestAnswer(option=option), person=by, judged=judged_card_digest(row)
    )


def test_rows_leave_a_lasting_answer_of_an_agent_to_administrators(signed_in) -> None:
    bob, boss = person("bob"), person("boss", "admin")
    deciding_row(bob, boss)
    row = options_request("allow_once", "allow_once", "allow_always", "reject_once")
    with pytest.raises(Forbidden, match="Only administrators may change rules"):
        answer(row, "o2", bob)
    assert fresh(row).status == "pending"
    browser = signed_in("carol", "viewer")
    browser.force_login(bob)
    shown = browser.get(f"{URL}{row.request_id}/").content.decode()
    assert [f'value="o{place}"' in shown for place in range(4)] == [True, True, False, True]
    assert answer(row, "o2", boss).status == "approved"


def test_one_person_says_no_by_an_agents_own_answer_where_two_must_approve(settings) -> None:
    settings.TWO_PERSON_TYPES = ["ToolCall"]
    row = options_request("allow_once", "allow_once", "reject_once")
    assert answer(row, "o2", person()).status == "denied"


@pytest.mark.parametrize("text", ["2026-12-24 20:00", "2026-12-24 20:00:00", "2026-12-24T20:00:00"])
def test_a_written_end_is_by_the_clock_of_its_writer_with_and_without_seconds(text: str) -> None:
    now = datetime(2026, 12, 24, 9, 0, tzinfo=UTC)
    assert parse_approval_end(text, now, ZoneInfo("Asia/Tokyo")) == now + timedelta(hours=2)
    assert parse_approval_end("2026-12-24T11:00:00Z", now, ZoneInfo("Asia/Tokyo")) == now + timedelta(hours=2)
    assert parse_approval_end("2026-12-24T13:00:00+0200", now) == now + timedelta(hours=2)


def test_29_february_is_a_day_of_next_year_too() -> None:
    now = datetime(2027, 12, 1, tzinfo=UTC)
    assert parse_approval_end("29 feb 10:00", now) == datetime(2028, 2, 29, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize("text", ["18:00", "until {:%A} 18:00"])
def test_an_end_that_passed_while_its_form_was_open_approves_nothing(signed_in, monkeypatch, text) -> None:
    at = NOW.replace(hour=17, minute=30)
    monkeypatch.setattr(timezone, "now", lambda: at)
    row, browser = asked(now=at), signed_in()
    typed = {"until": text.format(at), "zone": "UTC"}
    fragment = browser.get("/ui/mcp/end/", typed | {"approval": "1", "form": "decide-1"}).content.decode()
    assert 'form="decide-1"' in fragment
    [shown] = values(fragment, "shown_end")
    sent = form_for(row, scope="everywhere", validity="until", shown_end=shown, **typed)
    monkeypatch.setattr(timezone, "now", lambda: at + 35 * MINUTE)
    answer = browser.post(f"{URL}decide/", sent, headers={"HX-Request": "true"})
    assert "does not mean the end any more that the form shows" in answer.headers["HX-Trigger"]
    assert fresh(row).status == "pending"
    monkeypatch.setattr(timezone, "now", lambda: at + 25 * MINUTE)
    browser.post(f"{URL}decide/", sent)
    assert (fresh(row).status, fresh(row).expires_at) == ("approved", at + 30 * MINUTE)


def test_a_request_that_keeps_needing_two_people_says_where_only_one_is_left(signed_in) -> None:
    anna, bob = person("anna"), person("bob")
    deciding_row(anna, bob, needed=2)
    row = asked(now=timezone.now())
    DecidingRule.objects.update(needed=1, people=[anna.pk])
    page = signed_in("root", "admin").get(f"{URL}{row.request_id}/").content.decode()
    assert "only anna may decide" in page
    assert "Nobody can approve this" in page


def test_everybody_reads_that_nobody_can_approve_a_type_for_two_people_in_a_row_of_one(
    signed_in, settings
) -> None:
    settings.TWO_PERSON_TYPES = ["ProcessExecution"]
    deciding_row(person("anna"))
    person("bob")
    row = asked(now=timezone.now())
    why = "Two people must approve this, but by row 1 of Who decides only anna may decide. Nobody can approve this"
    described = load_decider_book(NOW).describe_request_deciders(row)
    assert described == f"Waits for: anna. {why} until an administrator changes Who decides."
    page = signed_in("reader", "viewer").get(f"{URL}{row.request_id}/").content.decode()
    assert why in " ".join(page.split())


def test_a_row_for_any_approver_says_where_there_is_only_one(signed_in, settings) -> None:
    settings.TWO_PERSON_TYPES = ["ProcessExecution"]
    deciding_row()
    row = asked(now=timezone.now())
    browser = signed_in("anna")
    assert "only anna may decide. Nobody can" in browser.get(f"{URL}{row.request_id}/").content.decode()
    person("bob")
    assert "Nobody can" not in browser.get(f"{URL}{row.request_id}/").content.decode()


def test_a_type_for_two_people_in_a_row_of_one_is_told_by_the_preview(settings) -> None:
    settings.TWO_PERSON_TYPES = ["ProcessExecution"]
    deciding_row(person("anna"))
    preview = preview_deciders({"permission_type": "ProcessExecution"}, load_decider_book(NOW))
    assert preview is not None
    assert (preview.needed, "only anna" in preview.trouble) == (2, True)


def test_what_a_person_asked_for_is_not_in_what_waits_for_them(signed_in, settings) -> None:
    settings.DECIDE_OWN_REQUESTS = False
    browser, now = signed_in(), timezone.now()
    own = asked(by=Actor("user", "alice"), now=now)
    alice, bob = User.objects.get(username="alice"), person("bob")
    waiting = [load_waiting_and_snoozed_requests(one, now) for one in (alice, bob)]
    assert [(one.waiting_count, one.is_shared) for one in waiting] == [(0, False), (1, False)]
    assert f"asker-{own.request_id}" not in browser.get(f"{URL}one-by-one/").content.decode()
    assert f"asker-{own.request_id}" in browser.get(f"{URL}?all=1").content.decode()


def test_one_at_a_time_skips_to_every_card_and_counts_them(signed_in) -> None:
    now = timezone.now()
    for agent, folder in (("a", "/x"), ("b", "/y"), ("c", "/x")):
        asked(now=now, agent_id=agent, folder=folder, host="h")
    asked(now=now, agent_id="a", target_resource="other")
    browser, query = signed_in(), ""
    assert browser.get(URL).content.decode().count("<article") == 3
    seen = []
    for _ in range(4):
        page = browser.get(f"{URL}one-by-one/{query}").content.decode()
        assert re.findall(r"(\d+) left", page) == ["3"]
        seen += values(page, "shown")
        query = f"?after={seen[-1]}"
    assert len(set(seen[:3])) == 3
    assert seen[3] == seen[0]
    for request_id in seen[:3]:
        page = browser.get(f"{URL}one-by-one/?shown={request_id}").content.decode()
        assert values(page, "shown") == [request_id]


def test_of_very_many_equal_calls_the_approved_one_is_found() -> None:
    place: dict[str, Any] = {"agent_id": "a", "session_id": "s", "folder": "/f", "host": "h"}

    def made(slot: str, now: datetime) -> PermissionRequest:
        waits = {"waits_until": now + 5 * MINUTE, "waited_by": f"w {slot}"}
        return asked(now=now, outlasts=True, slot=slot, deadline=NOW + timedelta(days=1), **place, **waits)

    rows = [made(f"call-{number}", NOW) for number in range(25)]
    assert len({row.pk for row in rows}) == 25
    later = NOW + 10 * MINUTE
    approvals.decide_request(rows[0].request_id, person=person(), verdict="approved", now=later)
    assert made("again", later + MINUTE) == rows[0]


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="other engines always know foreign keys")
def test_a_denied_request_whose_row_another_program_deleted_can_be_asked_again() -> None:
    no = Ruling("deny", by="rule 1", reason="no")
    get_or_create_denied_request(ask(idempotency_key="k"), no, actor=AGENT, now=NOW)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA foreign_keys=OFF")
        cursor.execute("DELETE FROM permission_requests")
        cursor.execute("PRAGMA foreign_keys=ON")
    again = get_or_create_denied_request(ask(idempotency_key="k"), no, actor=AGENT, now=NOW + MINUTE)
    assert (again.created, again.request.status) == (True, "denied")


@pytest.mark.parametrize(("status", "listed"), [("pending", []), ("expired", ["expired"])])
def test_the_api_filters_by_the_status_that_it_shows(call, status: str, listed: list[str]) -> None:
    now = timezone.now()
    asked(now=now - 2 * MINUTE, deadline=now - MINUTE)
    told = call("get", f"/api/permission-requests?status={status}", scope="read").json()
    assert [one["status"] for one in told["requests"]] == listed


def test_one_in_ten_took_longer_than_the_slowest_tenth() -> None:
    assert ninetieth_percentile_duration([MINUTE] * 9 + [60 * MINUTE]) == MINUTE
    assert ninetieth_percentile_duration([MINUTE]) == MINUTE
    assert ninetieth_percentile_duration([]) is None


def test_the_tallest_day_is_one_that_is_drawn() -> None:
    alice = person()
    for start, wait in ((NOW - timedelta(days=7) + MINUTE, 300 * MINUTE), (NOW - timedelta(days=1), MINUTE)):
        approvals.decide_request(
            asked(now=start).request_id, person=alice, verdict="approved", now=start + wait
        )
    figures = compute_approval_statistics(NOW, 7)
    assert (figures.tallest, max(column.height for column in figures.columns)) == (MINUTE, 100)
