"""Asking the agents whose commands this machine's settings name what they can do, before they are offered.

Each is started once, introduced (`initialize`) and ended. One that does not answer as the protocol says is not offered;
why not is shown in its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from acp.exceptions import RequestError

from coordinator.runner import environment
from coordinator.runner.context import RunnerContext
from coordinator.runner.conversation import AgentConversation, describe_request_error
from coordinator.runner.errors import AgentFailed
from coordinator.runner.process import AgentProcess
from coordinator.runner.startable import StartableAgent

ANSWER_WAIT_SECONDS = 60.0  # the first start of `npx …` downloads the agent
MOST_LOGINS, LONGEST_NAME, LONGEST_REASON = 10, 100, 500


async def probe_and_keep_answering_agents(around: RunnerContext) -> None:
    """Ask all configured agents at once; leave those in `around` that answered, with what they can do."""
    probed = await asyncio.gather(*(probe_agent_or_missing_entry(around, agent) for agent in around.agents))
    around.agents = [answer for answer in probed if isinstance(answer, StartableAgent)]
    around.missing = [*around.missing, *(answer for answer in probed if isinstance(answer, dict))]


async def probe_agent_or_missing_entry(
    around: RunnerContext, agent: StartableAgent
) -> StartableAgent | dict[str, Any]:
    if not agent.is_configured:
        return agent
    try:
        return await probe_agent(around, agent)
    except AgentFailed as problem:
        reason = str(problem)[:LONGEST_REASON]
        how = reason if reason.endswith((".", "?")) else f"{reason}."
        return {"name": agent.name, "title": agent.title, "how": how, "is_configured": True}


async def probe_agent(
    around: RunnerContext, agent: StartableAgent, within: float | None = None
) -> StartableAgent:
    """Return the agent with what it says of itself. Raises AgentFailed."""
    within = ANSWER_WAIT_SECONDS if within is None else within
    env = environment.build_agent_environment(
        agent,
        around.environ,
        passes=around.options.passes,
        key=around.options.key,
        session_id="",
        mark=around.guard.create_process_environment_tag(),
    )
    env.pop(environment.SESSION)  # it works for none
    strays: list[str] = []
    process = await AgentProcess.start_agent_process(
        agent,
        around.guard,
        directory=around.options.directories[0],
        env=env,
        handler=refuse_agent_message,
        wait_for_capacity=around.capacity.wait_for_capacity,
        garbage=strays.append,
    )
    try:
        talk = AgentConversation(agent, process, around.options.directories[0])
        await talk.initialize_agent(within)
    except RequestError as problem:
        raise AgentFailed(f"{agent.title} refuses to begin: {describe_request_error(problem)}") from None
    except AgentFailed as problem:
        hint = ". It writes what is no message of the protocol: does its command lack an option?"
        raise AgentFailed(f"{problem}{hint if strays else ''}") from None
    finally:
        await process.end_agent_process()
    return replace(
        agent,
        version=agent.version or reported_agent_version(talk.initialize_result),
        abilities=parse_agent_abilities(talk.initialize_result),
    )


async def refuse_agent_message(method: str, params: Any, is_notification: bool) -> None:  # noqa: ARG001 - as acp calls it
    """Refuse whatever the agent asks for: it has no session."""
    if not is_notification:
        raise RequestError.method_not_found(method)


def reported_agent_version(introduction: dict[str, Any]) -> str:
    info = introduction.get("agentInfo")
    version = info.get("version") if isinstance(info, dict) else None
    return version[:40] if isinstance(version, str) else ""


def parse_agent_abilities(introduction: dict[str, Any]) -> dict[str, Any]:
    """Return what an agent's answer to `initialize` says that it can do, in our own words."""
    capabilities = object_field_or_empty(introduction, "agentCapabilities")
    prompts = object_field_or_empty(capabilities, "promptCapabilities")
    sessions = object_field_or_empty(capabilities, "sessionCapabilities")
    servers = object_field_or_empty(capabilities, "mcpCapabilities")
    return {
        "images": prompts.get("image") is True,
        "audio": prompts.get("audio") is True,
        "files": prompts.get("embeddedContext") is True,
        "resumes": capabilities.get("loadSession") is True or sessions.get("resume") is not None,
        "forks": sessions.get("fork") is not None,
        "mcp_over_http": servers.get("http") is True,
        "logins": list_login_method_names(introduction.get("authMethods")),
    }


def object_field_or_empty(introduction: dict[str, Any], name: str) -> dict[str, Any]:
    value = introduction.get(name)
    return value if isinstance(value, dict) else {}


def list_login_method_names(methods: Any) -> list[str]:
    """Return the names of the ways to sign in."""
    listed: Sequence[Any] = methods if isinstance(methods, list) else ()
    names = (method.get("name") or method.get("id") for method in listed if isinstance(method, dict))
    return [name[:LONGEST_NAME] for name in names if isinstance(name, str) and name][:MOST_LOGINS]
