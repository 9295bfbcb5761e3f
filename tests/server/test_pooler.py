"""PostgreSQL behind pgbouncer in transaction mode: refused where it would break the feed, used for all else."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import CommandError

from coordinator import settings as own_settings
from coordinator.engine import pooling
from coordinator.operations import startup
from tests.patience import PATIENCE
from tests.served import Served, Template, free_port, postgres_url, with_database

ON_POSTGRES = pytest.mark.skipif(postgres_url() is None, reason="SQLite has no pooler")


def test_a_pooler_is_for_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    direct = own_settings.secure_and_build_database_settings("postgres://one@host/name")
    monkeypatch.setattr(own_settings, "DATABASES", {"default": direct})
    through = own_settings.pooler_database_settings("postgres://one@pooler:6432/name")
    assert (through["HOST"], through["DISABLE_SERVER_SIDE_CURSORS"]) == ("pooler", True)
    assert "options" in direct["OPTIONS"]
    assert "options" not in through["OPTIONS"]
    with pytest.raises(ImproperlyConfigured, match="SIGNALBOX_POOL_URL is for PostgreSQL"):
        own_settings.pooler_database_settings("sqlite:////some/file")


@pytest.mark.django_db
def test_a_session_of_our_own_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    startup.require_compatible_pooler()
    monkeypatch.setattr(pooling, "is_pooled_by_transaction", lambda: True)
    with pytest.raises(CommandError, match=r"transaction mode.*DATABASE_URL must lead to PostgreSQL itself"):
        startup.require_compatible_pooler()


@contextlib.contextmanager
def pgbouncer(folder: Path) -> Iterator[int]:
    """A pooler in transaction mode before the tests' PostgreSQL; gives its port."""
    url, port = urlsplit(postgres_url() or ""), free_port()
    configuration = folder / "pgbouncer.ini"
    configuration.write_text(f"""[databases]
* = host={url.hostname} port={url.port or 5432} user={url.username} connect_query='{pooling.SET_UP}'
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
ignore_startup_parameters = options, extra_float_digits
""")
    as_postgres = ["-u", "postgres"] if os.geteuid() == 0 else []  # it refuses to run as root
    bouncer = subprocess.Popen(["pgbouncer", "-q", *as_postgres, str(configuration)])
    try:
        yield port
    finally:
        bouncer.terminate()
        bouncer.wait(PATIENCE)


@ON_POSTGRES
@pytest.mark.skipif(
    shutil.which("pgbouncer") is None, reason="pgbouncer is not installed (Debian: pgbouncer)"
)
def test_a_server_works_through_pgbouncer_and_its_feed_goes_past_it(
    served_template: Template, tmp_path: Path
) -> None:
    with pgbouncer(tmp_path) as port:
        served = Served(served_template, tmp_path / "server", workers=1, env={})
        url = urlsplit(with_database(postgres_url() or "", served.database))
        through = url._replace(netloc=f"{url.username}@127.0.0.1:{port}").geturl()
        served.env["SIGNALBOX_POOL_URL"] = through
        try:
            served.start()
            client = served.client(key="all")
            run = client.post("/runs", json={"type": "start_session", "prompt": "Go"}).json()
            with client.stream("GET", "/sse/sessions") as stream:
                told = stream.iter_lines()
                next(told)
                event = {"event_type": "message", "session_id": run["session_id"], "role": "assistant"}
                event |= {"timestamp": "2026-01-01T00:00:00Z", "content": [{"type": "text", "text": "heard"}]}
                began = time.monotonic()
                assert client.post(f"/sessions/{run['session_id']}/events", json=event).status_code == 201
                assert any("heard" in line for line in told)
                assert time.monotonic() - began < 5
            names = served.sql(
                "SELECT application_name FROM pg_stat_activity WHERE datname = ?", (served.database,)
            )
            assert ("signalbox-feed",) in names
            with psycopg.connect(through, autocommit=True) as pooled:
                assert pooled.execute("SHOW lock_timeout").fetchone() == ("3s",)
            served.env |= {"DATABASE_URL": through, "SIGNALBOX_POOL_URL": ""}
            served.stop()
            with pytest.raises(AssertionError, match="is a pooler in transaction mode"):
                served.start()
        finally:
            served.close()
