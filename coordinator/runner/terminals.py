"""Commands that an agent runs through the runner: their output is bounded, and reported as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any

from coordinator.runner.directories import AllowedDirectories
from coordinator.runner.errors import RunnerRefused
from coordinator.runner.guarded_processes import ChildProcess, ProcessGuard

MOST_TERMINALS = 32  # of a session at once
MAX_OUTPUT_BYTES = 1 << 20  # of a command's output, that the agent may have
MAX_REPORTED_BYTES = 64 << 10  # of it, that are sent to the server
REPORT_INTERVAL_SECONDS = 0.2
READ = 1 << 16
REST = 0.3  # seconds that output may come in after the command's end
CONTINUED = bytes(range(0x80, 0xC0))  # what a letter's first byte is followed by
ReportOutput = Callable[[str, str, dict[str, int | str | None] | None], None]


class AgentTerminal:
    """One command that runs or has run."""

    def __init__(self, process: ChildProcess, most: int, report_output: Callable[[], None]) -> None:
        self.process = process
        self._most = most
        self._report_output = report_output
        self._tail = b""
        self._is_cut = False
        self._reported_at = 0.0
        self._report_timer: asyncio.TimerHandle | None = None
        self.status: dict[str, int | str | None] | None = None
        self._reading = asyncio.create_task(self._collect_terminal_output())
        self.ended = asyncio.create_task(self._wait_for_exit_and_report_status())

    @property
    def terminal_output(self) -> dict[str, Any]:
        answer: dict[str, Any] = {"output": decode_terminal_output(self._tail), "truncated": self._is_cut}
        return answer if self.status is None else {**answer, "exitStatus": self.status}

    @property
    def terminal_output_tail(self) -> str:
        return decode_terminal_output(self._tail[-MAX_REPORTED_BYTES:])

    def release_terminal_resources(self) -> None:
        """Let go of it."""
        self._reading.cancel()
        if self._report_timer is not None:
            self._report_timer.cancel()
        self.process.close()

    def _report_terminal_output_now(self) -> None:
        self._report_timer = None
        self._reported_at = time.monotonic()
        self._report_output()

    async def _collect_terminal_output(self) -> None:
        assert self.process.stdout is not None
        while part := await self.process.stdout.read(READ):
            self._is_cut |= len(self._tail) + len(part) > self._most
            self._tail = (self._tail + part)[-self._most :] if self._most else b""
            if self._report_timer is None:
                wait = max(0.0, self._reported_at + REPORT_INTERVAL_SECONDS - time.monotonic())
                self._report_timer = asyncio.get_running_loop().call_later(
                    wait, self._report_terminal_output_now
                )

    async def _wait_for_exit_and_report_status(self) -> None:
        code = await self.process.wait()
        # What it left in the pipe; a child that it left behind may hold that open.
        await asyncio.wait({self._reading}, timeout=REST)
        self.status = (
            {"exitCode": code, "signal": None} if code >= 0 else {"exitCode": None, "signal": str(-code)}
        )
        self._report_output()


class SessionTerminals:
    """The terminals of one session.

    `report_output` gets a terminal's id, the end of its output, and its exit status.
    """

    def __init__(
        self,
        guard: ProcessGuard,
        places: AllowedDirectories,
        env: Mapping[str, str],
        report_output: ReportOutput,
    ) -> None:
        self._guard = guard
        self._directories = places
        self._env = env
        self._report_output = report_output
        self._terminals: dict[str, AgentTerminal] = {}
        self._numbers = itertools.count(1)

    async def create_terminal(self, params: dict[str, Any], directory: str) -> dict[str, Any]:
        """Answer terminal/create. Raises RunnerRefused."""
        if len(self._terminals) >= MOST_TERMINALS:
            raise RunnerRefused(f"{MOST_TERMINALS} terminals are open; release one first")
        command, arguments = params.get("command"), params.get("args") or []
        if not isinstance(command, str) or not all(isinstance(argument, str) for argument in arguments):
            raise RunnerRefused("command and args must be strings")
        # Agents send a whole line of shell as the command, too.
        command_line = [command, *arguments] if arguments else ["/bin/sh", "-c", command]
        where = self._directories.resolve_allowed_directory(params.get("cwd") or directory)
        try:
            process = await self._guard.start_guarded_process(
                command_line,
                directory=where,
                env={**self._env, **terminal_environment(params)},
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as problem:
            raise RunnerRefused(f"{command[:200]} cannot be started: {problem.strerror}") from None
        terminal_id = f"term_{next(self._numbers)}"
        limit = params.get("outputByteLimit")
        most = min(MAX_OUTPUT_BYTES, limit) if isinstance(limit, int) and limit >= 0 else MAX_OUTPUT_BYTES
        self._terminals[terminal_id] = AgentTerminal(
            process, most, lambda: self._report_terminal_output_and_status(terminal_id)
        )
        return {"terminalId": terminal_id}

    def answer_output_request(self, params: dict[str, Any]) -> dict[str, Any]:
        """Answer terminal/output. Raises RunnerRefused."""
        return self.require_terminal_by_id(params).terminal_output

    async def wait_for_terminal_exit(self, params: dict[str, Any]) -> dict[str, Any]:
        """Answer terminal/wait_for_exit. Raises RunnerRefused."""
        terminal = self.require_terminal_by_id(params)
        await asyncio.shield(terminal.ended)
        return dict(terminal.status or {})

    async def kill_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        """Answer terminal/kill: what it wrote can still be read. Raises RunnerRefused."""
        await self._guard.end_guarded_process(self.require_terminal_by_id(params).process, 1.0)
        return {}

    async def release_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        """Answer terminal/release. Raises RunnerRefused."""
        terminal = self.require_terminal_by_id(params)
        await self._end_terminal(terminal)
        self._terminals.pop(str(params.get("terminalId")), None)
        return {}

    def report_terminals_of_tool_call(self, update: dict[str, Any]) -> None:
        """Report again the output of terminals that a call shows: their call is known from now on."""
        content = update.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and part.get("type") == "terminal":
                self._report_terminal_output_and_status(str(part.get("terminalId")))

    async def end_all_terminals(self) -> None:
        """End all of them."""
        await asyncio.gather(*(self._end_terminal(terminal) for terminal in self._terminals.values()))
        self._terminals.clear()

    async def _end_terminal(self, terminal: AgentTerminal) -> None:
        await self._guard.end_guarded_process(terminal.process, 1.0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(terminal.ended, 1.0)
        terminal.release_terminal_resources()

    def _report_terminal_output_and_status(self, terminal_id: str) -> None:
        if terminal := self._terminals.get(terminal_id):
            self._report_output(terminal_id, terminal.terminal_output_tail, terminal.status)

    def require_terminal_by_id(self, params: dict[str, Any]) -> AgentTerminal:
        terminal = self._terminals.get(str(params.get("terminalId")))
        if terminal is None:
            raise RunnerRefused("There is no such terminal")
        return terminal


def terminal_environment(params: dict[str, Any]) -> dict[str, str]:
    env = params.get("env") or []
    pairs = [(variable.get("name"), variable.get("value")) for variable in env if isinstance(variable, dict)]
    return {
        name: value
        for name, value in pairs
        if isinstance(name, str) and isinstance(value, str) and not name.startswith("SIGNALBOX_")
    }


def decode_terminal_output(data: bytes) -> str:
    # A cut may go through a letter.
    return data.lstrip(CONTINUED).decode("utf-8", "replace")
