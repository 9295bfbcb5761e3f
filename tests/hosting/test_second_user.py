"""The launcher runs a program as a user of its own, as systemd starts it for each connection; by two real users."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.mcp.isolation import launcher, launcher_client
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.isolation.process_isolation import Isolation
from tests.patience import until
from tests.processes import processes_naming

SYSTEM_PYTHON = "/usr/bin/python3"
OTHER_USER = 65533  # nobody's: the launcher's user in these tests
pytestmark = [
    pytest.mark.one_engine,
    pytest.mark.skipif(
        os.geteuid() != 0 or not Path(SYSTEM_PYTHON).exists(),
        reason="starts programs as another user: needs root",
    ),
]


@pytest.fixture
def launcher_folder(settings: Any) -> Iterator[Path]:
    """Listen as the socket unit does, and start the launcher as its user for each connection."""
    usual = os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="sbx-launcher-", dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "state").mkdir()
        os.chown(folder / "state", OTHER_USER, OTHER_USER)
        script = folder / "launcher.py"
        script.write_text(Path(launcher.__file__).read_text())
        settings.DATA_DIR = folder / "data"
        (folder / "data").mkdir(mode=0o700)
        (folder / "data" / "secret_key").write_text("secret")
        settings.MCP_LAUNCHER = str(folder)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "none.sock"))
            listener.listen()
            threading.Thread(target=_accept, args=(listener, script, folder / "state"), daemon=True).start()
            yield folder
            listener.shutdown(socket.SHUT_RDWR)
    os.umask(usual)


def _accept(listener: socket.socket, script: Path, state: Path) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            subprocess.Popen(
                [SYSTEM_PYTHON, "-I", str(script)], stdin=connection, user=OTHER_USER, group=OTHER_USER,
                extra_groups=[], env={"STATE_DIRECTORY": str(state)}, start_new_session=True,
            )  # fmt: skip
            connection.close()


def start(command: list[str], folder: str = "0123456789abcdef") -> subprocess.Popen[bytes]:
    """Start a program as the host does."""
    line = isolation.prepare_isolated_command_line(command, Path("/x", folder), Isolation())
    return subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env=isolation.build_base_process_environment(Path("/x")) | {"TOKEN": "theirs"},
    )  # fmt: skip


def test_a_program_runs_as_the_second_user_with_its_own_folder_and_variables(launcher_folder: Path) -> None:
    source = (
        "import json, os, sys\n"
        "line = sys.stdin.readline()\n"
        "open('kept', 'a').write('x')\n"
        "print(json.dumps([os.getuid(), os.getcwd(), os.environ['HOME'], os.environ['TOKEN'], line]))\n"
        "sys.exit(7)"
    )
    for _ in range(2):
        with start([SYSTEM_PYTHON, "-c", source]) as program:
            told, errors = program.communicate(b"hello\n", timeout=60)
        own = str(launcher_folder / "state" / "0123456789abcdef")
        assert json.loads(told) == [OTHER_USER, own, own, "theirs", "hello\n"], errors
        assert program.returncode == 7
    assert Path(own, "kept").read_text() == "xx"


def test_it_reads_nothing_of_signalbox_and_does_not_touch_its_processes(launcher_folder: Path) -> None:
    secret = launcher_folder / "data" / "secret_key"
    source = (
        "import os, sys\n"
        "acts = [lambda: open(sys.argv[1]), lambda: open(f'/proc/{sys.argv[2]}/environ').read(),\n"
        "        lambda: os.kill(int(sys.argv[2]), 0), lambda: open(sys.argv[1] + '.new', 'w')]\n"
        "for act in acts:\n"
        "    try: print('did', act())\n"
        "    except OSError as problem: print(type(problem).__name__)"
    )
    with start([SYSTEM_PYTHON, "-c", source, str(secret), str(os.getpid())]) as program:
        told, errors = program.communicate(timeout=60)
    assert told.decode().split() == ["PermissionError"] * 4, errors


def test_a_program_ends_with_the_connection(launcher_folder: Path) -> None:
    token = f"launched-{os.getpid()}"
    program = start(["sh", "-c", f"echo up; sleep 300 & sleep 300; : {token}"])
    assert program.stdout is not None
    assert program.stdout.readline() == b"up\n"
    program.kill()
    program.communicate()
    until(lambda: not processes_naming(token))


def test_what_cannot_be_started_says_why_and_leaves_no_folder(launcher_folder: Path) -> None:
    with start(["/no/such/program"], folder="signalbox-discovery-x") as program:
        _, errors = program.communicate(timeout=60)
    assert (program.returncode, b"No such file" in errors) == (127, True)
    until(lambda: not list((launcher_folder / "state").iterdir()))


def test_a_launcher_that_is_not_there_is_named(settings: Any, tmp_path: Path) -> None:
    settings.MCP_LAUNCHER = str(tmp_path)
    with start([sys.executable, "-V"]) as program:
        _, errors = program.communicate(timeout=60)
    assert (program.returncode, str(tmp_path) in errors.decode()) == (111, True)


def test_a_status_without_end_is_none(tmp_path: Path) -> None:
    """Who runs as the launcher's user may write in its name."""
    request = json.dumps({"folder": "x"})
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "none.sock"))
        listener.listen()
        client = subprocess.Popen(
            [
                sys.executable,
                "-I",
                launcher_client.__file__,
                str(tmp_path / "none.sock"),
                request,
                "--",
                "true",
            ],
            stderr=subprocess.PIPE,
        )
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"1" * 100)  # and no end
            assert client.wait(30) == 255
