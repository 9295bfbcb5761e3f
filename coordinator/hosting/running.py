"""The host as a program: it serves the socket that its keeper holds until it is told to stop, or nobody needs it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import uvicorn
from django.conf import settings
from django.utils import timezone

from coordinator.actions import mcp_processes
from coordinator.hosting import configured
from coordinator.hosting.app import Host
from coordinator.hosting.backend import ProcessState
from coordinator.hosting.configured import Configuration
from coordinator.hosting.pool import Pool
from coordinator.lib.threads import refresh_connections

ENDS_AFTER = 60.0  # seconds without anything to do, or to keep
LOOKS_EVERY = 5.0


def serve(file: int) -> None:
    """Serve the listening socket until SIGTERM, or until nobody has needed a server for a while."""
    _end_with_keeper()
    asyncio.run(_serve(socket.socket(fileno=file)))


def _end_with_keeper() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


async def _serve(listener: socket.socket) -> None:
    with ThreadPoolExecutor(2, "host") as threads:
        pool = Pool(_Reader(threads).read, _Writer(threads).tell, idle=settings.MCP_IDLE)
        config = uvicorn.Config(
            Host(pool), lifespan="off", log_config=None, access_log=False, timeout_keep_alive=75,
            timeout_graceful_shutdown=1, ws="none",
        )  # fmt: skip
        server = uvicorn.Server(config)
        looking = asyncio.ensure_future(pool.look_after(min(LOOKS_EVERY, settings.MCP_IDLE)))
        watching = asyncio.ensure_future(_end_when_unneeded(server, pool))
        try:
            await threads_run(threads, mcp_processes.forget_all)
            await server.serve(sockets=[listener])
        finally:
            looking.cancel()
            watching.cancel()
            with contextlib.suppress(Exception):
                await pool.close()


async def _end_when_unneeded(server: uvicorn.Server, pool: Pool) -> None:
    while pool.is_needed or time.monotonic() - pool.used_at < ENDS_AFTER:
        await asyncio.sleep(LOOKS_EVERY)
    server.should_exit = True


async def threads_run(threads: ThreadPoolExecutor, work: object, *args: object) -> object:
    """Call `work`, which reads or writes the database, in a thread."""

    def call() -> object:
        refresh_connections()
        return work(*args)  # type: ignore[operator]

    return await asyncio.get_running_loop().run_in_executor(threads, call)


class _Reader:
    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    async def read(self, server_id: str) -> Configuration:
        found = await threads_run(self._threads, configured.read, server_id)
        assert isinstance(found, Configuration)
        return found


class _Writer:
    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    async def tell(self, server_id: str, whose: str, state: ProcessState) -> None:
        report = mcp_processes.Report(
            server_id, whose, state.state, state.pid, state.words, state.starts, state.failures
        )
        await threads_run(self._threads, mcp_processes.note, report, timezone.now())
