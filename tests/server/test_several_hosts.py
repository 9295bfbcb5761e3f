"""DATABASE_URL with several hosts, for a fail-over: as PostgreSQL's client reads it."""

from __future__ import annotations

import pytest

from coordinator.settings import secure_and_build_database_settings

pytestmark = pytest.mark.one_engine


@pytest.mark.parametrize(
    ("hosts", "host", "port"),
    [
        ("db1:5432,db2:5433", "db1,db2", "5432,5433"),
        ("db1:6000,db2", "db1,db2", "6000,5432"),
        ("db1,db2:6000", "db1,db2", 6000),  # one port is that of all
        ("db1:6000", "db1", 6000),
    ],
)
def test_each_host_may_have_a_port_of_its_own(hosts: str, host: str, port: object) -> None:
    found = secure_and_build_database_settings(
        f"postgres://me:p%40ss@{hosts}/box?target_session_attrs=read-write"
    )
    assert (found["HOST"], found["PORT"]) == (host, port)
    assert (found["USER"], found["PASSWORD"], found["NAME"]) == ("me", "p@ss", "box")
    assert found["OPTIONS"]["target_session_attrs"] == "read-write"
