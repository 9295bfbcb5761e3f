"""One session's state that a runner keeps over restarts of agents and its own: folder, work tree, agent's settings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from coordinator.runner import modes, worktrees
from coordinator.runner.context import RunnerContext
from coordinator.runner.errors import RunnerRefused, ServerRefused
from coordinator.runner.orders import RunnerOrder, dict_or_empty

log = logging.getLogger("signalbox.runner")

NO_TREE = (
    "The session's work tree is not on this machine any more. Remove it in Signalbox, or start a new session."
)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """What an agent is set to before its first prompt. `mode` and `model` are empty where nobody chose one.

    `config` has the other options by id. `option_ids` says which of the agent's options are its mode and its model.
    """

    mode: str
    model: str
    config: dict[str, Any]
    option_ids: dict[str, str]


class RememberedSession:
    """The stored state of a session. `say` reports to people where something is not as they ordered."""

    def __init__(self, around: RunnerContext, session_id: str, say: Callable[[str], None]) -> None:
        self.id = session_id
        self._around = around
        self._say = say
        self._fields = around.memory.load_session_record_or_empty(session_id)

    def remembered_field_text_or_empty(self, name: str) -> str:
        """Return one of the things that are remembered as text; "" where there is none."""
        return str(self._fields.get(name) or "")

    def remembered_session_value(self, name: str) -> Any:
        return self._fields.get(name)

    def update_session_record(self, **fields: Any) -> None:
        self._fields = {**self._fields, **fields}
        try:
            self._around.memory.save_session_fields(self.id, **fields)
        except OSError as problem:
            log.warning("The record of session %s cannot be saved: %s", self.id, problem)

    def remember_agent_option(self, option_id: str, value: Any) -> None:
        """Remember an option's value for the agent's next start. The agent's mode is remembered as such, and its model.

        Which options those are was recorded when the agent was started.
        """
        option_ids = dict_or_empty(self._fields.get("option_ids"))
        for name in ("mode", "model"):
            if option_ids.get(name, name) == option_id and isinstance(value, str):
                self.update_session_record(**{name: value})
                return
        self.update_session_record(config={**dict_or_empty(self._fields.get("config")), option_id: value})

    def merge_agent_settings(self, order: RunnerOrder, opened: dict[str, Any]) -> AgentSettings:
        """Return what the agent is set to: what the run orders, else what is remembered of the session.

        `opened` is what the agent offers in this conversation.
        """
        option_ids = modes.find_mode_and_model_option_ids(opened)
        remembered = dict_or_empty(self._fields.get("config"))
        config = {**remembered, **order.config}
        chosen: dict[str, str] = {}
        for name, ordered_value in (("mode", order.mode), ("model", order.model)):
            option_id = option_ids.get(name, "")
            config.pop(option_id, None)
            # A value may be remembered by the option's id if it was set before the option was known to be the mode.
            values = (order.config.get(option_id), ordered_value, remembered.get(option_id))
            chosen[name] = next(
                (value for value in values if isinstance(value, str) and value),
                self.remembered_field_text_or_empty(name),
            )
        return AgentSettings(**chosen, config=config, option_ids=option_ids)

    async def prepare_working_directory(self, order: RunnerOrder) -> str:
        """Return where the agent works: the session's work tree, what the run names, or where it worked before."""
        around = self._around
        # What the server says of a work tree is not asked: only the runner knows which ones it made.
        if tree := await worktrees.find_worktree(self.id, around.memory.folder):
            self.update_session_record(worktree=tree)
            return tree
        if self._fields.get("worktree", order.worktree) and not order.wants_worktree:
            raise RunnerRefused(NO_TREE)
        named_folder = order.directory or self.remembered_field_text_or_empty("directory")
        directory = around.directories.resolve_allowed_directory(named_folder)
        self.update_session_record(directory=directory)
        if not order.wants_worktree:
            return directory
        tree = await worktrees.get_or_create_worktree(self.id, directory, around.memory.folder)
        self.update_session_record(worktree=tree)
        return tree

    async def earlier_conversation_id_or_empty(self, order: RunnerOrder) -> str:
        """Return the agent's own id of the conversation to resume or fork; "" for a new one. Raises RunnerRefused."""
        is_fork = bool(order.fork_of) and not order.is_resume
        fork_of = order.fork_of if is_fork else self.id if order.is_resume else ""
        if not fork_of:
            return ""
        earlier_id = order.agent_session_id or self._around.memory.load_session_record_or_empty(fork_of).get(
            "agent_session_id"
        )
        if not earlier_id:
            try:
                earlier_id = (await self._around.server.fetch_session(fork_of)).get("executor_session_id")
            except ServerRefused:
                earlier_id = None
        if not earlier_id and is_fork:
            raise RunnerRefused(
                "The session to fork has no conversation that an agent on this machine knows."
            )
        if not earlier_id:
            self._say("What was said before is not known on this machine: a new conversation begins.")
        return str(earlier_id or "")
