"""Every door has a row in the one table of limits, and at each of them a stranger is heard for a few KB only."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from coordinator.edge import app
from coordinator.edge.http import body_limits as limits
from tests.guards.table import API, PAGES
from tests.guards.test_every_url import every_route, path_of
from tests.live.connections import bearer, connect
from tests.served import Served

WRITES = {"POST", "PUT", "PATCH", "DELETE"}
WHAT_TO_DO = (
    "An endpoint without a row in coordinator/edge/http/body_limits.py. "
    "Say there how much it may be sent, and by whom."
)


def doors_of_django() -> Iterator[tuple[str, str, str]]:
    """Yield method, path and limit of each URL of Django's that is written to."""
    routes = dict(every_route())
    for name, (_who, methods) in PAGES.items():
        for method in WRITES & set(methods):
            yield method, path_of(routes[name]), limits.PAGE_LIMITS.get(name, "")
    for row in API:
        method, _, route = row.partition(" ")
        if method in WRITES:
            yield method, path_of(route), limits.API_LIMITS.get(route, "")
    for name, route in routes.items():
        if name.startswith("admin:") and "(?P" not in route:
            yield "POST", path_of(route), limits.PAGE_LIMITS.get(name, "form")


DJANGO = sorted(set(doors_of_django()))
AT_EDGE = [
    (
        method,
        re.sub(r"\([^)]+\)", "codex", path),
        limits.EDGE_LIMITS[name],
    )  # also an agent whose hooks are known
    for (method, path), name in app.ROUTES.items()
    if method in WRITES
]
MACHINE = [
    *AT_EDGE,
    *(door for door in DJANGO if not door[1].startswith(("/ui/", "/admin/")) and door[1] != "/"),
]


def test_every_door_of_the_edge_has_a_limit() -> None:
    assert limits.EDGE_LIMITS.keys() ^ set(app.ROUTES.values()) == set(), WHAT_TO_DO
    assert set(limits.EDGE_LIMITS.values()) <= limits.LIMITS.keys()


def test_every_door_of_django_has_a_limit() -> None:
    for method, path, limit in DJANGO:
        assert limit in limits.LIMITS, (method, path, WHAT_TO_DO)
        assert limits.find_limit_name(path) == limit, (method, path)


def test_the_table_names_no_door_that_is_gone() -> None:
    routes = dict(every_route())
    assert limits.PAGE_LIMITS.keys() - routes.keys() == set()
    assert limits.API_LIMITS.keys() - {row.partition(" ")[2] for row in API} == set()


def test_before_sign_in_nothing_larger_than_a_few_kilobytes_is_read() -> None:
    assert limits.STRANGER.sent <= 8 * 1024
    for limit in limits.LIMITS:
        for stranger in ("address:127.0.0.1", "address:2001:db8::/64"):
            assert limits.find_body_limit(limit, stranger) is limits.STRANGER
    assert not limits.LIMITS["sign-in"]


@pytest.mark.served
@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_no_door_reads_on_for_a_stranger(one_server: Served, chunked: bool) -> None:
    wrong = []
    for method, path, limit in [*DJANGO, *AT_EDGE]:
        connection = connect(one_server)
        body = b"x" * (limits.STRANGER.sent + 1)
        connection.request(method, path, iter([body]) if chunked else body, encode_chunked=chunked,
                           headers={"Transfer-Encoding": "chunked"} if chunked else {})  # fmt: skip
        answer = connection.getresponse()
        if answer.status != (401 if (method, path, limit) in AT_EDGE else 413):
            wrong.append(f"{method} {path}: {answer.status}")
        connection.close()
    assert wrong == []


@pytest.mark.served
def test_a_key_is_heard_for_as_much_as_the_table_says_at_each_machine_door(one_server: Served) -> None:
    wrong = []
    for method, path, limit in MACHINE:
        most = limits.find_body_limit(limit, "key:1").sent
        connection = connect(one_server)
        connection.putrequest(method, path)
        for name, value in {**bearer(), "Content-Length": str(most + 1)}.items():
            connection.putheader(name, value)
        connection.endheaders(b"{")
        answer = connection.getresponse()
        nobody = path.startswith("/mcp")  # the gateway hears keys of agents alone, and this one is of none
        if answer.status != (403 if nobody else 413):
            wrong.append(f"{method} {path}: {answer.status}")
        connection.close()
    assert wrong == []
