"""A server that reaches a PostgreSQL without a password could decide by itself, so no admin gives it that network."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from coordinator.actions.mcp import mcp_upstreams
from coordinator.actions.mcp.mcp_upstreams import UpstreamConfig
from coordinator.engine import without_password
from coordinator.errors import UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.isolation.process_isolation import IsolationMechanism
from coordinator.mcp.servers import commands
from coordinator.models import McpServer, McpUpstream
from coordinator.operations.doctor import upkeep
from tests.people import signed_in

NOW = timezone.now()
ADMIN = Actor("user", "admin")
MACHINE = UpstreamConfig(transport="stdio", network="machine")
AUTH_OK, READY = b"R\x00\x00\x00\x08\x00\x00\x00\x00", b"Z\x00\x00\x00\x05I"
WANTS_PASSWORD = b"R\x00\x00\x00\x08\x00\x00\x00\x03"


class Listening:
    """What speaks as much of PostgreSQL as it takes to let somebody in, or to ask for a password."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.said: list[bytes] = []

    def serve(self) -> None:
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with peer:
                while data := peer.recv(4096):
                    if len(data) == 8:  # it asks for TLS
                        peer.sendall(b"N")
                        continue
                    self.said.append(data)
                    if b"user\x00" in data:
                        peer.sendall(self.answer)


@contextmanager
def listening(answer: bytes) -> Iterator[Listening]:
    found = Listening(answer)
    thread = threading.Thread(target=found.serve, daemon=True)
    thread.start()
    yield found
    found.socket.shutdown(socket.SHUT_RDWR)
    found.socket.close()
    thread.join(5)


def configure(monkeypatch: pytest.MonkeyPatch, **parameters: Any) -> None:
    """Have Signalbox's database be the PostgreSQL with these parameters."""
    monkeypatch.setattr(without_password, "is_sqlite", lambda: False)
    monkeypatch.setattr(
        connection, "get_connection_params", lambda: {"user": "signalbox", "password": "secret"} | parameters,
        raising=False,
    )  # fmt: skip


@pytest.fixture
def server(db: None) -> McpServer:
    return McpServer.objects.create(name="s", command="python3", args=["-m", "s"], created_at=NOW)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "/var/run/postgresql", ""])
def test_a_postgresql_that_asks_for_no_password_is_found_where_a_server_reaches_it(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    with listening(AUTH_OK + READY) as there:
        configure(monkeypatch, host=host, port=there.port)
        assert without_password.find_address_accepting_no_password(loopback=True) == f"127.0.0.1:{there.port}"
        assert without_password.find_address_accepting_no_password(loopback=False) is None


def test_one_that_asks_for_a_password_is_not_and_never_gets_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    known = tmp_path / "pgpass"
    known.write_text("*:*:*:*:secret\n")
    known.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(known))
    monkeypatch.setenv("PGPASSWORD", "secret")
    with listening(WANTS_PASSWORD) as there:
        configure(monkeypatch, host="127.0.0.1", port=there.port)
        assert without_password.find_address_accepting_no_password(loopback=True) is None
    assert there.said
    assert not any(b"secret" in data for data in there.said)


def test_no_admin_gives_a_server_a_network_in_which_it_could_decide(
    server: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "require_isolation_mechanism", lambda: IsolationMechanism.BUBBLEWRAP)
    with listening(AUTH_OK + READY) as there:
        configure(monkeypatch, host="127.0.0.1", port=there.port)
        admin = signed_in("admin")
        page = admin.get("/ui/mcp/servers/s/").text
        seen = re.search(r'name="command"\s+value="([^"]+)"', page)
        assert seen is not None
        form = {"transport": "stdio", "sharing": "shared", "call_seconds": "300", "command": seen[1]}
        answer = admin.post("/ui/mcp/upstream/s/", form | {"network": "machine"}, follow=True)
        assert f"PostgreSQL asks for no password at 127.0.0.1:{there.port}" in answer.text
        assert not McpUpstream.objects.exists()
        mcp_upstreams.save_upstream_config("s", UpstreamConfig(transport="stdio"), actor=ADMIN, now=NOW)
        with pytest.raises(UnprocessableRequest, match="scram-sha-256"):
            mcp_upstreams.save_upstream_config("s", MACHINE, actor=ADMIN, now=NOW)
        McpUpstream.objects.update(network="machine")  # as another program does it
        with pytest.raises(UnprocessableRequest, match="no password"):
            mcp_upstreams.accept_changed_server_command(
                "s", seen_version=commands.hash_server_command(server), actor=ADMIN, now=NOW
            )
        (check,) = upkeep.iterate_database_reach_checks()
        assert (check.level, check.message.endswith("could decide: s.")) == ("warn", True)
        monkeypatch.setattr(isolation, "require_isolation_mechanism", lambda: IsolationMechanism.SECOND_USER)
        mcp_upstreams.accept_changed_server_command(
            "s", seen_version=commands.hash_server_command(server), actor=ADMIN, now=NOW
        )
    (check,) = upkeep.iterate_database_reach_checks()
    assert check.level == "ok"


def test_the_database_itself_is_tried(server: McpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A SQLite file is nothing that a network leads to; a PostgreSQL says by itself whether it asks."""
    monkeypatch.setattr(isolation, "require_isolation_mechanism", lambda: IsolationMechanism.BUBBLEWRAP)
    address = without_password.find_address_accepting_no_password(loopback=True)
    if connection.vendor == "sqlite":
        assert address is None
    if address is None:
        assert mcp_upstreams.save_upstream_config("s", MACHINE, actor=ADMIN, now=NOW).network == "machine"
    else:
        with pytest.raises(UnprocessableRequest):
            mcp_upstreams.save_upstream_config("s", MACHINE, actor=ADMIN, now=NOW)
