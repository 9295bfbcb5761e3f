"""However a row arrives (on the first page, by the stream, or caught up with), the page looks the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser import Watch
from tests.served import Served, Template, running
from tests.sessions.test_in_a_browser import Agent, hide, live, wait_for_a_person

pytestmark = [pytest.mark.browser, pytest.mark.served]
PersonAt = Callable[..., tuple[Page, Watch]]
# What the index of files knows comes later.
PARTS = "#entries > [data-place], .summary > :not(.summary-changed), #session-head > .facts, #timeline-bar .facets > a"
LOOK = """(parts) => [...document.querySelectorAll(parts)].map((row) => {
    const copy = row.cloneNode(true);
    copy.classList.remove('arrived', 'changed', 'selected');
    for (const time of copy.querySelectorAll('time')) { time.removeAttribute('title'); time.textContent = ''; }
    for (const part of [copy, ...copy.querySelectorAll('*')]) {
        for (const { name } of [...part.attributes]) if (name.startsWith('data-hx')) part.removeAttribute(name);
        part.classList.forEach((name) => name.startsWith('htmx-') && part.classList.remove(name));
        if (part.getAttribute('class') === '') part.removeAttribute('class');
    }
    return copy.outerHTML.replace(/\\s+/g, ' ');
})"""


@pytest.fixture(scope="module")
def served(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests here: each has a session of its own."""
    with running(served_template, tmp_path_factory.mktemp("one_way") / "server") as server:
        yield server


@pytest.fixture
def agent(served: Served, request: pytest.FixtureRequest) -> Agent:
    return Agent(served, "ses_" + re.sub(r"\W+", "_", request.node.name)[-40:])


def work(agent: Agent) -> None:
    """Do something of each kind; the last is a message that says so."""
    agent.say("Please *do* it `now`", role="user")
    agent.call("Bash", {"command": "ls -l", "description": "Look"})
    agent.result("Bash", {"command": "ls -l", "description": "Look"}, {"stdout": "a\nb"})
    agent.call("Edit", {"file_path": "/a.py", "old_string": "x = 1", "new_string": "x = 2"})
    agent.result("Edit", {"file_path": "/a.py", "old_string": "x = 1", "new_string": "x = 2"}, error="no")
    agent.report("unheard_of", reason="it may be")
    agent.report("turn_end")
    wait_for_a_person(agent)
    agent.say("That was all of it")


def look(page: Page) -> list[str]:
    return list(page.evaluate(LOOK, PARTS))


def opened(served: Served, person_at: PersonAt, agent: Agent, query: str = "") -> Page:
    page, _ = person_at(served, "viewer")
    page.goto(agent.page + query)
    return page


def test_rows_look_the_same_however_they_arrived(served: Served, person_at: PersonAt, agent: Agent) -> None:
    agent.say("Before anybody looked")
    watching, away = (opened(served, person_at, agent) for _ in range(2))
    for page in (watching, away):
        live(page)
    hide(away, hidden=True)
    work(agent)
    expect(watching.locator("#entries").get_by_text("That was all of it")).to_be_visible()
    expect(watching.locator(".entry")).to_have_count(8)
    hide(away, hidden=False)
    expect(away.locator("#entries").get_by_text("That was all of it")).to_be_visible()
    expect(away.locator(".entry")).to_have_count(8)
    expect(watching.locator("#session-head")).to_contain_text("9")
    expect(away.locator("#session-head")).to_contain_text("9")
    first = look(opened(served, person_at, agent))
    assert look(watching) == first
    assert look(away) == first


@pytest.mark.parametrize("query", ["?kind=messages", "?tool=Bash", "?errors=1", "?kind=lifecycle&kind=other"])
def test_readers_with_filters_are_shown_what_these_let_through(
    served: Served, person_at: PersonAt, agent: Agent, query: str
) -> None:
    page = opened(served, person_at, agent, query)
    live(page)
    everything = opened(served, person_at, agent)
    live(everything)
    work(agent)
    expect(everything.locator("#entries").get_by_text("That was all of it")).to_be_visible()
    expected = [row for row in look(opened(served, person_at, agent, query)) if row.startswith("<li")]
    expect(page.locator("#entries > [data-place]")).to_have_count(len(expected))
    assert [row for row in look(page) if row.startswith("<li")] == expected


def test_who_follows_fetches_nothing(served: Served, person_at: PersonAt, agent: Agent) -> None:
    agent.say("first")
    page = opened(served, person_at, agent)
    live(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for number in range(12):
        agent.say(f"line {number}")
        expect(
            page.locator("#entries").get_by_text(f"line {number}", exact=True)
        ).to_be_visible()  # not all in one batch
    expect(page.locator("#session-head")).to_contain_text("13")
    assert asked == []


def test_a_search_is_followed_as_the_index_learns(served: Served, person_at: PersonAt, agent: Agent) -> None:
    page = opened(served, person_at, agent, "?q=needle")
    live(page)
    agent.say("some hay")
    agent.say("the needle")
    expect(page.locator("#entries").get_by_text("the needle")).to_be_visible()
    assert page.locator("#entries").get_by_text("some hay").count() == 0


def test_after_a_break_nothing_is_missing_and_nothing_twice(
    served: Served, person_at: PersonAt, agent: Agent
) -> None:
    page, watch = person_at(served, "viewer")
    watch.expect_an_outage()
    page.goto(agent.page)
    live(page)
    agent.say("before")
    expect(page.locator("#entries").get_by_text("before")).to_be_visible()
    served.stop()
    served.start()
    agent.http = served.client("runner")
    agent.say("just after")
    expect(page.locator("#entries").get_by_text("just after")).to_be_visible()
    texts = page.locator(".entry.message .prose").all_text_contents()
    assert [text.strip() for text in texts] == ["before", "just after"]
