"""A conversation with one agent: opened, in the right mode, prompted, steered, closed. Knows no runs and no server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Container
from typing import Any

from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS, PROTOCOL_VERSION

from coordinator.runner import message_store, modes
from coordinator.runner.client import CAPABILITIES
from coordinator.runner.errors import AgentFailed, RunnerRefused
from coordinator.runner.gateway import AgentGateway
from coordinator.runner.orders import RunnerOrder, build_mcp_server_entries
from coordinator.runner.process import AgentProcess
from coordinator.runner.startable import StartableAgent

OPENING, LOADING, SETTING = 90.0, 300.0, 30.0  # seconds that an agent has for each
HISTORY = {
    "user_message_chunk",
    "agent_message_chunk",
    "agent_thought_chunk",
    "tool_call",
    "tool_call_update",
    "plan",
}


class AgentConversation:
    """What an agent offered when the conversation was opened, and how to speak with it.

    `id` is the agent's own id of the conversation. `replays`: the agent is replaying an old conversation.
    """

    def __init__(
        self, agent: StartableAgent, process: AgentProcess, directory: str, *, store: str = ""
    ) -> None:
        self.agent = agent
        self.process = process
        self.directory = directory
        self._store = store  # the agent's database of messages, where tokens are counted by it
        self.id = ""
        self.initialize_result: dict[str, Any] = {}
        self.opened: dict[str, Any] = {}
        self.replays = False

    @property
    def agent_capabilities(self) -> dict[str, Any]:
        agent_capabilities = self.initialize_result.get("agentCapabilities")
        return agent_capabilities if isinstance(agent_capabilities, dict) else {}

    @property
    def reported_agent_program_name(self) -> str:
        """The name of the agent's program, as it calls itself; "" before it did."""
        agent_info = self.initialize_result.get("agentInfo")
        return str(agent_info.get("name", "")) if isinstance(agent_info, dict) else ""

    async def open_agent_conversation(
        self, order: RunnerOrder, known_id: str, *, fork: bool, gateway: AgentGateway | None = None
    ) -> None:
        """Open the conversation: a new one, that of `known_id`, or a fork of it. Raises AgentFailed, RunnerRefused."""
        try:
            await self.initialize_agent()
            servers = build_mcp_server_entries(order, self.agent_capabilities)
            if gateway is not None:
                servers.append(gateway.build_gateway_server_entry(self.agent_capabilities))
            await self._open_resume_or_fork_agent_session(
                {"cwd": self.directory, "mcpServers": servers}, known_id, fork=fork
            )
        except RequestError as problem:
            raise AgentFailed(
                f"{self.agent.title} refuses to begin: {describe_request_error(problem)}"
            ) from None

    async def apply_initial_agent_settings(
        self, *, mode: str, model: str, config: dict[str, Any], required: Container[str]
    ) -> dict[str, str]:
        """Choose mode, model and options before the first prompt. Raises AgentFailed, RunnerRefused.

        Returns the reasons of options that the agent refused, by their ids. One in `required` must be taken.
        """
        refused: dict[str, str] = {}
        try:
            if chosen := modes.choose_initial_mode(self.agent, self.opened, mode or None):
                await self.set_agent_mode(chosen)
            if model:
                await self.set_agent_model(model)
            for option, value in config.items():
                try:
                    await self.set_agent_option_returning_all(option, value)
                except RequestError as problem:
                    if option in required:
                        raise
                    refused[option] = describe_request_error(problem)
        except RequestError as problem:
            raise RunnerRefused(
                f"{self.agent.title} cannot be set up as ordered: {describe_request_error(problem)}"
            ) from None
        return refused

    async def prompt_agent(self, blocks: list[dict[str, Any]]) -> dict[str, Any]:
        """Take a turn and return how it ended. Raises AgentFailed, RequestError."""
        began_ms = time.time_ns() // 1_000_000
        ended = await self.send_request_in_agent_session("session_prompt", {"prompt": blocks})
        if not self._store:
            return ended
        return await asyncio.to_thread(
            message_store.copy_turn_result_with_usage, ended, self._store, self.id, began_ms
        )

    async def cancel_agent_turn(self) -> None:
        await self.process.send_notification_to_agent(AGENT_METHODS["session_cancel"], {"sessionId": self.id})

    async def set_agent_mode(self, mode: str) -> None:
        """Raises RequestError, AgentFailed."""
        option = modes.find_config_option(self.opened, "mode")
        if isinstance(self.opened.get("modes"), dict) or option is None:
            await self.send_request_in_agent_session("session_set_mode", {"modeId": mode}, within=SETTING)
            if isinstance(self.opened.get("modes"), dict):
                self.opened["modes"]["currentModeId"] = mode
        else:
            await self.set_agent_option_returning_all(str(option.get("id")), mode)

    async def set_agent_model(self, model: str) -> None:
        """Raises RequestError, AgentFailed."""
        option = modes.find_config_option(self.opened, "model")
        if option is not None and (
            model in modes.list_option_values(option) or not self.opened.get("models")
        ):
            await self.set_agent_option_returning_all(str(option.get("id")), model)
            return
        params = {"sessionId": self.id, "modelId": model}
        await self.process.send_request_to_agent("session/set_model", params, within=SETTING)
        if isinstance(self.opened.get("models"), dict):
            self.opened["models"]["currentModelId"] = model

    async def set_agent_option_returning_all(self, option: str, value: Any) -> list[Any] | None:
        """Set an option and return all of them, where the agent says them. Raises RequestError, AgentFailed."""
        params: dict[str, Any] = {"configId": option, "value": value}
        if isinstance(value, bool):
            params["type"] = "boolean"
        answer = await self.send_request_in_agent_session("session_set_config_option", params, within=SETTING)
        options = answer.get("configOptions")
        if not isinstance(options, list):
            return None
        self.opened["configOptions"] = options
        return options

    def record_agent_update_and_check_new(self, update: dict[str, Any]) -> bool:
        """Take note of an update; returns whether it is new, and no part of a replay."""
        kind = update.get("sessionUpdate")
        if kind == "config_option_update" and isinstance(update.get("configOptions"), list):
            self.opened["configOptions"] = update["configOptions"]
        elif kind == "current_mode_update" and isinstance(self.opened.get("modes"), dict):
            self.opened["modes"]["currentModeId"] = update.get("currentModeId")
        return not (self.replays and kind in HISTORY)

    def build_agent_description_update(self) -> dict[str, Any]:
        """Return what is reported of the agent and the conversation."""
        return {
            "sessionUpdate": "signalbox/agent",
            "agent": self.agent.name,
            "title": self.agent.title,
            "agentSessionId": self.id,
            "agentInfo": self.initialize_result.get("agentInfo"),
            "agentCapabilities": self.agent_capabilities,
            "modes": self.opened.get("modes"),
            "models": self.opened.get("models"),
            "configOptions": self.opened.get("configOptions"),
            "directory": self.directory,
        }

    async def initialize_agent(self, within: float | None = None) -> None:
        """Introduce the two to each other. Raises AgentFailed, RequestError.

        `within`: the seconds that the agent has to answer; OPENING if left out.
        """
        params = {
            "protocolVersion": PROTOCOL_VERSION,
            "clientCapabilities": CAPABILITIES,
            "clientInfo": {"name": "signalbox", "title": "Signalbox", "version": "1"},
        }
        method = AGENT_METHODS["initialize"]
        self.initialize_result = await self.process.send_request_to_agent(
            method, params, within=OPENING if within is None else within
        )
        version = self.initialize_result.get("protocolVersion")
        if version != PROTOCOL_VERSION:
            raise AgentFailed(
                f"{self.agent.title} speaks version {version} of the protocol, and Signalbox {PROTOCOL_VERSION}"
            )

    async def _open_resume_or_fork_agent_session(
        self, location: dict[str, Any], known_id: str, *, fork: bool
    ) -> None:
        session_capabilities = self.agent_capabilities.get("sessionCapabilities")
        session_capabilities = session_capabilities if isinstance(session_capabilities, dict) else {}
        if fork:
            if session_capabilities.get("fork") is None:
                raise RunnerRefused(f"{self.agent.title} cannot fork a conversation.")
            await self._request_and_record_agent_session(
                "session_fork", {**location, "sessionId": known_id}, OPENING
            )
        elif not known_id:
            await self._request_and_record_agent_session("session_new", location, OPENING)
        else:
            if session_capabilities.get("resume") is None and not self.agent_capabilities.get("loadSession"):
                raise RunnerRefused(
                    f"{self.agent.title} cannot resume an earlier conversation. Start a new one."
                )
            self.id = known_id
            method = "session_load" if session_capabilities.get("resume") is None else "session_resume"
            self.replays = True
            try:
                await self._request_and_record_agent_session(
                    method, {**location, "sessionId": known_id}, LOADING
                )
            finally:
                self.replays = False

    async def _request_and_record_agent_session(
        self, method: str, params: dict[str, Any], within: float
    ) -> None:
        self.opened = await self.process.send_request_to_agent(AGENT_METHODS[method], params, within=within)
        session_id = self.opened.get("sessionId")
        self.id = session_id if isinstance(session_id, str) and session_id else self.id
        if not self.id:
            raise AgentFailed(f"{self.agent.title} started a session without giving its id")

    async def send_request_in_agent_session(
        self, method: str, params: dict[str, Any], *, within: float | None = None
    ) -> dict[str, Any]:
        answer = await self.process.send_request_to_agent(
            AGENT_METHODS[method], {"sessionId": self.id, **params}, within=within
        )
        return dict(answer)


def describe_request_error(problem: RequestError) -> str:
    """Return an agent's error as people read it, with the detail that it gives."""
    data = problem.data
    detail = data.get("details") or data.get("message") if isinstance(data, dict) else data
    error_text = str(problem).strip() or f"error {problem.code}"
    return (
        f"{error_text}: {detail}"[:2000]
        if isinstance(detail, str) and detail and detail != error_text
        else error_text[:2000]
    )
