"""The socket in the data folder at which a running `serve` is asked to restart, or to hand over to its successor.

A socket that only the folder's user can reach. Who comes in sends one byte:

    TAKE      give me your addresses: I am to stand in your place. Answered when no restart is under way
    SUCCEED   the same, if you are just stopping
    RESTART   restart in place. Answered with READY or FAILED once that is over

TAKE and SUCCEED are answered with GIVEN and the files of the data folder's lock and of the listening sockets, with
SYSTEMD where they are systemd's and so cannot be moved, or not at all: the connection ends. Who was given them then
speaks as a server speaks with its supervisor (`supervisor.py`). Versions meet here during an upgrade: keep this.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator

DOOR = "serve.socket"
TAKE, SUCCEED, RESTART = b"T", b"S", b"H"
GIVEN, SYSTEMD, READY, FAILED = b"G", b"D", b"R", b"F"
MOST_FILES = 16  # a lock, and an address or two
LONGEST_PATH = 100  # bytes; what a socket's name may have on every system


class HandoverRefused(Exception):
    """The server that runs keeps its addresses. The text says why."""


class Takeover:
    """What the older supervisor gave: its `lock`, its `sockets`, and the `link` to it."""

    def __init__(self, link: socket.socket, files: list[int]) -> None:
        self.link = link
        self.lock = files[0]
        self.sockets = [socket.socket(fileno=file) for file in files[1:]]


def locate_data_folder() -> str:
    """Return the data folder, as the settings find it: they are not loaded yet."""
    beside = os.path.join(os.path.dirname(__file__), "..", "..", "data")
    named = os.environ.get("SIGNALBOX_DATA_DIR", "").strip() or beside
    return os.path.abspath(os.path.expanduser(named))


def open_handover_socket(folder: str) -> socket.socket | None:
    """Return the listening socket of whoever holds the folder's lock; None where its path would be too long."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with short_socket_path(folder) as place:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(place)
            mask = os.umask(0o177)
            try:
                door.bind(place)
            finally:
                os.umask(mask)
        door.listen(16)
        door.setblocking(False)
    except OSError:
        door.close()
        return None
    return door


def remove_handover_socket(folder: str) -> None:
    """Remove the socket."""
    with contextlib.suppress(OSError), short_socket_path(folder) as place:
        os.unlink(place)


def connect_to_supervisor(word: bytes, folder: str) -> socket.socket | None:
    """Connect and send `word`; return the connection, or None where no server of this user listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if not is_folder_protected(folder):
            raise PermissionError(folder)
        with short_socket_path(folder) as place:
            connection.connect(place)
        if not is_same_user_process(connection):
            raise PermissionError(folder)
        connection.sendall(word)
    except OSError:
        connection.close()
        return None
    return connection


def request_takeover(word: bytes, folder: str) -> Takeover | None:
    """Ask for the addresses of the `serve` that runs; None where none runs or it keeps them. Raises HandoverRefused."""
    connection = connect_to_supervisor(word, folder)
    if connection is None:
        return None
    said: bytes = b""
    files: list[int] = []
    with contextlib.suppress(OSError):
        said, files, _, _ = socket.recv_fds(connection, 1, MOST_FILES)
    if said == GIVEN and files:
        return Takeover(connection, files)
    connection.close()
    if said == SYSTEMD:
        raise HandoverRefused(
            "systemd runs this server. Use: systemctl reload (or restart), or manage.py restart."
        )
    return None


def is_same_user_process(connection: socket.socket) -> bool:
    """Say whether the other side is a process of this user, or of root."""
    if sys.platform != "linux":
        return True  # the folder's mode must do
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return user in (0, os.geteuid())


def is_folder_protected(folder: str) -> bool:
    """Say whether nobody else can have put a socket here."""
    found = os.stat(folder)
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o022


@contextlib.contextmanager
def short_socket_path(folder: str) -> Iterator[str]:
    """The socket's path, in a form that is short enough."""
    path = os.path.join(folder, DOOR)
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield path
        return
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{DOOR}"
    finally:
        os.close(directory)
