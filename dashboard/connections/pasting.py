"""Configuration to paste by hand: the same entries that `signalbox connect` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.client.connecting import toml_tables, yaml_entries
from coordinator.client.connecting.connectable_agents import (
    CONNECTABLE_AGENTS,
    ConnectableAgent,
    HookInvocation,
)
from coordinator.client.connecting.merging import SettingsEntries
from coordinator.client.connecting.toml_tables import TomlTable
from coordinator.client.connecting.yaml_entries import YamlEntry
from coordinator.client.settings import KEY_VARIABLE, URL_VARIABLE
from coordinator.dialects.claude_settings import render_claude_settings
from coordinator.mcp.servers.names import GATEWAY

A_KEY = "sbx_YOUR_KEY"
HEADLESS = (
    'claude -p "Release it" --permission-prompt-tool mcp__signalbox__ask \\\n'
    """  --mcp-config '{"mcpServers": {"signalbox": {"command": "signalbox", "args": ["mcp-ask"]}}}'"""
)


@dataclass(frozen=True, slots=True)
class ConfigBlock:
    """A file's path and the text to paste. `is_shared` means that the file may have other settings, too.

    `holds_key` means that the text contains a key, so that only the file's owner should be able to read it.
    """

    place: str
    text: str
    is_shared: bool
    holds_key: bool = False


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """What an agent program's page shows."""

    name: str
    title: str
    afterwards: str
    was_run: bool
    blocks: list[ConfigBlock]
    http: str | None = None
    managed: str | None = None
    managed_http: str | None = None
    plugin: str | None = None
    gateway: ConfigBlock | None = None
    from_projects: str = ""


def list_connectable_agents() -> list[tuple[str, str]]:
    """Return the names and titles of the agents that can be connected."""
    return [(name, agent.title) for name, agent in CONNECTABLE_AGENTS.items()]


def build_agent_setup_or_none(name: str, url: str) -> AgentSetup | None:
    """Return what an agent's page shows for a server at `url`; None if there is no such agent."""
    agent = CONNECTABLE_AGENTS.get(name)
    if agent is None:
        return None
    is_claude = name == "claude-code"
    return AgentSetup(
        name,
        agent.title,
        agent.afterwards,
        agent.was_run,
        build_config_blocks(agent, HookInvocation(("signalbox",), url, A_KEY)),
        http=render_claude_settings(url) if is_claude else None,
        managed=build_managed_settings_json(agent, HookInvocation(("signalbox",), url))
        if is_claude
        else None,
        managed_http=render_claude_settings(url, managed=True) if is_claude else None,
        plugin=f"~/{agent.home}/{agent.plugin}" if agent.plugin else None,
        gateway=build_gateway_config_or_none(agent, HookInvocation(("signalbox",), url, A_KEY, gateway=True)),
        from_projects=agent.from_projects,
    )


def build_mcp_client_config_blocks(url: str) -> list[ConfigBlock]:
    """Return the settings that give any MCP client the gateway: over HTTP with a key, and by stdio."""
    http = {"type": "http", "url": f"{url}/mcp", "headers": {"Authorization": f"Bearer {A_KEY}"}}
    stdio = {"command": "signalbox", "args": ["mcp"], "env": {URL_VARIABLE: url, KEY_VARIABLE: A_KEY}}
    return [
        ConfigBlock("Over HTTP", indent_json({"mcpServers": {GATEWAY: http}}), True, True),
        ConfigBlock("On stdin and stdout", indent_json({"mcpServers": {GATEWAY: stdio}}), True, True),
    ]


def build_gateway_config_or_none(agent: ConnectableAgent, call: HookInvocation) -> ConfigBlock | None:
    """Return the settings that give an agent the gateway, as `signalbox connect` writes them.

    None if the agent has no such settings.
    """
    if agent.mcp is not None and agent.mcp_file is not None:
        wanted_entry, settings_file = agent.mcp(call), agent.mcp_file
        settings_file = settings_file if settings_file.startswith("~/") else f"~/{agent.home}/{settings_file}"
        if isinstance(wanted_entry, TomlTable):
            return ConfigBlock(settings_file, toml_tables.format_toml_table(wanted_entry).rstrip(), True)
        if isinstance(wanted_entry, YamlEntry):
            return ConfigBlock(settings_file, yaml_entries.format_yaml_entry(wanted_entry).rstrip(), True)
        return ConfigBlock(settings_file, indent_json(nest_values_by_key_path(wanted_entry.values)), True)
    if agent.file and agent.build_entries:
        servers = {
            path: entry_value
            for path, entry_value in agent.build_entries(call).values.items()
            if GATEWAY in path
        }
        return (
            ConfigBlock(f"~/{agent.home}/{agent.file}", indent_json(nest_values_by_key_path(servers)), True)
            if servers
            else None
        )
    return None


def nest_values_by_key_path(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for path, nested_value in values.items():
        holder = value
        for name in path[:-1]:
            holder = holder.setdefault(name, {})
        holder[path[-1]] = nested_value
    return value


def indent_json(value: Any) -> str:
    return json.dumps(value, indent=2)


def build_shell_exports(url: str, key: str) -> str:
    """Return the shell commands that export the URL and the key to an agent."""
    return f"export {URL_VARIABLE}={url}\nexport {KEY_VARIABLE}={key}"


def build_managed_settings_json(agent: ConnectableAgent, call: HookInvocation) -> str:
    """Return managed settings with our hooks, which users of the machine cannot remove."""
    assert agent.build_entries is not None
    return json.dumps(
        {
            "allowManagedHooksOnly": True,
            **build_agent_settings_dict(agent.build_entries(call), telemetry=True),
        },
        indent=2,
    )


def build_config_blocks(agent: ConnectableAgent, call: HookInvocation) -> list[ConfigBlock]:
    blocks = [
        ConfigBlock(f"~/{agent.home}/{own.path}", own.content.rstrip(), False) for own in agent.own(call)
    ]
    if agent.file and agent.build_entries:
        # Claude Code's telemetry needs more than pasting; other agents' telemetry needs no settings here.
        value = build_agent_settings_dict(agent.build_entries(call), telemetry=False)
        blocks.append(ConfigBlock(f"~/{agent.home}/{agent.file}", json.dumps(value, indent=2), True))
    if agent.telemetry:
        table = agent.telemetry(call)
        text = toml_tables.format_toml_table(table).rstrip()
        blocks.append(ConfigBlock(f"~/{agent.home}/{agent.mcp_file}", text, True, table.secret != ""))
    return blocks


def build_agent_settings_dict(entries: SettingsEntries, *, telemetry: bool) -> dict[str, Any]:
    value: dict[str, Any] = {path[0]: basic for path, basic in entries.basics.items()}
    value |= nest_values_by_key_path(entries.values) if telemetry else {}
    value["hooks"] = {event: [entry] for event, entry in entries.hooks.items()}
    return value
