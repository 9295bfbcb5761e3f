"""What people who prefer to paste put where: the same entries that `signalbox connect` writes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from coordinator.client.connecting.agents import AGENTS, Agent, Call
from coordinator.client.settings import KEY_VARIABLE, URL_VARIABLE
from coordinator.dialects.claude_settings import settings_for


@dataclass(frozen=True, slots=True)
class Block:
    """A file's place, and what belongs in it; `is_shared` where other things may stand there, too."""

    place: str
    text: str
    is_shared: bool


@dataclass(frozen=True, slots=True)
class Program:
    """An agent program as its page shows it."""

    name: str
    title: str
    afterwards: str
    was_run: bool
    blocks: list[Block]
    http: str | None = None
    managed: str | None = None
    plugin: str | None = None


def tabs() -> list[tuple[str, str]]:
    """Return the names and titles of the agents that can be connected."""
    return [(name, agent.title) for name, agent in AGENTS.items()]


def program(name: str, url: str) -> Program | None:
    """Return what the page of an agent shows for a server at `url`, or None for an agent that there is not."""
    agent = AGENTS.get(name)
    if agent is None:
        return None
    is_claude = name == "claude-code"
    return Program(
        name,
        agent.title,
        agent.afterwards,
        agent.was_run,
        _blocks(agent, Call(("signalbox",), url)),
        http=settings_for(url) if is_claude else None,
        managed=settings_for(url, managed=True) if is_claude else None,
        plugin=f"~/{agent.home}/{agent.plugin}" if agent.plugin else None,
    )


def exports(url: str, key: str) -> str:
    """Return the lines for the shell that starts an agent."""
    return f"export {URL_VARIABLE}={url}\nexport {KEY_VARIABLE}={key}"


def _blocks(agent: Agent, call: Call) -> list[Block]:
    blocks = [Block(f"~/{agent.home}/{own.path}", own.content.rstrip(), False) for own in agent.own(call)]
    if agent.file and agent.wanted:
        wanted = agent.wanted(call)
        value: dict[str, object] = {path[0]: basic for path, basic in wanted.basics.items()}
        value["hooks"] = {event: [entry] for event, entry in wanted.hooks.items()}
        blocks.append(Block(f"~/{agent.home}/{agent.file}", json.dumps(value, indent=2), True))
    return blocks
