"""A driven session in a real Chromium: words while they are said, the next prompt, the queue, the turn's stop."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.driving.driver import Driver
from tests.served import Served

pytestmark = [pytest.mark.browser, pytest.mark.served]
SAYS = {"sessionUpdate": "agent_message_chunk", "messageId": "m1"}
CAPABLE = {
    "sessionUpdate": "signalbox/agent",
    "agent": "claude",
    "agentSessionId": "0b1e7f4e-driven-in-a-browser",
    "agentCapabilities": {"promptCapabilities": {"image": True}, "sessionCapabilities": {"fork": {}}},
    "modes": {
        "currentModeId": "default",
        "availableModes": [{"id": "default", "name": "Default"}, {"id": "plan", "name": "Plan Mode"}],
    },
    "commands": [{"name": "review", "description": "Review the change"}, {"name": "init"}],
}


def chunk(text: str) -> dict[str, Any]:
    return {**SAYS, "content": {"type": "text", "text": text}}


@pytest.fixture
def at_work(served: Served, person_at: Any) -> tuple[Driver, Page]:
    driver = Driver(served)
    driver.tell(
        CAPABLE, {"sessionUpdate": "signalbox/turn_started", "prompt": [{"type": "text", "text": "Go"}]}
    )
    page, _ = person_at(served, "approver")
    page.goto(f"/ui/sessions/{driver.session}/")
    expect(page.locator(".entry", has_text="Go").first).to_be_visible()
    return driver, page


def test_words_grow_at_the_foot_and_become_a_message(at_work: tuple[Driver, Page]) -> None:
    driver, page = at_work
    draft = page.locator("#draft")
    driver.tell(chunk("Hello, "))
    expect(draft).to_contain_text("Hello,")
    began = time.monotonic()
    driver.tell(chunk("**you**."))
    expect(draft).to_contain_text("Hello, **you**.")
    assert time.monotonic() - began < 5
    call = {
        "toolCallId": "toolu_1",
        "kind": "execute",
        "title": "make test",
        "rawInput": {"command": "make test"},
    }
    driver.tell({"sessionUpdate": "tool_call", "status": "in_progress", **call})
    expect(page.locator(".entry strong", has_text="you")).to_be_visible()
    driver.tell({"sessionUpdate": "signalbox/terminal", "toolCallId": "toolu_1", "output": "12 passed\n"})
    expect(draft).to_contain_text("12 passed")
    driver.tell(
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "toolu_1",
            "status": "completed",
            "rawOutput": "ok",
        }
    )
    expect(draft).to_be_hidden()
    plan = [{"content": "Read", "status": "completed"}, {"content": "Write", "status": "in_progress"}]
    driver.tell({"sessionUpdate": "plan", "entries": plan})
    expect(page.locator("#steer-plan")).to_contain_text("1 of 2")


def test_a_prompt_waits_in_the_queue_and_can_be_removed(at_work: tuple[Driver, Page]) -> None:
    _driver, page = at_work
    field = page.get_by_role("textbox", name="Message to the agent")
    field.fill("/re")
    field.press("End")
    field.type("v")
    expect(page.get_by_role("option", name=re.compile("review"))).to_be_visible()
    page.keyboard.press("Enter")
    expect(field).to_have_value("/review ")
    field.type("the last change")
    page.keyboard.press("Enter")
    queued = page.locator(".steer-queue li")
    expect(queued).to_have_count(1)
    expect(queued).to_contain_text("/review the last change")
    expect(field).to_have_value("")
    queued.get_by_role("button", name="Remove").click()
    expect(page.get_by_text("removed from the queue")).to_be_visible()
    expect(page.locator(".steer-queue li")).to_have_count(0)


def test_this_turn_is_stopped_and_the_mode_changed(at_work: tuple[Driver, Page]) -> None:
    driver, page = at_work
    page.get_by_title("Mode").click()
    page.get_by_role("button", name="Plan Mode").click()
    expect(page.get_by_text("Sent to the agent.")).to_be_visible()
    told = driver.poll()
    assert told is not None
    ((command,),) = (told["commands"],)
    assert (command["session_id"], command["set_mode"]) == (driver.session, "plan")
    driver.tell(
        {"sessionUpdate": "signalbox/command_done", "id": command["id"]},
        {"sessionUpdate": "current_mode_update", "currentModeId": "plan"},
    )
    page.get_by_role("button", name=re.compile("^Stop( session)?$")).click()
    page.get_by_role("button", name="Stop this turn").click()
    assert driver.poll() == {"cancel_runs": [driver.run["run_id"]]}
    driver.tell({"sessionUpdate": "signalbox/turn_ended", "stopReason": "cancelled"})
    driver.ended()
    expect(page.locator(".entry", has_text="Turn ended: stopped")).to_be_visible()
    page.get_by_role("textbox", name="Message to the agent").fill("And now this")
    page.keyboard.press("Enter")
    told = driver.poll()
    assert told is not None
    assert told["run"]["prompt"] == "And now this"


def test_a_run_is_started_with_what_runners_offer(at_work: tuple[Driver, Page]) -> None:
    driver, page = at_work
    page.goto("/ui/runs/new/")
    page.get_by_label("Agent").select_option("gemini")
    expect(page.get_by_label("Directory")).to_have_value("/home/dev")
    page.get_by_role("textbox", name="Prompt").fill("Say hello")
    page.get_by_role("button", name="Start").click()
    expect(page.locator(".steer-queue")).to_contain_text("Say hello")
    told = driver.poll()
    assert told is not None
    assert told["run"]["parameters"] == {"prompt": "Say hello", "agent": "gemini"}
