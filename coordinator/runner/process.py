"""One agent's process: started, spoken with, ended, and how it failed, in words."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from acp.connection import Connection
from acp.exceptions import RequestError

from coordinator.client.message_lines import READ_BYTES
from coordinator.runner.agent_jsonrpc import AgentJsonLineStream, OutputTail
from coordinator.runner.environment import MARK
from coordinator.runner.errors import AgentFailed
from coordinator.runner.guarded_processes import ChildProcess, ProcessGuard
from coordinator.runner.startable import StartableAgent

Handler = Callable[[str, Any, bool], Awaitable[Any]]
GRACE = 3.0  # seconds that an agent has to end when it is asked to
LOGIN_NEEDED = -32000


class LoginNeeded(AgentFailed):
    """The agent wants its user to sign in first."""


class AgentProcess:
    """An agent that runs. Use `started`."""

    def __init__(
        self,
        agent: StartableAgent,
        guard: ProcessGuard,
        process: ChildProcess,
        *,
        mark: str,
        handler: Handler,
        wait_for_capacity: Callable[[], Awaitable[None]],
        garbage: Callable[[str], None],
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.agent = agent
        self._guard = guard
        self._process = process
        self._mark = mark
        self._output_tail = OutputTail()
        self._lines = AgentJsonLineStream(
            process.stdout,
            process.stdin,
            wait_for_capacity=wait_for_capacity,
            garbage=garbage,
            tail=self._output_tail,
        )
        self._connection = Connection(handler, self._lines)
        self._errors = asyncio.create_task(self._collect_error_output())
        self.exited = asyncio.create_task(process.wait())
        self._ended = False

    @classmethod
    async def start_agent_process(
        cls,
        agent: StartableAgent,
        guard: ProcessGuard,
        *,
        directory: str,
        env: Mapping[str, str],
        handler: Handler,
        wait_for_capacity: Callable[[], Awaitable[None]],
        garbage: Callable[[str], None],
    ) -> AgentProcess:
        """Start the agent in a directory. Raises AgentFailed."""
        try:
            process = await guard.start_guarded_process(agent.command, directory=directory, env=env)
        except OSError as problem:
            raise AgentFailed(f"{agent.title} cannot be started: {problem}") from None
        return cls(
            agent,
            guard,
            process,
            mark=env[MARK],
            handler=handler,
            wait_for_capacity=wait_for_capacity,
            garbage=garbage,
        )

    @property
    def last_error_output(self) -> str:
        """What it wrote last that is no protocol: its stderr, and what went astray on stdout."""
        return str(self._output_tail)

    async def send_request_to_agent(
        self, method: str, params: dict[str, Any], *, within: float | None = None
    ) -> Any:
        """Ask the agent and return its answer, a dict. Raises AgentFailed, and RequestError where it refuses."""
        pending_request = asyncio.ensure_future(self._connection.send_request(method, params))
        try:
            await asyncio.wait(
                {pending_request, self.exited}, timeout=within, return_when=asyncio.FIRST_COMPLETED
            )
            if not pending_request.done() and not self.exited.done():
                raise AgentFailed(f"{self.agent.title} did not answer {method} within {within:.0f} s")
            if not pending_request.done():  # its last answer may still be on its way through the pipe
                await asyncio.wait({pending_request}, timeout=1)
            if not pending_request.done():
                raise AgentFailed(await self.wait_and_describe_agent_exit())
            return agent_answer_or_empty_dict(pending_request.result())
        except ConnectionError:
            raise AgentFailed(await self.wait_and_describe_agent_exit()) from None
        except RequestError as problem:
            if problem.code == LOGIN_NEEDED:
                raise LoginNeeded(describe_required_login(self.agent, problem)) from None
            raise
        finally:
            pending_request.cancel()

    async def send_notification_to_agent(self, method: str, params: dict[str, Any]) -> None:
        """Send the agent a notification; nothing happens where it has ended."""
        with contextlib.suppress(ConnectionError, OSError):
            await asyncio.wait_for(self._connection.send_notification(method, params), 5)

    async def list_agent_process_ids(self) -> set[int]:
        """Return the processes that it started, and itself; none where the system does not show them."""
        return await self._guard.list_pids_by_environment_tag(self._mark)

    async def end_agent_process(self, grace: float = GRACE) -> None:
        """End the process and everything that it started. May be called again."""
        if self._ended:
            return
        self._ended = True
        await self._guard.end_guarded_process(self._process, grace)
        await self._guard.kill_processes_by_environment_tag(self._mark)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._connection.close(), 2)
        self._process.close()
        self._errors.cancel()

    async def _collect_error_output(self) -> None:
        assert self._process.stderr is not None
        while part := await self._process.stderr.read(READ_BYTES):
            self._output_tail.append_to_output_tail(part)

    async def wait_and_describe_agent_exit(self) -> str:
        if self._lines.failed is not None:
            return f"{self.agent.title} cannot be understood. {self._lines.failed}."
        with contextlib.suppress(TimeoutError):
            code = await asyncio.wait_for(asyncio.shield(self.exited), 2)
            await asyncio.wait({self._errors}, timeout=0.5)
            return f"{self.agent.title} ended by itself, {describe_exit_code(code)}"
        return f"{self.agent.title} closed its output"


def describe_required_login(agent: StartableAgent, problem: RequestError) -> str:
    """Return what to do about an agent that answers that nobody has signed in, and what it said itself."""
    how = f"run `{agent.login}`" if agent.login else "use the agent's own program"
    error_text = str(problem).strip()
    its_words = f" ({agent.title} says: {error_text.rstrip('.')}.)" if error_text else ""
    return (
        f"Sign in to {agent.title} on the runner's machine first: {how} as the runner's user, or set its key."
        f" Then start the run again.{its_words}"
    )


def agent_answer_or_empty_dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def describe_exit_code(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    with contextlib.suppress(ValueError):
        return f"by {signal.Signals(-code).name}"
    return f"by signal {-code}"
