"""What a runner tells of a work tree is kept once a turn, masked and bounded, and shown as it is."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.browser import PHONE
from tests.driving.driver import Driver

pytestmark = [pytest.mark.served]
DIFF = """diff --git a/src/old name.py b/src/new name.py
similarity index 60%
rename from src/old name.py
rename to src/new name.py
index 1..2 100644
--- a/src/old name.py\t
+++ b/src/new name.py\t
@@ -1,2 +1,2 @@ def total():
 def total():
-    return 1
+    return 2
diff --git "a/n\\303\\274 \\"q\\".txt" "b/n\\303\\274 \\"q\\".txt"
new file mode 100644
index 0..1
--- /dev/null
+++ "b/n\\303\\274 \\"q\\".txt"
@@ -0,0 +1 @@
+AKIAIOSFODNN7EXAMPLE
\\ No newline at end of file
diff --git a/logo.png b/logo.png
index 1..2 100644
Binary files a/logo.png and b/logo.png differ
"""
FILES = [
    {
        "path": "src/new name.py",
        "from": "src/old name.py",
        "status": "R",
        "added": 1,
        "removed": 1,
        "binary": False,
    },
    {"path": 'nü "q".txt', "status": "A", "added": 1, "removed": 0, "binary": False},
    {"path": "logo.png", "status": "M", "added": 0, "removed": 0, "binary": True},
]


def told(scope: str = "session", **more: Any) -> dict[str, Any]:
    about = {"base": "a" * 40, "files": FILES, "diff": DIFF, "truncated": False}
    return {"sessionUpdate": "signalbox/changes", "scope": scope, **about, **more}


@pytest.fixture
def driver(one_server: Any) -> Driver:
    return Driver(one_server.emptied())


def page_of(driver: Driver, query: str = "") -> str:
    answer = driver.served.sign_in("viewer").get(f"/ui/sessions/{driver.session}/-/changes/{query}")
    assert answer.status_code == 200
    return answer.text


def test_a_turn_is_kept_once_and_secrets_are_not(driver: Driver) -> None:
    driver.tell(told("turn"), told("turn", truncated=True), told())
    rows = driver.served.sql("SELECT run_id, files, diff, truncated FROM session_changes ORDER BY run_id")
    assert [bool(row[3]) for row in rows] == [False, True]
    assert [row[0] for row in rows] == ["", driver.run["run_id"]]
    assert "return 2" in rows[0][2]
    assert "AKIAIOSFODNN7EXAMPLE" not in str(rows)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scope": "week"},
        {"files": "all", "diff": 7},
        {"files": [None, 3, {"path": ""}, {"path": "a\0b", "status": "?", "added": -1, "removed": "many"}]},
        {"diff": "diff --git \n+++ \n--- \n@@\n" * 300},
        {"diff": "x" * 600_000},
        {"files": [{"path": "p" * 5_000}] * 3_000},
        {"base": 1, "problem": {"a": 1}},
    ],
)
def test_what_is_no_comparison_breaks_no_page(driver: Driver, wrong: dict[str, Any]) -> None:
    driver.tell(told(**wrong))
    assert "Changes" in page_of(driver)


def test_a_page_is_bounded_and_a_file_is_seen_alone(driver: Driver) -> None:
    head = "diff --git a/{0} b/{0}\n--- a/{0}\n+++ b/{0}\n@@ -1 +1 @@\n"
    names = [f"file{number}" for number in range(40)]
    diff = "".join(head.format(name) + "+line of the file\n" * 700 for name in names)
    files = [{"path": name, "status": "M", "added": 700, "removed": 0} for name in names]
    driver.tell(told(files=files, diff=diff[: 512 * 1024]))
    assert page_of(driver).count("line of the file") <= 4_000
    assert page_of(driver, "?file=3").count("line of the file") == 700


@pytest.mark.browser
@pytest.mark.parametrize("size", [{}, PHONE], ids=["desktop", "phone"])
def test_changes_come_while_they_are_looked_at(driver: Driver, person_at: Any, size: dict[str, Any]) -> None:
    page, _ = person_at(driver.served, "viewer", **size)
    page.goto(f"/ui/sessions/{driver.session}/")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    page.locator("#session-ways").get_by_role("link", name="Changes").click()
    expect(page.locator("#changes")).to_contain_text("No changes yet")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    driver.tell(told("turn", files=FILES[:1]), told())
    first = page.locator(".changed-file").first
    expect(first).to_contain_text("src/new name.py")
    expect(first.locator(".added")).to_contain_text("return 2")
    expect(first.locator(".removed")).to_contain_text("return 1")
    expect(page.locator(".changes-sum")).to_contain_text("3 files +2")
    first.locator("summary").click()
    driver.tell(told(files=FILES[:2]))
    expect(page.locator(".changed-file")).to_have_count(2)
    expect(first.locator(".added")).to_be_hidden()
    page.get_by_role("button", name="Whole session").click()
    page.get_by_role("link", name="Turn 1").click()
    expect(page.locator(".changed-file")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.browser
def test_a_work_tree_is_removed_by_a_person_who_was_told_what_it_holds(
    driver: Driver, person_at: Any
) -> None:
    driver.tell(
        {"sessionUpdate": "signalbox/agent", "agent": "claude", "worktree": "/state/worktrees/ses_1/project"}
    )
    body = {"runner_id": driver.runner_id, "status": "success"}
    driver.call(f"/runner/runs/{driver.run['run_id']}/completed", body)
    page, _ = person_at(driver.served, "approver")
    page.goto(f"/ui/sessions/{driver.session}/-/changes/")
    for name, wanted, error in (
        ("Remove work tree", True, "The work tree holds uncommitted work in 1 file (a.txt)."),
        ("Discard work and remove", "discard", None),
    ):
        page.get_by_role("button", name=name).click()
        page.locator("#confirm [value=yes]").click()
        expect(page.get_by_text("Waiting for the runner to remove it.")).to_be_visible()
        polled = driver.poll()
        assert polled is not None
        (command,) = polled["commands"]
        assert command["remove_worktree"] == wanted
        done = {"sessionUpdate": "signalbox/command_done", "id": command["id"]}
        driver.tell(done if error is None else {**done, "error": error})
        if error:
            expect(page.get_by_role("alert")).to_contain_text(error)
    expect(page.locator("#worktree")).to_have_count(0)
    audited = driver.served.sql(
        "SELECT actor_id, metadata FROM audit_logs WHERE event_type = 'SESSION_COMMANDED'"
    )
    assert [row[0] for row in audited] == ["user:approver"] * 2
