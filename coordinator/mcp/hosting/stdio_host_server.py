"""The host as a program: it serves the socket that its keeper holds until it is stopped or no longer needed."""

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

from coordinator.actions.mcp import mcp_processes
from coordinator.lib.threads import close_broken_database_connections
from coordinator.mcp.hosting import stdio_configuration
from coordinator.mcp.hosting.app import StdioHost
from coordinator.mcp.hosting.backend import ProcessState
from coordinator.mcp.hosting.pool import BackendPool
from coordinator.mcp.hosting.stdio_configuration import StdioConfiguration

ENDS_AFTER = 60.0  # seconds without anything to do, or to keep
LOOKS_EVERY = 5.0


def serve_stdio_host(file: int) -> None:
    """Serve the listening socket until SIGTERM, or until nobody has needed a server for a while."""
    kill_self_when_keeper_dies()
    asyncio.run(serve_stdio_backends_until_unused(socket.socket(fileno=file)))


def kill_self_when_keeper_dies() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


async def serve_stdio_backends_until_unused(listener: socket.socket) -> None:
    with ThreadPoolExecutor(2, "host") as threads:
        pool = BackendPool(
            ConfigurationReader(threads).load_configuration_in_thread,
            ProcessStateWriter(threads).write_process_state,
            idle=settings.MCP_IDLE,
        )
        config = uvicorn.Config(
            StdioHost(pool), lifespan="off", log_config=None, access_log=False, timeout_keep_alive=75,
            timeout_graceful_shutdown=1, ws="none",
        )  # fmt: skip
        server = uvicorn.Server(config)
        looking = asyncio.ensure_future(pool.stop_idle_periodically(min(LOOKS_EVERY, settings.MCP_IDLE)))
        watching = asyncio.ensure_future(stop_server_when_pool_unused(server, pool))
        try:
            await run_in_database_thread(threads, mcp_processes.reset_process_reports)
            await server.serve(sockets=[listener])
        finally:
            looking.cancel()
            watching.cancel()
            with contextlib.suppress(Exception):
                await pool.close()


async def stop_server_when_pool_unused(server: uvicorn.Server, pool: BackendPool) -> None:
    while pool.is_any_backend_in_use or time.monotonic() - pool.used_at < ENDS_AFTER:
        await asyncio.sleep(LOOKS_EVERY)
    server.should_exit = True


async def run_in_database_thread(threads: ThreadPoolExecutor, work: object, *args: object) -> object:
    """Call `work`, which reads or writes the database, in a thread."""

    def call_with_connection() -> object:
        close_broken_database_connections()
        return work(*args)  # type: ignore[operator]

    return await asyncio.get_running_loop().run_in_executor(threads, call_with_connection)


class ConfigurationReader:
    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    async def load_configuration_in_thread(self, server_id: str) -> StdioConfiguration:
        configuration = await run_in_database_thread(
            self._threads, stdio_configuration.load_stdio_configuration, server_id
        )
        assert isinstance(configuration, StdioConfiguration)
        return configuration


class ProcessStateWriter:
    def __init__(self, threads: ThreadPoolExecutor) -> None:
        self._threads = threads

    async def write_process_state(self, server_id: str, whose: str, state: ProcessState) -> None:
        report = mcp_processes.ProcessReport(
            server_id, whose, state.state, state.pid, state.words, state.starts, state.failures
        )
        await run_in_database_thread(self._threads, mcp_processes.save_process_report, report, timezone.now())
