"""An agent's requests to its client: updates, questions to a person, files and terminals."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS

from coordinator.runner import files
from coordinator.runner.directories import AllowedDirectories
from coordinator.runner.errors import FileMissing, RunnerRefused
from coordinator.runner.terminals import SessionTerminals

CAPABILITIES = {
    "fs": {"readTextFile": True, "writeTextFile": True},
    "terminal": True,
    "elicitation": {"form": {}},
}
LONGEST_UNKNOWN = 64 << 10  # characters of a message that nobody knows
REFUSED = -32602
PERSONS = "user_message_chunk"
# Agents that read a file before they create it, and take every error for a failure: they compare its text, which they
# do not find in a JSON-RPC error. An editor's answer, an empty file, lets them go on.
READ_BEFORE_CREATING = {"gemini-cli", "qwen-code"}
RUNNERS = "signalbox/"  # so begin the kinds of updates that are the runner's own
Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class AgentClient:
    """A client that answers one agent. `told` gets its updates, `unknown` other notifications.

    `ask` answers whether a call may run, `elicit` a form that a person shall fill in. `agent_program` returns the name
    of the agent's program, "" before it said it.
    """

    def __init__(
        self,
        *,
        on_message: Callable[[dict[str, Any]], None],
        unknown: Callable[[str], None],
        ask: Answer,
        elicit: Answer,
        agent_program: Callable[[], str],
        places: AllowedDirectories,
        directory: str,
        terminals: SessionTerminals,
    ) -> None:
        self._on_message = on_message
        self._unknown = unknown
        self._agent_program = agent_program
        self._terminals = terminals
        self._directory = directory
        self._directories = places
        names = CLIENT_METHODS
        self._answers: dict[str, Answer] = {
            names["session_request_permission"]: ask,
            names["elicitation_create"]: elicit,
            names["fs_read_text_file"]: self.answer_read_file,
            names["fs_write_text_file"]: self.answer_write_file,
            names["terminal_create"]: self.answer_create_terminal,
            names["terminal_output"]: self.answer_terminal_output,
            names["terminal_wait_for_exit"]: terminals.wait_for_terminal_exit,
            names["terminal_kill"]: terminals.kill_terminal,
            names["terminal_release"]: terminals.release_terminal,
        }

    async def handle_agent_message(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer a request, or process a notification. Raises RequestError."""
        message_params = params if isinstance(params, dict) else {}
        if is_notification:
            self.handle_agent_notification(method, message_params)
            return None
        answer = self._answers.get(method)
        if answer is None:
            self._unknown(dump_message_truncated({"method": method, "params": message_params}))
            raise RequestError.method_not_found(method)
        try:
            return await answer(message_params)
        except RunnerRefused as problem:
            raise RequestError(REFUSED, str(problem)) from None

    def handle_agent_notification(self, method: str, params: dict[str, Any]) -> None:
        update = params.get("update")
        if method == CLIENT_METHODS["session_update"] and isinstance(update, dict):
            kind = update.get("sessionUpdate")
            if kind == PERSONS:
                return  # a person's message is reported as the turn starts; an agent does not speak for people
            if isinstance(kind, str) and not kind.startswith(RUNNERS):
                self._on_message(update)
                return
        self._unknown(dump_message_truncated({"method": method, "params": params}))

    async def answer_read_file(self, params: dict[str, Any]) -> dict[str, Any]:
        try:
            return await asyncio.to_thread(files.read_text_file, self._directories, params)
        except FileMissing:
            if self._agent_program() in READ_BEFORE_CREATING:
                return {"content": ""}
            raise RequestError.resource_not_found(str(params.get("path"))) from None

    async def answer_write_file(self, params: dict[str, Any]) -> dict[str, Any]:
        return await asyncio.to_thread(files.write_text_file, self._directories, params)

    async def answer_create_terminal(self, params: dict[str, Any]) -> dict[str, Any]:
        return await self._terminals.create_terminal(params, self._directory)

    async def answer_terminal_output(self, params: dict[str, Any]) -> dict[str, Any]:
        return self._terminals.answer_output_request(params)


def dump_message_truncated(message: dict[str, Any]) -> str:
    return json.dumps(message, ensure_ascii=False)[:LONGEST_UNKNOWN]
