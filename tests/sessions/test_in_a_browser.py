"""A person follows a session in a real browser, against the served program with two workers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser import PHONE, Watch, confirm_by_password
from tests.patience import until
from tests.served import Served, Template, running

pytestmark = [pytest.mark.browser, pytest.mark.served]
PersonAt = Callable[..., tuple[Page, Watch]]
BEGAN = datetime(2026, 11, 20, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def served(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests here: each has a session of its own."""
    with running(served_template, tmp_path_factory.mktemp("timelines") / "server") as server:
        yield server


class Agent:
    """An agent at work in one session: reports over HTTP, as executors do."""

    def __init__(self, served: Served, session_id: str) -> None:
        self.served, self.session_id = served, session_id
        self.http = served.client("runner")
        self.count = 0
        served.sql(
            "INSERT INTO sessions (session_id, status, created_at, agent_name) VALUES (?, ?, ?, ?)",
            (session_id, "running", BEGAN.isoformat(timespec="microseconds"), "builder"),
        )

    @property
    def page(self) -> str:
        return f"/ui/sessions/{self.session_id}/"

    def report(self, event_type: str, **fields: Any) -> None:
        self.count += 1
        when = (BEGAN + timedelta(seconds=self.count)).isoformat()
        body = {"event_type": event_type, "session_id": self.session_id, "timestamp": when, **fields}
        answer = self.http.post(f"/sessions/{self.session_id}/events", json=body)
        assert answer.status_code == 201, answer.text

    def say_many(self, number: int, *, every: float) -> None:
        """Say `line 0`, `line 1` … at once, `every` so many seconds; every hundredth has failed."""
        events = [
            {
                "event_type": "message",
                "session_id": self.session_id,
                "timestamp": (BEGAN + timedelta(seconds=every * line)).isoformat(),
                "role": "assistant",
                "content": [{"type": "text", "text": f"line {line} of many"}],
                "error": "it broke" if line % 100 == 99 else None,
            }
            for line in range(number)
        ]
        answer = self.http.post("/api/events", json=events)
        assert answer.status_code == 200, answer.text
        self.count += number

    def say(self, text: str, role: str = "assistant") -> None:
        self.report("message", role=role, content=[{"type": "text", "text": text}])

    def call(self, tool: str, given: dict[str, Any]) -> None:
        self.report("pre_tool", tool_name=tool, tool_input=given)

    def result(self, tool: str, given: dict[str, Any], came: Any = None, error: str | None = None) -> None:
        self.report("post_tool", tool_name=tool, tool_input=given, tool_output=came, error=error)


@pytest.fixture
def agent(served: Served, request: pytest.FixtureRequest) -> Agent:
    """An agent with a running session, named after the test."""
    return Agent(served, "ses_" + re.sub(r"\W+", "_", request.node.name)[-40:])


def live(page: Page) -> None:
    expect(page.locator("#live")).to_have_attribute("data-state", "live")


def test_rows_arrive_while_a_person_reads(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    page.goto(agent.page)
    live(page)
    expect(page.get_by_text("Nothing has happened yet")).to_be_visible()
    agent.say("Hello, I have begun", role="user")
    # Not anywhere: soon it is the session's title, too.
    expect(page.locator(".entry.message").get_by_text("Hello, I have begun")).to_be_visible()
    expect(page.get_by_text("Nothing has happened yet")).to_have_count(0)
    for number in range(20):
        agent.say(f"step {number} of it")
    expect(page.locator(".entry.message")).to_have_count(21)
    texts = page.locator(".entry.message .prose").all_text_contents()
    assert [text.strip() for text in texts[1:]] == [f"step {number} of it" for number in range(20)]


def test_a_key_leads_from_one_failed_call_to_the_next(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    for number in range(3):
        agent.call("Bash", {"command": f"make part{number}"})
        agent.result("Bash", {"command": f"make part{number}"}, error=f"part {number} broke")
        agent.say(f"said after {number}")
    page, _ = person_at(served, "viewer")
    page.goto(f"{agent.page}?from=start")
    seen = []
    for _ in range(3):
        page.keyboard.press("n")
        page.wait_for_url(lambda url, seen=tuple(seen): "#event-" in url and url not in seen)
        seen.append(page.url)
        live(page)
    targets = page.locator(".entry.call").filter(has=page.locator(":target"))
    expect(targets).to_contain_text("part2")
    page.keyboard.press("n")
    expect(page.get_by_text("There is no next error.")).to_be_visible()
    page.keyboard.press("b")
    expect(targets).to_contain_text("part1")


def test_a_page_that_is_cut_off_from_the_network_says_so_at_once(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    page, watch = person_at(served, "viewer")
    page.goto(agent.page)
    live(page)
    watch.expect_an_outage()
    page.context.set_offline(True)
    expect(page.locator("#live")).not_to_have_attribute("data-state", "live", timeout=2_000)
    agent.say("said meanwhile", role="user")
    page.context.set_offline(False)
    live(page)
    expect(page.locator(".entry.message").get_by_text("said meanwhile")).to_be_visible()


def test_a_call_fills_in_when_its_result_comes(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    agent.call("Bash", {"command": "make test"})
    page.goto(agent.page)
    live(page)
    row = page.locator(".entry.call")
    expect(row.get_by_text("Running")).to_be_visible()
    agent.result("Bash", {"command": "make test"}, {"stdout": "all green", "stderr": ""})
    expect(row.get_by_text("Running")).to_have_count(0)
    expect(row).to_have_count(1)
    row.locator("summary").click()
    expect(row.locator("pre", has_text="all green")).to_be_visible()


def test_what_was_opened_stays_open(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    agent.call("Bash", {"command": "make test"})
    page.goto(agent.page)
    live(page)
    page.locator(".entry.call summary").click()
    agent.result("Bash", {"command": "make test"}, "all green")
    expect(page.locator(".entry.call pre", has_text="all green")).to_be_visible()


def test_paused_news_are_counted_and_shown_on_resume(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    page, _ = person_at(served, "viewer")
    page.goto(agent.page)
    live(page)
    page.locator("#live").click()
    for number in range(3):
        agent.say(f"unseen {number}")
    expect(page.locator("#live [data-live-count]")).to_have_text("3 new")
    assert page.locator("#entries").get_by_text("unseen 1").count() == 0
    page.locator("#live").click()
    expect(page.locator("#entries").get_by_text("unseen 2")).to_be_visible()


def test_a_hidden_tab_catches_up_when_it_is_shown(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    page.goto(agent.page)
    live(page)
    hide(page, hidden=True)
    agent.say("while you were away")
    agent.call("Read", {"file_path": "/a"})
    hide(page, hidden=False)
    expect(page.locator("#entries").get_by_text("while you were away")).to_be_visible()
    expect(page.locator(".entry.call")).to_have_count(1)


def hide(page: Page, *, hidden: bool) -> None:
    """Make the page believe that its tab is hidden, or shown again."""
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
            const state = hidden ? 'hidden' : 'visible';
            Object.defineProperty(document, 'visibilityState', { configurable: true, get: () => state });
            document.dispatchEvent(new Event('visibilitychange'));
        }""",
        hidden,
    )


def test_who_has_scrolled_up_is_told_how_much_is_new(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    page, _ = person_at(served, "viewer")
    for number in range(60):
        agent.say(f"line {number}")
    page.goto(agent.page)
    live(page)
    page.evaluate("window.scrollTo(0, 0)")
    agent.say("something new")
    expect(page.locator("#unseen")).to_contain_text("1 new")
    assert page.evaluate("window.scrollY") == 0
    page.locator("#unseen").click()
    expect(page.locator("#entries").get_by_text("something new")).to_be_in_viewport()
    expect(page.locator("#unseen")).to_be_hidden()


def test_the_end_is_followed_by_who_stands_there(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    for number in range(60):
        agent.say(f"line {number}")
    page.goto(agent.page)
    live(page)
    agent.say("the very newest")
    expect(page.locator("#entries").get_by_text("the very newest")).to_be_in_viewport()


def test_a_permalink_opens_its_window_and_marks_the_event(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    page, _ = person_at(served, "viewer")
    for number in range(250):
        agent.say(f"line {number} of many")
    ((event_id,),) = served.sql(
        "SELECT id FROM events WHERE session_id = ? ORDER BY id LIMIT 1 OFFSET 30", (agent.session_id,)
    )
    page.goto(f"{agent.page}#event-{event_id}")
    expect(page.locator("#entries").get_by_text("line 30 of many")).to_be_in_viewport()
    assert page.locator(f"#event-{event_id}:target").count() == 1
    assert page.locator("[data-place]").count() <= 200


def test_reading_on_loads_later_and_earlier_rows(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    for number in range(250):
        agent.say(f"line {number} of many")
    page.goto(f"{agent.page}?from=start")
    page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    expect(page.locator("#entries").get_by_text("line 199 of many")).to_have_count(1)
    page.goto(f"{agent.page}?from=end")
    page.locator("#older").click()
    expect(page.locator("#entries").get_by_text("line 60 of many")).to_have_count(1)
    texts = page.locator(".entry.message .prose").all_text_contents()
    assert [text.strip() for text in texts] == [f"line {number} of many" for number in range(50, 250)]


def test_filters_stand_in_the_url_and_back_works(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    agent.say("words")
    agent.call("Bash", {"command": "false"})
    agent.result("Bash", {"command": "false"}, error="exit 1")
    page.goto(agent.page)
    page.get_by_role("link", name="Errors 1").click()
    page.wait_for_url("**/?errors=1")
    expect(page.locator("#entries > [data-place]")).to_have_count(1)
    page.go_back()
    expect(page.locator("#entries > [data-place]")).to_have_count(2)
    page.go_forward()
    expect(page.locator("#entries > [data-place]")).to_have_count(1)


def test_the_failing_call_is_one_key_away_and_has_a_link(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    page, _ = person_at(served, "viewer")
    for number in range(120):
        agent.say(f"line {number}")
    agent.call("Bash", {"command": "false"})
    agent.result("Bash", {"command": "false"}, error="it broke")
    for number in range(120):
        agent.say(f"more {number}")
    page.goto(f"{agent.page}?from=start")
    page.keyboard.press("n")
    page.wait_for_url(re.compile(r"event=\d+#event-\d+$"))
    expect(page.locator(".entry.failed")).to_be_in_viewport()
    expect(page.locator("#entries").get_by_text("it broke").filter(visible=True)).to_have_count(
        1
    )  # of the row and what it opens


def test_stopping_from_the_page(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "approver")
    page.goto(agent.page)
    page.get_by_role("button", name=re.compile("^Stop( session)?$")).click()
    expect(page.get_by_text("No runner runs this session")).to_be_visible()
    page.get_by_role("button", name="Mark as stopped").click()
    page.locator("#confirm [value=yes]").click()
    expect(page.locator("#session-head").get_by_text("Stopped")).to_be_visible()
    assert served.sql("SELECT status FROM sessions WHERE session_id = ?", (agent.session_id,)) == [
        ("stopped",)
    ]


def test_the_status_changes_under_the_readers_eyes(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    page.goto(agent.page)
    live(page)
    agent.report("session_stop", exit_code=0, reason="completed")
    expect(page.get_by_text("Session ended · completed")).to_be_visible()
    expect(page.locator("#session-head").get_by_text("Finished")).to_be_visible()


def test_the_list_tells_of_changes_without_moving(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    page.goto("/ui/sessions/")
    live(page)
    before = page.locator("[data-session-row]").evaluate_all(
        "rows => rows.map(row => row.dataset.sessionRow)"
    )
    Agent(served, agent.session_id + "_next")
    expect(page.locator("#arrivals")).to_contain_text("1 new")
    agent.report("session_stop", exit_code=0, reason="completed")
    row = page.locator(f'[data-session-row="{agent.session_id}"]')
    expect(row.get_by_text("Finished")).to_be_visible()
    after = page.locator("[data-session-row]").evaluate_all("rows => rows.map(row => row.dataset.sessionRow)")
    assert after == before


def wait_for_a_person(agent: Agent) -> str:
    """Have the agent ask for something; return the request's id."""
    with agent.served.client("agent") as asker:
        body = {
            "plugin_id": "p",
            "permission_type": "NetworkAccess",
            "target_resource": "https://api.example.org",
            "justification": "To look",
            "session_id": agent.session_id,
        }
        asked = asker.post("/api/permission-requests", json=body)
        assert asked.status_code < 300, asked.text
        return str(asked.json()["request_id"])


def test_a_listed_session_tells_what_it_costs_as_that_grows(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    page, _ = person_at(served, "viewer")
    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url) if "/-/rows/" in request.url else None)
    page.goto("/ui/sessions/")
    live(page)
    row = page.locator(f'[data-session-row="{agent.session_id}"]')
    expect(row.locator('[data-follows="cost"]')).to_have_text("\u2013")
    agent.report(
        "message", role="assistant", model="claude-sonnet-4-5", input_tokens=100_000, output_tokens=0
    )
    cost = row.locator('[data-follows="cost"]')
    expect(cost).to_have_text("$0.30")
    expect(cost).to_have_attribute("title", "100,000 tokens")
    agent.report(
        "message", role="assistant", model="claude-sonnet-4-5", input_tokens=100_000, output_tokens=0
    )
    expect(cost).to_have_text("$0.60")
    assert not fetched, "the stream brings what all who look at the list can share"


def test_a_session_that_waits_for_a_person_says_so_in_lists_and_above_its_page(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    page, _ = person_at(served, "viewer")
    head, _ = person_at(served, "viewer")
    page.goto("/ui/sessions/")
    head.goto(agent.page)
    places = [
        page.locator(f'[data-session-row="{agent.session_id}"] [data-session-waiting]'),
        head.locator("#session-head [data-session-waiting]"),
    ]
    for one in (page, head):
        live(one)
    request_id = wait_for_a_person(agent)
    for place in places:
        expect(place).to_be_visible()
        expect(place).to_have_text("1 waiting")
    served.sql("UPDATE permission_requests SET status = 'denied' WHERE request_id = ?", (request_id,))
    for place in places:
        expect(place).to_be_hidden()


@pytest.mark.parametrize("options", [{}, PHONE, {"color_scheme": "dark"}], ids=["desk", "phone", "dark"])
def test_no_page_complains_or_is_too_wide(
    served: Served, person_at: PersonAt, agent: Agent, options: dict[str, Any]
) -> None:
    page, _ = person_at(served, "admin", **options)
    for status in ("finished", "error", "stopped", "stopping", "a status of another program"):
        served.sql(
            "INSERT INTO sessions (session_id, status, created_at) VALUES (?, ?, ?)",
            (f"{agent.session_id}_{status}", status, BEGAN.isoformat()),
        )
    agent.say("long " * 400 + "unbroken" * 200, role="user")
    agent.call("Edit", {"file_path": "/a" * 90, "old_string": "a\n" * 80, "new_string": "b" * 900})
    agent.result(
        "Edit", {"file_path": "/a" * 90, "old_string": "a\n" * 80, "new_string": "b" * 900}, error="x" * 500
    )
    places = (
        agent.page,
        f"{agent.page}-/print/",
        f"{agent.page}-/delete/",
        f"{agent.page}-/resume/",
        "/ui/sessions/",
    )
    for place in (*places, "/ui/search/?q=long", "/ui/runs/", "/ui/runs/new/", "/ui/runners/"):
        answer = page.goto(place)
        assert answer is not None
        assert answer.status == 200, place
        page.wait_for_load_state("load")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, place


def test_the_waterfall_is_one_key_away_and_zoomed_by_keys_and_by_dragging(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    for number in range(4):
        agent.call("Bash", {"command": f"make part{number}"})
        agent.result("Bash", {"command": f"make part{number}"}, "made")
    page, _ = person_at(served, "viewer")
    page.goto(agent.page)
    page.keyboard.press("w")
    page.wait_for_url("**/-/waterfall/")
    rows = page.locator("#waterfall [data-row]")
    expect(rows).to_have_count(4)
    live(page)
    agent.call("Read", {"file_path": "/a"})
    expect(rows).to_have_count(5)
    page.keyboard.press("+")
    page.wait_for_url(re.compile(r"from=\d+&to=\d+"))
    page.keyboard.press("0")
    page.wait_for_url("**/-/waterfall/?")
    box = page.locator("[data-axis]").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.1, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 8)
    page.mouse.up()
    page.wait_for_url(re.compile(r"from=\d+&to=\d+"))
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"\?event=\d+#event-\d+$"))


def test_a_copied_link_leads_to_its_event_also_through_the_sign_in(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    for number in range(150):
        agent.say(f"line {number} of many")
    page, _ = person_at(served, "viewer", permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"{agent.page}?from=start")
    row = page.locator(".entry").filter(has_text="line 3 of many")
    row.hover()
    row.get_by_role("button", name="Copy a link to this event").click()
    expect(page.get_by_text("Link copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    assert re.search(r"\?event=\d+#event-\d+$", link)
    page.goto(link.partition("#")[0])  # what a sign-in leaves of it
    expect(page.locator(".entry.linked")).to_contain_text("line 3 of many")
    expect(page.locator(".entry.linked")).to_be_in_viewport()


def test_the_list_counts_events_as_they_arrive(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    page.goto(f"/ui/sessions/?q={agent.session_id}")
    live(page)
    agent.say("one")
    agent.say("two")
    expect(page.locator(f"#session-{agent.session_id} td[data-label=Events]")).to_have_text("2")


DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def top_of(page: Page, text: str) -> float:
    return float(
        page.locator("#entries")
        .get_by_text(text, exact=True)
        .evaluate("element => element.getBoundingClientRect().top")
    )


def test_what_a_reader_looks_at_stays_where_it_is(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    agent.call("Bash", {"command": "false"})
    agent.say_many(80, every=1)
    page.goto(f"{agent.page}?from=end")
    live(page)
    page.locator("#entries").get_by_text("line 40 of many", exact=True).scroll_into_view_if_needed()
    page.evaluate(DRAWN)  # rows that come near are drawn, and get their height, with the next frame
    before = top_of(page, "line 40 of many")
    agent.result("Bash", {"command": "false"}, error="it broke\n" * 30)  # opens by itself, far above
    agent.say("and one more below")
    expect(page.locator(".entry.call.failed")).to_have_count(1)
    expect(page.locator("#unseen")).to_contain_text("new")
    assert abs(top_of(page, "line 40 of many") - before) <= 1


def test_a_session_is_read_by_keyboard_alone(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page, _ = person_at(served, "viewer")
    agent.say("first words")
    agent.call("Bash", {"command": "make test"})
    agent.result("Bash", {"command": "make test"}, "all green")
    page.goto(f"/ui/sessions/?q={agent.session_id}")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{agent.page}")
    page.keyboard.press("j")
    page.keyboard.press("j")
    focused = page.locator(".entry.call summary")
    expect(focused).to_be_focused()
    assert focused.evaluate("element => getComputedStyle(element).outlineStyle") != "none"
    page.keyboard.press("Enter")
    expect(page.locator("pre", has_text="all green")).to_be_visible()
    page.keyboard.press("k")
    expect(page.locator(".entry.message.selected")).to_have_count(1)
    page.keyboard.press("/")
    expect(page.get_by_label("Search this session")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_hidden()


def test_the_strip_leads_anywhere_and_follows_the_reader(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    page, _ = person_at(served, "viewer")
    agent.say_many(960, every=10)
    page.goto(f"{agent.page}?from=start")
    frame = page.locator("#minimap .in-view")
    expect(frame).to_have_attribute("x", "0%")
    page.locator("[data-slice]").nth(48).click()
    page.wait_for_url("**/?after=*")
    expect(page.locator("#entries").get_by_text("line 480 of many", exact=True)).to_be_in_viewport()
    assert 49 < float((frame.get_attribute("x") or "").rstrip("%")) < 51
    page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    expect(frame).not_to_have_attribute("x", re.compile(r"^50(\.0\d*)?%$"))
    page.locator("[data-slice-error]").nth(2).locator(".failed").click()
    page.wait_for_url(re.compile(r"event=\d+#event-\d+$"))
    expect(page.locator("#entries").get_by_text("line 299 of many", exact=True)).to_be_in_viewport()
    page.locator("[data-slice]").first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    expect(page.locator("#entries").get_by_text("line 950 of many", exact=True)).to_be_in_viewport()


def test_without_javascript_everything_but_being_live_works(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    agent.say_many(250, every=1)
    page, watch = person_at(served, "admin", java_script_enabled=False)
    watch.expect("422|403")  # what was mistyped, and what asks for the password
    page.goto("/ui/sessions/")
    page.get_by_label("Find a session").fill(agent.session_id)
    page.get_by_role("button", name="Show sessions").click()
    page.locator("[data-session-row] [data-open]").click()
    expect(page.locator("#entries").get_by_text("line 249 of many", exact=True)).to_be_visible()
    page.locator("#older").click()
    expect(page.locator("#entries").get_by_text("line 149 of many", exact=True)).to_be_visible()
    page.get_by_role("link", name="Errors 2").click()
    expect(page.locator("#entries > [data-place]")).to_have_count(2)
    page.get_by_label("Search this session").fill("nothing says so")
    page.get_by_label("Search this session").press("Enter")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    page.get_by_role("link", name="Show everything").click()
    page.locator("[data-slice]").first.click()
    expect(page.locator("#entries").get_by_text("line 0 of many", exact=True)).to_be_visible()
    page.get_by_role("button", name=re.compile("^Stop( session)?$")).click()
    page.get_by_role("button", name="Mark as stopped").click()
    confirm_by_password(page, "admin")
    expect(page.locator("#session-head").get_by_text("Stopped")).to_be_visible()
    page.get_by_role("link", name="Resume").click()
    page.get_by_label("Prompt").fill("Go on, please")
    page.get_by_role("button", name="Resume").click()
    confirm_by_password(page, "admin")
    page.goto("/ui/runs/")
    row = page.locator("tr[data-row]").filter(has_text="Go on, please")
    expect(row).to_contain_text("No runner is online")
    row.get_by_role("button", name="Stop").click()
    confirm_by_password(page, "admin")
    expect(page.locator("tr[data-row]").filter(has_text="Go on, please")).to_contain_text("Stopped")
    page.goto(f"{agent.page}-/delete/")
    page.get_by_label("Type the session's id").fill("not this")
    page.get_by_role("button", name="Delete session").click()
    confirm_by_password(page, "admin")
    expect(page.get_by_role("alert")).to_contain_text("nothing was deleted")
    page.get_by_label("Type the session's id").fill(agent.session_id)
    page.get_by_role("button", name="Delete session").click()
    confirm_by_password(page, "admin")
    page.wait_for_url("**/ui/sessions/")
    assert served.sql("SELECT count(*) FROM events WHERE session_id = ?", (agent.session_id,)) == [(0,)]


def test_a_new_title_stands_at_once_on_every_open_page(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    page, _ = person_at(served, "viewer")
    page.goto(agent.page)
    live(page)
    expect(page.locator("h1")).to_have_text("Untitled session")
    agent.say("Mend the *totals*. Then rest.", role="user")
    expect(page.locator("h1")).to_have_text("Mend the totals")
    expect(page).to_have_title(re.compile(r"Mend the totals · Signalbox$"))
    listed, _ = person_at(served, "viewer")
    listed.goto("/ui/sessions/")
    live(listed)
    expect(listed.get_by_role("link", name="Mend the totals")).to_be_visible()
    kept = "SELECT count(*) FROM session_titles WHERE session_id = ?"
    # Pages show a session's first words before they are kept.
    until(lambda: served.sql(kept, (agent.session_id,)) == [(1,)])
    served.sql(
        "UPDATE session_titles SET title = ?, source = 'person' WHERE session_id = ?",
        ("Totals & more", agent.session_id),
    )
    for one in (page, listed):
        expect(one.locator(f'[data-session-title="{agent.session_id}"]').first).to_have_text("Totals & more")
    expect(page).to_have_title(re.compile(r"Totals & more · Signalbox$"))
