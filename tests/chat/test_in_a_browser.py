"""The chat page in a real Chromium: two people and an agent talk, files go up, ten thousand messages scroll."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect

from tests.chat.rows import png, text
from tests.served import PEOPLE, Served

pytestmark = [pytest.mark.browser, pytest.mark.served]
AGENT = "agent.cloto_default"
PAGE = f"/ui/chat/with/{AGENT}/"
THREAD = f"/api/chat/{AGENT}/messages"


def send(page: Page, words: str) -> None:
    page.get_by_label(re.compile("^Message ")).fill(words)
    page.keyboard.press("Enter")


def said(page: Page, words: str):
    return page.locator(".chat-message:not(.pending)", has_text=words)


def robot(served: Served):
    """Return a client that speaks as the agent."""
    served.sql(f"UPDATE api_keys SET agent_id = '{AGENT}' WHERE name = 'test-agent'")
    return served.client("agent")


def test_two_people_and_an_agent_talk_with_images_through_a_restart(served, person_at):
    one, watch = person_at(served, "approver")
    two, watch_two = person_at(served, "approver2")
    for each in (watch, watch_two):
        each.expect_an_outage()
    agent = robot(served)
    for page in (one, two):
        page.goto(PAGE)
        expect(page.locator("#live")).to_have_attribute("data-state", "live")
    send(one, "What does **the chart** say?")
    expect(said(two, "What does the chart say?").locator("strong", has_text="the chart")).to_be_visible()
    heard = agent.get(f"{THREAD}/wait", params={"timeout": 5}).json()
    assert heard["messages"][0]["user_id"] == "approver"
    agent.post(THREAD, data={"text": "See"}, files={"files": ("chart.png", png((80, 60)), "image/png")})
    for page in (one, two):
        image = said(page, "See").locator("img")
        expect(image).to_be_visible()
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 80
    served.stop()
    send(one, "Are you still there?")
    expect(one.locator(".pending", has_text="Are you still there?")).to_contain_text("cannot be reached")
    served.start()
    one.get_by_role("button", name="Try again").click()
    expect(said(one, "Are you still there?")).to_be_visible()
    expect(said(two, "Are you still there?")).to_have_count(1)
    answer = agent.get(f"{THREAD}/wait", params={"after": heard["after"], "timeout": 5}).json()
    assert [m["content"][0]["text"] for m in answer["messages"]] == ["Are you still there?"]


def test_a_failed_message_can_be_edited_and_a_draft_outlives_a_reload(served, person_at):
    page, watch = person_at(served, "approver")
    watch.expect("409")
    page.goto(PAGE)
    served.sql(
        f"UPDATE agents SET enabled = {'false' if served.env.get('DATABASE_URL') else '0'} WHERE id = '{AGENT}'"
    )
    send(page, "Hello?")
    expect(page.locator(".pending")).to_contain_text("switched off")
    page.reload()
    field = page.get_by_label(re.compile("^Message "))
    expect(field).to_have_value("Hello?")
    assert served.client("operator").get(THREAD).json()["messages"] == []


@pytest.mark.parametrize("size", [1, 64 * 1024, 64 * 1024 + 1, 20 * 1024 * 1024])
def test_a_file_goes_up_and_is_offered_for_download(served, person_at, tmp_path, size):
    page, _ = person_at(served, "approver")
    page.goto(PAGE)
    hostile = "a\u202egpj.<b>&'x.exe"
    path = tmp_path / hostile
    path.write_bytes(b"x" * size)
    page.locator("input[type=file]").set_input_files(path)
    expect(page.locator(".composer-files li")).to_have_count(1)
    page.get_by_role("button", name="Send").click()
    link = page.locator(".chat-message:not(.pending) a.chat-file")
    expect(link).to_be_visible()
    with page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename.endswith(".exe")
    assert "\u202e" not in download.value.suggested_filename
    assert download.value.path().read_bytes() == b"x" * size


def test_svg_and_a_forged_image_run_nothing(served, person_at, tmp_path):
    page, _ = person_at(served, "approver")
    page.goto(PAGE)
    evil = (
        "<svg xmlns='http://www.w3.org/2000/svg' onload='parent.hacked=1'><script>top.hacked=1</script></svg>"
    )
    (tmp_path / "x.svg").write_text(evil)
    (tmp_path / "y.png").write_text(f"<!doctype html><script>top.hacked=1</script>{evil}")
    page.locator("input[type=file]").set_input_files([tmp_path / "x.svg", tmp_path / "y.png"])
    page.get_by_role("button", name="Send").click()
    links = page.locator(".chat-message:not(.pending) a.chat-file")
    expect(links).to_have_count(2)
    assert page.locator(".chat-message:not(.pending) img").count() == 0
    for link in links.all():
        with page.expect_download():
            link.click()
    assert page.evaluate("window.hacked") is None


def test_an_image_is_pasted_and_opened_without_a_mouse(served, person_at):
    page, _ = person_at(served, "approver")
    page.goto(PAGE)
    page.evaluate(
        """async bytes => {
            const data = new DataTransfer();
            data.items.add(new File([new Uint8Array(bytes)], "shot.png", {type: "image/png"}));
            document.dispatchEvent(new ClipboardEvent("paste", {clipboardData: data, bubbles: true}));
        }""",
        list(png((300, 200))),
    )
    send(page, "see")
    link = page.locator(".chat-message:not(.pending) a[data-lightbox]")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#lightbox")).to_be_visible()
    expect(page.locator("#lightbox")).to_contain_text("shot.png (1 of 1)")
    page.keyboard.press("Escape")
    expect(page.locator("#lightbox")).to_be_hidden()
    expect(link).to_be_focused()


def fill(served: Served, count: int) -> None:
    """Write a long thread straight into the database, as another program would."""
    rows = ", ".join(
        f"('m{n:06}', '{AGENT}', 'anna', 'user', '{json.dumps(text(f'number {n}'))}', {1771848000000 + n * 60000})"
        for n in range(1, count + 1)
    )
    served.sql(
        f"INSERT INTO chat_messages (id, agent_id, user_id, source, content, created_at) VALUES {rows}"
    )


def test_ten_thousand_messages_are_walked_up_without_a_jump(served, person_at):
    fill(served, 10_000)
    page, _ = person_at(served, "viewer")
    page.goto(PAGE)
    expect(said(page, "number 10000")).to_be_in_viewport()
    for _ in range(6):
        before = page.locator(".chat-message").count()
        top = page.evaluate(
            """() => { const s = document.querySelector(".chat-scroll");
                s.scrollTop = 0;
                const m = document.querySelector(".chat-message");
                return {id: m.id, y: m.getBoundingClientRect().top}; }"""
        )
        page.wait_for_function(
            "before => document.querySelectorAll('.chat-message').length > before", arg=before
        )
        y = page.evaluate("id => document.getElementById(id).getBoundingClientRect().top", top["id"])
        assert abs(y - top["y"]) <= 40  # the link above it gave way to a day's line; nothing else moved
    numbers = page.locator(".chat-message .prose").all_inner_texts()
    assert numbers == [f"number {n}" for n in range(10_000 - len(numbers) + 1, 10_001)]
    page.goto(f"{PAGE}?message=m000005")
    expect(said(page, "number 5").first).to_be_in_viewport()
    expect(page.get_by_text("The beginning of the chat")).to_be_attached()


def test_unread_messages_are_counted_until_they_were_seen(served, person_at):
    page, _ = person_at(served, "viewer")
    page.goto("/ui/chat/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    robot(served).post(THREAD, json={"content": text("news")})
    badge = page.locator(".chat-agents .badge")
    expect(badge).to_contain_text("1")
    page.locator(".chat-agent").first.click()
    expect(said(page, "news")).to_be_visible()
    expect(badge).to_have_count(0)


def test_somebody_who_reads_above_is_told_of_news_and_stays_there(served, person_at):
    fill(served, 60)
    page, _ = person_at(served, "viewer")
    page.goto(PAGE)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.evaluate("document.querySelector('.chat-scroll').scrollTop = 200")
    place = said(page, "number 20").first.bounding_box()
    robot(served).post(THREAD, json={"content": text("news")})
    jump = page.get_by_role("button", name="1 new message")
    expect(jump).to_be_visible()
    now = said(page, "number 20").first.bounding_box()
    assert abs(now["y"] - place["y"]) < 2
    jump.click()
    expect(said(page, "news")).to_be_in_viewport()


def test_an_agent_that_is_switched_off_is_told_of_at_once(served, person_at):
    page, _ = person_at(served, "approver")
    page.goto(PAGE)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    expect(page.locator("#chat-off")).to_be_empty()
    served.client("operator").post(f"/api/agents/{AGENT}/power", json={"enabled": False})
    expect(page.locator("#chat-off")).to_contain_text("switched off")
    served.client("operator").post(f"/api/agents/{AGENT}/power", json={"enabled": True})
    expect(page.locator("#chat-off")).to_be_empty()
    expect(page.locator("#chat-presence")).to_contain_text("Online")


def test_it_works_without_scripts(served, person_at):
    page, _ = person_at(served, "approver", java_script_enabled=False)
    page.goto(PAGE)
    page.get_by_label(re.compile("^Message ")).fill("plain")
    page.get_by_label("Your password").fill(PEOPLE["approver"])
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".chat-message", has_text="plain")).to_be_visible()
