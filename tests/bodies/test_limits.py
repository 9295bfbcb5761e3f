"""Every door has a row in the one table of limits, and at each of them a stranger is heard for a few KB only."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from coordinator.edge import app
from coordinator.identity.declarations import body_allowance_of_url
from coordinator.lib import body_limits
from coordinator.lib.body_limits import STRANGER
from tests.guards.declared import ALLOWANCES
from tests.guards.table import BODIES, EDGE_BODIES
from tests.guards.test_every_url import every_route, path_of
from tests.live.connections import bearer, connect
from tests.served import Served

WRITES = {"POST", "PUT", "PATCH", "DELETE"}


def doors_of_django() -> Iterator[tuple[str, str, str]]:
    """Yield method, path and allowance of each URL of Django's that is written to."""
    routes = dict(every_route())
    for (method, name), allowance in BODIES.items():
        if method in WRITES:
            yield method, path_of(routes.get(name, name)), allowance
    for method in WRITES:
        yield method, "/", "SMALL"
    for name, route in routes.items():
        if name.startswith("admin:") and "(?P" not in route:
            yield "POST", path_of(route), "SMALL" if name in {"admin:login", "admin:logout"} else "FORM"


DJANGO = sorted(set(doors_of_django()))
AT_EDGE = [
    (method, re.sub(r"\([^)]+\)", "codex", path), EDGE_BODIES[method, path])  # an agent whose hooks are known
    for (method, path) in app.ROUTES
    if method in WRITES
]
MACHINE = [
    *AT_EDGE,
    *(door for door in DJANGO if not door[1].startswith(("/ui/", "/admin/")) and door[1] != "/"),
]


def test_every_door_of_the_edge_has_a_limit() -> None:
    assert {
        route: ALLOWANCES[operation.body] for route, operation in app.ROUTES.items() if route[0] in WRITES
    } == EDGE_BODIES
    assert len(AT_EDGE) > 15


def test_every_door_of_django_is_sent_what_its_view_declares() -> None:
    assert len(DJANGO) > 250
    for method, path, allowance in DJANGO:
        assert body_allowance_of_url(path, method) == getattr(body_limits, allowance), (method, path)


def test_what_only_reads_and_what_is_not_there_is_sent_what_a_stranger_may() -> None:
    for path in ("/ui/", "/ui/sessions/", "/sessions", "/health", "/nothing", "/ui/approvals/decide/"):
        assert body_allowance_of_url(path, "GET") == body_limits.SMALL
        assert body_allowance_of_url(path, "PUT") == body_limits.SMALL


def test_before_sign_in_nothing_larger_than_a_few_kilobytes_is_read() -> None:
    assert STRANGER.sent <= 8 * 1024
    for allowance in ALLOWANCES:
        for stranger in ("address:127.0.0.1", "address:2001:db8::/64"):
            assert allowance.body_limit_of_sender(stranger) is STRANGER
    assert {body_limits.SMALL.body_limit_of_sender(sender) for sender in ("person:1", "key:1")} == {STRANGER}


@pytest.mark.served
@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_no_door_reads_on_for_a_stranger(one_server: Served, chunked: bool) -> None:
    wrong = []
    for method, path, limit in [*DJANGO, *AT_EDGE]:
        connection = connect(one_server)
        body = b"x" * (STRANGER.sent + 1)
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
        most = getattr(body_limits, limit).body_limit_of_sender("key:1").sent
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
