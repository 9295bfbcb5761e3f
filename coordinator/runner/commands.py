"""Commands to a running session besides prompts: set its mode, model or an option, remove its work tree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from acp.exceptions import RequestError

from coordinator.runner import worktrees
from coordinator.runner.conversation import AgentConversation, describe_request_error
from coordinator.runner.errors import AgentFailed, RunnerRefused
from coordinator.runner.known_session import RememberedSession

SendUpdate = Callable[[dict[str, Any]], None]


class SessionCommands:
    """The commands of one session. The outcome of each is reported."""

    def __init__(
        self,
        remembered_session: RememberedSession,
        folder: str,
        send_update: SendUpdate,
        *,
        talk: Callable[[], AgentConversation | None],
        is_at_work: Callable[[], bool],
    ) -> None:
        self._talk = talk
        self._is_at_work = is_at_work
        self._remembered_session = remembered_session
        self._folder = folder
        self._send_update = send_update
        self._under_way = 0
        self.all_done = asyncio.Event()
        self.all_done.set()

    async def run_and_report_session_command(self, command: dict[str, Any]) -> None:
        """Carry out a command, and report that it is done. Never raises."""
        self._under_way += 1
        self.all_done.clear()
        problem = None
        try:
            await self._apply_session_command(command)
        except (RunnerRefused, AgentFailed, OSError) as failure:
            problem = str(failure)
        except RequestError as failure:
            problem = describe_request_error(failure)
        finally:
            self._under_way -= 1
            if not self._under_way:
                self.all_done.set()
        done: dict[str, Any] = {"sessionUpdate": "signalbox/command_done", "id": command.get("id")}
        self._send_update(done if problem is None else {**done, "error": problem})

    async def _apply_session_command(self, command: dict[str, Any]) -> None:
        mode, model, config = (command.get(name) for name in ("set_mode", "set_model", "set_config"))
        if command.get("remove_worktree"):
            if self._is_at_work() or self._talk() is not None:
                raise RunnerRefused("The session's agent works there. End the session first.")
            discard = command["remove_worktree"] == "discard"
            directory = self._remembered_session.remembered_field_text_or_empty("directory")
            await worktrees.remove_worktree(
                self._remembered_session.id, directory, self._folder, discard=discard
            )
            self._remembered_session.update_session_record(worktree=None)
        talk = self._talk()
        # Without an agent it is chosen when that is started again.
        if isinstance(mode, str):
            if talk is not None:
                await talk.set_agent_mode(mode)
                self._send_update({"sessionUpdate": "current_mode_update", "currentModeId": mode})
            self._remembered_session.update_session_record(mode=mode)
        if isinstance(model, str):
            if talk is not None:
                await talk.set_agent_model(model)
            self._remembered_session.update_session_record(model=model)
        if isinstance(config, dict):
            option_id, value = str(config.get("configId")), config.get("value")
            if talk is not None and (options := await talk.set_agent_option_returning_all(option_id, value)):
                self._send_update({"sessionUpdate": "config_option_update", "configOptions": options})
            self._remembered_session.remember_agent_option(option_id, value)
