"""All stdio servers of the machine: found by who calls, kept as their rows say, stopped when nobody needs them."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable

from django.db import Error as DatabaseError

from coordinator.hosting.backend import Backend, ProcessState
from coordinator.hosting.configured import Configuration, NotOffered

log = logging.getLogger(__name__)

LOOKS_EVERY = 1.0  # seconds after which a server's rows are read again
MOST_PROCESSES = 64
PoolKey = tuple[str, str]  # a server, and the caller whose own it is ("" where all share it)


class NotKnown(NotOffered):
    """The server's settings cannot be read just now. Processes that run go on."""


class Pool:
    """The servers by place. `configure` reads a server's rows, `tell` saves the state of a process; both may wait."""

    def __init__(
        self,
        configure: Callable[[str], Awaitable[Configuration]],
        tell: Callable[[str, str, ProcessState], Awaitable[None]],
        *,
        idle: float,
    ) -> None:
        self._configure = configure
        self._tell = tell
        self._idle = idle
        self._read: dict[str, tuple[float, Configuration]] = {}
        self._backends: dict[PoolKey, Backend] = {}
        self.used_at = time.monotonic()

    async def find(self, server_id: str, caller: str) -> Backend:
        """Return the server as this caller has it. Raises NotFound, NotOffered, CredentialUnusable."""
        self.used_at = time.monotonic()
        configuration = await self._configuration(server_id)
        whose = "" if configuration.shared else hashlib.sha256(caller.encode()).hexdigest()[:16]
        backend = self._backends.get((server_id, whose))
        if backend is None:
            tell = functools.partial(self._report, server_id, whose)
            backend = self._backends[server_id, whose] = Backend(configuration, tell, self._require_room)
        elif backend.configuration.version != configuration.version:
            backend.configuration = configuration
            await backend.stop("The server's settings were changed.")
        backend.used_at = time.monotonic()  # it is not to be forgotten while its caller still sends
        return backend

    async def _configuration(self, server_id: str) -> Configuration:
        known = self._read.get(server_id)
        if known is not None and known[0] > time.monotonic():
            return known[1]
        try:
            configuration = await self._configure(server_id)
        except DatabaseError as problem:
            log.warning("The settings of MCP server %s cannot be read: %s", server_id, str(problem).strip())
            raise NotKnown("The database cannot be reached just now. Try again.", retry_after=2) from None
        except Exception:
            await self._stop_all_of(server_id)
            raise
        self._read[server_id] = (time.monotonic() + LOOKS_EVERY, configuration)
        return configuration

    async def _stop_all_of(self, server_id: str) -> None:
        self._read.pop(server_id, None)
        dropped = [self._backends.pop(place) for place in list(self._backends) if place[0] == server_id]
        for backend in dropped:
            await backend.stop("The server is no longer offered.")

    def _require_room(self) -> None:
        if sum(one.has_process for one in self._backends.values()) >= MOST_PROCESSES:
            raise NotOffered(
                f"{MOST_PROCESSES} server processes are already running. Try again in a while.",
                retry_after=30,
            )

    async def _report(self, server_id: str, whose: str, state: ProcessState) -> None:
        try:
            await self._tell(server_id, whose, state)
        except Exception:
            log.exception("The state of the process of %s could not be saved", server_id)

    async def look_after(self, pace: float) -> None:
        """Stop what nobody has used for a while, again and again."""
        while True:
            await asyncio.sleep(pace)
            await self.stop_idle()

    async def stop_idle(self) -> None:
        """Stop what nobody has used for so long, and what may not run any more."""
        old = time.monotonic() - self._idle
        for (server_id, whose), backend in list(self._backends.items()):
            if self._backends.get((server_id, whose)) is not backend:
                continue  # dropped while another one was stopped
            if not backend.is_running:
                if backend.is_forgettable(old):
                    del self._backends[server_id, whose]
                continue
            if backend.is_idle and backend.used_at < old:
                await backend.stop("The server was stopped because nobody used it.")
            else:
                try:
                    await self._configuration(server_id)
                except NotKnown:
                    continue
                except Exception as problem:
                    log.warning("%s is stopped: %s", server_id, problem)

    @property
    def is_needed(self) -> bool:
        """Say whether something would be lost with the host: a process, a request, or a session of a client."""
        backends = self._backends.values()
        return any(one.is_running or not one.is_idle or one.has_sessions for one in backends)

    async def close(self) -> None:
        """Stop everything."""
        await asyncio.gather(*(one.stop("Signalbox is stopping.") for one in self._backends.values()))
