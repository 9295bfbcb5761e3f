"""Every URL, every caller, every method: what tests/guards/table.py says is what happens."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from coordinator.actions.people import keys
from coordinator.api import api
from coordinator.identity.scopes import GATEWAY, SCOPES
from tests.guards import callers, declared
from tests.guards.table import (
    ADMIN_TABLES,
    API,
    EDGE,
    PAGES,
    POSTS_THAT_ONLY_ASK,
)

pytestmark = pytest.mark.django_db

METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
WHAT_TO_DO = (
    "A route declares no role, or another one than tests/guards/declared.txt says. Declare it on the view "
    "(coordinator/identity/declarations.py) or with the operation's `auth=`, read the difference with the first lines "
    "of tests/guards/table.py in mind, and write the file again: python -m tests.guards."
)


def every_route() -> Iterator[tuple[str, str]]:
    """Yield the name and the route of each pattern of Django's resolver."""
    for name, route, _ in declared.walk_views():
        yield name, route


def routes_of(*spaces: str) -> dict[str, str]:
    return {name: route for name, route in every_route() if name.partition(":")[0] in spaces}


def path_of(route: str) -> str:
    """Return an address that fits a route, about something that is not there."""
    path = re.sub(r"<(int|slug|str|path|text|session):?(\w*)>|<\w+>", fill, route)
    return path.replace("^", "").replace("$", "")


def fill(match: re.Match[str]) -> str:
    if match[2] == "form":
        return "ndjson"
    return "999999999" if match[1] == "int" else "nothing-there"


def is_led_to_sign_in(answer: HttpResponse) -> bool:
    return answer.status_code == 302 and "/ui/sign-in/?next=" in answer.headers["Location"]


def is_kept(answer: HttpResponse) -> bool:
    """Say whether a cache may keep an answer: it would outlive the sign-out on a shared machine."""
    return "no-store" not in answer.headers.get("Cache-Control", "")


def ask(client: Client, method: str, path: str) -> HttpResponse:
    return client.generic(method, path, b"{}" if "/ui/" not in path else b"", "application/json")


def test_every_route_declares_who_may_use_it() -> None:
    rows = [
        *(*declared.declared_pages(), *declared.declared_admin_pages()),
        *(*declared.declared_operations(), *declared.declared_edge_operations()),
    ]
    assert [row for row in rows if declared.UNDECLARED in row] == [], WHAT_TO_DO
    of_any_method = {name for name, _, methods, _ in declared.declared_pages() if methods == "any"}
    assert of_any_method == {"home"}  # it only leads to /ui/


def test_what_the_routes_declare_was_read() -> None:
    """Who may use a URL, and how much it may be sent, changes with the line of the file that says so."""
    assert declared.build_declarations().splitlines() == declared.FILE.read_text().splitlines(), WHAT_TO_DO


def test_no_path_outside_of_these_is_routed() -> None:
    """What is neither a page, nor the admin, nor the API has crept in beside the tables."""
    known = ("/ui/", "/admin/")
    paths = {row.partition(" ")[2] for row in API} | {"/"}
    others = {route for _, route in every_route() if not route.startswith(known)} - paths
    assert others == set(), WHAT_TO_DO


@pytest.fixture
def knocking(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[dict[str, Client], dict[str, tuple[Client, frozenset]]]:
    """Clients of all people, and of all programs with the scopes that count. Nobody is throttled."""
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)  # thousands of refusals
    monkeypatch.setattr(keys.AttemptLimit, "seconds_until_retry", lambda *_: 0)
    monkeypatch.setattr("dashboard.connections.views.iterate_claude_code_trial_steps", lambda *_, **__: [])
    people = {name: callers.browser(person) for name, person in callers.people().items()}
    programs = {name: (callers.with_key(raw), scopes) for name, (raw, scopes) in callers.programs().items()}
    return people, programs


@pytest.mark.usefixtures("unrendered")
def test_pages_let_in_whom_the_table_says(knocking) -> None:
    """Nobody, one kind of key, the people on either side of the line and a superuser, at each page."""
    people, programs = knocking
    wrong, kinds = [], itertools.cycle(programs.values())
    for name, route in every_route():
        if name not in PAGES:
            continue
        who, methods = PAGES[name]
        outsiders = {method: Client() for method in methods} | {methods[-1]: next(kinds)[0]}
        for method, client in outsiders.items():
            answer = ask(client, method, path_of(route))
            if is_led_to_sign_in(answer) != (who != "anyone") or answer.status_code >= 500:
                wrong.append(f"{method} {name} without signing in: {answer.status_code}")
        for caller, may in on_either_side(who):
            for method in set(methods) - {"HEAD"}:
                answer = ask(people[caller], method, path_of(route))
                if name == "accounts:logout":
                    people[caller].force_login(User.objects.get(username=caller))
                fits = answer.status_code not in {401, 403, 405} if may else answer.status_code == 403
                if not fits or answer.status_code >= 500:
                    wrong.append(f"{method} {name} as {caller}: {answer.status_code}")
                if is_kept(answer):
                    wrong.append(f"{method} {name} as {caller} may be kept in a cache")
        for method in sorted(set(METHODS) - set(methods))[:2]:
            answer = ask(people["superuser"], method, path_of(route))
            expected = (
                302 if method == "GET" else 405
            )  # to the page with the form (tests/pages/test_form_pages.py)
            if answer.status_code != expected:
                wrong.append(f"{method} {name}: {answer.status_code}, not {expected}")
    assert wrong == []


def on_either_side(who: str) -> list[tuple[str, bool]]:
    """Return the highest role that is refused and the lowest that is let in, and a superuser."""
    least = callers.RANK.get(who, 0)
    roles = ("newcomer", "viewer", "approver", "admin")
    refused = [(roles[least - 1], False)] if least else []
    return [*refused, (roles[least], True), ("superuser", True)]


@pytest.mark.usefixtures("unrendered")
def test_the_admin_is_for_admins_alone_and_no_key_opens_it(knocking) -> None:
    people, programs = knocking
    wrong, kinds = [], itertools.cycle(programs.values())
    for name, route in every_route():
        if not name.startswith("admin:") or name in LEAD_ON or "(?P" in route or not name[6:]:
            continue
        answers = {
            "nobody": ask(Client(), "GET", path_of(route)),
            "a key": ask(next(kinds)[0], "POST", path_of(route)),
            "an approver": ask(people["approver"], "POST", path_of(route)),
        }
        wrong += [f"{name} as {who}" for who, answer in answers.items() if not is_led_away(answer)]
        wrong += [f"{name} may be kept in a cache" for answer in answers.values() if is_kept(answer)]
    for table, allowed in ADMIN_TABLES.items():
        place = f"/admin/{table.replace('_', '/', 1)}/"
        listed = people["admin"].get(place)
        if listed.status_code != 200:
            wrong.append(f"{place} is closed to admins")
        adding = people["admin"].get(f"{place}add/")
        if (adding.status_code == 200) != ("add" in allowed):
            wrong.append(f"{place}add/ is not as the table says: {adding.status_code}")
        wrong += [f"{place} may be kept in a cache" for answer in (listed, adding) if is_kept(answer)]
    leading = ("/admin/", "/admin/login/", "/admin/logout/", "/admin/password_change/")
    wrong += [f"{place} may be kept in a cache" for place in leading if is_kept(people["admin"].get(place))]
    assert wrong == []
    refused = [people[name].get("/admin/", follow=True) for name in ("newcomer", "viewer", "approver")]
    assert [answer.status_code for answer in refused] == [403, 403, 403]


LEAD_ON = {"admin:login", "admin:logout", "admin:password_change"}


def is_led_away(answer: HttpResponse) -> bool:
    return answer.status_code == 302 and answer.headers["Location"].startswith("/admin/login/?next=")


def test_the_api_lets_in_whom_the_table_says(knocking) -> None:
    """Each scope at each operation; nobody, keys that are no good and people take turns."""
    people, programs = knocking
    no_good = [(name, programs.pop(name)[0]) for name in ("expired", "revoked")]
    others = itertools.cycle([("nobody", Client()), *no_good, *people.items()])
    wrong = []
    for row, who in API.items():
        method, _, route = row.partition(" ")
        for name, (client, scopes) in programs.items():
            answer = ask(client, method, path_of(route))
            if not fits(answer, who, scopes):
                wrong.append(f"{row} as {name}: {answer.status_code} {answer.content[:80]!r}")
        tried = others if who != "people" else iter([("nobody", Client()), *no_good, *people.items()])
        for name, client in itertools.islice(tried, 8 if who == "people" else 2):
            answer = ask(client, method, path_of(route))
            if who == "anyone" or (who == "people" and callers.RANK_OF.get(name, -1) >= 2):
                right = answer.status_code not in {401, 403}
            else:
                right = answer.status_code == (403 if who == "people" and name in people else 401)
            if not right or answer.status_code >= 500:
                wrong.append(f"{row} as {name}: {answer.status_code} {answer.content[:80]!r}")
    assert wrong == []


def fits(answer: HttpResponse, who: str, scopes: frozenset[str]) -> bool:
    """Say whether a key with these scopes was let in or refused as the row says."""
    if answer.status_code >= 500:
        return False
    if who == "people":
        return answer.status_code == 401
    if who != "anyone" and not scopes & set(who.split()):
        return answer.status_code == 403 and b"scopes" in answer.content
    # Let in; what it asked for is not there, or another agent's, which is told otherwise than a missing scope.
    beyond = answer.status_code in {401, 403} and b"scopes" not in answer.content
    own = b"is bound to" in answer.content or b"Runner not registered" in answer.content
    return answer.status_code not in {401, 403} or (beyond and own)


def test_no_method_that_is_not_in_the_table_does_anything(knocking: object) -> None:
    everything = callers.with_key(callers.key("guard-all", *SCOPES))
    by_path: dict[str, set[str]] = {}
    for row in API:
        method, _, route = row.partition(" ")
        by_path.setdefault(route, set()).add(method)
    wrong = []
    for route, methods in by_path.items():
        reads = {"HEAD"} if route in {"/api/docs", "/api/openapi.json"} else set()
        for method in set(METHODS) - methods - reads:
            answer = ask(everything, method, path_of(route))
            if answer.status_code != 405:
                wrong.append(f"{method} {route}: {answer.status_code}")
    assert wrong == []


def test_what_the_table_says_of_scopes_is_what_the_api_s_page_says() -> None:
    document = api.get_openapi_schema()
    told = {
        (method.upper(), re.sub(r"\{\w+\}", "*", path)): frozenset(operation.get("x-scopes", ()))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    rows = {
        (row.partition(" ")[0], re.sub(r"<[^>]+>", "*", row.partition(" ")[2])): who
        for row, who in API.items()
    }
    rows |= {
        (method, re.sub(r"\([^)]+\)", "*", path)): who
        for (method, path), who in EDGE.items()
        if who not in {"viewer", "anyone"}
    }
    rows = {place: who for place, who in rows.items() if who not in {"anyone", "people"}}
    assert {place: told[place] for place in rows} == {
        place: frozenset(who.split()) - {GATEWAY} for place, who in rows.items()
    }


def test_the_scope_read_opens_no_door_that_writes() -> None:
    rows = {**API, **{f"{method} {path}": who for (method, path), who in EDGE.items()}}
    opened = {row for row, who in rows.items() if "read" in who.split() and not row.startswith("GET ")}
    assert opened == POSTS_THAT_ONLY_ASK


@pytest.mark.parametrize("agent_id", [None, callers.AGENT])
def test_a_key_of_scope_read_writes_nothing_but_that_it_was_used(agent_id: str | None) -> None:
    client = callers.with_key(callers.key("reader", "read", agent_id=agent_id))
    client.get("/runs")  # its first use in this minute is noted
    with CaptureQueriesContext(
        connection,
    ) as queries:
        for row, who in API.items():
            if row.startswith("GET ") and "read" in who.split():
                ask(client, "GET", path_of(row.partition(" ")[2]))
    verbs = {query["sql"].split()[0].upper() for query in queries.captured_queries}
    assert verbs <= {"SELECT", "SAVEPOINT", "RELEASE", "ROLLBACK", "BEGIN", "COMMIT"}
