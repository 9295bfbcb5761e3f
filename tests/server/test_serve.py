"""`serve` gets from nothing to answering, stops cleanly, and leaves no default way in."""

from __future__ import annotations

import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.patience import PATIENCE, until
from tests.served import READY_WITHIN, ROOT, Served, Template, free_port, postgres_url

pytestmark = pytest.mark.served


@pytest.fixture
def fresh(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A data folder that does not exist yet, and the environment of a server on it (SQLite)."""
    folder = tmp_path / "data"
    env = Template.environment(folder, "") | {"SIGNALBOX_BIND": f"127.0.0.1:{free_port()}"}
    env.pop("DATABASE_URL", None)
    return folder, env


def test_a_first_start_answers_who_connected_before_migrates_and_prints_a_set_up_link(
    fresh: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, env = fresh
    url = f"http://{env['SIGNALBOX_BIND']}"
    log = tmp_path / "log"
    with log.open("wb") as printed:
        server = subprocess.Popen([sys.executable, "manage.py", "serve"], cwd=ROOT, env=env, stdout=printed)
    try:
        early = until(lambda: connected(env["SIGNALBOX_BIND"]), within=READY_WITHIN)
        assert "Signalbox is at" not in log.read_text()
        early.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        early.settimeout(READY_WITHIN)
        assert b"200" in early.recv(4096)
        assert "Signalbox is at" in log.read_text()
        link = next(line.strip() for line in log.read_text().splitlines() if "/ui/setup/?token=" in line)
        bare = answer_of(f"{url}/ui/setup/?token={link.rpartition('=')[2]}")
        assert (bare.status_code, bare.headers["Location"]) == (302, link)
        own_host = link.removeprefix("http://").partition("/")[0]
        page = httpx.get(bare.url, headers={"Host": own_host}, timeout=PATIENCE)
        assert page.status_code == 200
        assert "password" in page.text
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == 0
    assert re.fullmatch(r"http://signalbox-[0-9a-f]{10}\.localhost:\d+/ui/setup/\?token=\S+", link)
    assert stat.S_IMODE((folder / "secret_key").stat().st_mode) == 0o600
    with sqlite3.connect(folder / "signalbox.sqlite3") as file:
        assert file.execute("SELECT count(*) FROM auth_user").fetchone() == (0,)


def connected(address: str) -> socket.socket | None:
    host, _, port = address.partition(":")
    try:
        return socket.create_connection((host, int(port)), timeout=PATIENCE)
    except ConnectionRefusedError:
        return None


def answer_of(url: str) -> httpx.Response:
    """Return the page at `url` as soon as the server accepts connections."""
    deadline = time.monotonic() + 180  # two may migrate one after the other, on a busy machine
    while True:
        try:
            return httpx.get(url, timeout=PATIENCE)
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_no_link_once_somebody_can_sign_in_and_its_threads_share_one_heap(one_server: Served) -> None:
    environment = Path(f"/proc/{one_server.all_worker_pids()[0]}/environ").read_bytes().split(b"\0")
    assert b"MALLOC_ARENA_MAX=1" in environment
    assert "Signalbox is at" in one_server.output()
    assert "/ui/setup/" not in one_server.output()


def test_killed_worker_is_replaced(one_server: Served) -> None:
    killed = one_server.kill_worker()
    deadline = time.monotonic() + 60
    while killed in one_server.worker_pids() or len(one_server.worker_pids()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert one_server.client(key=None).get("/health").status_code == 200


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stops_within_five_seconds_with_open_connections_and_answers_again_after_a_restart(
    one_server: Served, how: signal.Signals
) -> None:
    one_server.emptied()  # the second: the restarted one
    assert one_server.client(key=None).get("/health").json() == {"status": "healthy"}
    with one_server.client().stream("GET", "/sse/sessions") as stream:
        next(stream.iter_lines())
        assert one_server.stop(how) < 5


@pytest.mark.skipif(postgres_url() is None, reason="SQLite keeps a lock file instead (one machine)")
def test_two_servers_on_one_database_take_turns_to_migrate(
    tmp_path: Path, serve: Callable[..., Served]
) -> None:
    one = serve()
    served_tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'"
    before = one.sql(served_tables)
    one.stop()
    one.sql("DROP SCHEMA public CASCADE")
    one.sql("CREATE SCHEMA public")
    servers = []
    for name in ("a", "b"):
        env = one.env | {
            "SIGNALBOX_DATA_DIR": str(tmp_path / name),
            "SIGNALBOX_BIND": f"127.0.0.1:{free_port()}",
        }
        servers.append((subprocess.Popen([sys.executable, "manage.py", "serve"], cwd=ROOT, env=env), env))
    try:
        for _process, env in servers:
            assert answer_of(f"http://{env['SIGNALBOX_BIND']}/health").status_code == 200
    finally:
        for process, _env in servers:
            process.terminate()
            assert process.wait(60) == 0
    assert one.sql(served_tables) == before
