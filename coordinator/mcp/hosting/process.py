"""One stdio server as a process: started with an environment of its own, read line by line, ended with its children."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from coordinator.client.message_lines import READ_BYTES, LineBudgetExceeded, MessageLines
from coordinator.mcp.hosting.redacting import redact_server_output
from coordinator.mcp.isolation.process_isolation import build_base_process_environment

MAX_STDERR_BYTES = 4_000  # bytes of what it says on stderr
LETS_GO_WITHIN = 2.0  # seconds after each stronger word
MOST_FILES = 4_096
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class ServerProcess:
    """A running server. `on_output` is called with each line, `ended` once with its exit status.

    Its output is read as fast as `on_output` returns, and no more than a line is kept: excess waits in the pipe.
    """

    def __init__(
        self,
        process: Process,
        on_output: Callable[[bytes], None],
        ended: Callable[[int, str], None],
        environment: Mapping[str, str],
    ) -> None:
        self._process = process
        self._environment = environment
        self._on_output = on_output
        self._ended = ended
        self._words = b""
        self._writing = asyncio.Lock()
        self._failure = ""
        self._tasks = [
            asyncio.ensure_future(self.pump_stdout_lines_to_callback()),
            asyncio.ensure_future(self.retain_tail_of_stderr()),
        ]
        self.over = asyncio.ensure_future(self.wait_for_exit_and_clean_up())

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stderr_tail(self) -> str:
        """The end of what it said on stderr, without secrets."""
        return self.redact_output(self._words)

    def redact_output(self, output: bytes) -> str:
        """Return what it said without the values of its variables, and without what else looks like a secret."""
        return redact_server_output(output.decode(errors="replace").strip(), self._environment)

    async def send_server_line(self, line: bytes) -> None:
        """Give it a message. Raises OSError where it has ended."""
        stdin = self._process.stdin
        assert stdin is not None
        async with self._writing:
            stdin.write(line + b"\n")
            await stdin.drain()

    async def stop_gracefully(self) -> None:
        """End it and whatever it started: by the end of its input, then by signals."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self.signal_process_group(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self.over), LETS_GO_WITHIN)
                break
        self.signal_process_group(signal.SIGKILL)  # children that outlived it

    def kill_with_reason(self, text: str) -> None:
        """Kill it, and say why when its end is reported."""
        if not self._failure:
            self._failure = text
            self.signal_process_group(signal.SIGKILL)

    def signal_process_group(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    async def pump_stdout_lines_to_callback(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        lines = MessageLines()
        try:
            while chunk := await stdout.read(READ_BYTES):
                for line in lines.feed_chunk_and_pop_lines(chunk):
                    self._on_output(line)
        except LineBudgetExceeded as problem:
            self.kill_with_reason(f"It wrote {problem}.")
            while await stdout.read(READ_BYTES):
                pass  # asyncio notices the end of a process when its pipes have been read
            return
        if rest := lines.pop_unterminated_line():
            self._on_output(rest)

    async def retain_tail_of_stderr(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while chunk := await stderr.read(READ_BYTES):
            self._words = cut_to_last_whole_words(self._words + chunk)

    async def wait_for_exit_and_clean_up(self) -> int:
        status = await self._process.wait()
        self.signal_process_group(signal.SIGKILL)  # what it left behind would hold its pipes open
        await asyncio.wait(self._tasks, timeout=LETS_GO_WITHIN)
        for task in self._tasks:
            task.cancel()
        self._ended(status, self._failure)
        return status


async def start_server_process(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
    on_output: Callable[[bytes], None],
    ended: Callable[[int, str], None],
) -> ServerProcess:
    """Start a server by its isolated command line, in its folder. Raises OSError, ValueError (NUL in an argument)."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env=build_base_process_environment(folder) | dict(environment),
        start_new_session=True,
        preexec_fn=set_server_process_limits,
    )
    return ServerProcess(process, on_output, ended, environment)


def cut_to_last_whole_words(output: bytes) -> bytes:
    """Return the last of what was said, from a new word on: half a secret would not be known as one."""
    if len(output) <= MAX_STDERR_BYTES:
        return output
    last = output[-MAX_STDERR_BYTES:]
    return last.split(None if b"\n" not in last else b"\n", 1)[-1]


def set_server_process_limits() -> None:
    """Runs in the child before the server: it ends with its host, dumps no memory and opens no end of files."""
    if _LIBC is not None:
        _LIBC.prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))
