"""`python -m tests.gallery FOLDER [WORD…]`: every state of the pages, as pictures at two widths, light and dark.

Serves two programs of its own, an empty one and one with the demo's week and the states of tests/gallery/states.py.
Only states whose name holds one of the WORDs are taken, if any is given. Prints what a page complains of in its
console, and pages that are wider than their window.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, StorageState, sync_playwright

from tests.browser import FLAGS, chromium_path
from tests.served import PEOPLE, ROOT, Served, Template, manage, running

SIZES = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
TALLEST = 9_000  # pixels of a page that are taken
Act = Callable[[Page], object]
# Where checkpoints are sent: one place takes them, the others cannot.
PLACES = {
    "SIGNALBOX_AUDIT_CHECKPOINTS": "file:/dev/null, file:/nowhere/checkpoints, mailto:auditor@example.org, "
    "https://audit.invalid/checkpoints"
}


@dataclass(frozen=True)
class State:
    """One picture: where it is taken, as whom, and what is done there first."""

    name: str
    path: str
    who: str | None = "admin"
    act: Act | None = None
    whole: bool = True  # the whole page rather than one screen of it
    empty: bool = False  # on the server with nothing in it
    tampered: bool = False  # on the server whose audit log was tampered with


def opened(page: Page) -> None:
    """Open every row."""
    page.locator("[data-unfold]").click()
    page.wait_for_load_state("networkidle")


def sent(**fields: str) -> Act:
    """Fill and send the page's form, whatever the browser itself would say to it."""

    def act(page: Page) -> None:
        form = page.locator("main form[method=post]").first
        for name, value in fields.items():
            form.locator(f"[name={name}]").fill(value)
        with page.expect_navigation():
            form.evaluate("form => { form.noValidate = true; form.requestSubmit() }")

    return act


def pressed(key: str) -> Act:
    """Press a key."""
    return lambda page: page.keyboard.press(key)


def clicked(selector: str) -> Act:
    """Click something."""
    return lambda page: page.locator(selector).first.click()


def forgotten(page: Page) -> None:
    """Send the page's form without its token."""
    page.evaluate("document.querySelectorAll('[name=csrfmiddlewaretoken]').forEach(one => one.remove())")
    sent(prompt="Hello")(page)


LOOKS, LONG = "/ui/sessions/ses_looks/", "/ui/sessions/ses_long/"
STATES = (
    State("sessions-empty", "/ui/sessions/", empty=True),
    State("sessions-full", "/ui/sessions/"),
    State("sessions-none-match", "/ui/sessions/?q=nothing-is-called-so&status=running"),
    State("sessions-children", "/ui/sessions/?q=ses_looks", act=clicked("a[data-children]")),
    State("session-new", "/ui/sessions/ses_new/"),
    State("session-silent", "/ui/sessions/ses_silent/"),
    State("session-running", "/ui/sessions/ses_running/"),
    State("session-ten", "/ui/sessions/ses_ten/"),
    State("session-failed", "/ui/sessions/ses_failed/"),
    State("session-stopped", "/ui/sessions/ses_stopped/"),
    State("session-odd", "/ui/sessions/ses_odd/"),
    State("session-looks", f"{LOOKS}?from=start"),
    State("session-looks-open", f"{LOOKS}?from=start", act=opened),
    State("session-end", LOOKS, whole=False),
    State("session-nested", f"{LOOKS}?from=start", act=clicked(".entry.child summary"), whole=False),
    State("session-none-match", f"{LOOKS}?q=nothing-says-so"),
    State("session-menu", LOOKS, act=clicked("[popovertarget=session-menu]"), whole=False),
    State("session-go", LOOKS, act=clicked("[popovertarget=places]"), whole=False),
    State("session-tools", LOOKS, act=clicked("[popovertarget=tools]"), whole=False),
    State("session-stop", LOOKS, act=clicked("#session-actions button"), whole=False),
    State("session-long", LONG, whole=False),
    State("session-long-end", f"{LONG}?from=end", whole=False),
    State("session-long-errors", f"{LONG}?errors=1", whole=False),
    State("session-waterfall", "/ui/sessions/ses_looks/-/waterfall/", whole=False),
    State("session-compare", "/ui/sessions/ses_looks/-/compare/?with=ses_ten", whole=False),
    State("session-as-viewer", LOOKS, who="viewer", whole=False),
    State("session-print", "/ui/sessions/ses_looks/-/print/"),
    State("delete", "/ui/sessions/ses_ten/-/delete/"),
    State("delete-mistyped", "/ui/sessions/ses_ten/-/delete/", act=sent(typed="ses_tne")),
    State("resume", "/ui/sessions/ses_ten/-/resume/"),
    State("resume-errors", "/ui/sessions/ses_ten/-/resume/", act=sent(prompt="")),
    State("search", "/ui/search/?q=rounding"),
    State("search-help", "/ui/search/"),
    State("files", "/ui/files/?path=.py"),
    State("files-none", "/ui/files/?path=nowhere.py"),
    State("files-ask", "/ui/files/"),
    State("runs-empty", "/ui/runs/", empty=True),
    State("runs", "/ui/runs/"),
    State("runs-none-match", "/ui/runs/?session=ses_none"),
    State("run-new", "/ui/runs/new/"),
    State("run-new-errors", "/ui/runs/new/", act=sent(prompt="", project_dir="relative/path")),
    State("runners-empty", "/ui/runners/", empty=True),
    State("runners", "/ui/runners/"),
    State("overview-empty", "/ui/", empty=True),
    State("overview", "/ui/"),
    State("approvals", "/ui/approvals/"),
    State("approvals-empty", "/ui/approvals/", empty=True),
    State("audit", "/ui/audit/"),
    State("audit-none-match", "/ui/audit/?q=nothing-says-so"),
    State("audit-entry", "/ui/audit/?event=PERMISSION_REQUEST_APPROVED", act=clicked("[data-row] a.strong")),
    State("audit-verify", "/ui/audit/verify/"),
    State("audit-verify-new", "/ui/audit/verify/", empty=True),
    State("audit-tampered", "/ui/audit/", tampered=True),
    State(
        "audit-entry-tampered",
        "/ui/audit/?actor=user:mallory",
        act=clicked("[data-row] a.strong"),
        tampered=True,
    ),
    State("audit-verify-tampered", "/ui/audit/verify/", tampered=True),
    State("evidence", "/ui/sessions/ses_looks/-/evidence/"),
    State("evidence-none", "/ui/sessions/ses_ten/-/evidence/"),
    State("evidence-tampered", "/ui/sessions/ses_evidence/-/evidence/", tampered=True),
    State("keys", LOOKS, act=pressed("?"), whole=False),
    State("more", "/ui/sessions/", act=clicked("[popovertarget=menu]"), whole=False),
    State("sign-in", "/ui/sign-in/", who=None),
    State("sign-in-wrong", "/ui/sign-in/", who=None, act=sent(username="admin", password="wrong")),
    State("not-found", "/ui/sessions/ses_none/"),
    State("not-found-stranger", "/ui/nothing/", who=None),
    State("bad-request", "/ui/sessions/?q=%00"),
    State("form-out-of-date", "/ui/runs/new/", act=forgotten),
    State("role-refused", "/ui/runs/new/", who="viewer"),
)


def main() -> None:
    """Take the pictures."""
    folder, *words = sys.argv[1:]
    wanted = [state for state in STATES if not words or any(word in state.name for word in words)]
    Path(folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        template = Template(Path(temporary) / "template")
        with (
            running(template, Path(temporary) / "empty", workers=1) as empty,
            running(template, Path(temporary) / "full") as full,
            running(template, Path(temporary) / "tampered", workers=1, **PLACES) as tampered,
        ):
            if any(not (state.empty or state.tampered) for state in wanted):
                fill(full)
            if any(state.tampered for state in wanted):
                tamper(tampered)
            browser = playwright.chromium.launch(executable_path=chromium_path(), args=FLAGS)
            for size in SIZES:
                for scheme in ("light", "dark"):
                    for state in wanted:
                        server = tampered if state.tampered else empty if state.empty else full
                        keep_runners(server)
                        context = signed_in(browser, server, state.who, size, scheme)
                        take(context, state, size, Path(folder) / f"{state.name}_{size}_{scheme}.png")
        template.drop()


def fill(server: Served) -> None:
    """Write the demo's week and the states beside it."""
    manage("demo", "--verbosity=0", "--anyway", env=server.env)
    subprocess.run([sys.executable, "-m", "tests.gallery.states"], cwd=ROOT, env=server.env, check=True)
    manage("audit", "seal", env=server.env)


def tamper(server: Served) -> None:
    """Write decisions, and change the log as the owner of the database could."""
    subprocess.run([sys.executable, "-m", "tests.gallery.tampering"], cwd=ROOT, env=server.env, check=True)


def keep_runners(server: Served) -> None:
    """Have the runners that are online be heard of now: the pictures take minutes."""
    server.sql(
        "UPDATE runners SET last_heartbeat = ? WHERE hostname IN ('busy-host', 'idle-host')",
        (datetime.now(UTC).isoformat(),),
    )


def take(context: BrowserContext, state: State, size: str, file: Path) -> None:
    """Take one picture."""
    page = context.new_page()
    page.on("console", lambda heard: heard.type in {"error", "warning"} and print(state.name, heard.text))
    page.on("pageerror", lambda error: print(state.name, error))
    page.goto(state.path)
    page.wait_for_load_state("load")
    if state.act:
        state.act(page)
    page.wait_for_timeout(300)
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if wide > 0:
        print(f"{state.name}: {wide} px too wide at {size}")
    if state.whole:
        # A taller window rather than a picture of what lies below it: rows that were out of sight are not drawn.
        height = page.evaluate("document.documentElement.scrollHeight")
        page.set_viewport_size(SIZES[size] | {"height": min(max(height, SIZES[size]["height"]), TALLEST)})
        page.wait_for_timeout(200)
    page.screenshot(path=file)
    context.close()


_states: dict[tuple[str, str], StorageState] = {}


def signed_in(browser: Browser, server: Served, who: str | None, size: str, scheme: str) -> BrowserContext:
    """Return a browser's context at the server, signed in; people sign in once."""
    context = browser.new_context(
        base_url=server.url, color_scheme=scheme, viewport=SIZES[size],
        is_mobile=size == "phone", has_touch=size == "phone",
        storage_state=_states.get((server.url, who or "")),
    )  # fmt: skip
    if who and (server.url, who) not in _states:
        page = context.new_page()
        page.goto("/ui/sign-in/")
        page.get_by_label("Username").fill(who)
        page.get_by_label("Password").fill(PEOPLE[who])
        page.get_by_role("button", name="Sign in", exact=True).click()
        page.wait_for_url("**/ui/")
        page.close()
        _states[server.url, who] = context.storage_state()
    return context


if __name__ == "__main__":
    main()
