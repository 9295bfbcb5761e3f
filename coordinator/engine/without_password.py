"""A check whether the configured PostgreSQL accepts connections without a password: tried, not read from files."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from coordinator.engine import is_sqlite

LOOPBACK = ("127.0.0.1", "::1")
CONNECT_WITHIN = 2  # seconds for each address, the least that libpq takes
MOST_ADDRESSES = 4
SUPERUSER = "postgres"
NOWHERE = (
    "/nonexistent/signalbox"  # in place of files with passwords and certificates that only Signalbox can read
)


def find_address_accepting_no_password(*, loopback: bool) -> str | None:
    """Return an address at which the database accepts a user name without a password; None where no tried one does.

    Tried are the configured address and, where a program may use `loopback`, this machine's own. Those that another
    program cannot reach (a socket in a folder) are not.
    """
    if is_sqlite():
        return None
    import psycopg  # noqa: PLC0415 - an installation on SQLite has none

    configured = connection.get_connection_params()
    users = dict.fromkeys((str(configured.get("user") or SUPERUSER), SUPERUSER))
    for host, port in list(list_database_addresses_to_try(configured, loopback=loopback))[:MOST_ADDRESSES]:
        for user in users:
            try:
                psycopg.connect(
                    host=host,
                    port=port,
                    user=user,
                    dbname=str(configured.get("dbname") or user),
                    password="",
                    passfile=NOWHERE,
                    sslcert=NOWHERE,
                    sslkey=NOWHERE,
                    gssencmode="disable",
                    connect_timeout=CONNECT_WITHIN,
                ).close()
            except psycopg.OperationalError:
                continue
            return f"{host}:{port}"
    return None


def list_database_addresses_to_try(
    configured: dict[str, object], *, loopback: bool
) -> Iterator[tuple[str, str]]:
    hosts = str(configured.get("host") or "").split(",")
    ports = str(configured.get("port") or "5432").split(",")
    is_local = False
    for number, host in enumerate(hosts):
        if host in {"", "localhost", *LOOPBACK} or host.startswith(("/", "@")):
            is_local = True
        else:
            yield host, ports[number] if len(ports) == len(hosts) else ports[0]
    if is_local and loopback:
        yield from ((host, port) for port in dict.fromkeys(ports) for host in LOOPBACK)
