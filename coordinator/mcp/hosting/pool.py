"""The pool of all stdio servers of the machine: looked up by caller, configured by their rows, stopped when unused."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable

from django.db import Error as DatabaseError

from coordinator.mcp.hosting.backend import ProcessState, StdioBackend
from coordinator.mcp.hosting.stdio_configuration import ServerNotOffered, StdioConfiguration

log = logging.getLogger(__name__)

LOOKS_EVERY = 1.0  # seconds after which a server's rows are read again
MOST_PROCESSES = 64
PoolKey = tuple[str, str]  # a server, and the caller whose own it is ("" where all share it)


class SettingsUnavailable(ServerNotOffered):
    """The server's settings cannot be read just now. Processes that run go on."""


class BackendPool:
    """The servers by key. `configure` reads a server's rows, `report_state` stores a process's state; both may wait."""

    def __init__(
        self,
        configure: Callable[[str], Awaitable[StdioConfiguration]],
        report_state: Callable[[str, str, ProcessState], Awaitable[None]],
        *,
        idle: float,
    ) -> None:
        self._configure = configure
        self._report_state = report_state
        self._idle = idle
        self._read: dict[str, tuple[float, StdioConfiguration]] = {}
        self._backends: dict[PoolKey, StdioBackend] = {}
        self.used_at = time.monotonic()

    async def get_or_create_backend(self, server_id: str, caller: str) -> StdioBackend:
        """Return the server as this caller has it. Raises NotFound, ServerNotOffered, CredentialUnusable."""
        self.used_at = time.monotonic()
        configuration = await self.get_or_load_configuration(server_id)
        caller_digest = "" if configuration.shared else hashlib.sha256(caller.encode()).hexdigest()[:16]
        backend = self._backends.get((server_id, caller_digest))
        if backend is None:
            report_state = functools.partial(self.save_process_state_or_log, server_id, caller_digest)
            backend = self._backends[server_id, caller_digest] = StdioBackend(
                configuration, report_state, self.require_free_process_slot
            )
        elif backend.configuration.configuration_digest != configuration.configuration_digest:
            backend.configuration = configuration
            await backend.stop_stdio_process("The server's settings were changed.")
        backend.used_at = time.monotonic()  # it is not to be forgotten while its caller still sends
        return backend

    async def get_or_load_configuration(self, server_id: str) -> StdioConfiguration:
        cached_configuration = self._read.get(server_id)
        if cached_configuration is not None and cached_configuration[0] > time.monotonic():
            return cached_configuration[1]
        try:
            configuration = await self._configure(server_id)
        except DatabaseError as problem:
            log.warning("The settings of MCP server %s cannot be read: %s", server_id, str(problem).strip())
            raise SettingsUnavailable(
                "The database cannot be reached just now. Try again.", retry_after=2
            ) from None
        except Exception:
            await self.stop_server_backends(server_id)
            raise
        self._read[server_id] = (time.monotonic() + LOOKS_EVERY, configuration)
        return configuration

    async def stop_server_backends(self, server_id: str) -> None:
        self._read.pop(server_id, None)
        dropped = [self._backends.pop(place) for place in list(self._backends) if place[0] == server_id]
        for backend in dropped:
            await backend.stop_stdio_process("The server is no longer offered.")

    def require_free_process_slot(self) -> None:
        if (
            sum(backend.is_process_running_or_starting for backend in self._backends.values())
            >= MOST_PROCESSES
        ):
            raise ServerNotOffered(
                f"{MOST_PROCESSES} server processes are already running. Try again in a while.",
                retry_after=30,
            )

    async def save_process_state_or_log(self, server_id: str, whose: str, state: ProcessState) -> None:
        try:
            await self._report_state(server_id, whose, state)
        except Exception:
            log.exception("The state of the process of %s could not be saved", server_id)

    async def stop_idle_periodically(self, pace: float) -> None:
        """Stop what nobody has used for a while, again and again."""
        while True:
            await asyncio.sleep(pace)
            await self.stop_idle_backends()

    async def stop_idle_backends(self) -> None:
        """Stop what nobody has used for so long, and what may not run any more."""
        old = time.monotonic() - self._idle
        for (server_id, caller_digest), backend in list(self._backends.items()):
            if self._backends.get((server_id, caller_digest)) is not backend:
                continue  # dropped while another one was stopped
            if not backend.is_running:
                if backend.expire_sessions_and_check_unused(old):
                    del self._backends[server_id, caller_digest]
                continue
            if backend.is_idle and backend.used_at < old:
                await backend.stop_stdio_process("The server was stopped because nobody used it.")
            else:
                try:
                    await self.get_or_load_configuration(server_id)
                except SettingsUnavailable:
                    continue
                except Exception as problem:
                    log.warning("%s is stopped: %s", server_id, problem)

    @property
    def is_any_backend_in_use(self) -> bool:
        """Say whether something would be lost with the host: a process, a request, or a session of a client."""
        backends = self._backends.values()
        return any(backend.is_running or not backend.is_idle or backend.has_sessions for backend in backends)

    async def close(self) -> None:
        """Stop everything."""
        await asyncio.gather(
            *(backend.stop_stdio_process("Signalbox is stopping.") for backend in self._backends.values())
        )
