"""The PostgreSQL that the servers share: one that is there, or a primary of our own with a standby to fail over to."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.served import free_port, run_on_postgres

ADDRESSES = ("127.0.0.1", "127.0.0.2")
AWAY = (
    3.0  # seconds for which the database only reads, lets nobody in, or is gone before the standby takes over
)
WITHIN = 60.0  # … for a standby to follow
SETTINGS = """
port = {port}
unix_socket_directories = ''
max_connections = 300
shared_buffers = 128MB
"""


class Given:
    """The PostgreSQL that DATABASE_URL names. Only the bench's own database there is disturbed."""

    def __init__(self) -> None:
        self.name = ""  # of the bench's own database, once it is made

    def troubles(self) -> list[Callable[[], None]]:
        """Return what can happen to it."""
        return [self.cut, self.only_read, self.nobody_in]

    def cut(self) -> None:
        """End all connections of the database."""
        run_on_postgres(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}'"
        )

    def only_read(self) -> None:
        run_on_postgres(f"ALTER DATABASE {self.name} SET default_transaction_read_only = on")
        self.cut()
        time.sleep(AWAY)
        run_on_postgres(f"ALTER DATABASE {self.name} RESET default_transaction_read_only")
        self.cut()

    def nobody_in(self) -> None:
        run_on_postgres(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS false")
        self.cut()
        time.sleep(AWAY)
        run_on_postgres(f"ALTER DATABASE {self.name} ALLOW_CONNECTIONS true")

    def close(self) -> None:
        """It stays."""


class Pair(Given):
    """A primary of our own, and its standby, which has every commit before it is acknowledged; or the first alone."""

    def __init__(self, folder: Path, *, standby: bool = True) -> None:
        super().__init__()
        self.folder, self.port = folder, free_port()
        self.addresses = ADDRESSES if standby else ADDRESSES[:1]
        self.programs = programs()
        folder.mkdir()
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            shutil.chown(folder, "postgres")
        self.primary, self.standby = ADDRESSES
        self._run(
            "initdb",
            "-D",
            self._data(self.primary),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        )
        settings = Path(self._data(self.primary), "postgresql.conf")
        settings.write_text(settings.read_text() + SETTINGS.format(port=self.port))
        self._start(self.primary)
        if standby:
            self._follow()

    @property
    def url(self) -> str:
        hosts = ",".join(f"{address}:{self.port}" for address in self.addresses)
        return f"postgres://postgres@{hosts}/postgres?target_session_attrs=read-write"

    def troubles(self) -> list[Callable[[], None]]:
        return [self.cut, self.only_read, self.nobody_in, self.fail_over]

    def only_read(self) -> None:
        """Let the primary refuse writes, on connections that stand, too."""
        self._on_primary("ALTER SYSTEM SET default_transaction_read_only = on")
        self._on_primary("SELECT pg_reload_conf()")
        time.sleep(AWAY)
        self._on_primary("ALTER SYSTEM RESET default_transaction_read_only")
        self._on_primary("SELECT pg_reload_conf()")

    def fail_over(self) -> None:
        """Kill the primary, let the standby take over, and make a new standby in the old one's place."""
        self._run("pg_ctl", "-D", self._data(self.primary), "-m", "immediate", "stop")
        time.sleep(AWAY)
        self._run("pg_ctl", "-D", self._data(self.standby), "-w", "promote")
        self.primary, self.standby = self.standby, self.primary
        shutil.rmtree(self._data(self.standby))
        self._follow()

    def close(self) -> None:
        for address in self.addresses:
            subprocess.run(
                self._words("pg_ctl", "-D", self._data(address), "-m", "immediate", "stop"),
                check=False, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def _follow(self) -> None:
        """Make a standby of the primary, and have commits wait for it once it follows."""
        where = ["-h", self.primary, "-p", str(self.port), "-U", "postgres"]
        self._run("pg_basebackup", *where, "-D", self._data(self.standby), "-R", "-c", "fast", "--no-sync")
        self._start(self.standby)
        self._until("SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'")
        self._on_primary("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self._on_primary("SELECT pg_reload_conf()")
        self._until("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")

    def _until(self, found: str) -> None:
        """Wait until the primary finds a row."""
        until = time.monotonic() + WITHIN
        while not self._on_primary(found):
            assert time.monotonic() < until, f"the standby does not follow: {found}"
            time.sleep(0.1)

    def _start(self, address: str) -> None:
        self._run(
            "pg_ctl", "-D", self._data(address), "-w", "-l", str(self.folder / f"{address}.log"),
            "-o", f"-c listen_addresses={address}", "start",
        )  # fmt: skip

    def _on_primary(self, statement: str) -> list[tuple[Any, ...]]:
        where = f"postgres://postgres@{self.primary}:{self.port}/postgres"
        with psycopg.connect(where, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _data(self, address: str) -> str:
        return str(self.folder / address)

    def _words(self, program: str, *words: str) -> list[str]:
        as_whom = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        return [*as_whom, str(self.programs / program), *words]

    def _run(self, program: str, *words: str) -> None:
        """Run one of PostgreSQL's programs; its words are not piped, for a server that it starts would hold them."""
        with (self.folder / "programs.log").open("ab") as log:
            subprocess.run(self._words(program, *words), check=True, cwd=self.folder, stdout=log, stderr=log)


def programs() -> Path:
    """Return the folder of PostgreSQL's programs, of the newest version that this machine has."""
    if found := shutil.which("initdb"):
        return Path(found).parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: float(place.parent.name))
    assert places, "PostgreSQL's programs are not here; DATABASE_URL may name a PostgreSQL"
    return places[-1]
