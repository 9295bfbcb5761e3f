"""The people who decide, in browsers, what waits."""

from __future__ import annotations

import html
import random
import re
import time
from contextlib import suppress
from functools import partial
from typing import Any

import httpx

from tests.bench.servers.ledger import Load
from tests.served import PEOPLE, PROOF

PENDING = (
    "SELECT r.request_id, coalesce(c.tool_input, r.target_resource) FROM permission_requests r"
    " LEFT JOIN permission_context c ON c.request_id = r.request_id"
    " WHERE r.status = 'pending' AND r.created_at > ?"
)


def decide(load: Load, name: str, since: str) -> None:
    """Decide what has waited since then, each as the call's arguments, or its target, say."""
    browser = signed_in(load, name)
    while not load.over.wait(0.2):
        rows: list[tuple[Any, ...]] = []
        with suppress(Exception):  # this look into the database is cut off, too
            rows = load.database.sql(PENDING, (since,))
        for request_id, target in random.sample(rows, len(rows)):
            if "yes-" in target or "no-" in target:
                settle(load, browser, request_id, "approved" if "yes-" in target else "denied")


def settle(load: Load, browser: httpx.Client, request_id: str, verdict: str) -> None:
    """Open a request's page and decide it there, once; what is refused is tried again with the next look."""
    page = load.once(partial(browser.get, f"/ui/approvals/{request_id}/"), 200)
    if page is None:
        return
    judged = re.findall(r'<input\b[^>]*\bname="judged"[^>]*\bvalue="([^"]*)"', page.text)
    form = {"ids": request_id, "judged": [html.unescape(one) for one in judged], "verdict": verdict}
    load.once(partial(browser.post, "/ui/approvals/decide/", data=form), 200)


def signed_in(load: Load, name: str) -> httpx.Client:
    """Sign a person in through the balancer."""
    while True:
        browser = httpx.Client(base_url=load.url, timeout=20, verify=False, follow_redirects=True)
        with suppress(httpx.HTTPError, KeyError):
            browser.get("/ui/sign-in/")
            form = {
                "username": name, "password": PEOPLE[name], "new_proof": PROOF,
                "csrfmiddlewaretoken": browser.cookies["signalbox_csrf"],
            }  # fmt: skip
            if browser.post("/ui/sign-in/", data=form, headers={"Referer": load.url}).status_code == 200:
                sent = {
                    "X-CSRFToken": browser.cookies["signalbox_csrf"],
                    "X-Signalbox-Proof": PROOF,
                    "Referer": load.url,
                    "Origin": load.url,
                }
                browser.headers.update(sent)
                return browser
        time.sleep(0.5)
