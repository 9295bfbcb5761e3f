"""The addresses that Signalbox serves on, bound before anything else is loaded. Needs nothing but Python.

A socket that listens keeps its callers waiting. Without one they are refused, and a runner that is refused three times
within 3 s gives up. So `signalbox serve` comes here first, before Django is imported.
"""

from __future__ import annotations

import errno
import functools
import ipaddress
import os
import socket
import time
from dataclasses import dataclass, field

LOOPBACK = ("127.0.0.1", "::1")  # what a browser takes a name under `.localhost` for
USUAL = "127.0.0.1:8765"
BACKLOG = 2048  # connections that wait until somebody takes them; the system may allow fewer
RESTART_VARIABLE = (
    "_SIGNALBOX_RESTART"  # of the environment: what `serve` keeps while it restarts in its process
)
# The workers of a server that was killed hold its addresses for up to a second.
LET_GO_WITHIN = 2.0


class BindRefused(Exception):
    """An address cannot be bound. The text says which and why."""


@dataclass(frozen=True, slots=True)
class ServingFiles:
    """The open files that `serve` begins with.

    Attributes:
        sockets: the file numbers of the listening sockets.
        lock: the data folder's lock, where this process has restarted itself.
        former: the workers and helpers from before that restart, by process id. They go on until they are relieved.
        problem: why there are no sockets; "" where there are.

    """

    sockets: list[int] = field(default_factory=list)
    lock: int | None = None
    former: list[int] = field(default_factory=list)
    problem: str = ""

    def save_sockets_to_environment(self) -> None:
        """Put this into the environment, for the program that takes this one's place in the same process."""
        for file in (*self.sockets, *([] if self.lock is None else [self.lock])):
            os.set_inheritable(file, True)
        lists = (self.sockets, [] if self.lock is None else [self.lock], self.former)
        os.environ[RESTART_VARIABLE] = ";".join(",".join(map(str, numbers)) for numbers in lists)

    @classmethod
    def parse_saved_serving_files(cls, saved: str) -> ServingFiles:
        """Return what `save_sockets_to_environment` put into the environment."""
        sockets, lock, former = (
            [int(number) for number in numbers.split(",") if number] for numbers in saved.split(";")
        )
        return cls(sockets, lock[0] if lock else None, former)


@functools.cache
def open_or_inherit_serving_files() -> ServingFiles:
    """Return what `serve` serves on: what it had before it restarted itself, systemd's sockets, or new ones."""
    from gunicorn import systemd  # noqa: PLC0415 - small, and of no use to the other commands

    if saved := os.environ.pop(RESTART_VARIABLE, ""):
        return ServingFiles.parse_saved_serving_files(saved)
    if count := systemd.listen_fds():
        first = systemd.SD_LISTEN_FDS_START
        return ServingFiles(list(range(first, first + count)))
    try:
        return ServingFiles([bound_socket.detach() for bound_socket in open_bind_sockets()])
    except BindRefused as refused:
        return ServingFiles(problem=str(refused))  # said after what is wrong with the data folder
    except ValueError:
        return ServingFiles(problem="SIGNALBOX_BIND is no address.")  # the settings say it better


def open_bind_sockets() -> list[socket.socket]:
    """Return sockets that listen at SIGNALBOX_BIND.

    Raises BindRefused, and ValueError where SIGNALBOX_BIND is no address.
    """
    host, port = split_bind_address(os.environ.get("SIGNALBOX_BIND", "").strip() or USUAL)
    return [open_listening_socket(address, port) for address in list_addresses_to_bind(host)]


def split_bind_address(bind: str) -> tuple[str, int]:
    """Split `host:port` (IPv6 hosts in brackets) into its two parts. Raises ValueError."""
    host, _, port = bind.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"SIGNALBOX_BIND must be host:port, for example {USUAL}, not {bind!r}.")
    return host.strip("[]"), int(port)


def join_host_port(host: str, port: int) -> str:
    """Return `host:port`, with brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach `host`."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def list_addresses_to_bind(host: str) -> list[str]:
    """Return the addresses to serve on: `host`, and where that is loopback the machine's other loopback address.

    Browsers ask ::1 before 127.0.0.1 for a name under `.localhost`. A program that listened there would be our
    origin to them: it would get people's cookies, what their browser keeps for us, and their passwords.
    """
    if not is_loopback(host):
        return [host]
    return list(dict.fromkeys([host, *(address for address in LOOPBACK if can_bind_local_address(address))]))


def can_bind_local_address(address: str) -> bool:
    """Say whether this machine has the address: some have no IPv6."""
    try:
        with socket.socket(socket_address_family(address), socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def socket_address_family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def open_listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address, for us alone. Raises BindRefused."""
    deadline = time.monotonic() + LET_GO_WITHIN
    while True:
        try:
            return bind_and_listen(host, port)
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                reason = problem.strerror or str(problem)
                raise BindRefused(
                    f"{join_host_port(host, port)} cannot be used: {reason}. Choose another with SIGNALBOX_BIND."
                ) from None
        time.sleep(0.05)


def bind_and_listen(host: str, port: int) -> socket.socket:
    bound_socket = socket.socket(socket_address_family(host), socket.SOCK_STREAM)
    try:
        bound_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound_socket.bind((host, port))
        bound_socket.listen(BACKLOG)
    except OSError:
        bound_socket.close()
        raise
    return bound_socket
