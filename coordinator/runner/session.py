"""A session that this runner drives: its agent's process, its turns one after the other, and their reports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from acp.exceptions import RequestError

from coordinator.runner import gateway
from coordinator.runner.asking import CANCELLED, Asking, SeenCalls
from coordinator.runner.changes import Changes
from coordinator.runner.commands import Commands
from coordinator.runner.context import RunnerContext
from coordinator.runner.conversation import Conversation, in_words
from coordinator.runner.errors import AgentFailed, RunnerRefused, ServerRefused, Unreachable
from coordinator.runner.held_updates import HeldUpdates
from coordinator.runner.known_session import KnownSession
from coordinator.runner.orders import Order
from coordinator.runner.outbox import Outbox
from coordinator.runner.process import AgentProcess
from coordinator.runner.starting import start
from coordinator.runner.terminals import Terminals
from coordinator.runner.turns import Turn

log = logging.getLogger("signalbox.runner")

QUESTION_WAIT_SECONDS = 5.0  # that a question waits until the server has what was said before it
TO_STOP = 10.0  # seconds that an agent has to end its turn when it is cancelled
TO_END = 3.0  # … when its session is ended
MOST_REASONS = 8  # turns in a row that only tell the agent why a person said no


class DrivenSession:
    """One session. Its agent is started by its first run here, and kept for the next."""

    def __init__(self, around: RunnerContext, order: Order) -> None:
        self.id = order.session_id
        self.turn: Turn | None = None
        self.idle_since = time.monotonic()
        self.is_ending = False
        self.is_over = asyncio.Event()
        self.is_taken = False  # whether it has one of the runner's places for agents
        self._around = around
        self._known = KnownSession(around, self.id, self._heard_unknown)
        self._commands = Commands(
            self._known,
            around.memory.folder,
            self._tell,
            talk=lambda: self._talk,
            is_at_work=lambda: self.turn is not None,
        )
        self._last_run = order.run_id
        self._talk: Conversation | None = None
        self._is_without_process = False  # idle all the same: its process was ended to stop a command
        self._terminals: Terminals | None = None
        self._changes: Changes | None = None
        self._noting: asyncio.Task[None] | None = None  # how the directory stands, while the agent is opened
        self._calls = SeenCalls()
        self._early: HeldUpdates | None = None  # what the agent says before it is introduced
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox = Outbox(around.server, order, around.room, self._not_heard)
        self._asking = Asking(around.server, self.id, self._calls, self._denied)

    @property
    def lives(self) -> bool:
        """Whether its agent runs."""
        return self._talk is not None

    # --- a run ------------------------------------------------------------------------------------------------

    async def carry_out(self, order: Order) -> None:
        """Carry out a run and report its outcome. Never raises."""
        async with self._one_at_a_time:
            if self.is_ending:
                self._last_run = order.run_id
                await self._report("stopped", signal="SIGTERM")
                return
            turn = self.turn = Turn(order)
            self._last_run = order.run_id
            turn.started = asyncio.create_task(self._around.server.report(order.run_id, "started"))
            try:
                await self._take(turn)
                turn.ended.set()
                await self._report_end(turn)
            except Exception as problem:
                turn.ended.set()
                await self._report_failure(turn, problem)
            finally:
                turn.started.cancel()
                self.turn = None
                self.idle_since = time.monotonic()
                turn.over.set()

    async def _take(self, turn: Turn) -> None:
        """Open the conversation where it is not open, and prompt."""
        order = turn.order
        talk = self._talk or await self._opened(order)
        blocks = order.blocks(with_instructions=not order.is_resume)
        if order.images and not (talk.capabilities.get("promptCapabilities") or {}).get("image"):
            raise RunnerRefused(f"{talk.agent.title} does not accept images.")
        await self._note_files()
        watching = asyncio.create_task(self._watch_for_silence(turn, talk))
        try:
            for _ in range(MOST_REASONS):
                await self._prompt(turn, talk, blocks)
                if turn.is_cancelled or self.is_ending or not turn.denials:
                    break
                blocks = [{"type": "text", "text": "\n\n".join(turn.denials)}]
        finally:
            watching.cancel()

    async def _prompt(self, turn: Turn, talk: Conversation, blocks: list[dict[str, Any]]) -> None:
        """One prompt to the agent, from the report of its start to that of its changes."""
        turn.denials = []
        if turn.is_cancelled or self.is_ending:
            return
        assert turn.started is not None
        await turn.started  # it may be another runner's by now
        run_id = turn.order.run_id
        self._tell({"sessionUpdate": "signalbox/turn_started", "runId": run_id, "prompt": blocks})
        turn.is_prompted, turn.heard_at = True, time.monotonic()
        keeps = talk.agent.keeps_commands
        before = await talk.process.below() if keeps else set()
        if turn.is_cancelled:
            return
        try:
            ended = await talk.prompt(blocks)
        except RequestError:
            if not turn.is_cancelled:
                raise
            ended = {"stopReason": "cancelled"}  # some agents call that an error
        if turn.is_silent:
            raise AgentFailed(self._silence())
        if turn.refused is not None:
            raise turn.refused
        self._calls.forget()
        if keeps and turn.is_cancelled and await talk.process.below() - before:
            # The next prompt takes the conversation up again, in a new process.
            self._is_without_process = True
            await self._end_process()
        await self._tell_changes()
        self._tell({**ended, "sessionUpdate": "signalbox/turn_ended", "runId": run_id, "cost": turn.cost})

    async def _note_files(self) -> None:
        """Note the state of the directory as the turn starts."""
        assert self._changes is not None
        noting, self._noting = self._noting, None
        await (noting or self._changes.turn_starts())

    async def _tell_changes(self) -> None:
        """Report what the turn has changed so far."""
        if self._changes is not None:
            for update in await self._changes.turn_ended():
                self._tell(update)

    async def _report_end(self, turn: Turn) -> None:
        await self._outbox.drained(self._around.patience)
        if self.is_ending:
            await self._end_process()
            await self._report("stopped", signal="SIGTERM")
        else:
            await self._report("completed", status="success", session_status="idle")

    async def _report_failure(self, turn: Turn, problem: Exception) -> None:
        """Report why the run did not complete: stopped, where somebody wanted that; else failed."""
        if isinstance(problem, RequestError):
            problem = AgentFailed(f"The agent reports an error: {in_words(problem)}")
        if not isinstance(problem, AgentFailed | RunnerRefused | ServerRefused | Unreachable):
            log.exception("A run could not be carried out", exc_info=problem)
        words = self._talk.process.last_words if self._talk else self._known_words
        was_stopped = (turn.is_cancelled or self.is_ending) and not turn.is_silent and turn.refused is None
        self._introduced()
        reason = ""
        if not was_stopped:
            reason = self._silence() if turn.is_silent else str(problem)
            failed = {"sessionUpdate": "signalbox/agent_failed", "reason": reason, "stderrTail": words}
            self._tell(failed)
        await self._end_process()
        if turn.is_prompted:
            await self._tell_changes()
        await self._outbox.drained(self._around.patience)
        if was_stopped:
            await self._report("stopped", signal="SIGKILL" if turn.was_killed else "SIGTERM")
        else:
            said = f"{reason}\n\n{words}" if words and isinstance(problem, AgentFailed) else reason
            await self._report("failed", error=said[:8000])

    async def _report(self, what: str, **said: Any) -> None:
        try:
            await self._around.server.report(self._last_run, what, patience=self._around.patience, **said)
        except (ServerRefused, Unreachable) as problem:
            log.warning("The report that run %s is %s was not accepted: %s", self._last_run, what, problem)

    # --- its agent --------------------------------------------------------------------------------------------

    async def _opened(self, order: Order) -> Conversation:
        """Start the agent and get to the conversation. Raises AgentFailed, RunnerRefused, ServerRefused."""
        around, known = self._around, self._known
        agent = around.agent(order.agent or known.text("agent"))
        directory = await known.directory(order)
        earlier = await known.earlier_id(order)
        if earlier and agent.opens_once_a_minute:
            await self._minute_passes()
        self._early = HeldUpdates(around.room)
        self._calls.forget()
        self._terminals, talk = await start(
            around,
            agent,
            self.id,
            directory,
            wrote=self._terminal_wrote,
            told=self._heard,
            unknown=self._heard_unknown,
            ask=self._ask,
        )
        self._talk, self._is_without_process = talk, False
        self._changes = Changes(self.id, directory, around.memory.folder)
        self._noting = asyncio.create_task(self._changes.turn_starts())
        handed = await gateway.ask_for(around.server, around.options.url, self.id, agent.name)
        fork = bool(order.fork_of) and not order.is_resume
        known.remember(opened_at=time.time())
        await talk.open(order, earlier, fork=fork, gateway=handed)
        mode = order.mode or known.text("mode")
        model = order.model or known.text("model")
        await talk.settle(mode=mode, model=model, config=order.config)
        known.remember(
            agent=agent.name, agent_session_id=talk.id, mode=mode, model=model, opened_at=time.time()
        )
        with contextlib.suppress(ServerRefused):
            await around.server.bind(
                self.id,
                executor_session_id=talk.id,
                hostname=around.options.hostname,
                executor_profile=around.options.profile,
                project_dir=directory,
            )
        self._introduced(
            {**talk.as_told(), "hostname": around.options.hostname, "worktree": known.get("worktree")}
        )
        self._watch(talk.process)
        return talk

    def _introduced(self, *first: dict[str, Any]) -> None:
        """Report the agent, and then the updates that were held back until now."""
        early, self._early = self._early, None
        for update in (*first, *(early.release() if early else ())):
            self._tell(update)

    async def _minute_passes(self) -> None:
        """Wait until the minute (UTC) in which the conversation was last opened is over. Raises AgentFailed."""
        opened_at = self._known.get("opened_at")
        while isinstance(opened_at, int | float) and time.time() // 60 == opened_at // 60:
            if self.is_ending or (self.turn is not None and self.turn.is_cancelled):
                raise AgentFailed("The run was stopped before the conversation was opened.")
            await asyncio.sleep(0.1)

    def _watch(self, process: AgentProcess) -> None:
        """Notice when a kept agent ends by itself."""

        async def noticed() -> None:
            await asyncio.wait({process.exited})
            if self.turn is None and not self.is_ending and self._talk and self._talk.process is process:
                code = process.exited.result()
                await self._end_process()
                status = "finished" if code == 0 else "failed"
                if code != 0:
                    reason = f"{process.agent.title} ended by itself between two turns (exit code {code})"
                    words = process.last_words
                    self._tell(
                        {"sessionUpdate": "signalbox/agent_failed", "reason": reason, "stderrTail": words}
                    )
                await self._report_status(status)

        self._spawn(noticed())

    async def _end_process(self) -> None:
        """End the agent and what it started."""
        talk, self._talk = self._talk, None
        self._asking.withdraw("The agent's process has ended.")
        if self._terminals is not None:
            await self._terminals.close()
        if talk is not None:
            self._known_words = talk.process.last_words
            await talk.process.end()
        self.is_taken = False

    _known_words = ""

    # --- what people want of it -------------------------------------------------------------------------------

    def cancel(self, run_id: str) -> None:
        """Stop the turn and keep the agent."""
        turn = self.turn
        if turn is not None and turn.order.run_id == run_id and not turn.is_cancelled:
            turn.is_cancelled = True
            self._spawn(self._stop_turn(turn, "The turn was stopped.", TO_STOP))

    async def end(self, status: str = "finished") -> None:
        """End the session: its turn, then its agent. May be called again."""
        if self.is_ending:
            await self.is_over.wait()
            return
        self.is_ending = True
        turn = self.turn
        if turn is not None:
            await self._stop_turn(turn, "The session was ended.", TO_END)
            await turn.over.wait()
        if self._talk is not None or self._is_without_process:  # its turn was over already
            await self._end_process()
            await self._report_status(status)
        await self._commands.all_done.wait()  # what came of a command is told before nothing is any more
        await self._outbox.drained(self._around.patience)
        await self._outbox.close()
        self.is_over.set()

    async def _stop_turn(self, turn: Turn, why: str, within: float) -> None:
        """Cancel a turn as the protocol has it; an agent that does not heed that is ended."""
        self._asking.withdraw(why)
        if turn.is_prompted and self._talk is not None:
            await self._talk.cancel()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(turn.ended.wait(), within)
        if turn.ended.is_set() or self._talk is None:
            return
        # One that is still opening ends by itself, before it is prompted.
        if turn.is_prompted or self.is_ending:
            turn.was_killed = True
            await self._talk.process.end(1.0)

    async def _report_status(self, status: str) -> None:
        await self._outbox.drained(self._around.patience)
        with contextlib.suppress(ServerRefused, Unreachable):
            await self._around.server.for_session(
                self.id, "status", patience=self._around.patience, status=status
            )

    async def command(self, command: dict[str, Any]) -> None:
        """Carry out a command, and report that it is done. Never raises."""
        await self._commands.obey(command)

    # --- what the agent says ----------------------------------------------------------------------------------

    def _heard(self, update: dict[str, Any]) -> None:
        if self._talk is not None and not self._talk.heard(update):
            return
        self._calls.note(update)
        if self.turn is not None:
            self.turn.heard_at = time.monotonic()
            if update.get("sessionUpdate") == "usage_update" and update.get("cost") is not None:
                self.turn.cost = update["cost"]
        self._tell(update)
        if self._terminals is not None:
            self._terminals.shown_in(update)

    def _heard_unknown(self, message: str) -> None:
        self._tell({"sessionUpdate": "signalbox/unknown", "message": message})

    def _terminal_wrote(
        self, terminal_id: str, output: str, status: dict[str, int | str | None] | None
    ) -> None:
        if self.turn is not None:
            self.turn.heard_at = time.monotonic()
        update = {
            "sessionUpdate": "signalbox/terminal",
            "toolCallId": self._calls.shows_terminal(terminal_id),
            "terminalId": terminal_id,
            "output": output,
        }
        self._tell(update if status is None else {**update, "exitStatus": status})

    async def _ask(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.is_ending or (self.turn is not None and self.turn.is_cancelled):
            return CANCELLED
        # What the agent said before comes before the question: else its words would be cut there.
        await self._outbox.drained(QUESTION_WAIT_SECONDS)
        answer = await self._asking.ask(self._last_run, params)
        if self.turn is not None:
            self.turn.heard_at = time.monotonic()
        return answer

    def _denied(self, what: str, why: str) -> None:
        if self.turn is not None:
            self.turn.denials.append(f"This was denied: {what}\nThe reason: {why}")

    def _tell(self, update: dict[str, Any]) -> None:
        if self._early is not None:
            self._early.put(update)
        else:
            self._outbox.put(self._last_run, update)

    async def _watch_for_silence(self, turn: Turn, talk: Conversation) -> None:
        """End a turn in which nothing happens any more, though the agent neither works nor waits for anybody."""
        longest = self._around.options.silence
        while True:
            await asyncio.sleep(min(30.0, longest / 4))
            if self._asking.is_waiting or self._calls.are_open or self._around.server.is_away:
                turn.heard_at = time.monotonic()
            if time.monotonic() - turn.heard_at >= longest:
                turn.is_silent = True
                await self._stop_turn(turn, "The agent went silent.", TO_STOP)
                return

    def _silence(self) -> str:
        minutes = self._around.options.silence / 60
        return f"The agent said nothing for {minutes:g} minutes, so its turn was ended"

    def _not_heard(self, problem: ServerRefused) -> None:
        """The server accepts no more updates of this session: nobody can watch its agent, so it ends."""
        log.warning("Signalbox does not accept updates of session %s: %s", self.id, problem)
        if self.turn is None:
            self._spawn(self.end())
        else:
            self.turn.refused = problem
            self._spawn(
                self._stop_turn(self.turn, "Signalbox does not accept updates of this session.", TO_END)
            )

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
