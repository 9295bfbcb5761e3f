"""The process that people start as `manage.py serve`: it holds the sockets and starts the server behind them.

It stays small and loads nothing of ours, so that it listens some hundredths of a second after it was started.
Who connects while the server is still being prepared, or is just being replaced, waits in the queue of the
system.

SIGTERM, SIGINT, SIGQUIT   stop: the server ends its work, then this process ends with its exit status
SIGHUP                     restart: the code as it is now is started beside the old server, which goes when the
                           new one is ready. If the new one does not start, the old one goes on

The server tells this process three things through a socket (`SupervisorLink`), one byte each: that it holds
the data folder's lock (sent with its file, which a successor is given), that it wants to migrate the database
(answered when no older server is at work), and that it is ready. After an upgrade an older supervisor speaks
with a newer server: keep this, and the options `--inherited`, `--control` and `--lock` of `serve_supervised`.

`serve --take-over` is a second supervisor, with its own settings and terminal, that stands in for the first:
it is given the first one's sockets and lock (`handover.py`) and tells it the same, MIGRATES and READY, when
its own server says so. The first one then ends. So does a plain `serve_supervised` that finds the first one
stopping.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.lib import addresses
from coordinator.lib import restart_socket as handover

LOCKED, MIGRATES, READY, GO = b"L", b"M", b"R", b"G"
STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG (prctl(2))
# glibc gives each thread a heap of its own, and what is free in one serves no other: a fifth of what a busy worker
# grows by. Threads of one interpreter take turns anyway. What the user sets goes before.
ONE_HEAP = {"MALLOC_ARENA_MAX": "1"}


@dataclass
class SupervisedServer:
    """One server process and our end of its link."""

    process: subprocess.Popen[bytes]
    control: socket.socket
    waits_to_migrate: bool = False


@dataclass
class TakingSupervisor:
    """Another supervisor that was given our sockets; it has not `taken` over before its server is ready."""

    link: socket.socket
    waits_to_migrate: bool = False
    taken: bool = False


class ServerSupervisor:
    """Holds `sockets` and runs `command` behind them, with `problem` where they could not be had.

    `folder` is the data folder, `before` the older supervisor that stands until our server is ready. A server that
    systemd started (`of_systemd`) gives its sockets to nobody: systemd would start it again beside its successor.
    """

    def __init__(
        self,
        command: list[str],
        sockets: list[socket.socket],
        problem: str = "",
        *,
        folder: str = "",
        before: handover.Takeover | None = None,
        of_systemd: bool = False,
    ) -> None:
        self._command = command
        self._sockets = sockets
        self._problem = problem
        self._folder = folder
        self._before = before.link if before else None
        self._lock = before.lock if before else None
        self._of_systemd = of_systemd
        self._door: socket.socket | None = None
        self._askers: list[socket.socket] = []  # for our sockets, until no restart is under way
        self._taker: TakingSupervisor | None = None
        self._restarts_asked: list[socket.socket] = []
        self._restarts_begun: list[socket.socket] = []  # that shall be told how it ended
        self._standing: SupervisedServer | None = None
        self._coming: SupervisedServer | None = None
        self._leaving: list[SupervisedServer] = []
        self._status: int | None = None  # set once all shall end
        self._signals: list[int] = []
        self._stops = False
        self._shall_restart = False
        self._selector = selectors.DefaultSelector()

    def run_supervisor(self) -> int:
        """Serve until told to stop, or until the server ends by itself; return its exit status."""
        self._install_signal_handlers()
        if self._before:
            self._register_reader(self._before, self._handle_previous_supervisor_end)
        self._standing = self._start_server()
        while self.list_running_servers():
            for key, _ in self._selector.select():
                key.data()
            self._reap_ended_servers()
            while self._signals:
                self._handle_signal(self._signals.pop(0))
            if self.has_single_stable_server():
                self._start_pending_request()
        self._close_handover_socket()
        return self._status or 0

    def has_single_stable_server(self) -> bool:
        return self.list_running_servers() == [self._standing] and not self._taker and not self._before

    def _start_pending_request(self) -> None:
        if self._askers:
            self._hand_over_sockets(self._askers.pop(0))
        elif self._shall_restart:
            self._shall_restart = False
            self._restarts_begun, self._restarts_asked = self._restarts_asked, []
            self._coming = self._start_server()

    def _close_handover_socket(self) -> None:
        """Remove the socket for requests, if it is still ours."""
        if self._taker and self._taker.taken:
            self.print_status_line("Another `serve` has taken over.")
        elif self._door:
            handover.remove_handover_socket(self._folder)

    def list_running_servers(self) -> list[SupervisedServer]:
        return [one for one in (self._standing, self._coming, *self._leaving) if one]

    def _install_signal_handlers(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (*STOP, signal.SIGHUP):
            signal.signal(number, lambda received, _frame: self._signals.append(received))
        signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the loop
        self._register_reader(reading, lambda: os.read(reading, 4096))

    def _register_reader(self, file: socket.socket | int, heed: Callable[[], object]) -> None:
        self._selector.register(file, selectors.EVENT_READ, heed)

    def _start_server(self) -> SupervisedServer:
        ours, theirs = socket.socketpair()
        held = [one.fileno() for one in self._sockets]
        words = ["--control", str(theirs.fileno()), "--inherited", ",".join(map(str, held))]
        if self._problem:
            words += ["--problem", self._problem]
        if self._lock is not None:
            words += ["--lock", str(self._lock)]
            held.append(self._lock)
        process = subprocess.Popen(  # noqa: S603
            [*self._command, *words], pass_fds=[theirs.fileno(), *held], env={**ONE_HEAP, **os.environ}
        )
        theirs.close()
        server = SupervisedServer(process, ours)
        self._register_reader(ours, lambda: self._handle_server_byte(server))
        return server

    def _handle_server_byte(self, server: SupervisedServer) -> None:
        word: bytes = b""
        files: list[int] = []
        with contextlib.suppress(OSError):
            word, files, _, _ = socket.recv_fds(server.control, 1, 1)
        if word == LOCKED and files:
            if self._lock is not None:
                os.close(self._lock)
            self._lock = files[0]
            self._listen_for_handover()
        elif word == MIGRATES:
            server.waits_to_migrate = True
            self._notify_previous_supervisor(MIGRATES)
            self._stop_replaced_web_server(server)
            self._allow_migration()
        elif word == READY:
            self._notify_previous_supervisor(READY)
            self._stop_replaced_web_server(server)
            if server is self._standing:
                self._report_restart_result(handover.READY)
        elif not word:  # it ended, or closed its end
            self._close_connection(server.control)

    def _close_connection(self, connection: socket.socket) -> None:
        self._selector.unregister(connection)
        connection.close()

    def _stop_replaced_web_server(self, server: SupervisedServer) -> None:
        if server is self._coming:
            old, self._standing, self._coming = self._standing, server, None
            if old is not None:
                self._leaving.append(old)
                old.process.send_signal(signal.SIGTERM)

    def _allow_migration(self) -> None:
        server = self._standing
        if server and server.waits_to_migrate and not self._leaving and not self._before:
            server.waits_to_migrate = False
            with contextlib.suppress(OSError):
                server.control.sendall(GO)

    def _reap_ended_servers(self) -> None:
        if self._coming and self._coming.process.poll() is not None:
            self._coming = None
            self._report_restart_result(handover.FAILED)
            self.print_status_line("The new server did not start, so the old one goes on.")
        self._leaving = [one for one in self._leaving if one.process.poll() is None]
        self._allow_migration()
        if self._standing and (status := self._standing.process.poll()) is not None:
            self._standing = None
            if self._status is None:
                self._status = status if status >= 0 else 128 - status
            self._signal_all_servers(signal.SIGTERM)

    def print_status_line(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    def _handle_signal(self, number: int) -> None:
        if number in STOP:
            self._stops = True
            self._signal_all_servers(signal.Signals(number))
            if self._askers and not self._taker:
                self._hand_over_sockets(self._askers.pop(0))
        else:
            self._shall_restart = True  # as soon as the last restart is over

    def _signal_all_servers(self, number: signal.Signals) -> None:
        for one in self.list_running_servers():
            one.process.send_signal(number)

    # --- who knocks, and who stood here before ---

    def _listen_for_handover(self) -> None:
        """Listen for requests, as soon as no older supervisor is left."""
        if self._folder and not self._door and not self._before and self._lock is not None:
            self._door = handover.open_handover_socket(self._folder)
            if self._door:
                self._register_reader(self._door, self._accept_handover_client)

    def _accept_handover_client(self) -> None:
        assert self._door
        with contextlib.suppress(OSError):
            asker, _ = self._door.accept()
            asker.setblocking(True)
            if handover.is_same_user_process(asker):
                self._register_reader(asker, lambda: self._answer_handover_request(asker))
            else:
                asker.close()

    def _answer_handover_request(self, asker: socket.socket) -> None:
        word = b""
        with contextlib.suppress(OSError):
            word = asker.recv(1)
        self._selector.unregister(asker)
        if word == handover.RESTART and not self._stops and not self._taker:
            self._restarts_asked.append(asker)
            self._shall_restart = True
        elif word in (handover.TAKE, handover.SUCCEED) and self._of_systemd:
            with contextlib.suppress(OSError):
                asker.sendall(handover.SYSTEMD)
            asker.close()
        elif word in (handover.TAKE, handover.SUCCEED) and self._stops and not self._taker:
            self._hand_over_sockets(asker)
        elif word == handover.TAKE and not self._stops:
            self._askers.append(asker)
        else:
            asker.close()

    def _hand_over_sockets(self, asker: socket.socket) -> None:
        """Give our sockets to another supervisor. Until it says that it is ready, we go on."""
        assert self._lock is not None
        files = [self._lock, *(one.fileno() for one in self._sockets)]
        try:
            socket.send_fds(asker, [handover.GIVEN], files)
        except OSError:
            asker.close()
            return
        self._taker = taker = TakingSupervisor(asker)
        self._register_reader(asker, lambda: self._handle_taker_byte(taker))

    def _handle_taker_byte(self, taker: TakingSupervisor) -> None:
        word = b""
        with contextlib.suppress(OSError):
            word = taker.link.recv(1)
        if word in (MIGRATES, READY):
            taker.taken = True
            if self._status is None:
                self._status = 0
            self._signal_all_servers(signal.SIGTERM)
        elif not word:
            self._close_connection(taker.link)
            if not taker.taken:
                self._taker = None
                self._write_pid_to_lock()
                self.print_status_line(
                    "The `serve` that was to take over did not start, so this one goes on."
                )

    def _write_pid_to_lock(self) -> None:
        """Write into the lock that it is ours: who wanted to take over has written there."""
        if self._lock is not None:
            os.ftruncate(self._lock, 0)
            os.write(self._lock, str(os.getpid()).encode())

    def _notify_previous_supervisor(self, word: bytes) -> None:
        if self._before:
            with contextlib.suppress(OSError):
                self._before.sendall(word)

    def _handle_previous_supervisor_end(self) -> None:
        """Continue when the older supervisor has ended, with all its servers."""
        assert self._before
        with contextlib.suppress(OSError):
            if self._before.recv(1):
                return
        self._close_connection(self._before)
        self._before = None
        self._listen_for_handover()
        self._allow_migration()

    def _report_restart_result(self, how: bytes) -> None:
        for asker in self._restarts_begun:
            with contextlib.suppress(OSError):
                asker.sendall(how)
            asker.close()
        self._restarts_begun = []


class SupervisorLink:
    """The server's end of the link to its supervisor. Workers inherit it."""

    def __init__(self, file: int) -> None:
        self._socket = socket.socket(fileno=file)

    def send_lock_file(self, file: int) -> None:
        """Hand the data folder's locked file over to the supervisor."""
        socket.send_fds(self._socket, [LOCKED], [file])

    def wait_for_migration_turn(self) -> None:
        """Return when no older server uses this data folder."""
        self._socket.sendall(MIGRATES)
        self._socket.recv(1)

    def send_ready(self) -> None:
        """Say that requests are answered; said again, or to nobody, it does nothing."""
        with contextlib.suppress(OSError):
            self._socket.sendall(READY)


_links: list[SupervisorLink] = []


def connect_supervisor_link(file: int) -> SupervisorLink:
    """Return the link of this process, which ends with its supervisor from now on."""
    die_with_supervisor()
    _links[:] = [SupervisorLink(file)]
    return _links[0]


def report_worker_ready() -> None:
    """Tell the supervisor, where there is one, that this worker answers."""
    for link in _links:
        link.send_ready()


def die_with_supervisor() -> None:
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - only here, and not while the addresses are still unbound

        ctypes.CDLL(None).prctl(DIES_WITH_PARENT, signal.SIGKILL)


def serve_supervised() -> int:
    """Listen, then run the server until it ends; return its exit status. This process has loaded nothing else."""
    folder = handover.locate_data_folder()
    before, problem = None, ""
    sockets: list[socket.socket] = []
    of_systemd = False
    try:
        sockets = addresses.inherit_systemd_sockets()
        of_systemd = bool(sockets) or addresses.is_systemd_service()
        if not sockets:
            word = handover.TAKE if "--take-over" in sys.argv else handover.SUCCEED
            before = handover.request_takeover(word, folder)
            sockets = addresses.open_bind_sockets(before.sockets if before else [])
    except handover.HandoverRefused as refused:
        sys.stderr.write(f"{refused}\n")
        return 1
    except addresses.BindRefused as refused:
        problem = str(refused)  # said by the server, after what is wrong with the data folder
    except ValueError:
        problem = "SIGNALBOX_BIND is no address."  # the settings say it better
    command = [sys.executable, *sys.orig_argv[1:]]
    return ServerSupervisor(
        command, sockets, problem, folder=folder, before=before, of_systemd=of_systemd
    ).run_supervisor()
