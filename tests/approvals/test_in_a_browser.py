"""The inbox as people use it: two at once, by keyboard, on a phone, while agents wait over real HTTP."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.approvals.test_wait import asked, held
from tests.browser import PHONE, Watch
from tests.claude_code.double import Claude
from tests.claude_code.test_deciding import rules
from tests.served import Served

pytestmark = [pytest.mark.browser, pytest.mark.served]
PersonAt = Callable[..., tuple[Page, Watch]]
INBOX = "/ui/approvals/"


@pytest.fixture
def served(one_server: Served) -> Served:
    """One server for all tests here; each finds an empty inbox."""
    return one_server.emptied("permission_requests")


def card(page: Page, target: str) -> Locator:
    return page.locator("article.ask").filter(has_text=target)


def at_inbox(person_at: PersonAt, served: Served, name: str = "approver", **options: Any) -> Page:
    page, _ = person_at(served, name, **options)
    page.goto(INBOX)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    return page


def soon(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def test_a_request_appears_unasked_with_badge_and_title(served: Served, person_at: PersonAt) -> None:
    page = at_inbox(person_at, served)
    asked(served, target_resource="api.one")
    expect(card(page, "api.one")).to_be_visible()
    expect(page.locator("#rail-badge-approvals .badge")).to_contain_text("1")
    expect(page).to_have_title("(1) Approvals · Signalbox")


def test_two_keys_free_the_agent_that_waits(served: Served, person_at: PersonAt) -> None:
    page = at_inbox(person_at, served)
    request_id = asked(served, target_resource="api.keys")
    expect(card(page, "api.keys")).to_be_visible()
    with held(served, request_id) as [waiter]:
        page.keyboard.press("j")
        page.keyboard.press("a")
        told = waiter.told()
    assert (told["status"], told["approved_by"], told["validity"]) == ("approved", "approver", "once")
    expect(card(page, "api.keys")).to_contain_text("Decided by you")


def test_a_dangerous_call_is_asked_about_once_more_before_it_runs(
    served: Served, person_at: PersonAt
) -> None:
    page = at_inbox(person_at, served)
    call = {"tool_name": "Bash", "tool_input": {"command": "rm -rf /var/backups"}}
    request_id = asked(served, target_resource="danger", **call)
    expect(card(page, "rm -rf")).to_be_visible()
    question = page.locator("#confirm")
    with held(served, request_id) as [waiter]:
        page.keyboard.press("j")
        page.keyboard.press("a")
        expect(question).to_contain_text("deletes by an absolute or unknown path")
        question.get_by_role("button", name="Cancel").click()
        expect(question).to_be_hidden()
        assert waiter.answer is None
        page.keyboard.press("a")
        question.get_by_role("button", name="Approve dangerous").click()
        told = waiter.told()
    assert (told["status"], told["approved_by"]) == ("approved", "approver")


def test_the_letter_of_a_verdict_typed_into_a_reason_decides_nothing(
    served: Served, person_at: PersonAt
) -> None:
    page = at_inbox(person_at, served)
    request_id = asked(served, target_resource="api.typed")
    reason = card(page, "api.typed").get_by_placeholder("Reason (optional)")
    reason.click()
    page.keyboard.type("add a dad")
    expect(reason).to_have_value("add a dad")
    assert served.sql("SELECT status FROM permission_requests WHERE request_id = ?", (request_id,)) == [
        ("pending",)
    ]


def test_both_see_the_card_both_press_one_wins_and_the_other_is_told(
    served: Served, person_at: PersonAt
) -> None:
    winner, loser = at_inbox(person_at, served), at_inbox(person_at, served, "approver2")
    request_id = asked(served, target_resource="api.race")
    for page in (winner, loser):
        expect(card(page, "api.race")).to_be_visible()
    on_the_way: list[Route] = []

    def hold(route: Route) -> None:
        on_the_way.append(route)

    loser.route("**/ui/approvals/decide/", hold)
    card(loser, "api.race").get_by_role("button", name="Deny").click()
    card(winner, "api.race").get_by_role("button", name="Approve").click()
    expect(card(winner, "api.race")).to_contain_text("Decided by you")
    on_the_way[0].continue_()
    expect(loser.locator("#toasts")).to_contain_text("approver approved it")
    expect(card(loser, "api.race")).to_contain_text("Approver approved it")
    expect(card(loser, "api.race").get_by_role("button")).to_have_count(0)
    expect(loser.locator("article")).to_have_count(1)
    row = served.sql(
        "SELECT status, approved_by FROM permission_requests WHERE request_id = ?", (request_id,)
    )
    assert row == [("approved", "approver")]


def test_a_verdict_on_one_card_leaves_the_others_alone(served: Served, person_at: PersonAt) -> None:
    names = [f"api.card{number}" for number in range(4)]
    ids = {name: asked(served, target_resource=name) for name in names}
    page = at_inbox(person_at, served)
    card(page, "api.card1").get_by_role("button", name="Approve").click()
    expect(card(page, "api.card1")).to_contain_text("Decided by you")
    rows = served.sql("SELECT request_id FROM permission_requests WHERE status = 'approved'")
    assert rows == [(ids["api.card1"],)]
    expect(page.get_by_role("button", name="Approve a")).to_have_count(3)


def test_a_press_in_the_moment_in_which_cards_move_decides_nothing(
    served: Served, person_at: PersonAt
) -> None:
    """Whoever may ask can make the card above longer, so that another button comes to lie under the hand."""
    page, _ = person_at(served, "approver")
    page.add_init_script("performance.now = () => 5000")
    for target in ("api.upper", "api.lower"):
        asked(served, target_resource=target, session_id="ses_1")
    page.goto(INBOX)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    asked(served, target_resource="api.upper", session_id="ses_2")
    expect(card(page, "api.upper")).to_contain_text("2 identical requests")
    button = card(page, "api.lower").get_by_role("button", name="Approve")
    button.click()
    expect(page.locator("#toasts")).to_contain_text("The requests have just moved")
    assert served.sql("SELECT count(*) FROM permission_requests WHERE status = 'pending'") == [(3,)]
    page.evaluate("() => (performance.now = () => 5501) && null")
    button.click()
    expect(card(page, "api.lower")).to_contain_text("Decided by you")


def test_a_key_decides_nothing_for_who_has_just_joined_the_card(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "approver")
    page.add_init_script("performance.now = () => 5000")
    asked(served, target_resource="api.same", session_id="ses_1")
    page.goto(INBOX)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.keyboard.press("j")
    asked(served, target_resource="api.same", session_id="ses_2")
    expect(card(page, "api.same")).to_contain_text("2 identical requests")
    page.keyboard.press("a")
    expect(page.locator("#toasts")).to_contain_text("What this key would decide has just changed")
    assert served.sql("SELECT count(*) FROM permission_requests WHERE status = 'pending'") == [(2,)]
    page.evaluate("() => (performance.now = () => 5501) && null")
    page.keyboard.press("a")
    expect(card(page, "api.same")).to_contain_text("Decided by you")
    assert served.sql("SELECT count(*) FROM permission_requests WHERE status = 'pending'") == [(0,)]


def test_a_card_that_expires_while_open_says_so_and_cannot_be_pressed(
    served: Served, person_at: PersonAt
) -> None:
    page = at_inbox(person_at, served)
    asked(served, target_resource="api.late", deadline=soon(600))
    late = card(page, "api.late")
    expect(late.get_by_role("button", name="Approve")).to_be_visible()
    expect(late).to_contain_text("left")
    served.sql("UPDATE permission_requests SET expires_at = ?", (soon(1),))
    expect(late).to_contain_text("Its deadline passed")
    expect(late.get_by_role("button")).to_have_count(0)


def test_a_card_that_is_withdrawn_while_open_says_so(served: Served, person_at: PersonAt) -> None:
    page = at_inbox(person_at, served)
    request_id = asked(served, target_resource="api.gone")
    expect(card(page, "api.gone")).to_be_visible()
    served.client("agent").delete(f"/api/permission-requests/{request_id}")
    expect(card(page, "api.gone")).to_contain_text("Its requester withdrew it")


def test_what_is_typed_chosen_and_selected_survives_what_arrives(served: Served, person_at: PersonAt) -> None:
    page = at_inbox(person_at, served)
    asked(served, target_resource="api.first")
    first = card(page, "api.first")
    expect(first).to_be_visible()
    page.keyboard.press("j")
    first.get_by_placeholder("Reason (optional)").fill("because I")
    first.locator("select[name=scope]").select_option("everywhere")
    first.locator("select[name=validity]").select_option("8h")
    asked(served, target_resource="api.second")
    expect(card(page, "api.second")).to_be_visible()
    expect(first.get_by_placeholder("Reason (optional)")).to_have_value("because I")
    expect(first.locator("select[name=scope]")).to_have_value("everywhere")
    expect(first.locator("select[name=validity]")).to_have_value("8h")
    expect(page.locator(".ask.selected")).to_contain_text("api.first")
    expect(first.get_by_placeholder("Reason (optional)")).to_be_focused()


def test_the_end_that_a_card_shows_survives_what_arrives_and_is_posted(
    served: Served, person_at: PersonAt
) -> None:
    request_id = asked(served, target_resource="api.end")
    page = at_inbox(person_at, served, timezone_id="Asia/Tokyo")
    found = card(page, "api.end")
    found.locator("select[name=scope]").select_option("everywhere")
    found.locator("select[name=validity]").select_option("until")
    found.get_by_label("Approved for or until").fill("tomorrow 9:00")
    exact, posted = found.locator(".grant-end-exact"), found.locator("input[name=shown_end]")
    expect(exact).to_contain_text("09:00 (Asia/Tokyo)")
    expect(posted).to_have_value(re.compile("T00:00:00.00:00 tomorrow 9:00"))
    asked(served, target_resource="api.later")
    expect(card(page, "api.later")).to_be_visible()
    expect(exact).to_contain_text("09:00 (Asia/Tokyo)")
    shown = posted.input_value()
    posted.evaluate("field => (field.value = `2001${field.value.slice(4)}`)")
    found.get_by_role("button", name="Approve").click()
    expect(page.locator("#toasts")).to_contain_text("does not mean the end any more that the form shows")
    posted.evaluate("(field, shown) => (field.value = shown)", shown)
    found.get_by_role("button", name="Approve").click()
    expect(found).to_contain_text("Decided by you")
    stored = served.sql("SELECT expires_at FROM permission_requests WHERE request_id = ?", (request_id,))
    assert datetime.fromisoformat(str(stored[0][0])) == datetime.fromisoformat(shown.split()[0])


def test_the_chosen_validity_and_reason_are_what_the_agent_reads(served: Served, person_at: PersonAt) -> None:
    page = at_inbox(person_at, served)
    request_id = asked(served, target_resource="api.words")
    found = card(page, "api.words")
    found.locator("select[name=scope]").select_option("everywhere")
    found.locator("select[name=validity]").select_option("7d")
    found.get_by_placeholder("Reason (optional)").fill("for this week")
    with held(served, request_id) as [waiter]:
        found.get_by_role("button", name="Approve").click()
        told = waiter.told()
    assert (told["validity"], told["scope"], told["reason"]) == ("7d", "everywhere", "for this week")


def test_on_a_phone_a_thumb_decides(served: Served, person_at: PersonAt) -> None:
    asked(served, target_resource="/srv/" + "very-long-name/" * 30)
    page = at_inbox(person_at, served, **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    for name in ("Approve", "Deny"):
        box = page.get_by_role("button", name=name).bounding_box()
        assert box is not None
        assert box["height"] >= 44
        assert box["width"] >= 120
    page.get_by_role("button", name="Deny").tap()
    expect(page.locator("article.ask")).to_contain_text("Decided by you")


def test_a_viewer_sees_the_card_but_no_buttons(served: Served, person_at: PersonAt) -> None:
    asked(served, target_resource="api.look")
    page = at_inbox(person_at, served, "viewer")
    expect(card(page, "api.look")).to_be_visible()
    expect(card(page, "api.look").get_by_role("button", name="Approve")).to_be_hidden()


def test_what_an_approver_sees_counts_as_seen(served: Served, person_at: PersonAt) -> None:
    request_id = asked(served, target_resource="api.seen")
    with_viewer = at_inbox(person_at, served, "viewer")
    expect(card(with_viewer, "api.seen")).to_be_visible()
    page = at_inbox(person_at, served)
    with page.expect_response("**/ui/approvals/seen/"):
        page.reload()
    seen = served.sql("SELECT seen_by FROM permission_context WHERE request_id = ?", (request_id,))
    assert seen == [("approver",)]


def test_a_request_page_follows_and_revokes(served: Served, person_at: PersonAt) -> None:
    request_id = asked(served, target_resource="api.page")
    page, _ = person_at(served, "approver")
    page.goto(f"{INBOX}{request_id}/")
    page.locator("select[name=scope]").select_option("everywhere")
    page.locator("select[name=validity]").select_option("8h")
    page.get_by_role("button", name="Approve a").click()
    expect(page.locator("#request")).to_contain_text("Permission request approved")
    page.get_by_role("button", name="Revoke now").click()
    page.locator("#confirm [value=yes]").click()
    expect(page.locator("#request")).to_contain_text("Permission approval revoked")
    expect(page.get_by_role("button", name="Revoke now")).to_have_count(0)


def test_the_audit_log_tells_what_happens_while_it_is_read(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "viewer")
    page.goto("/ui/audit/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    request_id = asked(served, target_resource="api.told")
    expect(page.locator("#results")).to_contain_text(request_id)


def test_filters_of_the_history_work_without_loading_the_page(served: Served, person_at: PersonAt) -> None:
    for name in ("api.x", "api.y"):
        asked(served, target_resource=name)
    page, _ = person_at(served, "viewer")
    page.goto(f"{INBOX}history/")
    page.get_by_label("Search requests").fill("api.y")
    expect(page.locator("#results tbody tr")).to_have_count(1)
    assert "q=api.y" in page.url


def test_switches_for_notification_and_sound_stay_in_the_browser(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, "approver", permissions=["notifications"])
    page.goto(f"{INBOX}notifications/")
    sound = page.get_by_label("Play a sound")
    sound.check()
    page.reload()
    expect(sound).to_be_checked()
    sound.uncheck()
    page.reload()
    expect(sound).not_to_be_checked()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["wide", "phone"])
def test_no_page_overflows_or_breaks_the_policy(
    served: Served, person_at: PersonAt, options: dict[str, Any]
) -> None:
    request_id = asked(served, target_resource="api.all", tool_name="Bash", tool_input={"command": "x" * 400})
    [(audit_id,)] = served.sql("SELECT max(id) FROM audit_logs")
    page, _ = person_at(served, "approver", **options)
    for place in (
        INBOX,
        f"{INBOX}{request_id}/",
        f"{INBOX}history/",
        f"{INBOX}statistics/",
        f"{INBOX}notifications/",
        "/ui/audit/",
        f"/ui/audit/{audit_id}/",
    ):
        page.goto(place)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place


def test_a_card_outlives_the_hook_that_asked_and_lets_the_call_run_once(
    served: Served, person_at: PersonAt
) -> None:
    rules(served, {"tool": "Bash", "verdict": "ask", "wait_seconds": 1, "deny_at_deadline": True})
    claude, push = Claude(served, wait="100"), {"command": "git push origin main"}
    claude.prompt("Push it.")
    page = at_inbox(person_at, served)
    assert claude.call("Bash", push).outcome == "denied"
    ask = card(page, "git push origin main")
    expect(ask).to_contain_text("The agent was told to wait. Approving lets the same call run once.")
    page.keyboard.press("j")
    page.keyboard.press("a")  # a press by hand, so soon after the card has grown, would decide nothing
    expect(ask).to_contain_text("It has not run yet.")
    assert claude.call("Bash", push).outcome == "ran"
    assert claude.call("Bash", push).outcome == "denied"
    rules(served)
