"""`serve` listens before it does anything else, and keeps listening while its server is replaced."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.impatient_runner import ImpatientRunner
from tests.patience import PATIENCE
from tests.served import KEYS, READY_WITHIN, ROOT, Served, Template, free_port, manage
from tests.wire.test_example_runner import ended, eventually, order

pytestmark = pytest.mark.served


@contextmanager
def starting(folder: Path, command: list[str], **more: object) -> Iterator[tuple[int, Path]]:
    """Start a server on a folder that does not exist yet; yield its port and where it prints to."""
    port, log = free_port(), folder.with_suffix(".log")
    env = Template.environment(folder, "") | {"SIGNALBOX_BIND": f"127.0.0.1:{port}"}
    env.pop("DATABASE_URL", None)
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=file, stderr=file, **more)  # type: ignore[call-overload]
    try:
        yield port, log
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0


def health(port: int) -> int:
    """Ask once, on a connection of its own; raises OSError where it is refused."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=READY_WITHIN)
    connection.request("GET", "/health")
    return connection.getresponse().status


def health_or_none(port: int) -> int | None:
    """Ask once; None where it is refused or cut off."""
    with suppress(OSError, http.client.HTTPException):
        return health(port)
    return None


NEWER = (
    "INSERT INTO django_migrations (app, name, applied) "
    "VALUES ('coordinator', '9999_newer_contract', '2026-01-01')"
)


def test_who_connects_before_the_database_is_made_is_answered_when_it_is(tmp_path: Path) -> None:
    with starting(tmp_path / "data", [sys.executable, "manage.py", "serve"]) as (port, log):
        early = eventually(lambda: connected(port), within=READY_WITHIN)
        assert "Signalbox is at" not in log.read_text()
        early.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        early.settimeout(READY_WITHIN)
        assert b"200" in early.recv(4096)
        assert "Signalbox is at" in log.read_text()


def connected(port: int) -> socket.socket | None:
    try:
        return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    except ConnectionRefusedError:
        return None


def test_sockets_of_a_service_manager_are_taken(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        words = f'exec 3<&{held.fileno()}; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" manage.py serve'
        port = held.getsockname()[1]
        env = {"SIGNALBOX_BIND": f"127.0.0.1:{port}"}
        command = ["bash", "-c", f"export SIGNALBOX_BIND={env['SIGNALBOX_BIND']}; {words}", sys.executable]
        with starting(tmp_path / "data", command, pass_fds=[held.fileno()]):
            assert health(port) == 200


def test_sockets_at_another_address_than_the_setting_are_refused(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        env = Template.environment(tmp_path / "data", "") | {"SIGNALBOX_BIND": f"127.0.0.1:{free_port()}"}
        words = f'exec 3<&{held.fileno()}; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$0" manage.py serve'
        done = subprocess.run(
            ["bash", "-c", words, sys.executable],
            cwd=ROOT, env=env, pass_fds=[held.fileno()], capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"127.0.0.1:{held_port(done.stderr)} " in done.stderr
    assert "SIGNALBOX_BIND" in done.stderr


def test_a_server_of_systemd_is_not_taken_over(tmp_path: Path) -> None:
    words = 'export SYSTEMD_EXEC_PID=$$; exec "$0" manage.py serve'
    with starting(tmp_path / "data", ["bash", "-c", words, sys.executable]) as (port, _):
        eventually(lambda: health_or_none(port) == 200, within=READY_WITHIN)
        done = subprocess.run(
            [sys.executable, "manage.py", "serve", "--take-over"],
            cwd=ROOT, env=Template.environment(tmp_path / "data", ""), capture_output=True, text=True, timeout=180,
            check=False,
        )  # fmt: skip
        assert (done.returncode, health(port)) == (1, 200)
    assert "systemd runs this server. Use: systemctl" in done.stderr


def held_port(text: str) -> str:
    return text.partition("127.0.0.1:")[2].partition(" ")[0]


def restart_in_place(served: Served) -> None:
    """Send SIGHUP and wait until other workers serve alone."""
    assert served.process is not None
    before = set(served.all_worker_pids())
    served.process.send_signal(signal.SIGHUP)
    eventually(lambda: served.worker_pids() and not before & set(served.worker_pids()), within=READY_WITHIN)


@contextmanager
def asking(served: Served) -> Iterator[list[object]]:
    """Ask some hundred times a second, each on a connection of its own; yield what came of it so far."""
    seen: list[object] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.002):  # leaves the processor to the server that starts
            try:
                seen.append(health(served.port))
            except OSError as problem:
                seen.append(problem)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_a_restart_in_place_refuses_nobody(serve: Callable[..., Served]) -> None:
    served = serve()
    with asking(served) as seen:
        restart_in_place(served)
    assert set(seen) == {200}
    assert served.process is not None
    assert served.process.poll() is None


@contextmanager
def second(served: Served, *words: str, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Start another `serve` on the same data folder, with words and settings of its own."""
    with served.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "serve", "--workers=2", "--no-migrate", *words],
            cwd=ROOT, env=served.env | env, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        assert process.wait(READY_WITHIN) is not None


def test_a_server_takes_over_from_the_one_that_runs_and_refuses_nobody(serve: Callable[..., Served]) -> None:
    served = serve()
    older = served.process
    assert older is not None
    with ExitStack() as at_work:
        with asking(served) as seen:
            newer = at_work.enter_context(second(served, "--take-over", SIGNALBOX_ACCESS_LOG="off"))
            assert older.wait(READY_WITHIN) == 0
            eventually(
                lambda: (served.folder / "serve.lock").read_text() == str(newer.pid), within=READY_WITHIN
            )
            assert health(served.port) == 200
        assert set(seen) == {200}
        assert "Another `serve` has taken over" in served.output()
        done = manage("restart", env=served.env)  # it can be asked in its turn
        assert "Restarted" in done.stdout
        assert newer.poll() is None
    served.process = None


def test_a_server_that_cannot_take_over_leaves_the_old_one_at_work(serve: Callable[..., Served]) -> None:
    served = serve()
    assert served.process is not None
    before = set(served.all_worker_pids())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        elsewhere = f"127.0.0.1:{taken.getsockname()[1]}"
        with second(served, "--take-over", SIGNALBOX_BIND=elsewhere) as newer:
            assert newer.wait(READY_WITHIN) != 0
    assert f"{elsewhere} cannot be used" in served.output()
    eventually(lambda: "so this one goes on" in served.output(), within=READY_WITHIN)
    assert set(served.worker_pids()) == before
    assert (served.folder / "serve.lock").read_text() == str(served.process.pid)
    assert health(served.port) == 200
    assert "Restarted" in manage("restart", env=served.env).stdout


def test_a_server_started_while_the_old_one_stops_has_its_addresses(serve: Callable[..., Served]) -> None:
    served = serve()
    older = served.process
    assert older is not None
    os.kill(older.pid, signal.SIGSTOP)  # so that the order of the two is certain
    older.terminate()
    with second(served) as newer:
        os.kill(older.pid, signal.SIGCONT)
        assert eventually(lambda: health_or_none(served.port), within=READY_WITHIN) == 200
        assert older.wait(READY_WITHIN) == 0
        assert newer.poll() is None
    served.process = None


def test_restart_says_whether_the_new_server_started(serve: Callable[..., Served]) -> None:
    served = serve()
    before = set(served.all_worker_pids())
    assert "Restarted" in manage("restart", env=served.env).stdout
    eventually(lambda: served.worker_pids() and not before & set(served.worker_pids()), within=READY_WITHIN)
    served.sql(NEWER)
    failed = restart_in_vain(served)
    assert "so the old one goes on" in failed
    assert health(served.port) == 200
    served.stop()
    assert "Start one with `manage.py serve`" in restart_in_vain(served)


def restart_in_vain(served: Served) -> str:
    done = subprocess.run(
        [sys.executable, "manage.py", "restart"],
        cwd=ROOT, env=served.env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    return done.stderr


def test_a_new_server_that_cannot_start_leaves_the_old_one_at_work(serve: Callable[..., Served]) -> None:
    served = serve()
    before = set(served.all_worker_pids())
    served.sql(NEWER)
    assert served.process is not None
    served.process.send_signal(signal.SIGHUP)
    eventually(lambda: "so the old one goes on" in served.output(), within=READY_WITHIN)
    assert "made by a newer Signalbox" in served.output()
    assert set(served.worker_pids()) == before
    assert health(served.port) == 200


def test_a_server_whose_supervisor_was_killed_makes_room_for_the_next(serve: Callable[..., Served]) -> None:
    served = serve()
    served.stop(signal.SIGKILL)
    served.start()  # may still be answered by a worker of the old one
    assert served.process is not None
    assert eventually(lambda: health_or_none(served.port), within=READY_WITHIN) == 200
    assert served.process.poll() is None


def test_runners_as_impatient_as_the_real_one_survive_restarts_in_place(serve: Callable[..., Served]) -> None:
    served = serve(SIGNALBOX_RUNNER_POLL_TIMEOUT="5", SIGNALBOX_LIFECYCLE_INTERVAL="0.5")
    with ExitStack() as fleet:
        runners = [
            fleet.enter_context(ImpatientRunner(served.url, KEYS["runner"], hostname=f"host-{n}"))
            for n in range(4)
        ]
        for _ in range(3):
            restart_in_place(served)
            assert not any(runner.gave_up for runner in runners), [runner.failed for runner in runners]
        client = served.client()
        run = order(client, "after all restarts")
        assert eventually(ended(client, run["run_id"]), within=READY_WITHIN)["status"] == "completed"
        assert [runner.failed for runner in runners] == [[]] * 4
