"""Claude Code, Codex, Gemini CLI and OpenCode call a tool of an MCP server behind the gateway where grants say ask.

All four at the same time, connected by `signalbox connect`, each with a key of its own. A person decides in Chromium.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.agents import programs
from tests.agents.connected import connect
from tests.agents.real_agents import AGENTS, Home, Run
from tests.agents.scripted_models import Use
from tests.gateway.agents import bind, furnish, grant
from tests.gateway.conftest import TABLES
from tests.gateway.example_server import Example, running
from tests.served import Served

pytestmark = [pytest.mark.browser, pytest.mark.served, pytest.mark.real_agent]

REASON = "Not on a Friday."
ASKED_WITHIN = 90.0  # seconds; on a busy machine OpenCode takes one minute to begin
CONTENT = "line one\nline two"


def agent_of(name: str) -> str:
    return f"agent.{name}"


@pytest.fixture
def example() -> Iterator[Example]:
    with running() as found:
        yield found


@pytest.fixture
def box(served: Served, example: Example) -> Served:
    """A server behind the gateway that is closed but for one tool, of which each agent may ask."""
    programs.needed(*AGENTS)
    served.emptied(*TABLES)
    furnish(served, example.url, policy="opt-in")
    for name in AGENTS:
        bind(served, agent_of(name), f"sbx_gateway-{name}")
        grant(served, agent_of(name), "write", "ask")
    return served


@pytest.fixture
def runs(box: Served, tmp_path: Path) -> Iterator[dict[str, Run]]:
    """The agents at work: each wants to make the same call twice, the second time with other arguments."""
    homes = {name: Home(name, tmp_path / name) for name in AGENTS}
    with ThreadPoolExecutor(2) as some:
        list(some.map(lambda one: connect(homes[one], box, key=f"sbx_gateway-{one}"), homes))
    found = {name: home.starts(*wanted(name)) for name, home in homes.items()}
    yield found
    for run in found.values():
        run.close()
        run.home.close()


def wanted(name: str) -> list[Use]:
    places = (f"/srv/{name}/first", f"/srv/{name}/second")
    return [Use("example__write", {"path": place, "content": CONTENT}) for place in places]


def waiting(box: Served, name: str, path: str) -> str | None:
    """Return the request that waits for an agent's call, None where none does yet."""
    rows = box.sql(
        "SELECT r.request_id, c.tool_input FROM permission_requests r JOIN permission_context c"
        " ON c.request_id = r.request_id WHERE r.status = 'pending' AND c.agent_id = ?",
        (agent_of(name),),
    )
    return next((str(one) for one, given in rows if json.loads(given)["path"] == path), None)


def decide_each(
    box: Served, runs: dict[str, Run], number: int, decide: Callable[[str, str, str], None]
) -> None:
    """Have each agent's call decided as soon as it waits: `decide` is told the agent, the path and the request."""
    left, until = set(runs), time.monotonic() + ASKED_WITHIN
    while left:
        assert time.monotonic() < until, {name: runs[name].output()[-2000:] for name in left}
        for name in sorted(left):
            assert runs[name].process.poll() is None, f"{name} has ended: {runs[name].output()[-3000:]}"
            path = wanted(name)[number].given["path"]
            if (request_id := waiting(box, name, path)) is not None:
                decide(name, path, request_id)
                left.discard(name)
        time.sleep(0.05)


def press(page: Page, request_id: str, path: str, button: str, reason: str = "") -> None:
    """Decide on the card's page, which shows the exact arguments."""
    page.goto(f"/ui/approvals/{request_id}/")
    card = page.locator("article.ask")
    expect(card).to_contain_text(path)
    for line in CONTENT.split("\n"):
        expect(card).to_contain_text(line)
    if reason:
        card.get_by_placeholder("Reason (optional)").fill(reason)
    card.get_by_role("button", name=button).click()
    expect(page.locator("main")).to_contain_text({"Approve": "approved it", "Deny": "denied it"}[button])


def test_each_agent_s_call_runs_once_when_a_person_approves_it_and_is_asked_anew_otherwise(
    box: Served, example: Example, runs: dict[str, Run], person_at, subtests: pytest.Subtests
) -> None:
    page, _ = person_at(box, "approver")

    def approve(name: str, path: str, request_id: str) -> None:
        assert not example.calls[f"write {path}"]
        press(page, request_id, path, "Approve")

    def deny(name: str, path: str, request_id: str) -> None:
        assert example.calls[f"write /srv/{name}/first"] == 1
        press(page, request_id, path, "Deny", REASON)

    decide_each(box, runs, 0, approve)
    decide_each(box, runs, 1, deny)
    for name, run in runs.items():
        with subtests.test("told", agent=name):
            assert REASON in json.dumps(run.ended()[-1])
    assert example.calls == {f"write /srv/{name}/first": 1 for name in runs}
    for name in runs:
        with subtests.test("one call in its timeline", agent=name):
            is_one_call_each(box, name)


def is_one_call_each(box: Served, name: str) -> None:
    """Check that what the gateway told of an agent's calls belongs to what the agent's own hooks told of them."""
    told = box.sql(
        "SELECT e.event_type, c.tool_use_id, c.source FROM events e JOIN event_context c ON c.event_id = e.id"
        " JOIN sessions s ON s.session_id = e.session_id WHERE s.agent_name = ? AND e.tool_name LIKE '%write'",
        (agent_of(name),),
    )
    begun = {call_id for kind, call_id, source in told if (kind, source) == ("pre_tool", name)}
    passed = [call_id for kind, call_id, source in told if (kind, source) == ("post_tool", "gateway")]
    assert len(begun) >= len(wanted(name))
    assert set(passed) == begun
    assert ("pre_tool", "gateway") not in {(kind, source) for kind, _, source in told}
