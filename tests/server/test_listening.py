"""`serve` listens before it does anything else, and keeps listening while it restarts."""

from __future__ import annotations

import fcntl
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.impatient_runner import ImpatientRunner
from tests.served import KEYS, READY_WITHIN, ROOT, Served, Template, free_port
from tests.wire.test_example_runner import ended, eventually, order, quick

pytestmark = pytest.mark.served
__all__ = ["quick"]  # a fixture


@pytest.fixture
def served(quick: Served) -> Served:
    """One server for all tests of this module, whichever process it runs in by then; at work, with an empty log."""
    quick.emptied()
    quick.log.write_bytes(b"")  # it is written to by appending
    return quick


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


def program(served: Served, command: list[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """Run the program on a server's data folder until it ends."""
    return subprocess.run(
        command, cwd=ROOT, env=served.env, capture_output=True, text=True, timeout=180, check=False, **more
    )


def of_systemd(held: socket.socket) -> list[str]:
    """Return a command that serves on this socket, started as systemd starts a service."""
    words = f"exec 3<&{held.fileno()}; export LISTEN_PID=$$ LISTEN_FDS=1 SYSTEMD_EXEC_PID=$$"
    return ["bash", "-c", f'{words}; exec "$0" manage.py serve --no-migrate', sys.executable]


def test_a_server_of_systemd_takes_its_sockets_and_keeps_them_and_its_process_through_a_restart(
    served_template: Template, tmp_path: Path
) -> None:
    served = Served(served_template, tmp_path / "server", workers=2, env={})
    with socket.create_server(("127.0.0.1", served.port)) as held, served.log.open("ab") as log:
        served.process = subprocess.Popen(
            of_systemd(held), cwd=ROOT, env=served.env, pass_fds=[held.fileno()], stdout=log, stderr=log
        )
        try:
            assert health(served.port) == 200
            before = set(served.all_worker_pids())
            done = restarted(served)
            assert (done.returncode, health(served.port)) == (0, 200), done.stderr
            eventually(lambda: not before & set(served.worker_pids()), within=READY_WITHIN)
        finally:
            process = served.process
            served.close()
    assert process.returncode == 0


def test_sockets_at_another_address_than_the_setting_are_refused(tmp_path: Path) -> None:
    env = Template.environment(tmp_path / "data", "") | {"SIGNALBOX_BIND": f"127.0.0.1:{free_port()}"}
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        done = subprocess.run(
            of_systemd(held),
            cwd=ROOT, env=env, pass_fds=[held.fileno()], capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert f"127.0.0.1:{port} " in done.stderr
    assert "SIGNALBOX_BIND" in done.stderr


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
        while not over.wait(0.005):  # leaves the processor to the server that starts
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


@contextmanager
def second(served: Served) -> Iterator[subprocess.Popen[bytes]]:
    """Start another `serve` on the same data folder; where it is at work in the end, it is the server from then on."""
    with served.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "serve", "--workers=2", "--no-migrate"],
            cwd=ROOT, env=served.env, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            served.stop()  # has ended, where all went well
            served.process = process


def restarted(served: Served) -> subprocess.CompletedProcess[str]:
    return program(served, [sys.executable, "manage.py", "restart"])


def test_a_restart_refuses_nobody_and_stays_the_same_process(served: Served) -> None:
    assert served.process is not None
    before = set(served.all_worker_pids())
    with asking(served) as seen:
        done = restarted(served)
        eventually(
            lambda: served.worker_pids() and not before & set(served.worker_pids()), within=READY_WITHIN
        )
    assert "Restarted" in done.stdout, done.stderr
    assert set(seen) == {200}
    assert served.process.poll() is None
    first_line, outcome, *_ = (served.folder / "serve.lock").read_text().splitlines()
    assert first_line == str(served.process.pid)
    assert outcome.startswith("ready ")


def test_restarts_that_are_asked_for_at_once_both_succeed(served: Served) -> None:
    command = [sys.executable, "manage.py", "restart"]
    both = [
        subprocess.Popen(command, cwd=ROOT, env=served.env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert ["Restarted" in one.communicate(timeout=180)[0] for one in both] == [True, True]
    assert health(served.port) == 200


def test_a_restart_that_must_migrate_stops_the_workers_first_and_requests_wait(
    served_template: Template, tmp_path: Path
) -> None:
    served = Served(served_template, tmp_path / "server", workers=2, env={})
    served.options = ()
    try:
        served.start()
        served.sql("DROP TABLE django_session")
        served.sql("DELETE FROM django_migrations WHERE app = 'sessions'")
        with asking(served) as seen:
            done = restarted(served)
        assert "Restarted" in done.stdout, done.stderr + served.output()
        assert "Migrating the database (1 steps)" in served.output()
        assert set(seen) == {200}
        assert served.sql("SELECT count(*) FROM django_session") == [(0,)]
    finally:
        served.close()


def test_a_server_of_an_older_version_is_not_restarted_and_the_command_says_what_to_do(
    tmp_path: Path,
) -> None:
    env = Template.environment(tmp_path / "data", "")
    (tmp_path / "data").mkdir(mode=0o700)
    with (tmp_path / "data" / "serve.lock").open("w") as lock:
        lock.write(str(os.getpid()))  # without an end of line, as older versions wrote it
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            [sys.executable, "manage.py", "restart"],
            cwd=ROOT, env=env, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "older than this command. Stop it and start it again" in done.stderr


def test_a_server_started_while_the_old_one_stops_has_its_addresses(served: Served) -> None:
    older = served.process
    assert older is not None
    os.kill(older.pid, signal.SIGSTOP)  # so that the order of the two is certain
    older.terminate()
    with second(served) as newer:
        os.kill(older.pid, signal.SIGCONT)
        assert eventually(lambda: health_or_none(served.port), within=READY_WITHIN) == 200
        assert older.wait(READY_WITHIN) == 0
        assert health(served.port) == 200
        assert newer.poll() is None


def test_runners_as_impatient_as_the_real_one_survive_restarts_in_place(served: Served) -> None:
    with ExitStack() as fleet:
        runners = [
            fleet.enter_context(ImpatientRunner(served.url, KEYS["runner"], hostname=f"host-{n}"))
            for n in range(4)
        ]
        for _ in range(2):  # the second is one of a server that was itself started so
            restart_in_place(served)
            assert not any(runner.gave_up for runner in runners), [runner.failed for runner in runners]
        client = served.client()
        run = order(client, "after all restarts")
        assert eventually(ended(client, run["run_id"]), within=READY_WITHIN)["status"] == "completed"
        assert [runner.failed for runner in runners] == [[]] * 4


def test_a_server_whose_main_process_was_killed_makes_room_for_the_next(served: Served) -> None:
    served.stop(signal.SIGKILL)
    served.start()  # may still be answered by a worker of the old one
    assert served.process is not None
    assert eventually(lambda: health_or_none(served.port), within=READY_WITHIN) == 200
    assert served.process.poll() is None


def test_a_new_server_that_cannot_start_leaves_the_old_one_at_work_and_restart_says_so(
    served: Served,
) -> None:
    before = set(served.all_worker_pids())
    served.sql(NEWER)
    try:
        failed = restarted(served)
    finally:
        served.sql("DELETE FROM django_migrations WHERE name = '9999_newer_contract'")
    assert failed.returncode == 1
    assert "so the old one goes on" in failed.stderr
    eventually(lambda: "so the old one goes on" in served.output(), within=READY_WITHIN)
    assert "made by a newer Signalbox" in served.output()
    assert set(served.worker_pids()) == before
    assert health(served.port) == 200
    served.stop()
    none_runs = restarted(served)
    assert none_runs.returncode == 1
    assert "Start one with `signalbox serve`" in none_runs.stderr
