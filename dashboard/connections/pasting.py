"""What people who prefer to paste put where: the same entries that `signalbox connect` writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from coordinator.client.connecting.agents import AGENTS, Agent, Call
from coordinator.client.connecting.merging import Wanted
from coordinator.client.settings import KEY_VARIABLE, URL_VARIABLE
from coordinator.dialects.claude_settings import settings_for

A_KEY = "sbx_YOUR_KEY"
HEADLESS = (
    'claude -p "Release it" --permission-prompt-tool mcp__signalbox__ask \\\n'
    """  --mcp-config '{"mcpServers": {"signalbox": {"command": "signalbox", "args": ["mcp-ask"]}}}'"""
)


@dataclass(frozen=True, slots=True)
class Block:
    """A file's place, and what belongs in it; `is_shared` where other things may stand there, too.

    One that `holds_key` is for telemetry, and only its owner should be able to read it.
    """

    place: str
    text: str
    is_shared: bool
    holds_key: bool = False


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
    managed_http: str | None = None
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
        _blocks(agent, Call(("signalbox",), url, A_KEY)),
        http=settings_for(url) if is_claude else None,
        managed=_managed(agent, Call(("signalbox",), url)) if is_claude else None,
        managed_http=settings_for(url, managed=True) if is_claude else None,
        plugin=f"~/{agent.home}/{agent.plugin}" if agent.plugin else None,
    )


def exports(url: str, key: str) -> str:
    """Return the lines for the shell that starts an agent."""
    return f"export {URL_VARIABLE}={url}\nexport {KEY_VARIABLE}={key}"


def _managed(agent: Agent, call: Call) -> str:
    """Return settings with our hooks that nobody on a machine can take out."""
    assert agent.wanted is not None
    return json.dumps(
        {"allowManagedHooksOnly": True, **_settings(agent.wanted(call), telemetry=True)}, indent=2
    )


def _blocks(agent: Agent, call: Call) -> list[Block]:
    blocks = [Block(f"~/{agent.home}/{own.path}", own.content.rstrip(), False) for own in agent.own(call)]
    lines = agent.lines(call)
    if agent.file and agent.wanted:
        # The others' telemetry needs no line of its own, or takes more than pasting.
        value = _settings(agent.wanted(call), telemetry=bool(lines))
        blocks.append(Block(f"~/{agent.home}/{agent.file}", json.dumps(value, indent=2), True))
    for one in lines:
        blocks.append(Block(f"~/{agent.home}/{one.path}", "\n".join(one.lines), True, one.secret != ""))
    return blocks


def _settings(wanted: Wanted, *, telemetry: bool) -> dict[str, Any]:
    value: dict[str, Any] = {path[0]: basic for path, basic in wanted.basics.items()}
    for path, one in wanted.values.items() if telemetry else ():
        holder = value
        for name in path[:-1]:
            holder = holder.setdefault(name, {})
        holder[path[-1]] = one
    value["hooks"] = {event: [entry] for event, entry in wanted.hooks.items()}
    return value
