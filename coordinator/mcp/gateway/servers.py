"""An upstream server, for the gateway: its address, the headers of each request, its tools."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from django.db import models

from coordinator.errors import SignalboxError
from coordinator.mcp.gateway import call_limits
from coordinator.mcp.gateway.call_limits import WHOLE_SERVER, CallLimits, CircuitBreaker
from coordinator.mcp.protocol import param_headers
from coordinator.mcp.protocol.http_client import UpstreamAddress, parse_upstream_url
from coordinator.mcp.servers import credentials, stdio_host
from coordinator.mcp.servers.names import find_shadowing_server, name_in_calls, server_call_name_spellings
from coordinator.models import (
    AcceptedOnlyServer,
    McpAuthorization,
    McpCredential,
    McpServer,
    McpTool,
    McpUpstream,
)
from coordinator.models.gateway import Sharing, Transport

CALL_SECONDS = 300
NOWHERE = "has no address and no command"
READ_ONLY_HINT = "readOnlyHint"


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as the server last listed it. `accepted` is the digest of the definition that a person accepted.

    `param_headers` are those that repeat arguments, as the definition declares them. `shown_instead` is the accepted
    definition as JSON where a person declined the present one; None where agents are shown what the server lists.
    `short_description` is what they are shown in place of the server's own description. `is_read_only`: the accepted
    definition, which the server lists, says that the tool only reads; it is known where results are cached.
    """

    definition: str
    accepted: str
    is_gone: bool
    changed_at: datetime | None = None
    param_headers: param_headers.Declared = ()
    shown_instead: bytes | None = None
    short_description: str | None = None
    is_read_only: bool = False

    @property
    def is_changed(self) -> bool:
        return self.definition != self.accepted and self.shown_instead is None


@dataclass(frozen=True, slots=True)
class UpstreamServer:
    """One upstream server. Where it has no `target`, `failure` says why, as the end of "The server …".

    `listing_problem`: why its tools cannot be listed for this caller just now, as the end of "The server …".
    `needs_token`: an access token goes with each request (coordinator.edge.gateway.access_tokens).
    `limits` are those of calls by tool (coordinator.mcp.gateway.call_limits).
    `edition` is another one after each edit of the server or its credentials; it is known where results are cached.
    `namesakes` are the registered servers whose names in calls begin with this one's, or are the same.
    """

    name: str
    target: UpstreamAddress | None
    failure: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    tools: dict[str, ListedTool] = field(default_factory=dict)
    call_seconds: int = CALL_SECONDS
    for_each_caller: bool = False
    is_stdio: bool = False
    accepted_only: bool = False
    is_off: bool = False
    namesakes: tuple[str, ...] = ()
    needs_token: bool = False
    listing_problem: str = ""
    limits: dict[str, CallLimits] = field(default_factory=dict)
    breaker: CircuitBreaker | None = None
    edition: str = ""

    @property
    def is_only_on_agent_machine(self) -> bool:
        """Return whether it can only run on its agent's machine: it has no address or command for use from here."""
        return self.target is None and self.failure == NOWHERE

    @property
    def servers_with_same_call_name(self) -> list[str]:
        """Return the servers with the same name as this one in calls, like `my files` and `my_files`."""
        return [
            namesake
            for namesake in self.namesakes
            if name_in_calls(self.name) in server_call_name_spellings(namesake)
        ]

    def effective_limits_for_tool(self, tool: str) -> CallLimits:
        """Return what holds for calls of a tool, or for other requests where it is WHOLE_SERVER."""
        return call_limits.effective_call_limits_for_tool(self.limits, tool)

    def call_timeout_seconds_of_tool(self, tool: str = WHOLE_SERVER) -> int:
        """Return how long a call of a tool may take."""
        return self.effective_limits_for_tool(tool).call_seconds or self.call_seconds

    def find_server_shadowing_own_tool(self, tool: str) -> str | None:
        """Return the server that rules, hooks and people take a call of this tool for, where it is another one."""
        return find_shadowing_server(self.name, tool, self.namesakes)


def load_upstream_server(name: str) -> UpstreamServer | None:
    """Read one server; None where none of this name is registered."""
    row = McpServer.objects.filter(pk=name).first()
    if row is None:
        return None
    upstream = McpUpstream.objects.filter(pk=name).first()
    if not row.is_active or (upstream is not None and not upstream.enabled):
        return UpstreamServer(name, None, "is switched off", is_off=True)
    mcp_tools = McpTool.objects.filter(server_id=name)
    declaring = mcp_tools.filter(input_schema__contains=param_headers.ANNOTATION)
    declared = {
        tool: param_headers.list_declared_header_paths(schema)
        for tool, schema in declaring.values_list("name", "input_schema")
    }
    accepted_definitions = dict(mcp_tools.with_declined_definition().values_list("name", "accepted"))
    for tool, content in accepted_definitions.items():
        declared[tool] = param_headers.list_declared_header_paths((content or {}).get("inputSchema"))
    limits = call_limits.load_call_limits_by_tool(name)
    is_cached = any(tool_limits.cache_seconds for tool_limits in limits.values())
    read_only = load_read_only_tool_names(name) if is_cached else frozenset()
    tools = {
        tool: ListedTool(
            definition,
            accepted,
            gone_at is not None,
            changed if isinstance(changed, datetime) else None,
            declared.get(tool, ()),
            encode_accepted_tool_as_listed(tool, accepted_definitions[tool])
            if tool in accepted_definitions
            else None,
            short_description if short_for == definition else None,
            tool in read_only,
        )
        for tool, definition, accepted, gone_at, changed, short_for, short_description in mcp_tools.values_list(
            "name",
            "definition_hash",
            "accepted_hash",
            "gone_at",
            "changed_at",
            "short_for",
            "short_description",
        )
    }
    namesakes = list_servers_sharing_name_prefix(name)
    try:
        headers = tuple(credentials.load_credential_header_pairs(name))
        target = upstream_network_address_or_none(row, upstream)
    except SignalboxError as problem:
        return UpstreamServer(
            name, None, f"cannot be used: {problem.detail}", tools=tools, namesakes=namesakes
        )
    except ValueError as problem:
        return UpstreamServer(name, None, f"cannot be used: {problem}", tools=tools, namesakes=namesakes)
    return UpstreamServer(
        name,
        target,
        "" if target else NOWHERE,
        headers,
        tools,
        upstream.call_seconds if upstream else CALL_SECONDS,
        upstream is not None and upstream.sharing == Sharing.CALLER,
        target is not None and target.socket_path is not None,
        AcceptedOnlyServer.objects.filter(pk=name).exists(),
        namesakes=namesakes,
        needs_token=McpAuthorization.objects.filter(pk=name).exists(),
        limits=limits,
        breaker=call_limits.load_circuit_breaker(name),
        edition=compute_server_settings_digest(row) if is_cached else "",
    )


def load_read_only_tool_names(server_id: str) -> frozenset[str]:
    """Return the tools whose accepted definition, which the server lists, says that they only read."""
    hinting = McpTool.objects.filter(server_id=server_id, accepted__contains=READ_ONLY_HINT)
    unchanged = hinting.filter(definition_hash=models.F("accepted_hash")).values_list("name", "accepted")
    return frozenset(name for name, content in unchanged if is_read_only_definition(content))


def is_read_only_definition(content: Any) -> bool:
    """Say whether a tool's definition says that the tool only reads."""
    annotations = content.get("annotations") if isinstance(content, dict) else None
    return isinstance(annotations, dict) and annotations.get(READ_ONLY_HINT) is True


def compute_server_settings_digest(row: McpServer) -> str:
    """Return a digest that is another one after each edit of a server, its credentials or a sign-in there."""
    credential_rows = McpCredential.objects.filter(server_id=row.name).order_by("kind", "name")
    upstream_rows = McpUpstream.objects.filter(pk=row.name).values()
    parts = [
        row.command,
        row.args,
        row.script_content,
        list(upstream_rows),
        list(credential_rows.values_list("kind", "name", "value", "set_at")),
    ]
    return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()


def encode_accepted_tool_as_listed(tool: str, content: Any) -> bytes:
    """Return an accepted definition as it appears in a server's list."""
    return msgspec.json.encode({"name": tool, **content} if isinstance(content, dict) else {"name": tool})


def find_server_name_of_tool(tool: str) -> str | None:
    """Return the registered server that a tool called `server__tool` would be of; None where it is no server's."""
    names = McpServer.objects.exclude(name=None).values_list("name", flat=True)
    matching_names = [name for name in names if tool.startswith(f"{name_in_calls(name)}__")]
    return max(matching_names, key=len, default=None)


def list_servers_sharing_name_prefix(name: str) -> tuple[str, ...]:
    own = name_in_calls(name)
    mcp_server_rows = McpServer.objects.exclude(pk=name).order_by("pk").values_list("pk", flat=True)
    return tuple(
        spelling
        for spelling in mcp_server_rows
        if any(spelt.startswith(own) for spelt in server_call_name_spellings(spelling))
    )


def upstream_network_address_or_none(row: McpServer, upstream: McpUpstream | None) -> UpstreamAddress | None:
    if upstream is not None and upstream.transport == Transport.HTTP:
        return parse_upstream_url(upstream.url or "", private=upstream.private_network)
    if not row.command:
        return None
    return UpstreamAddress(
        "localhost", 80, f"/servers/{quote(row.name, safe='')}/mcp", socket_path=str(get_stdio_socket_path())
    )


def get_stdio_socket_path() -> Path:
    """Return where the host of stdio servers listens."""
    return stdio_host.ensure_host_socket_path()
