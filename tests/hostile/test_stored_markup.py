"""Whatever a machine writes into any text of any table, a browser shows it as text: the demo's week, poisoned.

Every text column of every table is overwritten with mark-up that would run, break out or lead away if any page let
it. Then a real browser walks over the pages, live fragments included, at a phone's size with the policy on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page

from tests.browser import Watch
from tests.served import Served, manage, postgres_url, running

pytestmark = [pytest.mark.browser, pytest.mark.served]

MARKUP = "\n".join(
    json.loads((Path(__file__).parents[1] / "data" / "xss" / "markup.json").read_text(encoding="utf-8"))
)
# Columns by which rows find each other, or that say where something stands: without them no page would show a row.
KEPT = {
    "status", "type", "event_type", "entry_type", "permission", "default_policy", "role", "source", "validity", "kind",
    "storage_type", "verdict", "topic", "op", "key_hash", "password", "username", "session_key", "session_data",
    "pattern", "app_label", "model", "codename", "app", "prefix", "granted_by_kind", "scopes", "execution_mode",
    "content_type",
}  # fmt: skip
SKIPPED = (
    "sqlite_",
    "django_",
    "auth_",
    "changes",
    "leases",
    "api_keys",
    "search_",
    "sbx_search_",  # the index: words alone, and what its own engine keeps
    "setup_tokens",
    "idempotency",
)
PAGES = (
    "/ui/",
    "/ui/sessions/",
    "/ui/approvals/",
    "/ui/approvals/history/",
    "/ui/approvals/statistics/",
    "/ui/runs/",
    "/ui/runners/",
    "/ui/chat/",
    "/ui/mcp/",
    "/ui/mcp/matrix/",
    "/ui/agents/",
    "/ui/audit/",
    "/ui/plugins/",
    "/ui/search/?q=script",
    "/ui/connections/",
    "/ui/keys/",
    "/admin/",
)
FOUND = """() => ({
    ran: window.pwned ?? null,
    made: [...document.querySelectorAll(
        '[data-xss], main script:not([src]):not([type="application/json"]), main iframe, main object, '
        + 'main embed, main base')]
        .map(one => one.outerHTML.slice(0, 120)),
    handlers: [...document.querySelectorAll('*')].flatMap(one => [...one.attributes].filter(at => /^on/i.test(at.name)))
        .map(at => at.name + '=' + at.value.slice(0, 60)),
    links: [...document.querySelectorAll('a[href], form[action], area[href], [formaction], [hx-get], [hx-post]')]
        .flatMap(one => ['href', 'action', 'formaction', 'hx-get', 'hx-post'].map(name => one.getAttribute(name) ?? ''))
        .filter(to => /^[\\s\\u0000-\\u001f]*(javascript|vbscript|data):/i.test(to)),
})"""

# What reaches beyond the window, unless it scrolls in a box of its own.
TOO_WIDE = """() => document.documentElement.scrollWidth <= innerWidth ? null
    : [...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > innerWidth + 1)
        .slice(0, 5).map(one => `${one.tagName}.${one.className}`).join(', ') || 'something'
"""


@pytest.fixture(scope="module")
def served(served_template: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    if postgres_url():
        pytest.skip("what a browser is shown does not depend on the database; SQLite's is poisoned")
    with running(served_template, tmp_path_factory.mktemp("poisoned") / "server") as server:
        manage("demo", "--days", "1", "--anyway", env=server.env)
        assert poison(server) > 50
        yield server


def poison(served: Served) -> int:
    """Overwrite every text column that can be; return how many."""
    done = 0
    tables = [name for (name,) in served.sql("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        if table.startswith(SKIPPED):
            continue
        tied = {row[3] for row in served.sql(f"PRAGMA foreign_key_list({table})")}
        for _, name, kind, _, _, key in served.sql(f"PRAGMA table_info({table})"):
            if (
                kind.upper() != "TEXT"
                or key
                or name in KEPT
                or name in tied
                or name.endswith(("_id", "_at", "_key"))
            ):
                continue
            done += overwritten(served, table, name)
    return done


def overwritten(served: Served, table: str, column: str) -> bool:
    """Poison one column: texts with the mark-up, JSON with the mark-up in names and values, times not at all."""
    samples = [
        value for (value,) in served.sql(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL LIMIT 20")
    ]
    if samples and all(str(one)[:4].isdigit() and str(one)[4:5] == "-" for one in samples):
        return False
    value: Any = MARKUP
    if any(str(one)[:1] in "[{" for one in samples):
        shape = {
            "text": MARKUP,
            "command": MARKUP,
            "type": "text",
            "url": f"javascript:pwned=1//{MARKUP}",
            MARKUP: [MARKUP],
        }
        value = json.dumps([shape] if str(samples[0])[:1] == "[" else shape)
    try:
        served.sql(f"UPDATE {table} SET {column} = ? || CASE WHEN ? THEN '' ELSE rowid END WHERE {column} IS NOT NULL",
                   (value, value != MARKUP))  # fmt: skip
    except Exception:  # what the database itself refuses need not be shown
        return False
    return bool(samples)


def pages_of(page: Page, start: str) -> list[str]:
    """Return the first few pages below `start` that it links to, one of each kind."""
    here = page.eval_on_selector_all("main a[href]", "all => all.map(one => one.getAttribute('href'))")
    kinds: dict[int, str] = {}
    for link in here:
        path = urlsplit(link).path
        if (
            path.startswith(start.partition("?")[0])
            and path != start
            and "export" not in path
            and "." not in path
        ):
            kinds.setdefault(path.count("/"), link)
    return list(kinds.values())[:3]


def test_no_page_lets_what_machines_wrote_be_more_than_text(
    served: Served, person_at: Callable[..., tuple[Page, Watch]]
) -> None:
    page, watch = person_at(served, "admin", viewport={"width": 390, "height": 844})
    waiting, seen, problems = list(PAGES), set(), []
    while waiting:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        answer = page.goto(path)
        if answer is None or answer.status != 200:
            problems.append(f"{path}: {answer and answer.status}")
            continue
        page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
        found = page.evaluate(FOUND)
        problems += [f"{path}: {name} {value}" for name, value in found.items() if value]
        if not path.startswith("/admin/") and (wide := page.evaluate(TOO_WIDE)):
            problems.append(f"{path}: too wide by {wide}")
        if path in PAGES:
            waiting += pages_of(page, path)
    assert not problems, "\n".join(problems)
    assert len(seen) >= len(PAGES) + 5
    assert not watch.unexpected()

    watch.expect("")  # the same mark-up as mark-up, so that what is looked for above is known to be found
    page.evaluate("text => document.querySelector('main').insertAdjacentHTML('beforeend', text)", MARKUP)
    found = page.evaluate(FOUND)
    assert found["made"]
    assert found["handlers"]
    assert found["links"]
