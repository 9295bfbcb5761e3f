"""The process that people start as `manage.py serve`: it holds the addresses and starts the server behind them.

It stays small and loads nothing of ours, so that it listens some hundredths of a second after it was started. Who
connects while the server is still being prepared, or is just being replaced, waits in the queue of the system.

    SIGTERM, SIGINT, SIGQUIT   stop: the server ends its work, then this process ends with its exit status
    SIGHUP                     restart: the code as it is now is started beside the old server, which goes when the
                               new one is ready. If the new one does not start, the old one goes on

The server tells this process three things through a socket (`Link`), one byte each: that it holds the data folder's
lock (sent with its file, which a successor is given), that it wants to migrate the database (answered when no older
server is at work), and that it is ready. After an upgrade an older supervisor speaks with a newer server: keep this,
and the options `--inherited`, `--control` and `--lock` of `serve`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass

from coordinator.lib import addresses

LOCKED, MIGRATES, READY, GO = b"L", b"M", b"R", b"G"
STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG (prctl(2))


@dataclass
class Server:
    """One server process and our end of its link."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    waits_to_migrate: bool = False


class Supervisor:
    """Holds `sockets` and runs `command` behind them, with `problem` where they could not be had."""

    def __init__(self, command: list[str], sockets: list[socket.socket], problem: str = "") -> None:
        self._command = command
        self._sockets = sockets
        self._problem = problem
        self._lock: int | None = None
        self._standing: Server | None = None
        self._coming: Server | None = None
        self._leaving: list[Server] = []
        self._status: int | None = None  # set once all shall end
        self._signals: list[int] = []
        self._shall_restart = False
        self._selector = selectors.DefaultSelector()

    def run(self) -> int:
        """Serve until told to stop, or until the server ends by itself; return its exit status."""
        self._listen_to_signals()
        self._standing = self._start()
        while self._servers():
            for key, _ in self._selector.select():
                if key.data is None:
                    os.read(key.fd, 4096)
                else:
                    self._heed(key.data)
            self._note_ends()
            while self._signals:
                self._obey(self._signals.pop(0))
            if self._shall_restart and self._servers() == [self._standing]:
                self._shall_restart = False
                self._coming = self._start()
        return self._status or 0

    def _servers(self) -> list[Server]:
        return [one for one in (self._standing, self._coming, *self._leaving) if one]

    def _listen_to_signals(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (*STOP, signal.SIGHUP):
            signal.signal(number, lambda received, _frame: self._signals.append(received))
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the loop
        self._selector.register(reading, selectors.EVENT_READ)

    def _start(self) -> Server:
        ours, theirs = socket.socketpair()
        held = [one.fileno() for one in self._sockets]
        words = ["--control", str(theirs.fileno()), "--inherited", ",".join(map(str, held))]
        if self._problem:
            words += ["--problem", self._problem]
        if self._lock is not None:
            words += ["--lock", str(self._lock)]
            held.append(self._lock)
        process = subprocess.Popen([*self._command, *words], pass_fds=[theirs.fileno(), *held])  # noqa: S603
        theirs.close()
        server = Server(process, ours)
        self._selector.register(ours, selectors.EVENT_READ, server)
        return server

    def _heed(self, server: Server) -> None:
        word: bytes = b""
        files: list[int] = []
        with contextlib.suppress(OSError):
            word, files, _, _ = socket.recv_fds(server.control, 1, 1)
        if word == LOCKED and files:
            if self._lock is not None:
                os.close(self._lock)
            self._lock = files[0]
        elif word == MIGRATES:
            server.waits_to_migrate = True
            self._retire_older_than(server)
            self._let_migrate()
        elif word == READY:
            self._retire_older_than(server)
        elif not word:  # it ended, or closed its end
            self._selector.unregister(server.control)
            server.control.close()

    def _retire_older_than(self, server: Server) -> None:
        if server is self._coming:
            old, self._standing, self._coming = self._standing, server, None
            if old is not None:
                self._leaving.append(old)
                old.process.send_signal(signal.SIGTERM)

    def _let_migrate(self) -> None:
        server = self._standing
        if server and server.waits_to_migrate and not self._leaving:
            server.waits_to_migrate = False
            with contextlib.suppress(OSError):
                server.control.sendall(GO)

    def _note_ends(self) -> None:
        if self._coming and self._coming.process.poll() is not None:
            self._coming = None
            sys.stderr.write("The new server did not start, so the old one goes on.\n")
            sys.stderr.flush()
        self._leaving = [one for one in self._leaving if one.process.poll() is None]
        self._let_migrate()
        if self._standing and (status := self._standing.process.poll()) is not None:
            self._standing = None
            if self._status is None:
                self._status = status if status >= 0 else 128 - status
            self._tell_all(signal.SIGTERM)

    def _obey(self, number: int) -> None:
        if number in STOP:
            self._tell_all(signal.Signals(number))
        else:
            self._shall_restart = True  # as soon as the last restart is over

    def _tell_all(self, number: signal.Signals) -> None:
        for one in self._servers():
            one.process.send_signal(number)


class Link:
    """The server's end: what it tells its supervisor. Workers inherit it."""

    def __init__(self, file: int) -> None:
        self._socket = socket.socket(fileno=file)

    def hold_lock(self, file: int) -> None:
        """Give the data folder's locked file into the supervisor's keeping."""
        socket.send_fds(self._socket, [LOCKED], [file])

    def wait_to_migrate(self) -> None:
        """Return when no older server is at work on this data folder."""
        self._socket.sendall(MIGRATES)
        self._socket.recv(1)

    def tell_ready(self) -> None:
        """Say that requests are answered; said again, or to nobody, it does nothing."""
        with contextlib.suppress(OSError):
            self._socket.sendall(READY)


_links: list[Link] = []


def linked(file: int) -> Link:
    """Return the link of this process, which ends with its supervisor from now on."""
    _end_with_parent()
    _links[:] = [Link(file)]
    return _links[0]


def tell_ready() -> None:
    """Tell the supervisor, where there is one, that this worker answers."""
    for link in _links:
        link.tell_ready()


def _end_with_parent() -> None:
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - only here, and not while the addresses are still unbound

        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)


def serve() -> int:
    """Listen, then run the server until it ends; return its exit status. This process has loaded nothing else."""
    sockets, problem = [], ""
    try:
        sockets = addresses.from_environment()
    except addresses.Refused as refused:
        problem = str(refused)  # said by the server, after what is wrong with the data folder
    except ValueError:
        problem = "SIGNALBOX_BIND is no address."  # the settings say it better
    return Supervisor([sys.executable, *sys.orig_argv[1:]], sockets, problem).run()
