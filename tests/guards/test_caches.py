"""No answer that people or keys get is kept in a cache: it would outlive the sign-out on a shared machine."""

from __future__ import annotations

import logging
import re

import pytest

from tests.guards import callers
from tests.guards.table import API, EDGE
from tests.guards.test_every_url import ask, is_kept, path_of
from tests.live.connections import connect
from tests.served import KEYS, Served


@pytest.mark.django_db
@pytest.mark.usefixtures("unrendered")
def test_no_answer_to_a_key_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are looked at in tests/guards/test_every_url.py, which opens each."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    program = callers.with_key(callers.key("guard-all", *callers.SCOPES))
    assert len(API) > 50
    kept = [row for row in API if is_kept(ask(program, row.split()[0], path_of(row.split()[1])))]
    assert kept == []


@pytest.mark.served
@pytest.mark.parametrize(("method", "pattern"), EDGE, ids=[" ".join(door) for door in EDGE])
def test_no_answer_of_the_edge_is_kept(box: Served, method: str, pattern: str) -> None:
    path = re.sub(r"\([^)]+\)", "nothing-there", pattern)
    headers = {"Authorization": f"Bearer {KEYS['all']}"}
    client = box.sign_in("viewer") if path == "/ui/live/" else box.client(key=None)
    with client.stream(method, path, headers=headers) as answer:
        assert "no-store" in answer.headers["cache-control"]


@pytest.mark.served
def test_an_answer_without_django_is_not_kept_and_a_style_sheet_is(box: Served) -> None:
    connection = connect(box)
    connection.putrequest("POST", "/ui/sign-in/")
    connection.putheader("Content-Length", str(10**9))
    connection.endheaders()
    refused = connection.getresponse()
    assert (refused.status, refused.headers["Cache-Control"]) == (413, "no-store")
    client = box.client(key=None)
    page = client.get("/ui/sign-in/").text
    sheet = client.get(page.partition('<link rel="stylesheet" href="')[2].partition('"')[0])
    assert "immutable" in sheet.headers["cache-control"]
