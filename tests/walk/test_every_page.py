"""Every page that links lead to, in a real browser: WCAG 2.2 AA, axe's best practice, width, weight, console."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser import PHONE, Watch, confirm_by_password
from tests.served import Served, Template, manage, running
from tests.walk.crawl import pages_from

pytestmark = [pytest.mark.browser, pytest.mark.served]
PersonAt = Callable[..., tuple[Page, Watch]]

RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    # Django's own search field of Admin has a label that is a picture.
    "rules": {"label-title-only": {"enabled": False}},
    "resultTypes": ["violations"],
    "preload": False,
}
# Of the rows of a table that look the same to CSS the first stands for all. A page that opens at one of its messages is
# looked at from its beginning: what lies half under a bar that stays in place counts as too small to press. Returns how
# much wider than the screen the whole page is.
SHORTEN = """
() => {
  const wide = document.documentElement.scrollWidth - innerWidth
  const look = one => one.tagName + one.className + [...one.attributes].map(at => at.name).join() + one.dataset.state
    + one.dataset.kind + one.ariaCurrent + one.ariaDisabled + one.ariaPressed + one.ariaSelected
  for (const rows of document.querySelectorAll("tbody")) {
    const seen = new Set()
    for (const row of [...rows.rows]) {
      const its = [row, ...row.querySelectorAll("*")].map(look).join()
      if (seen.has(its)) row.remove()
      else seen.add(its)
    }
  }
  scrollTo({ top: 0, behavior: "instant" })
  return wide
}
"""
FIRST_PAGE_KB = 100
FEWEST_PAGES = 45  # fewer, and the walk has lost its way


@pytest.fixture(scope="module")
def served(served_template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with two days of the demo."""
    with running(served_template, tmp_path_factory.mktemp("walk") / "server") as server:
        manage("demo", "--anyway", "--days", "2", "--verbosity=0", env=server.env)
        yield server


@pytest.fixture(scope="module")
def pages(served: Served) -> list[str]:
    found = pages_from(served.sign_in("admin"), "/ui/", "/admin/")
    assert len(found) >= FEWEST_PAGES, found
    return found


@pytest.mark.timeout(900)  # 80 pages, each loaded and looked through by axe: minutes on a busy machine
@pytest.mark.parametrize(
    ("width", "scheme"), [({"viewport": {"width": 1280, "height": 900}}, "light"), (PHONE, "dark")]
)
def test_no_page_breaks_a_rule_of_wcag(
    served: Served, pages: list[str], person_at: PersonAt, width: dict[str, object], scheme: str
) -> None:
    # What looks writes styles into the page, which the policy would refuse and the console complain of.
    page, _ = person_at(served, "admin", color_scheme=scheme, bypass_csp=True, **width)
    broken = {}
    for place in pages:
        if scheme == "dark" and place.startswith("/admin/"):
            continue  # Django's own pages, in colours of its own
        page.goto(place)
        wide = page.evaluate(SHORTEN)
        found = Axe().run(page, options=RULES).response["violations"]
        told = [f"{one['id']}: {node['html'][:160]}" for one in found for node in one["nodes"][:3]]
        if wide > 0:
            told.append(f"{wide} px too wide")
        if told:
            broken[place] = told
    assert not broken, "\n".join(f"{place}\n    " + "\n    ".join(told) for place, told in broken.items())


def test_the_first_page_is_light(served: Served, person_at: PersonAt) -> None:
    page, _ = person_at(served, None)
    sizes: list[int] = []
    page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
    page.goto("/ui/sign-in/", wait_until="networkidle")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill("admin-password-7")
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/ui/")
    page.wait_for_load_state("load")
    page.evaluate("performance.getEntriesByType('resource').length")
    assert 0 < sum(sizes) <= FIRST_PAGE_KB * 1024, sizes


# What the browser says moved although nobody had touched anything.
SHIFTS = """
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted = (window.shifted || 0) + entry.value
}).observe({ type: "layout-shift" })
"""
SETTLED = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


def test_what_arrives_moves_nothing_that_is_read(served: Served, person_at: PersonAt) -> None:
    machine = served.client(key="all")
    run = machine.post("/runs", json={"type": "start_session", "prompt": "Read this"}).json()
    session_id = run["session_id"]

    def report(number: int) -> None:
        event = {
            "event_type": "message",
            "session_id": session_id,
            "timestamp": "2026-01-01T00:00:00Z",
            "role": "assistant",
            "content": [{"type": "text", "text": f"said as number {number}"}],
        }
        assert machine.post(f"/sessions/{session_id}/events", json=event).status_code == 201

    for number in range(40):
        report(number)
    page, _ = person_at(served, "admin")
    page.goto(f"/ui/sessions/{session_id}/?from=start")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.mouse.wheel(0, 300)
    page.evaluate(SETTLED)
    page.evaluate(SHIFTS)
    for number in range(40, 45):
        report(number)
    expect(page.locator("#unseen [data-count]")).to_have_text("5")
    page.evaluate(SETTLED)
    assert page.evaluate("window.shifted || 0") == 0


def test_a_verdict_needs_no_script(served: Served, person_at: PersonAt) -> None:
    asked = {
        "plugin_id": "walk",
        "permission_type": "FileWrite",
        "target_resource": "/srv/without-a-script",
        "justification": "To be decided by a form",
    }
    machine = served.client(key="agent")
    request_id = machine.post("/api/permission-requests", json=asked).json()["request_id"]
    page, watch = person_at(served, "approver", java_script_enabled=False)
    watch.expect("403")  # what asks for the password
    page.goto("/ui/approvals/")
    card = page.locator("article").filter(has_text="/srv/without-a-script")
    card.get_by_role("button", name="Deny").click()
    confirm_by_password(page, "approver")
    assert machine.get(f"/api/permission-requests/{request_id}").json()["status"] == "denied"
