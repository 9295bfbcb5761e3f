"""One session's state that a runner keeps over restarts of agents and its own: folder, work tree, agent's id."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from coordinator.runner import worktrees
from coordinator.runner.context import RunnerContext
from coordinator.runner.errors import RunnerRefused, ServerRefused
from coordinator.runner.orders import RunnerOrder

log = logging.getLogger("signalbox.runner")

NO_TREE = (
    "The session's work tree is not on this machine any more. Remove it in Signalbox, or start a new session."
)


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
