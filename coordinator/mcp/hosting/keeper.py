"""The small process that `serve` starts in addition: it holds the host's socket and starts the host behind it.

The host (`manage.py mcp_host`) is started when somebody first connects, ends by itself when it has had nothing to do
for a while, and is started again, with patience, when it breaks. Nobody is refused meanwhile: they wait in the
socket's queue. What the host leaves behind when it is killed becomes this process's, which ends it.

It loads nothing but the standard library, and ends with `serve`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
import time

DIES_WITH_PARENT, SUBREAPER = 1, 36  # prctl(2)
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
LETS_GO_WITHIN = 12.0


def main() -> int:
    """Keep the host: `keeper.py SOCKET PARENT COMMAND…`."""
    path, parent, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    become_reaper_of_orphans()
    if os.getppid() != parent:  # it ended before we asked to be notified
        return 0
    stopped = StopSignal()
    listener = bind_listening_socket(path)
    inode = os.stat(path).st_ino
    pause = FIRST_PAUSE
    while not stopped.wait_and_check_stop_signal(listener, None):
        started_at = time.monotonic()
        failed = run_host_and_check_failure(command, listener, stopped)
        kill_orphaned_processes()
        pause = (
            min(LONGEST_PAUSE, pause * 2)
            if failed and time.monotonic() - started_at < LONGEST_PAUSE
            else FIRST_PAUSE
        )
        if failed and stopped.wait_and_check_stop_signal(None, pause):
            break
    with contextlib.suppress(OSError):
        if os.stat(path).st_ino == inode:  # a younger keeper may have put its own there
            os.unlink(path)
    return 0


def run_host_and_check_failure(command: list[str], listener: socket.socket, stopped: StopSignal) -> bool:
    """Run the host until it ends; say whether it failed."""
    host = subprocess.Popen([*command, str(listener.fileno())], pass_fds=[listener.fileno()])  # noqa: S603 - ours
    while host.poll() is None and not stopped.wait_and_check_stop_signal(None, None, host):
        pass
    if host.poll() is None:
        host.terminate()
        try:
            host.wait(LETS_GO_WITHIN)
        except subprocess.TimeoutExpired:
            host.kill()
            host.wait()
        return False
    return host.returncode != 0


class StopSignal:
    """The received stop signal, and waiting for it or for something else."""

    def __init__(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        os.set_blocking(reading, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, self.record_stop_signal)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._pipe = reading
        self._was_signalled = False

    def record_stop_signal(self, *_: object) -> None:
        self._was_signalled = True

    def wait_and_check_stop_signal(
        self,
        listener: socket.socket | None,
        seconds: float | None,
        host: subprocess.Popen[bytes] | None = None,
    ) -> bool:
        """Wait for a connection, for so long, or for the host's end; return whether a stop signal was received."""
        end = None if seconds is None else time.monotonic() + seconds
        while not self._was_signalled and (host is None or host.poll() is None):
            remaining_seconds = None if end is None else max(0.0, end - time.monotonic())
            files: list[int | socket.socket] = [self._pipe] if listener is None else [self._pipe, listener]
            ready, _, _ = select.select(files, [], [], remaining_seconds)
            if self._pipe in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._pipe, 4096)
            if (listener is not None and listener in ready) or (not ready and end is not None):
                break
        return self._was_signalled


def bind_listening_socket(path: str) -> socket.socket:
    """Return a listening socket at `path`, put there in one step over whatever an older keeper left."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    temporary_path = f"{path}.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary_path)
    os.umask(0o177)
    listener.bind(temporary_path)
    os.umask(0o077)
    listener.listen(128)
    os.rename(temporary_path, path)
    return listener


def become_reaper_of_orphans() -> None:
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(DIES_WITH_PARENT, signal.SIGTERM)
        libc.prctl(SUBREAPER, 1)


def kill_orphaned_processes() -> None:
    """End whatever a host that has ended left behind, and take note of its end."""
    for _ in range(20):
        children = list_child_process_ids()
        for child in children:
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not children:
            return
        time.sleep(0.05)


def list_child_process_ids() -> list[int]:
    child_pids: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children") as file:
                child_pids += map(int, file.read().split())
    return child_pids


if __name__ == "__main__":
    sys.exit(main())
