"""Credentials of MCP servers: entered and taken away by people, never told again; sealed anew with another key."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.db import transaction

from coordinator.actions import audit, mcp_upstreams, notifications, push
from coordinator.errors import Forbidden, Invalid, NotFound
from coordinator.identity.actors import Actor
from coordinator.mcp import credentials
from coordinator.models import Blueprint, Capability, McpCredential, McpServer
from coordinator.models.mcp import CredentialKind
from coordinator.runs import sealed_servers
from coordinator.secrets import keyring

LONGEST_VALUE = 16_000
MOST_CREDENTIALS = 50  # of one server
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}", re.ASCII)
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}", re.ASCII)
# What the gateway says by itself, and what would change where a request goes or ends.
GATEWAYS_OWN = frozenset(
    {
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
    }
    | {"host", "keep-alive", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade", "via"}
)


def set_value(server_id: str, kind: str, name: str, value: str, *, by: Actor, now: datetime) -> McpCredential:
    """Keep a credential of a server, in the place of one of that name. `env:NAME` names a variable.

    Raises NotFound, Invalid, Forbidden for an API key.
    """
    _require_person(by)
    stored = value = value.strip()
    _require_sound(kind, name, value)
    with transaction.atomic():
        server = _lock(server_id)
        if not value.startswith(credentials.FROM_ENVIRONMENT):
            stored = credentials.sealed(server_id, kind, name, value)
        rows = McpCredential.objects.filter(server_id=server_id)
        is_new = not rows.filter(kind=kind, name=name).exists()
        if is_new and rows.count() >= MOST_CREDENTIALS:
            raise Invalid(f"A server may have at most {MOST_CREDENTIALS} credentials.")
        with mcp_upstreams.still_accepted(server, by):
            row, _ = McpCredential.objects.update_or_create(
                server_id=server_id,
                kind=kind,
                name=name,
                defaults={"value": stored, "set_by": str(by), "set_at": now},
            )
        told = stored if stored.startswith(credentials.FROM_ENVIRONMENT) else "sealed"
        _record("MCP_CREDENTIAL_SET", f"{server_id} {kind} {name}", by, now, source=told, replaced=not is_new)
    return row


def remove(server_id: str, kind: str, name: str, *, by: Actor, now: datetime) -> None:
    """Take a credential away. Raises NotFound, Forbidden for an API key."""
    _require_person(by)
    with transaction.atomic():
        with mcp_upstreams.still_accepted(_lock(server_id), by):
            rows = McpCredential.objects.filter(server_id=server_id, kind=kind, name=name)
            deleted, _ = rows.delete()
        if not deleted:
            raise NotFound(f"The server {server_id} has no {name}.")
        _record("MCP_CREDENTIAL_REMOVED", f"{server_id} {kind} {name}", by, now)


def _require_person(by: Actor) -> None:
    if by.kind == "key":
        raise Forbidden("An API key cannot change credentials. A person must sign in to do it.")


def _lock(server_id: str) -> McpServer:
    server = McpServer.objects.select_for_update().filter(pk=server_id).first()
    if server is None:
        raise NotFound(f"There is no MCP server {server_id}.")
    return server


def _require_sound(kind: str, name: str, value: str) -> None:
    if kind not in CredentialKind.values:
        raise Invalid(f"A credential must be one of: {', '.join(CredentialKind.values)}.")
    if kind == CredentialKind.ENV and (
        not _VARIABLE.fullmatch(name) or name.upper().startswith(credentials.OURS)
    ):
        raise Invalid(
            f"{name!r} cannot be a variable of a server. Use letters, digits and _, and none of Signalbox's own "
            "variables."
        )
    if kind == CredentialKind.HEADER and (
        not _HEADER.fullmatch(name)
        or name.lower() in GATEWAYS_OWN
        or name.lower().startswith(("mcp-", "x-signalbox"))
    ):
        raise Invalid(f"{name!r} cannot be a header that Signalbox adds.")
    if not value or len(value) > LONGEST_VALUE:
        raise Invalid(f"A value must have 1 to {LONGEST_VALUE} characters.")
    if any(ord(sign) < 32 and sign != "\t" for sign in value) and kind == CredentialKind.HEADER:
        raise Invalid("A header's value must be one line.")
    if "\0" in value:
        raise Invalid("A value may not contain NUL.")
    if value.startswith(credentials.FROM_ENVIRONMENT):
        variable = value.removeprefix(credentials.FROM_ENVIRONMENT)
        if not _VARIABLE.fullmatch(variable) or credentials.is_ours(variable):
            raise Invalid(
                f"{variable!r} cannot be used. Use letters, digits and _, and none of Signalbox's own settings."
            )


def _record(event: str, target: str, by: Actor, now: datetime, **metadata: object) -> None:
    audit.record(event, actor=by, target=target, result="success", metadata=metadata or None, now=now)


def rotate(*, by: Actor, now: datetime) -> int:
    """Seal every credential with a new key and forget the old ones; return how many values were sealed anew.

    Raises keyring.KeyringUnusable where one cannot be opened; then the old keys stay, and nothing is lost. So they do
    where it is interrupted: it can be run again.
    """
    keyring.add_key()
    count = 0
    while resealed := _reseal():  # again for what was sealed with an old key meanwhile
        count += resealed
    metadata = {"count": count}
    audit.record("CREDENTIALS_RESEALED", actor=by, target=None, result="success", metadata=metadata, now=now)
    keyring.keep_newest()
    return count


def _reseal() -> int:
    """Seal with the newest key what is not; return how many values."""
    with transaction.atomic():
        count = sum(_reseal_credential(row) for row in McpCredential.objects.select_for_update())
        for noun, model in (("agent", Blueprint), ("capability", Capability)):
            count += sum(_reseal_servers(row, noun) for row in _with_servers(model))
        return count + notifications.reseal() + push.reseal()


def _with_servers(model: Any) -> Any:
    return model._default_manager.select_for_update().exclude(mcp_servers=None)


def _reseal_credential(row: McpCredential) -> int:
    if not keyring.is_sealed(row.value) or keyring.key_id_of(row.value) == keyring.newest_key():
        return 0
    value = credentials.value_of(row)
    McpCredential.objects.filter(pk=row.pk).update(
        value=credentials.sealed(row.server_id, row.kind, row.name, value)
    )
    return 1


def _reseal_servers(row: Any, noun: str) -> int:
    before = row.mcp_servers
    row.mcp_servers = sealed_servers.resealed(before, f"{noun} {row.name}")
    row.save(update_fields=["mcp_servers"])
    return sealed_servers.different_values(before, row.mcp_servers)
