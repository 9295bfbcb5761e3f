from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.identity.actors import key_actor_by_name
from coordinator.models import PermissionRequest, PluginSetting
from dashboard.approvals import cards, verdicts
from dashboard.approvals.views import inbox as views
from tests.approvals.cards import form, form_for
from tests.approvals.factories import AGENT, MINUTE, asked, fresh, person, stored

pytestmark = pytest.mark.django_db

URL, DECIDE = "/ui/approvals/", "/ui/approvals/decide/"
HTMX = {"HX-Request": "true"}


def ids_of(html: str) -> list[str]:
    return re.findall(r'name="ids" value="([^"]+)"', html)


def html_of(browser: Client, path: str = URL, **options: object) -> str:
    answer = browser.get(path, **options)
    assert answer.status_code == 200
    return answer.content.decode()


def ask_now(**changes: object):
    return asked(now=timezone.now(), **changes)


def test_an_empty_inbox_says_what_will_happen(signed_in) -> None:
    assert "Nothing to decide" in html_of(signed_in())


def test_a_card_shows_everything_that_is_to_be_judged(signed_in) -> None:
    long = "\n".join(f"step {number}" for number in range(500))
    ask_now(
        session_id="ses_1",
        agent_id="coder",
        tool_input={"command": long, "timeout": 7},
        target_resource="/srv/" + "x" * 3000,
    )
    html = html_of(signed_in())
    assert long in html
    assert "x" * 3000 in html
    assert "500 lines" in html
    for words in ("The release is due", "mind.x", "ProcessExecution", "Bash", "coder", "ses_1", "timeout"):
        assert words in html


def test_the_card_leads_to_the_moment_in_the_session_that_it_is_about(signed_in) -> None:
    ask_now(session_id="ses_0123456789ab", event_id=77)
    assert 'href="/ui/sessions/ses_0123456789ab/?event=77#event-77"' in html_of(signed_in())


def test_text_of_agents_is_never_markup(signed_in) -> None:
    evil = '<script>alert(1)</script>"onmouseover="x'
    ask_now(
        plugin_id=evil,
        permission_type=evil,
        target_resource=evil,
        tool_name=evil,
        tool_input={evil: evil, "command": evil, "nested": {evil: [evil] * 20}},
        justification=evil,
        agent_id=evil,
        session_id=evil,
    )
    html = html_of(signed_in())
    assert "<script>alert" not in html
    assert '"onmouseover="' not in html


def test_characters_that_hide_or_reorder_text_are_marked(signed_in) -> None:
    ask_now(tool_input={"command": "echo \u202egnp.exe\u202c \u200b\x1b[8mrm -rf ~"})
    html = html_of(signed_in())
    for code in ("U+202E", "U+202C", "U+200B", "U+001B"):
        assert code in html
    assert "\u202e" not in html
    assert "are invisible" in html


@pytest.mark.parametrize("request_id", ["", "a/b", "a/revoke/b", "a?b#c\nd"])
@pytest.mark.parametrize("status", ["pending", "approved"])
def test_an_id_that_another_program_chose_breaks_no_page(signed_in, request_id: str, status: str) -> None:
    stored(status, request_id=request_id)
    browser = signed_in()
    for path in ("/ui/", URL, f"{URL}history/", reverse("approvals:detail", args=[request_id])):
        html_of(browser, path)


def test_an_edit_is_shown_as_a_diff(signed_in) -> None:
    ask_now(
        tool_name="Edit", tool_input={"file_path": "/a", "old_string": "one\ntwo", "new_string": "one\n2"}
    )
    html = html_of(signed_in())
    assert '<span class="removed">- two</span>' in html
    assert '<span class="added">+ 2</span>' in html


def test_identical_requests_share_a_card_and_are_decided_together(signed_in) -> None:
    rows = [ask_now(agent_id=name) for name in ("one", "two", "three")]
    browser = signed_in()
    html = html_of(browser)
    assert html.count('class="card ask') == 1
    assert "Approve all 3" in " ".join(html.split())
    browser.post(DECIDE, form(html, reason="all of you"))
    assert [fresh(row).status for row in rows] == ["approved"] * 3


def test_a_click_decides_what_was_on_the_screen_and_no_twin_that_came_since(signed_in) -> None:
    first, browser = ask_now(agent_id="one"), signed_in()
    seen = form(html_of(browser))
    later = ask_now(agent_id="two")
    browser.post(DECIDE, seen)
    assert (fresh(first).status, fresh(later).status) == ("approved", "pending")


def test_the_longest_waiting_comes_first(signed_in) -> None:
    first, second = ask_now(target_resource="a"), ask_now(target_resource="b")
    assert ids_of(html_of(signed_in())) == [first.request_id, second.request_id]


def test_a_card_that_was_decided_elsewhere_says_so_in_place(signed_in) -> None:
    rows = [ask_now(target_resource=name) for name in ("a", "b", "c")]
    browser = signed_in()
    approvals.decide_request(
        rows[1].request_id, person=person("bob"), verdict="denied", reason="no", now=timezone.now()
    )
    query = "&".join(f"ids={row.request_id}" for row in rows)
    html = html_of(browser, f"{URL}?{query}", headers=HTMX)
    assert ids_of(html) == [row.request_id for row in rows]
    assert "Bob denied it" in html
    assert html.count('data-key="a"') == 2  # two cards can still be decided


@pytest.mark.parametrize("how", ["expired", "withdrawn"])
def test_a_card_that_ended_without_a_verdict_says_so_in_place(signed_in, how: str) -> None:
    row, browser = ask_now(deadline=timezone.now() + MINUTE), signed_in()
    if how == "expired":
        PermissionRequest.objects.update(expires_at=timezone.now())
    else:
        approvals.withdraw_request(row.request_id, actor=AGENT)
    html = html_of(browser, f"{URL}?ids={row.request_id}", headers=HTMX)
    assert ("Its deadline passed" if how == "expired" else "Its requester withdrew it") in html
    assert "data-key=" not in html


def test_a_loaded_page_shows_only_what_waits(signed_in) -> None:
    row, browser = ask_now(), signed_in()
    approvals.decide_request(row.request_id, person=person("bob"), verdict="denied", now=timezone.now())
    assert ids_of(html_of(browser, f"{URL}?ids={row.request_id}")) == []


def test_the_loser_of_a_race_gets_the_card_as_it_stands_and_is_told_who_won(signed_in) -> None:
    row, browser = ask_now(), signed_in()
    approvals.decide_request(row.request_id, person=person("bob"), verdict="denied", now=timezone.now())
    answer = browser.post(DECIDE, form_for(row), headers=HTMX)
    assert answer.status_code == 200
    assert "bob denied it" in answer["HX-Trigger"]
    assert "Bob denied it" in answer.content.decode()
    assert fresh(row).status == "denied"


def test_deciding_works_without_javascript(signed_in) -> None:
    row, browser = ask_now(), signed_in()
    answer = browser.post(DECIDE, {"ids": row.request_id, "verdict": "denied", "reason": "no"}, follow=True)
    assert "Denied." in answer.content.decode()
    assert fresh(row).context.reason == "no"


@pytest.mark.parametrize(
    "form",
    [
        {"verdict": "approved"},
        {"ids": "req_x"},
        {"ids": "req_x", "verdict": "expired"},
        {"ids": "req_x", "verdict": "approved", "validity": "for ever"},
        {"ids": "req_x", "verdict": "approved", "reason": "x" * 2001},
    ],
)
def test_a_decision_that_cannot_be_read_is_400(signed_in, form: dict[str, str]) -> None:
    assert signed_in().post(DECIDE, form).status_code == 400


def test_a_grant_is_offered_only_where_it_would_change_something(signed_in) -> None:
    browser = signed_in()
    ask_now()
    assert 'name="grant"' not in html_of(browser)
    plugin = PluginSetting.objects.create(plugin_id="mind.x", allowed_permissions=[])
    html = html_of(browser)
    assert 'name="grant"' in html
    browser.post(DECIDE, form(html, grant="on"))
    plugin.refresh_from_db()
    assert plugin.allowed_permissions == ["ProcessExecution"]


def test_the_badge_counts_what_waits(signed_in) -> None:
    ask_now()
    ask_now(target_resource="b", deadline=timezone.now() + MINUTE)
    browser = signed_in()
    assert 'data-badge="2"' in html_of(browser, "/ui/rail/approvals/badge/")
    PermissionRequest.objects.filter(expires_at__isnull=False).update(expires_at=timezone.now())
    assert 'data-badge="1"' in html_of(browser, "/ui/rail/approvals/badge/")


def test_a_card_draws_and_decides_as_many_as_one_form_can_and_then_the_others(
    signed_in, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 * verdicts.MOST_ON_A_CARD < settings.DATA_UPLOAD_MAX_NUMBER_FIELDS * 0.9  # ids and digests
    for module in (cards, verdicts, views):
        monkeypatch.setattr(module, "MOST_ON_A_CARD", 10)
    for number in range(10 + 3):
        ask_now(by=key_actor_by_name(f"agent-{number}"))
    browser = signed_in()
    page = html_of(browser)
    assert "13 identical requests" in page
    assert "3 more are shown once these are decided." in page
    answer = browser.post(DECIDE, form(page), headers=HTMX)
    assert answer.status_code == 200
    waiting = PermissionRequest.objects.filter(status="pending")
    assert waiting.count() == 3
    decided = PermissionRequest.objects.exclude(status="pending").values_list("request_id", flat=True)
    page = html_of(browser, f"{URL}?{urlencode({'ids': list(decided)}, doseq=True)}", headers=HTMX)
    assert "3 identical requests" in page
    assert browser.post(DECIDE, form(page), headers=HTMX).status_code == 200
    assert waiting.count() == 0


def test_what_an_approver_had_on_the_screen_is_noted_but_a_refresh_alone_is_not(signed_in) -> None:
    row, browser = ask_now(), signed_in()
    html_of(browser)
    assert fresh(row).context.seen_at is None
    assert browser.post("/ui/approvals/seen/", {"ids": row.request_id}).status_code == 204
    assert fresh(row).context.seen_by == "alice"


def test_the_inbox_asks_the_database_as_often_for_many_cards_as_for_few(
    signed_in, django_assert_max_num_queries
) -> None:
    browser = signed_in()
    for number in range(30):
        ask_now(target_resource=str(number), plugin_id=f"p{number % 3}")
    with django_assert_max_num_queries(18):
        html_of(browser)


def test_a_request_has_a_page_with_its_trail(signed_in) -> None:
    row, browser = ask_now(), signed_in()
    approvals.decide_request(
        row.request_id,
        person=person("bob"),
        verdict="approved",
        reason="why not",
        validity="8h",
        scope="everywhere",
    )
    html = html_of(browser, f"{URL}{row.request_id}/")
    for words in (
        "Permission request created",
        "Permission request approved",
        "user:bob",
        "why not",
        "8 hours",
    ):
        assert words in html


def test_revoking_from_the_page_ends_the_approval(signed_in) -> None:
    row, browser = ask_now(), signed_in()
    approvals.decide_request(
        row.request_id, person=person("bob"), verdict="approved", validity="8h", scope="everywhere"
    )
    answer = browser.post(f"{URL}{row.request_id}/revoke/", {"reason": "changed my mind"}, follow=True)
    assert "The approval is revoked." in answer.content.decode()
    assert fresh(row).context.revoke_reason == "changed my mind"
    again = browser.post(f"{URL}{row.request_id}/revoke/", follow=True)
    assert "nothing to revoke" in again.content.decode()


def test_an_unknown_request_is_404(signed_in) -> None:
    browser = signed_in()
    assert browser.get(f"{URL}req_nope/").status_code == 404
    assert browser.post(f"{URL}req_nope/revoke/").status_code == 404


def test_a_viewer_is_told_who_decides(signed_in) -> None:
    ask_now()
    words = "You can read what waits. An approver decides it."
    assert words in html_of(signed_in("vera", "viewer"))
    assert words not in html_of(signed_in("anna"))
