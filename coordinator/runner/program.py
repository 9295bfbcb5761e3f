"""The runner: registers, waits for runs and commands, has sessions carry them out, and leaves no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from coordinator.runner import orders, worktrees
from coordinator.runner.context import RunnerContext
from coordinator.runner.errors import RunnerRefused, ServerRefused, ServerTimedOut
from coordinator.runner.session import RunnerSession

log = logging.getLogger("signalbox.runner")

NOT_REGISTERED, ANOTHERS, CONFLICT = 401, 403, 409
# Seconds until another runner of this identity, which has just been killed, counts as gone.
REGISTER_WITHIN = 60.0
LAST_WORDS = 8.0  # seconds that each of the last reports may take
TIDY_EVERY = 15.0
MOST_COMMANDS = 1_000  # whose ids are kept in mind
FULL_PAUSE = 0.2  # seconds until it is looked again whether there is room
FORGOTTEN_AFTER = 60.0  # seconds after which a session without an agent is not kept in mind


class Runner:
    """One runner. `work` returns when it was stopped; `problem` then says why, where nobody asked for that."""

    def __init__(self, around: RunnerContext) -> None:
        self.problem = ""
        self._around = around
        self._sessions: dict[str, RunnerSession] = {}
        self._runs: dict[str, str] = {}  # the session of each run that was taken
        self._commands: dict[str, None] = {}  # the ids of those that are under way or done, the oldest first
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop = asyncio.Event()
        self._entering = asyncio.Lock()

    def request_runner_stop(self) -> None:
        """End soon: turns are cancelled, agents end, the runner deregisters."""
        self._stop.set()

    async def work_until_stop(self) -> None:
        """Register, and carry out runs and commands until `stop`."""
        loops = [
            asyncio.create_task(self._register_and_poll_until_end()),
            asyncio.create_task(self._end_idle_sessions_periodically()),
        ]
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait({*loops, stop}, return_when=asyncio.FIRST_COMPLETED)
        for loop in (*loops, stop):
            loop.cancel()
        for ended in await asyncio.gather(*loops, return_exceptions=True):
            if isinstance(ended, RunnerRefused):
                self.problem = str(ended)
            elif isinstance(ended, Exception):
                log.error("Error in the runner", exc_info=ended)
                self.problem = f"Error in the runner: {ended!r}"
        await self._shut_down_runner()

    # --- registering ------------------------------------------------------------------------------------------

    async def register_with_server(self) -> None:
        """Say what this machine offers. Raises RunnerRefused."""
        until = time.monotonic() + REGISTER_WITHIN
        while True:
            try:
                await self._around.server.post_runner_registration(self.build_runner_registration())
                return
            except ServerRefused as problem:
                if problem.status != CONFLICT or time.monotonic() > until:
                    raise RunnerRefused(
                        f"Signalbox does not accept this runner: {problem}{registration_refusal_hint(problem)}"
                    ) from None
                log.warning("%s. Trying again, in case that one has just ended.", problem.detail)
                await asyncio.sleep(3)

    def build_runner_registration(self) -> dict[str, Any]:
        """Return what this runner registers with."""
        options = self._around.options
        return {
            "hostname": options.hostname,
            "project_dir": options.directories[0],
            "executor_profile": options.profile,
            "executor": {
                "type": "autonomous",
                "command": "signalbox runner",
                "lifecycle": "persistent",
                "config": {},
            },
            "tags": list(options.tags),
            "require_matching_tags": options.require_matching_tags,
            "offers": {
                "agents": [agent.build_agent_offer() for agent in self._around.agents],
                "missing": [dict(missing_agent) for missing_agent in self._around.missing],
                "directories": list(options.directories),
                "at_once": options.at_once,
                "worktrees": worktrees.ARE_MADE,
            },
        }

    # --- what is to be done -----------------------------------------------------------------------------------

    async def _register_and_poll_until_end(self) -> None:
        await self.register_with_server()
        log.info("Registered as %s. Ctrl-C ends this runner and its agents.", self._around.server.runner_id)
        while True:
            try:
                answer = await self._around.server.poll_for_work_or_empty(self.count_free_run_slots())
            except ServerRefused as problem:
                if problem.status == NOT_REGISTERED:
                    await self.register_with_server()
                    continue
                if problem.status == ANOTHERS:
                    raise RunnerRefused(f"Signalbox refuses this runner's polls: {problem}") from None
                log.warning("The server answered a poll with: %s", problem)
                await asyncio.sleep(2)
                continue
            if self._apply_poll_answer_and_check_end(answer):
                return

    def _apply_poll_answer_and_check_end(self, answer: dict[str, Any]) -> bool:
        """Carry out what an answer orders; returns whether the runner is to end."""
        for run_id in strings_in_list_value(answer.get("cancel_runs")):
            if session := self._sessions.get(self._runs.get(run_id, "")):
                session.cancel_session_run(run_id)
        stopped = {self._runs.get(run_id, "") for run_id in strings_in_list_value(answer.get("stop_runs"))}
        for session_id in stopped | set(strings_in_list_value(answer.get("stop_sessions"))):
            if session := self._sessions.get(session_id):
                self._spawn_runner_task(session.end_runner_session())
        if isinstance(answer.get("run"), dict):
            self._spawn_runner_task(self._start_run(answer["run"]))
        for command in answer.get("commands") or ():
            if isinstance(command, dict) and isinstance(command.get("session_id"), str):
                self._spawn_runner_task(self._run_command_in_its_session(command))
        if answer.get("deregistered"):
            self.problem = "Somebody removed this runner in Signalbox."
        return bool(answer.get("deregistered"))

    async def _start_run(self, run: dict[str, Any]) -> None:
        """Have a run carried out; one that cannot be understood or has no place here fails."""
        try:
            order = orders.parse_run_order(run)
        except (RunnerRefused, KeyError) as problem:
            with contextlib.suppress(ServerRefused):
                await self._around.server.report_run_state(
                    str(run.get("run_id")), "failed", error=str(problem)
                )
            return
        if order.run_id in self._runs:
            return  # it waits for room here, and was handed out again
        self._runs[order.run_id] = order.session_id
        session = await self._get_or_create_runner_session(order)
        await session.execute_run(order)
        self._runs.pop(order.run_id, None)

    async def _get_or_create_runner_session(self, order: orders.RunnerOrder) -> RunnerSession:
        """Return the session of an order; waits first for one that is ending: two must not report at once."""
        while (session := self._sessions.get(order.session_id)) is not None and session.is_ending:
            await session.is_over.wait()
            self._remove_runner_session(session)
        if session is None:
            session = self._sessions[order.session_id] = RunnerSession(self._around, order)
        if not session.is_taken:
            async with self._entering:
                await self._free_slot_for_agent()
                session.is_taken = True
        return session

    def _remove_runner_session(self, session: RunnerSession) -> None:
        if self._sessions.get(session.id) is session:
            del self._sessions[session.id]

    async def _run_command_in_its_session(self, command: dict[str, Any]) -> None:
        if isinstance(command.get("id"), str) and not self._record_command_id_if_new(command["id"]):
            return
        while (session := self._sessions.get(command["session_id"])) is not None and session.is_ending:
            await session.is_over.wait()
            self._remove_runner_session(session)
        if session is None:
            order = orders.RunnerOrder(run_id="", session_id=command["session_id"], prompt="")
            session = self._sessions[order.session_id] = RunnerSession(self._around, order)
        await session.execute_command(command)

    def _record_command_id_if_new(self, command_id: str) -> bool:
        """Note a command; the server sends it again until the runner has reported it done."""
        if command_id in self._commands:
            return False
        self._commands[command_id] = None
        while len(self._commands) > MOST_COMMANDS:
            del self._commands[next(iter(self._commands))]
        return True

    def count_free_run_slots(self) -> int:
        working = len(self._runs)
        return max(0, self._around.options.at_once - working)

    async def _free_slot_for_agent(self) -> None:
        """Wait until one more agent may run; end the one that has waited longest for a prompt."""
        while True:
            living = [session for session in self._sessions.values() if session.is_taken]
            if len(living) < self._around.options.at_once:
                return
            idle = [session for session in living if session.turn is None and session.has_running_agent]
            if idle:
                await min(idle, key=lambda session: session.idle_since).end_runner_session()
            else:
                await asyncio.sleep(FULL_PAUSE)

    async def _end_idle_sessions_periodically(self) -> None:
        """End agents that nobody used for long, and forget sessions that are over."""
        while True:
            await asyncio.sleep(TIDY_EVERY)
            now = time.monotonic()
            for session in list(self._sessions.values()):
                keep_seconds = self._around.options.keep if session.has_running_agent else FORGOTTEN_AFTER
                if (
                    session.turn is None
                    and now - session.idle_since >= keep_seconds
                    and not session.is_ending
                ):
                    self._spawn_runner_task(session.end_runner_session())
                if session.is_over.is_set():
                    self._remove_runner_session(session)

    # --- the end ----------------------------------------------------------------------------------------------

    async def _shut_down_runner(self) -> None:
        """End all sessions and deregister."""
        self._around.patience = LAST_WORDS
        ending = [
            asyncio.create_task(session.end_runner_session("stopped")) for session in self._sessions.values()
        ]
        for task in ending:
            task.add_done_callback(self._discard_task_and_log_error)
        if ending:
            await asyncio.wait(ending, timeout=3 * LAST_WORDS)
        if self._around.server.runner_id:
            with contextlib.suppress(ServerRefused, ServerTimedOut):
                await self._around.server.deregister_runner_at_server()
        await self._around.server.close_server_http_client()

    def _spawn_runner_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._discard_task_and_log_error)

    def _discard_task_and_log_error(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            log.error("Error in a task of the runner", exc_info=problem)


def registration_refusal_hint(problem: ServerRefused) -> str:
    if problem.status in {NOT_REGISTERED, ANOTHERS}:
        return " Make a key of scope runner, and give it with SIGNALBOX_KEY or --key-file."
    if problem.status == CONFLICT:
        return " End that one, or start this one with another --directory first, or another --profile."
    return ""


def strings_in_list_value(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
