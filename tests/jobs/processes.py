"""Worker processes of their own on the test's database, which can be killed in the middle of a job."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connections


@contextmanager
def worker_process(work: Callable[[Callable[[bytes], None]], None]) -> Iterator[tuple[int, int]]:
    """Do `work(tell)` in another process; yield its id and the end of a pipe with what it tells.

    It is killed at the end of the block, if it is still there.
    """
    connections.close_all()  # a connection to PostgreSQL cannot be shared with a child
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            work(lambda told: os.write(writer, told) and None)
        finally:
            os._exit(0)
    os.close(writer)
    try:
        yield pid, reader
    finally:
        os.close(reader)
        kill_worker(pid)


def kill_worker(pid: int) -> None:
    """Kill a worker as the kernel does, and wait for its end; one that has ended is left."""
    try:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        return
