"""The program as people run it: `manage.py serve` on a free port with a database of its own.

A migrated and seeded database is made once per test run and copied for each server, so a server is ready
in about two seconds. Tests speak to it over HTTP (`served.client(key="operator")`), or look into its
database from outside, as any other program would (`served.sql(…)`).
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg

from coordinator.identity.scopes import SCOPES
from tests import feed_positions, forked
from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent
# Known to every server a test starts (tests/served_seed.py makes them).
KEYS = {scope: f"sbx_served-test-key-{scope}" for scope in (*SCOPES, "all")}
PEOPLE = {name: f"{name}-password-7" for name in ("viewer", "approver", "approver2", "admin")}
PROOF = "5e" * 32  # what a browser keeps beside its cookie (coordinator/identity/browser_secrets.py)
READY_WITHIN = 3 * PATIENCE  # a start takes seconds of work
STOPPED_WITHIN = PATIENCE
_ports = itertools.count(os.getpid() * 997 % 12_000)


def postgres_url() -> str | None:
    """Return the PostgreSQL that this test run is for, or None on SQLite."""
    url = os.environ.get("DATABASE_URL", "")
    return url if url.startswith("postgres") else None


def free_port() -> int:
    """Return a port that nobody listens on, and that the system gives to no outgoing connection meanwhile.

    Each process of a test run begins elsewhere, so that two do not choose the same.
    """
    while True:
        port = 20_000 + next(_ports) % 12_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def manage(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a management command to its end; fails the test with its output if it fails."""
    done = tried(*words, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def tried(*words: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a management command to its end, which may be a failure."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = forked.start(words, cwd=ROOT, env=env, stdout=out, stderr=err)
        try:
            code = process.wait(300)
        except BaseException:
            process.kill()
            raise
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


class Template:
    """A data folder and a database, migrated and seeded, from which each server gets a copy."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        """Make the template in `folder`, or, given its database's name, use the one that is there."""
        self.folder = folder
        self.database = database or f"signalbox_template_{uuid.uuid4().hex[:12]}"
        if database is None:
            self.make()

    def make(self) -> None:
        """Migrate and seed the database, and prepare the static files, in one process: each start takes its time."""
        if postgres_url():
            run_on_postgres(f"CREATE DATABASE {self.database}")
        env = self.environment(self.folder, self.database)
        subprocess.run(
            [sys.executable, "-m", "tests.served_seed"], cwd=ROOT, env=env, check=True, timeout=300
        )

    @staticmethod
    def environment(folder: Path, database: str) -> dict[str, str]:
        """Return the environment of a server on `folder` (and on `database`, where PostgreSQL is tested)."""
        env = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("SIGNALBOX_", "DJANGO_"))
        }
        env |= {"SIGNALBOX_DATA_DIR": str(folder), "DJANGO_SETTINGS_MODULE": "tests.served_settings"}
        if url := postgres_url():
            env["DATABASE_URL"] = with_database(url, database)
        return env

    def copy(self, folder: Path) -> str:
        """Fill `folder`, make a database for it, and return that database's name."""
        folder.mkdir(parents=True)
        for name in ("secret_key", "signalbox.sqlite3"):
            if (self.folder / name).exists():
                shutil.copy2(self.folder / name, folder / name)
        (folder / "static").symlink_to(self.folder / "static")
        database = f"signalbox_served_{uuid.uuid4().hex[:12]}"
        if postgres_url():
            run_on_postgres(f"CREATE DATABASE {database} TEMPLATE {self.database}")
        return database

    def drop(self) -> None:
        """Remove the template's database."""
        if postgres_url():
            drop_database(self.database)


@contextlib.contextmanager
def shared_template(folder: Path) -> Iterator[Template]:
    """The template in `folder`, for all processes of a test run: the first makes it, the last drops it."""
    users = folder / "users.json"
    with locked(folder):
        known = json.loads(users.read_text()) if users.exists() else {"database": None, "users": 0}
        template = Template(folder, known["database"])
        users.write_text(json.dumps({"database": template.database, "users": known["users"] + 1}))
    yield template
    with locked(folder):
        known = json.loads(users.read_text())
        if known["users"] > 1:
            users.write_text(json.dumps(known | {"users": known["users"] - 1}))
        else:
            template.drop()
            shutil.rmtree(folder)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a lock beside the folder, which is made where it is not there."""
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder.mkdir(exist_ok=True)
        yield


@dataclass(frozen=True)
class Connection:
    """An open connection to a server's database: which database that is, what runs a statement, what closes it."""

    database: str
    run: Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]
    close: Callable[[], None]


class DatabaseAccess:
    """SQL from outside on the database of a data folder."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder, self.database = folder, database
        self._connections: dict[int, Connection] = {}  # by thread

    def sql(self, statement: str, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Run SQL as another program would, committed at once; `?` marks parameters on both engines.

        Each thread keeps its connection for its next statement: SQLite reads the whole schema for each connection.
        """
        thread = threading.get_ident()
        connection = self._connections.get(thread)
        if connection is None or connection.database != self._current_database():
            if connection is not None:
                connection.close()
            connection = self._connections[thread] = self._connect()
        return connection.run(statement, parameters)

    def close_connections(self) -> None:
        """Close what `sql` opened."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _current_database(self) -> str:
        """Return what names the database that is there now. A test may put another file in its place."""
        return self.database if postgres_url() else str((self.folder / "signalbox.sqlite3").stat().st_ino)

    def _connect(self) -> Connection:
        if url := postgres_url():
            postgres = psycopg.connect(with_database(url, self.database), autocommit=True)

            def run(statement: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
                marked = statement.replace("%", "%%").replace("?", "%s")
                cursor = postgres.execute(marked, parameters)  # type: ignore[call-overload]
                return cursor.fetchall() if cursor.description else []

            return Connection(self._current_database(), run, postgres.close)
        file = sqlite3.connect(
            self.folder / "signalbox.sqlite3", timeout=PATIENCE, isolation_level=None, check_same_thread=False
        )
        file.execute("PRAGMA synchronous=OFF")  # no test cuts the power
        return Connection(
            self._current_database(),
            lambda statement, parameters: file.execute(statement, parameters).fetchall(),
            file.close,
        )


class Served(DatabaseAccess):
    """One running server. `start`, `stop` and `kill_worker` may be called in any order."""

    root = ROOT  # where its program is
    ready_within = READY_WITHIN
    options: tuple[str, ...] = ("--no-migrate",)

    def __init__(self, template: Template, folder: Path, *, workers: int, env: dict[str, str]) -> None:
        super().__init__(folder, template.copy(folder))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.workers = workers
        self.env = (
            template.environment(folder, self.database)
            | {"SIGNALBOX_BIND": f"127.0.0.1:{self.port}", "SIGNALBOX_PUBLIC_URL": self.url}
            | env
        )
        self.log = folder / "server.log"
        self.process: subprocess.Popen[bytes] | forked.Forked | None = None
        self.clients: list[httpx.Client] = []

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with self.log.open("ab") as log:
            words = ["serve", f"--workers={self.workers}", *self.options]
            self.process = forked.start(words, cwd=self.root, env=self.env, stdout=log, stderr=log)
        deadline = time.monotonic() + self.ready_within
        with httpx.Client(timeout=5, verify=False) as client:  # reading the CAs takes its time
            while time.monotonic() < deadline:
                assert self.process.poll() is None, f"the server ended:\n{self.output()}"
                with contextlib.suppress(httpx.TransportError):
                    client.get(self.url + "/health")
                    return
                time.sleep(0.05)
        raise AssertionError(f"the server is not ready after {self.ready_within} s:\n{self.output()}")

    def output(self) -> str:
        """Return what the server has printed."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def stop(self, how: signal.Signals = signal.SIGTERM) -> float:
        """Stop the server and return how many seconds that took; fails if it takes too long."""
        if self.process is None:
            return 0.0
        began = time.monotonic()
        self.process.send_signal(how)
        try:
            self.process.wait(STOPPED_WITHIN)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(
                f"the server did not stop within {STOPPED_WITHIN} s:\n{self.output()}"
            ) from None
        finally:
            self.process = None
        return time.monotonic() - began

    def worker_pids(self) -> list[int]:
        """Return the process ids of the workers."""
        assert self.process is not None
        return [one for one in children_of(self.process.pid) if not _is_helper(one)]

    def all_worker_pids(self) -> list[int]:
        """Wait until every worker is started, since one is enough for an answer; return their process ids.

        Looks twice: a process that is about to become another program still looks like a worker.
        """
        deadline = time.monotonic() + READY_WITHIN
        pids: list[int] = []
        while len(pids) < self.workers or pids != self.worker_pids():
            assert time.monotonic() < deadline, f"{len(pids)} workers are at work:\n{self.output()}"
            pids = self.worker_pids()
            time.sleep(0.05)
        return pids

    def kill_worker(self) -> int:
        """Kill one worker as a crash would (SIGKILL) and return its process id."""
        pid = self.worker_pids()[0]
        os.kill(pid, signal.SIGKILL)
        return pid

    def client(self, key: str | None = "all", **options: Any) -> httpx.Client:
        """Return an HTTP client with the key of that scope (or none), closed with the server."""
        headers = {"Authorization": f"Bearer {KEYS[key]}"} if key else {}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, verify=False, **options)
        self.clients.append(client)
        return client

    def sign_in(self, name: str) -> httpx.Client:
        """Return a client that is signed in as one of PEOPLE and sends the CSRF token it was given."""
        client = self.client(key=None, follow_redirects=True)
        client.get("/ui/sign-in/")
        csrf_cookie = f"{'__Host-' if self.url.startswith('https:') else ''}signalbox_csrf"
        form = {
            "username": name,
            "password": PEOPLE[name],
            "csrfmiddlewaretoken": client.cookies[csrf_cookie],
            "new_proof": PROOF,
        }
        answer = client.post("/ui/sign-in/", data=form, headers={"Referer": self.url})
        assert answer.status_code == 200, answer.text
        token = client.cookies[csrf_cookie]
        client.headers.update(
            {"X-CSRFToken": token, "X-Signalbox-Proof": PROOF, "Referer": self.url, "Origin": self.url}
        )
        return client

    def wait_until_known(self) -> None:
        """Wait until every worker has heard of all rows that are committed now."""
        newest = self.sql("SELECT coalesce(max(id), 0) FROM changes")[0][0]
        deadline = time.monotonic() + PATIENCE
        for worker in self.worker_pids():
            while feed_positions.read_position(self.folder, worker) < newest:
                assert time.monotonic() < deadline, f"worker {worker} does not follow:\n{self.output()}"
                time.sleep(0.002)

    def emptied(self, *tables: str) -> Served:
        """Return this server, at work, whatever the test before did to it, and without rows in these tables."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        for table in tables:
            self.sql(f"DELETE FROM {table}")
        return self

    def close(self) -> None:
        """Stop the server and remove its database."""
        for client in self.clients:
            client.close()
        self.close_connections()
        try:
            self.stop()
        finally:
            if postgres_url():
                drop_database(self.database)


def _is_helper(process: int) -> bool:
    """Say whether it is no worker: it keeps the host of MCP servers, or tries the code before a restart."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        return b"hosting/keeper.py" in command or b"--check" in command
    return False


def children_of(pid: int) -> list[int]:
    """Return the process ids of a process's children; none where it is gone."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def with_database(url: str, name: str) -> str:
    """Return the PostgreSQL URL `url` with another database's name."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()


def connections_let_in() -> int:
    """Return how many connections PostgreSQL lets in."""
    url = postgres_url()
    assert url is not None
    with psycopg.connect(with_database(url, "postgres")) as connection:
        row = connection.execute("SHOW max_connections").fetchone()
    assert row is not None
    return int(row[0])


def run_on_postgres(statement: str) -> None:
    """Run one statement outside a transaction, on the server's maintenance database."""
    url = postgres_url()
    assert url is not None
    with psycopg.connect(with_database(url, "postgres"), autocommit=True) as connection:
        connection.execute(statement)  # type: ignore[call-overload]


def drop_database(name: str) -> None:
    """Drop a database, whoever is still connected to it."""
    run_on_postgres(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@contextlib.contextmanager
def running(template: Template, folder: Path, *, workers: int = 2, **env: str) -> Iterator[Served]:
    """Run a server for the length of a `with` block; shows what it printed where the block fails."""
    served = Served(template, folder, workers=workers, env=env)
    try:
        served.start()
        yield served
    except BaseException:
        sys.stderr.write(served.output())
        raise
    finally:
        served.close()
