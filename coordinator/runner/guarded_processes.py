"""The runner's end of its guard, and how a process is started so that it cannot outlive the runner."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence

from coordinator.runner import guard
from coordinator.runner.environment import MARK

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def disable_process_dumps() -> None:
    """Keep other processes of this user from reading our environment and memory, where the key is."""
    if _libc is not None:
        _libc.prctl(PR_SET_DUMPABLE, 0)


def set_parent_death_signal() -> None:
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class WatchedProcessProtocol(asyncio.subprocess.SubprocessStreamProtocol):
    """Reports a process's end when it ends. asyncio's `wait` waits for its pipes, which its children may hold."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=1 << 16, loop=loop)
        self.exited: asyncio.Future[int] = loop.create_future()
        self.transport: asyncio.SubprocessTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.SubprocessTransport)
        self.transport = transport

    def process_exited(self) -> None:
        super().process_exited()
        assert self.transport is not None
        code = self.transport.get_returncode()
        if not self.exited.done():
            self.exited.set_result(-signal.SIGKILL if code is None else code)


class ChildProcess:
    """A process that was started, and its pipes."""

    def __init__(self, transport: asyncio.SubprocessTransport, watched: WatchedProcessProtocol) -> None:
        self.pid: int = transport.get_pid()
        self.stdin, self.stdout, self.stderr = watched.stdin, watched.stdout, watched.stderr
        self._transport = transport
        self._exited = watched.exited

    async def wait(self) -> int:
        """Return its exit code, -N where signal N ended it, as soon as it has ended."""
        return await asyncio.shield(self._exited)

    def close(self) -> None:
        """Let go of its pipes."""
        self._transport.close()


class ProcessGuard:
    """The process that ends what we started when we are gone. `mark` is in the environment of all that."""

    def __init__(self) -> None:
        self.mark = f"runner-{secrets.token_hex(12)}"
        self._marks = itertools.count(1)
        self._process = subprocess.Popen(  # noqa: S603 - this program, and a mark of ours
            [sys.executable, "-I", "-S", guard.__file__, f"{MARK}={self.mark}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env={},
            start_new_session=True,
        )

    def create_process_environment_tag(self) -> str:
        """Return a mark for one agent and all that it starts."""
        return f"{self.mark}.{next(self._marks)}."

    async def start_guarded_process(
        self,
        command: Sequence[str],
        *,
        directory: str,
        env: Mapping[str, str],
        stdin: int = asyncio.subprocess.PIPE,
        stderr: int = asyncio.subprocess.PIPE,
    ) -> ChildProcess:
        """Start a process, the leader of a group of its own. Raises OSError."""
        loop = asyncio.get_running_loop()
        transport, watched = await loop.subprocess_exec(
            lambda: WatchedProcessProtocol(loop),
            *command,
            cwd=directory,
            env=dict(env),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,
            preexec_fn=set_parent_death_signal,
        )
        child = ChildProcess(transport, watched)
        self._write_guard_line(f"+{child.pid}")
        return child

    async def end_guarded_process(self, process: ChildProcess, grace: float) -> None:
        """End a process and its group: asked first, ended after `grace` seconds."""
        groups = {process.pid}
        if guard.signal_processes_and_check_reached(groups, set(), signal.SIGTERM):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), grace)
            # The leader's end is not its group's.
            guard.signal_processes_and_check_reached(groups, set(), signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), 5)
        self._write_guard_line(f"-{process.pid}")

    async def kill_processes_by_environment_tag(self, mark: str) -> None:
        """End what left its group: everything whose environment holds `mark`, one of `new_mark`."""
        guard.signal_processes_and_check_reached(
            set(), await self.list_pids_by_environment_tag(mark), signal.SIGKILL
        )

    async def list_pids_by_environment_tag(self, mark: str) -> set[int]:
        """Return the processes whose environment holds `mark`, one of `new_mark`."""
        return await asyncio.to_thread(guard.find_pids_by_environment_tag, f"{MARK}={mark}", os.getpid())

    def close_process_guard(self) -> None:
        """Let the guard end what is left, and itself."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(guard.GRACE + 2)

    def _write_guard_line(self, line: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
