"""Runs one program as the user that this process has: systemd starts it for each connection of `launcher_client.py`.

`manage.py install_service` sets it up (operations.service): the socket is for Signalbox alone, and the unit has a
user of its own that sees neither Signalbox's data nor home folders. Standard input is the connection. The program gets
the three files that come over it, and a folder of its own in ours. It ends with the connection, and with this process
everything that it started: systemd ends what is left in the unit.

Loads nothing but the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LENGTH_BYTES, MOST_BYTES = 4, 4_000_000
REQUEST_SECONDS = 10.0
SERVER_FOLDER_NAME = re.compile(r"[0-9a-f]{16}")  # of a server; any other is deleted when the program ends


def main() -> int:
    """Run what the connection asks for until either ends."""
    os.umask(0o077)
    connection = socket.socket(fileno=os.dup(0))
    connection.settimeout(REQUEST_SECONDS)
    request, files = receive_launch_request_and_files(connection)
    connection.settimeout(None)
    with program_folder_during_block(str(request["folder"])) as folder:
        own = {"HOME": str(folder), "TMPDIR": str(folder), "PWD": str(folder)}
        try:
            program = subprocess.Popen(  # noqa: S603 - what Signalbox, and nobody else, asks for
                request["command"], env={**request["environment"], **own}, cwd=folder, stdin=files[0],
                stdout=files[1], stderr=files[2], start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as problem:
            os.write(files[2], f"{request['command'][0]} cannot be started: {problem}.\n".encode())
            connection.sendall(b"127")
            return 0
        for file in files:
            os.close(file)
        status = wait_for_exit_or_kill_on_disconnect(program, connection)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        connection.sendall(b"%d" % (status if status >= 0 else 128 - status))
    return 0


def receive_launch_request_and_files(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return the request and the three files that come with it."""
    head, files, _, _ = socket.recv_fds(connection, LENGTH_BYTES, 3)
    length = int.from_bytes(head, "big")
    if len(head) != LENGTH_BYTES or len(files) != 3 or length > MOST_BYTES:
        sys.exit("The request is not one of Signalbox's.")
    body = b""
    while len(body) < length and (chunk := connection.recv(length - len(body))):
        body += chunk
    return json.loads(body), files


@contextlib.contextmanager
def program_folder_during_block(name: str) -> Iterator[Path]:
    """Give the program a folder in the unit's state folder."""
    state = Path(os.environ["STATE_DIRECTORY"])
    if SERVER_FOLDER_NAME.fullmatch(name):
        (state / name).mkdir(exist_ok=True)
        yield state / name
        return
    folder = Path(tempfile.mkdtemp(dir=state))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def wait_for_exit_or_kill_on_disconnect(program: subprocess.Popen[bytes], connection: socket.socket) -> int:
    """Return the program's exit status, after killing it where the connection closed before."""
    ended = os.pidfd_open(program.pid)
    ready, _, _ = select.select([ended, connection.fileno()], [], [])
    if ended not in ready:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    return program.wait()


if __name__ == "__main__":
    sys.exit(main())
