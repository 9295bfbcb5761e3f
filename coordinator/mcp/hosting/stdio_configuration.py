"""The configuration of a stdio server, from its rows. An imported row runs nothing until an admin switches it on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from django.conf import settings

from coordinator.errors import NotFound, SignalboxError
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.isolation.process_isolation import Isolation
from coordinator.mcp.servers import commands, credentials
from coordinator.models import McpServer, McpUpstream
from coordinator.models.gateway import Sharing, Transport

FOLDER = "mcp"
NOT_ACCEPTED = (
    "No admin has accepted the command of {} yet. An admin must check and accept it on the server's page."
)


class ServerNotOffered(SignalboxError):
    """The server is registered and may not be run, or cannot be just now; the text says why."""

    status = 503


@dataclass(frozen=True, slots=True)
class StdioConfiguration:
    """A server's command, variables, folder and isolation. `version` changes with any of them."""

    server_id: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(repr=False)
    shared: bool
    folder: Path
    isolation: Isolation

    def prepare_isolated_server_command_line(self) -> list[str]:
        """Return what is started. Raises NotIsolated, Invalid, OSError where there is no such program."""
        return isolation.prepare_isolated_command_line(self.command, self.folder, self.isolation)

    @property
    def configuration_digest(self) -> str:
        digested = [self.command, sorted(self.environment.items()), self.shared, asdict(self.isolation)]
        return hashlib.sha256(json.dumps(digested).encode()).hexdigest()


def load_stdio_configuration(server_id: str) -> StdioConfiguration:
    """Return how the server is run. Raises NotFound, ServerNotOffered, NotIsolated, credentials.CredentialUnusable."""
    server = McpServer.objects.filter(pk=server_id).first()
    if server is None:
        raise NotFound(f"There is no MCP server {server_id}.")
    upstream = McpUpstream.objects.filter(pk=server_id).first()
    if upstream is None or upstream.transport != Transport.STDIO:
        raise ServerNotOffered(
            f"{server_id} is not started here: no admin has switched that on, on the server's page."
        )
    if not server.is_active or not upstream.enabled:
        raise ServerNotOffered(f"{server_id} is switched off.")
    if server.command not in settings.DISCOVERY_COMMANDS:
        raise ServerNotOffered(
            f"{server.command} may not be started here. Allowed: {', '.join(settings.DISCOVERY_COMMANDS) or 'nothing'} "
            "(SIGNALBOX_DISCOVERY_COMMANDS)."
        )
    if not commands.has_admin_accepted_command(server, upstream):
        raise ServerNotOffered(NOT_ACCEPTED.format(server_id))
    if not isinstance(server.args, list):
        raise ServerNotOffered(f"The arguments of {server_id} are not a list. Edit them first.")
    current_isolation = isolation.build_isolation(upstream)
    isolation.require_isolation_available(current_isolation)
    return StdioConfiguration(
        server_id,
        (server.command, *map(str, server.args)),
        credentials.load_server_environment(server_id),
        upstream.sharing != Sharing.CALLER,
        ensure_server_folder(server_id),
        current_isolation,
    )


def ensure_server_folder(server_id: str) -> Path:
    """Return the server's own folder, made where it is not there: its home, and where it starts."""
    name = hashlib.sha256(server_id.encode()).hexdigest()[:16]
    path = Path(settings.DATA_DIR) / FOLDER / name
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path
