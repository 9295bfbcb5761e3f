"""The gateway's connection settings of a server, set by an admin. Before that, the server is not started or called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.errors import Conflict, Forbidden, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, require_actor_not_api_key
from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.isolation.process_isolation import Isolation
from coordinator.mcp.servers import commands, open_database
from coordinator.models import McpServer, McpUpstream
from coordinator.models.gateway import Network, Sharing, Transport
from coordinator.secrets import mask_command_arguments

LONGEST_URL = 2_000
SHORTEST_CALL, LONGEST_CALL = 5, 24 * 3600  # seconds


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """What an admin says of a server: `url` for HTTP alone; `sharing`, the network and the folders for stdio."""

    transport: str
    url: str | None = None
    sharing: str = Sharing.SHARED.value
    private_network: bool = False
    call_seconds: int = 300
    enabled: bool = True
    network: str = Network.NONE.value
    folders: tuple[str, ...] = ()
    writable_folders: tuple[str, ...] = ()


def save_upstream_config(
    server_id: str, config: UpstreamConfig, *, actor: Actor, now: datetime, seen_version: str | None = None
) -> McpUpstream:
    """Save the gateway's connection settings of a server.

    Raises NotFound, UnprocessableRequest, Forbidden for an API key. A server that is started here gets no network in
    which the database asks for no password (Invalid).

    `seen` is the digest of the command that the page showed to the person who has it started here; without it, the
    command has yet to be accepted. Raises Conflict where it changed since then.
    """
    require_actor_not_api_key(
        actor, "An API key cannot change how a server is reached. A person must sign in to do it."
    )
    if is_server_started_by_gateway(config):
        require_network_protects_database(config.network)
    with transaction.atomic():
        server = McpServer.objects.select_for_update().filter(pk=server_id).first()
        if server is None:
            raise NotFound(f"There is no MCP server {server_id}.")
        validate_upstream_config(server, config)
        before = McpUpstream.objects.filter(pk=server_id).first()
        previous_config = asdict(build_upstream_config(before)) if before else None
        if before is not None and previous_config == asdict(config):
            return before
        values: dict[str, Any] = {**asdict(config), "changed_at": now}
        if is_server_started_by_gateway(config) and not (
            before is not None and is_server_started_by_gateway(build_upstream_config(before))
        ):
            is_accepted = validate_seen_command_version(server, seen_version)
        else:
            is_accepted = before is not None and commands.has_admin_accepted_command(server, before)
        row, _ = McpUpstream.objects.update_or_create(server_id=server_id, defaults=values)
        row.accepted_command = commands.hash_server_command(server) if is_accepted else None
        row.save(update_fields=["accepted_command"])
        audit.record_audit_entry(
            "MCP_UPSTREAM_SET",
            actor=actor,
            target=server_id,
            result="success",
            metadata={"before": previous_config, "after": asdict(config)},
            now=now,
        )
    return row


def change_server_isolation(
    server_id: str, is_off: bool, *, confirmed: str, actor: Actor, now: datetime
) -> None:
    """Have a server started without isolation, with all rights of Signalbox itself, or isolated again.

    `confirmed` is the server's name as the person typed it. Raises Forbidden for who is not signed in, NotFound,
    UnprocessableRequest for another name.
    """
    if actor.kind != "user":
        raise Forbidden("Only a signed-in admin can switch a server's isolation off or on.")
    if is_off and confirmed != server_id:
        raise UnprocessableRequest(f"Type the server's name, {server_id}, to switch its isolation off.")
    with transaction.atomic():
        server = McpServer.objects.select_for_update().filter(pk=server_id).first()
        row = McpUpstream.objects.select_for_update().filter(pk=server_id).first()
        if server is None or row is None or row.transport != Transport.STDIO:
            raise NotFound(f"{server_id} is not started here. Switch that on first.")
        if row.is_isolation_off == is_off:
            return
        is_accepted = commands.has_admin_accepted_command(server, row)
        row.is_isolation_off, row.changed_at = is_off, now
        row.save(update_fields=["is_isolation_off", "changed_at"])
        if is_accepted:
            row.accepted_command = commands.hash_server_command(server)
            row.save(update_fields=["accepted_command"])
        audit.record_audit_entry(
            "MCP_ISOLATION_OFF" if is_off else "MCP_ISOLATION_ON",
            actor=actor,
            target=server_id,
            result="success",
            metadata={"command": server.command},
            now=now,
        )


def validate_seen_command_version(server: McpServer, seen_version: str | None) -> bool:
    """Return whether the command is accepted, as it was seen. Raises Conflict for another one."""
    if seen_version is not None and seen_version != commands.hash_server_command(server):
        raise Conflict("The command has changed since this page was loaded. Check it again.")
    return seen_version is not None


def is_server_started_by_gateway(config: UpstreamConfig) -> bool:
    return config.enabled and config.transport == Transport.STDIO


def accept_changed_server_command(server_id: str, *, seen_version: str, actor: Actor, now: datetime) -> None:
    """Let a server's command be started that another program changed; `seen` is the digest that the page showed.

    Raises NotFound, Conflict where it changed since then, Forbidden for an API key, UnprocessableRequest as
    in `save_upstream_config`.
    """
    require_actor_not_api_key(actor, "An API key cannot accept a command. A person must sign in to do it.")
    for network in McpUpstream.objects.filter(pk=server_id).values_list("network", flat=True):
        require_network_protects_database(network)
    with transaction.atomic():
        server = McpServer.objects.select_for_update().filter(pk=server_id).first()
        row = McpUpstream.objects.select_for_update().filter(pk=server_id).first()
        if server is None or row is None:
            raise NotFound(f"There is no MCP server {server_id} that is started here.")
        digest = commands.hash_server_command(server)
        if digest != seen_version:
            raise Conflict("The command has changed again. Check it again.")
        if row.accepted_command == digest:
            return
        row.accepted_command, row.changed_at = digest, now
        row.save(update_fields=["accepted_command", "changed_at"])
        args = server.args if isinstance(server.args, list) else []
        audited_command = {"command": server.command, "args": mask_command_arguments(map(str, args))}
        audit.record_audit_entry(
            "MCP_COMMAND_ACCEPTED",
            actor=actor,
            target=server_id,
            result="success",
            metadata=audited_command,
            now=now,
        )


@contextmanager
def renew_command_acceptance_during_block(server: McpServer, actor: Actor) -> Iterator[None]:
    """Around a person's edit of a server or its variables: what was accepted stays so as they leave it.

    One that was not accepted before is not accepted by the way.
    """
    row = McpUpstream.objects.select_for_update().filter(pk=server.name).first()
    counts = row is not None and actor.kind == "user" and commands.has_admin_accepted_command(server, row)
    yield
    if row is not None and counts:
        server.refresh_from_db()
        digest = commands.hash_server_command(server)
        if digest != row.accepted_command:
            McpUpstream.objects.filter(pk=row.pk).update(accepted_command=digest)


def build_upstream_config(row: McpUpstream) -> UpstreamConfig:
    """Return what a row says."""
    current_isolation = isolation.build_isolation(row)
    return UpstreamConfig(
        row.transport, row.url, row.sharing, row.private_network, row.call_seconds, row.enabled,
        current_isolation.network, current_isolation.folders, current_isolation.writable_folders,
    )  # fmt: skip


def validate_upstream_config(server: McpServer, config: UpstreamConfig) -> None:
    if config.transport not in Transport.values or config.sharing not in Sharing.values:
        raise UnprocessableRequest(
            "Choose whether the server is reached by HTTP or started here, with one process for all callers or one "
            "for each."
        )
    if not SHORTEST_CALL <= config.call_seconds <= LONGEST_CALL:
        raise UnprocessableRequest(f"A call may take {SHORTEST_CALL} to {LONGEST_CALL} seconds.")
    if config.transport == Transport.HTTP:
        validate_upstream_url(config.url or "")
    elif config.enabled and server.command not in settings.DISCOVERY_COMMANDS:
        raise UnprocessableRequest(
            f"{server.command} may not be started here. Allowed: {', '.join(settings.DISCOVERY_COMMANDS) or 'nothing'} "
            "(SIGNALBOX_DISCOVERY_COMMANDS)."
        )
    isolation.require_valid_isolation(Isolation(config.network, config.folders, config.writable_folders))


def require_network_protects_database(network: str) -> None:
    """Raise UnprocessableRequest where a server with this network could change what Signalbox itself keeps."""
    if (address := open_database.probe_reachable_passwordless_database(network)) is not None:
        raise UnprocessableRequest(
            f"PostgreSQL asks for no password at {address}, which this server would reach: it could decide and approve "
            f"by itself. {open_database.REMEDY}"
        )


def validate_upstream_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and not parts.username
        sound = sound and parts.port != 0 and not parts.fragment
    except ValueError:
        sound = False
    if not sound or len(url) > LONGEST_URL or any(not "!" <= sign <= "~" for sign in url):
        raise UnprocessableRequest(
            "The address must be http(s)://host/path, without a password. Enter passwords under Credentials."
        )
