"""The parts of a server's page about the gateway: credentials, connection, isolation, processes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from django.conf import settings

from coordinator.mcp.gateway import statistics as figures
from coordinator.mcp.gateway.binding import qualified_tool_name
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.servers import commands
from coordinator.mcp.servers.credentials import FROM_ENVIRONMENT
from coordinator.models import McpCredential, McpProcess, McpServer, McpUpstream
from coordinator.models.gateway import Network, Transport
from coordinator.models.mcp import CredentialKind
from coordinator.secrets import mask_command_arguments
from dashboard.mcp import call_charts

NOT_OFFERED = "off"
MAX_LAST_ERRORS = 20
CHOICES = (
    (NOT_OFFERED, "Not offered"),
    (Transport.STDIO.value, "Started here (stdio)"),
    (Transport.HTTP.value, "At an address (HTTP)"),
)


@dataclass(frozen=True, slots=True)
class CredentialLine:
    """A credential without its value."""

    kind: str
    kind_label: str
    name: str
    from_variable: str | None
    set_by: str
    set_at: Any


def build_server_gateway_context(server: McpServer, now: datetime) -> dict[str, Any]:
    """Return the template context of the page's parts about the gateway."""
    upstream = McpUpstream.objects.filter(pk=server.name).first()
    on = upstream is not None and upstream.enabled
    rows = figures.list_server_tool_statistics(server.name, now)
    return {
        "gateway": {
            "upstream": upstream,
            "offered": on and server.is_active,
            "chosen": upstream.transport if upstream is not None and on else NOT_OFFERED,
            "choices": CHOICES,
            "networks": Network.choices,
            "address": f"{settings.AGENT_URL}/mcp/{quote(server.name, safe='')}",
            "command_line": mask_command_line(server),
            "seen": commands.hash_server_command(server),
            "unaccepted": unaccepted_command_digest_or_empty(server, upstream),
            "isolation": build_isolation_facts(upstream),
            "may_start": server.command in settings.DISCOVERY_COMMANDS,
            "figures": rows,
            "charts": call_charts.load_call_charts_or_none(server.name, now) if rows else None,
            "last_errors": list_last_errors_of_tools(server.name, rows),
            "processes": list(McpProcess.objects.filter(server_id=server.name).order_by("caller")[:20]),
        },
        "credentials": list_server_credentials(server.name),
        "credential_kinds": CredentialKind.choices,
    }


def list_last_errors_of_tools(server_id: str, rows: list[figures.ToolFigures]) -> list[call_charts.LastError]:
    """Return the last error of each tool that failed within the statistics' period, newest first."""
    failed = [row.tool for row in rows if row.outcomes["error"] or row.outcomes["failed"]]
    if not failed:
        return []
    errors = call_charts.find_last_error_by_tool(
        {tool: qualified_tool_name(server_id, tool) for tool in failed}
    )
    return sorted(errors.values(), key=lambda error: -error.event_id)[:MAX_LAST_ERRORS]


@dataclass(frozen=True, slots=True)
class IsolationFacts:
    """How a server that is started on this machine is isolated.

    `mechanism` is the one in use. If it is empty, `problem` says why isolation is unavailable.
    """

    mechanism: str
    problem: str
    is_off: bool
    network: str
    network_label: str
    folders: tuple[str, ...]
    writable_folders: tuple[str, ...]

    @property
    def folders_text(self) -> str:
        return "\n".join(self.folders)

    @property
    def writable_folders_text(self) -> str:
        return "\n".join(self.writable_folders)

    @property
    def is_start_refused(self) -> bool:
        return bool(self.problem) and not self.is_off


def build_isolation_facts(upstream: McpUpstream | None) -> IsolationFacts:
    wanted_isolation, mechanism, problem = isolation.build_isolation(upstream), "", ""
    try:
        mechanism = isolation.require_isolation_mechanism().value
    except isolation.IsolationUnavailable as refusal:
        problem = str(refusal.detail)
    return IsolationFacts(
        mechanism,
        problem,
        wanted_isolation.is_off,
        wanted_isolation.network,
        Network(wanted_isolation.network).label,
        wanted_isolation.folders,
        wanted_isolation.writable_folders,
    )


def mask_command_line(server: McpServer) -> str:
    """Return the command line of the server, with secrets masked."""
    args = server.args if isinstance(server.args, list) else []
    return shlex.join([server.command, *mask_command_arguments(map(str, args))])


def unaccepted_command_digest_or_empty(server: McpServer, upstream: McpUpstream | None) -> str:
    """Return the digest of the command if an admin must accept it before a start; else an empty text."""
    starts = upstream is not None and upstream.enabled and upstream.transport == Transport.STDIO
    if upstream is None or not starts or commands.has_admin_accepted_command(server, upstream):
        return ""
    return commands.hash_server_command(server)


def list_server_credentials(server_id: str) -> list[CredentialLine]:
    """Return a server's credentials, sorted by kind and name, without their values."""
    rows = McpCredential.objects.filter(server_id=server_id).order_by("kind", "name")
    return [build_credential_line(row) for row in rows]


def build_credential_line(row: McpCredential) -> CredentialLine:
    is_variable_name = row.value.startswith(FROM_ENVIRONMENT)
    variable = row.value.removeprefix(FROM_ENVIRONMENT) if is_variable_name else None
    label = CredentialKind(row.kind).label if row.kind in CredentialKind.values else row.kind
    return CredentialLine(row.kind, label, row.name, variable, row.set_by, row.set_at)
