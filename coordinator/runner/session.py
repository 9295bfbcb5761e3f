"""A session that this runner drives: its agent's process, its turns one after the other, and their reports."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any

from acp.exceptions import RequestError

from coordinator.runner import gateway
from coordinator.runner.changes import TurnChanges
from coordinator.runner.commands import SessionCommands
from coordinator.runner.context import RunnerContext
from coordinator.runner.conversation import AgentConversation, describe_request_error
from coordinator.runner.errors import AgentFailed, RunnerRefused, ServerRefused, ServerTimedOut
from coordinator.runner.known_session import RememberedSession
from coordinator.runner.orders import RunnerOrder
from coordinator.runner.outbox import UpdateOutbox
from coordinator.runner.pending_updates import PendingUpdates
from coordinator.runner.process import AgentProcess
from coordinator.runner.questions import CANCELLED, FORM_CANCELLED, AgentToolCalls, PermissionQuestions
from coordinator.runner.starting import start_agent_process_and_terminals
from coordinator.runner.terminals import SessionTerminals
from coordinator.runner.turns import RunnerTurn

log = logging.getLogger("signalbox.runner")

QUESTION_WAIT_SECONDS = 5.0  # that a question waits until the server has what was said before it
TO_STOP = 10.0  # seconds that an agent has to end its turn when it is cancelled
TO_END = 3.0  # … when its session is ended
MOST_REASONS = 8  # turns in a row that only explain to the agent why a person said no


class RunnerSession:
    """One session. Its agent is started by its first run here, and kept for the next."""

    def __init__(self, around: RunnerContext, order: RunnerOrder) -> None:
        self.id = order.session_id
        self.turn: RunnerTurn | None = None
        self.idle_since = time.monotonic()
        self.is_ending = False
        self.is_over = asyncio.Event()
        self.is_taken = False  # whether it has one of the runner's places for agents
        self._around = around
        self._remembered_session = RememberedSession(around, self.id, self.report_unknown_agent_message)
        self._commands = SessionCommands(
            self._remembered_session,
            around.memory.folder,
            self._queue_session_update,
            talk=lambda: self._talk,
            is_at_work=lambda: self.turn is not None,
        )
        self._last_run = order.run_id
        self._talk: AgentConversation | None = None
        self._is_without_process = False  # idle all the same: its process was ended to stop a command
        self._terminals: SessionTerminals | None = None
        self._changes: TurnChanges | None = None
        self._noting: asyncio.Task[None] | None = (
            None  # notes the state of the directory, while the agent is opened
        )
        self._calls = AgentToolCalls()
        self._early: PendingUpdates | None = None  # what the agent says before it is introduced
        self._one_at_a_time = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._outbox = UpdateOutbox(
            around.server, order, around.capacity, self.end_session_with_refused_updates
        )
        self._asking = PermissionQuestions(
            around.server, self.id, self._calls, self.add_denial_reason_to_turn
        )

    @property
    def has_running_agent(self) -> bool:
        """Whether its agent runs."""
        return self._talk is not None

    # --- a run ------------------------------------------------------------------------------------------------

    async def execute_run(self, order: RunnerOrder) -> None:
        """Carry out a run and report its outcome. Never raises."""
        async with self._one_at_a_time:
            if self.is_ending:
                self._last_run = order.run_id
                await self.report_run_outcome("stopped", signal="SIGTERM")
                return
            turn = self.turn = RunnerTurn(order)
            self._last_run = order.run_id
            turn.started = asyncio.create_task(self._around.server.report_run_state(order.run_id, "started"))
            try:
                await self._execute_turn(turn)
                turn.ended.set()
                await self._report_turn_completed_or_stopped(turn)
            except Exception as problem:
                turn.ended.set()
                await self._report_turn_failed_or_stopped(turn, problem)
            finally:
                turn.started.cancel()
                self.turn = None
                self.idle_since = time.monotonic()
                turn.over.set()

    async def _execute_turn(self, turn: RunnerTurn) -> None:
        """Open the conversation where it is not open, and prompt."""
        order = turn.order
        talk = self._talk or await self._start_agent_returning_conversation(order)
        blocks = order.prompt_content_blocks(with_instructions=not order.is_resume)
        if order.images and not (talk.agent_capabilities.get("promptCapabilities") or {}).get("image"):
            raise RunnerRefused(f"{talk.agent.title} does not accept images.")
        await self._record_directory_state()
        watching = asyncio.create_task(self.end_turn_when_silent(turn, talk))
        try:
            for _ in range(MOST_REASONS):
                await self._prompt_agent_and_report_turn(turn, talk, blocks)
                if turn.is_cancelled or self.is_ending or not turn.denials:
                    break
                blocks = [{"type": "text", "text": "\n\n".join(turn.denials)}]
        finally:
            watching.cancel()

    async def _prompt_agent_and_report_turn(
        self, turn: RunnerTurn, talk: AgentConversation, blocks: list[dict[str, Any]]
    ) -> None:
        """One prompt to the agent, from the report of its start to that of its changes."""
        turn.denials = []
        if turn.is_cancelled or self.is_ending:
            return
        assert turn.started is not None
        await turn.started  # it may be another runner's by now
        run_id = turn.order.run_id
        self._queue_session_update(
            {"sessionUpdate": "signalbox/turn_started", "runId": run_id, "prompt": blocks}
        )
        turn.is_prompted, turn.last_received_at = True, time.monotonic()
        keeps = talk.agent.keeps_commands
        before = await talk.process.list_agent_process_ids() if keeps else set()
        if turn.is_cancelled:
            return
        try:
            ended = await talk.prompt_agent(blocks)
        except RequestError:
            if not turn.is_cancelled:
                raise
            ended = {"stopReason": "cancelled"}  # some agents call that an error
        if turn.is_silent:
            raise AgentFailed(self.silent_turn_message())
        if turn.refused is not None:
            raise turn.refused
        self._calls.clear_tool_calls()
        if keeps and turn.is_cancelled and await talk.process.list_agent_process_ids() - before:
            # The next prompt takes the conversation up again, in a new process.
            self._is_without_process = True
            await self._end_session_agent()
        await self._report_turn_file_changes()
        self._queue_session_update(
            {**ended, "sessionUpdate": "signalbox/turn_ended", "runId": run_id, "cost": turn.cost}
        )

    async def _record_directory_state(self) -> None:
        """Note the state of the directory as the turn starts."""
        assert self._changes is not None
        noting, self._noting = self._noting, None
        await (noting or self._changes.snapshot_directory_at_turn_start())

    async def _report_turn_file_changes(self) -> None:
        """Report what the turn has changed so far."""
        if self._changes is not None:
            for update in await self._changes.collect_turn_changes():
                self._queue_session_update(update)

    async def _report_turn_completed_or_stopped(self, turn: RunnerTurn) -> None:
        await self._outbox.wait_and_check_outbox_sent(self._around.patience)
        if self.is_ending:
            await self._end_session_agent()
            await self.report_run_outcome("stopped", signal="SIGTERM")
        else:
            await self.report_run_outcome("completed", status="success", session_status="idle")

    async def _report_turn_failed_or_stopped(self, turn: RunnerTurn, problem: Exception) -> None:
        """Report why the run did not complete: stopped, where somebody wanted that; else failed."""
        if isinstance(problem, RequestError):
            problem = AgentFailed(f"The agent reports an error: {describe_request_error(problem)}")
        if not isinstance(problem, AgentFailed | RunnerRefused | ServerRefused | ServerTimedOut):
            log.exception("A run could not be carried out", exc_info=problem)
        last_error_output = self._talk.process.last_error_output if self._talk else self._known_words
        was_stopped = (turn.is_cancelled or self.is_ending) and not turn.is_silent and turn.refused is None
        self._send_updates_pending_since_opening()
        reason = ""
        if not was_stopped:
            reason = self.silent_turn_message() if turn.is_silent else str(problem)
            failed = {
                "sessionUpdate": "signalbox/agent_failed",
                "reason": reason,
                "stderrTail": last_error_output,
            }
            self._queue_session_update(failed)
        await self._end_session_agent()
        if turn.is_prompted:
            await self._report_turn_file_changes()
        await self._outbox.wait_and_check_outbox_sent(self._around.patience)
        if was_stopped:
            await self.report_run_outcome("stopped", signal="SIGKILL" if turn.was_killed else "SIGTERM")
        else:
            failure_text = (
                f"{reason}\n\n{last_error_output}"
                if last_error_output and isinstance(problem, AgentFailed)
                else reason
            )
            await self.report_run_outcome("failed", error=failure_text[:8000])

    async def report_run_outcome(self, report_kind: str, **fields: Any) -> None:
        try:
            await self._around.server.report_run_state(
                self._last_run, report_kind, patience=self._around.patience, **fields
            )
        except (ServerRefused, ServerTimedOut) as problem:
            log.warning(
                "The report that run %s is %s was not accepted: %s", self._last_run, report_kind, problem
            )

    # --- its agent --------------------------------------------------------------------------------------------

    async def _start_agent_returning_conversation(self, order: RunnerOrder) -> AgentConversation:
        """Start the agent and get to the conversation. Raises AgentFailed, RunnerRefused, ServerRefused."""
        around, known_state = self._around, self._remembered_session
        agent = around.require_startable_agent(
            order.agent or known_state.remembered_field_text_or_empty("agent")
        )
        directory = await known_state.prepare_working_directory(order)
        earlier = await known_state.earlier_conversation_id_or_empty(order)
        if earlier and agent.opens_once_a_minute:
            await self.wait_until_opening_minute_over()
        self._early = PendingUpdates(around.capacity)
        self._calls.clear_tool_calls()
        self._terminals, talk = await start_agent_process_and_terminals(
            around,
            agent,
            self.id,
            directory,
            wrote=self.report_terminal_output,
            on_message=self.handle_agent_update,
            unknown=self.report_unknown_agent_message,
            ask=self.ask_permission_after_updates,
            elicit=self.ask_form_answer_after_updates,
        )
        self._talk, self._is_without_process = talk, False
        self._changes = TurnChanges(self.id, directory, around.memory.folder)
        self._noting = asyncio.create_task(self._changes.snapshot_directory_at_turn_start())
        handed = await gateway.fetch_agent_gateway_or_none(
            around.server, around.options.url, self.id, agent.name
        )
        fork = bool(order.fork_of) and not order.is_resume
        known_state.update_session_record(opened_at=time.time())
        await talk.open_agent_conversation(order, earlier, fork=fork, gateway=handed)
        settings = known_state.merge_agent_settings(order, talk.opened)
        refused = await talk.apply_initial_agent_settings(
            mode=settings.mode, model=settings.model, config=settings.config, required=order.config
        )
        for option, reason in refused.items():
            self.report_unknown_agent_message(
                f"{agent.title} does not take {settings.config[option]!r} for its option {option} any more: {reason}"
            )
        known_state.update_session_record(
            agent=agent.name,
            agent_session_id=talk.id,
            mode=settings.mode,
            model=settings.model,
            config={option: value for option, value in settings.config.items() if option not in refused},
            option_ids=settings.option_ids,
            opened_at=time.time(),
        )
        with contextlib.suppress(ServerRefused):
            await around.server.report_agent_session_binding(
                self.id,
                executor_session_id=talk.id,
                hostname=around.options.hostname,
                executor_profile=around.options.profile,
                # Of a session with a work tree the directory that it stands for: only there the runner takes runs.
                project_dir=known_state.remembered_field_text_or_empty("directory") or directory,
            )
        self._send_updates_pending_since_opening(
            {
                **talk.build_agent_description_update(),
                "hostname": around.options.hostname,
                "worktree": known_state.remembered_session_value("worktree"),
            }
        )
        self.watch_agent_process_exit(talk.process)
        return talk

    def _send_updates_pending_since_opening(self, *first: dict[str, Any]) -> None:
        """Report the agent, and then the updates that were held back until now."""
        early, self._early = self._early, None
        for update in (*first, *(early.take_out_pending_updates() if early else ())):
            self._queue_session_update(update)

    async def wait_until_opening_minute_over(self) -> None:
        """Wait until the minute (UTC) in which the conversation was last opened is over. Raises AgentFailed."""
        opened_at = self._remembered_session.remembered_session_value("opened_at")
        while isinstance(opened_at, int | float) and time.time() // 60 == opened_at // 60:
            if self.is_ending or (self.turn is not None and self.turn.is_cancelled):
                raise AgentFailed("The run was stopped before the conversation was opened.")
            await asyncio.sleep(0.1)

    def watch_agent_process_exit(self, process: AgentProcess) -> None:
        """Notice when a kept agent ends by itself."""

        async def handle_agent_process_exit() -> None:
            await asyncio.wait({process.exited})
            if self.turn is None and not self.is_ending and self._talk and self._talk.process is process:
                code = process.exited.result()
                await self._end_session_agent()
                status = "finished" if code == 0 else "failed"
                if code != 0:
                    reason = f"{process.agent.title} ended by itself between two turns (exit code {code})"
                    last_error_output = process.last_error_output
                    self._queue_session_update(
                        {
                            "sessionUpdate": "signalbox/agent_failed",
                            "reason": reason,
                            "stderrTail": last_error_output,
                        }
                    )
                await self.report_final_session_status(status)

        self._spawn_session_task(handle_agent_process_exit())

    async def _end_session_agent(self) -> None:
        """End the agent and what it started."""
        talk, self._talk = self._talk, None
        self._asking.withdraw_all_permission_questions("The agent's process has ended.")
        if self._terminals is not None:
            await self._terminals.end_all_terminals()
        if talk is not None:
            self._known_words = talk.process.last_error_output
            await talk.process.end_agent_process()
        self.is_taken = False

    _known_words = ""

    # --- what people want of it -------------------------------------------------------------------------------

    def cancel_session_run(self, run_id: str) -> None:
        """Stop the turn and keep the agent."""
        turn = self.turn
        if turn is not None and turn.order.run_id == run_id and not turn.is_cancelled:
            turn.is_cancelled = True
            self._spawn_session_task(self._cancel_or_kill_turn(turn, "The turn was stopped.", TO_STOP))

    async def end_runner_session(self, status: str = "finished") -> None:
        """End the session: its turn, then its agent. May be called again."""
        if self.is_ending:
            await self.is_over.wait()
            return
        self.is_ending = True
        turn = self.turn
        if turn is not None:
            await self._cancel_or_kill_turn(turn, "The session was ended.", TO_END)
            await turn.over.wait()
        if self._talk is not None or self._is_without_process:  # its turn was over already
            await self._end_session_agent()
            await self.report_final_session_status(status)
        await self._commands.all_done.wait()  # the outcome of a command is reported before reporting ends
        await self._outbox.wait_and_check_outbox_sent(self._around.patience)
        await self._outbox.close_outbox_and_drop_updates()
        self.is_over.set()

    async def _cancel_or_kill_turn(self, turn: RunnerTurn, reason: str, within: float) -> None:
        """Cancel a turn as the protocol has it; an agent that does not heed that is ended."""
        self._asking.withdraw_all_permission_questions(reason)
        if turn.is_prompted and self._talk is not None:
            await self._talk.cancel_agent_turn()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(turn.ended.wait(), within)
        if turn.ended.is_set() or self._talk is None:
            return
        # One that is still opening ends by itself, before it is prompted.
        if turn.is_prompted or self.is_ending:
            turn.was_killed = True
            await self._talk.process.end_agent_process(1.0)

    async def report_final_session_status(self, status: str) -> None:
        await self._outbox.wait_and_check_outbox_sent(self._around.patience)
        with contextlib.suppress(ServerRefused, ServerTimedOut):
            await self._around.server.post_to_session_endpoint(
                self.id, "status", patience=self._around.patience, status=status
            )

    async def execute_command(self, command: dict[str, Any]) -> None:
        """Carry out a command, and report that it is done. Never raises."""
        await self._commands.run_and_report_session_command(command)

    # --- what the agent says ----------------------------------------------------------------------------------

    def handle_agent_update(self, update: dict[str, Any]) -> None:
        if self._talk is not None and not self._talk.record_agent_update_and_check_new(update):
            return
        self._calls.record_tool_call_update(update)
        if self.turn is not None:
            self.turn.last_received_at = time.monotonic()
            if update.get("sessionUpdate") == "usage_update" and update.get("cost") is not None:
                self.turn.cost = update["cost"]
        self._queue_session_update(update)
        if self._terminals is not None:
            self._terminals.report_terminals_of_tool_call(update)

    def report_unknown_agent_message(self, message: str) -> None:
        self._queue_session_update({"sessionUpdate": "signalbox/unknown", "message": message})

    def report_terminal_output(
        self, terminal_id: str, output: str, status: dict[str, int | str | None] | None
    ) -> None:
        if self.turn is not None:
            self.turn.last_received_at = time.monotonic()
        update = {
            "sessionUpdate": "signalbox/terminal",
            "toolCallId": self._calls.find_call_id_showing_terminal(terminal_id),
            "terminalId": terminal_id,
            "output": output,
        }
        self._queue_session_update(update if status is None else {**update, "exitStatus": status})

    async def ask_permission_after_updates(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.is_ending or (self.turn is not None and self.turn.is_cancelled):
            return CANCELLED
        # What the agent said before comes before the question: else its words would be cut there.
        await self._outbox.wait_and_check_outbox_sent(QUESTION_WAIT_SECONDS)
        answer = await self._asking.ask_person_for_tool_permission(self._last_run, params)
        if self.turn is not None:
            self.turn.last_received_at = time.monotonic()
        return answer

    async def ask_form_answer_after_updates(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.is_ending or (self.turn is not None and self.turn.is_cancelled):
            return FORM_CANCELLED
        await self._outbox.wait_and_check_outbox_sent(QUESTION_WAIT_SECONDS)
        answer = await self._asking.ask_person_for_form_answer(self._last_run, params)
        if self.turn is not None:
            self.turn.last_received_at = time.monotonic()
        return answer

    def add_denial_reason_to_turn(self, denied_act: str, reason: str) -> None:
        if self.turn is not None:
            self.turn.denials.append(f"This was denied: {denied_act}\nThe reason: {reason}")

    def _queue_session_update(self, update: dict[str, Any]) -> None:
        if self._early is not None:
            self._early.add_update_or_cut_note(update)
        else:
            self._outbox.queue_or_merge_update(self._last_run, update)

    async def end_turn_when_silent(self, turn: RunnerTurn, talk: AgentConversation) -> None:
        """End a turn in which nothing happens any more, though the agent neither works nor waits for anybody."""
        longest = self._around.options.silence
        while True:
            await asyncio.sleep(min(30.0, longest / 4))
            if (
                self._asking.has_open_questions
                or self._calls.has_open_tool_calls
                or self._around.server.is_away
            ):
                turn.last_received_at = time.monotonic()
            if time.monotonic() - turn.last_received_at >= longest:
                turn.is_silent = True
                await self._cancel_or_kill_turn(turn, "The agent went silent.", TO_STOP)
                return

    def silent_turn_message(self) -> str:
        minutes = self._around.options.silence / 60
        return f"The agent said nothing for {minutes:g} minutes, so its turn was ended"

    def end_session_with_refused_updates(self, problem: ServerRefused) -> None:
        """The server accepts no more updates of this session: nobody can watch its agent, so it ends."""
        log.warning("Signalbox does not accept updates of session %s: %s", self.id, problem)
        if self.turn is None:
            self._spawn_session_task(self.end_runner_session())
        else:
            self.turn.refused = problem
            self._spawn_session_task(
                self._cancel_or_kill_turn(
                    self.turn, "Signalbox does not accept updates of this session.", TO_END
                )
            )

    def _spawn_session_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
