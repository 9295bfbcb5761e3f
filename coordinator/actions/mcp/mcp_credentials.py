"""Credentials of MCP servers: entered and removed by people, never shown again; resealed when the key changes."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from django.db import transaction

from coordinator.actions import notifications
from coordinator.actions.audit import audit
from coordinator.actions.mcp import mcp_authorizations, mcp_sign_ins, mcp_upstreams
from coordinator.actions.notifications import push
from coordinator.errors import NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor, require_actor_not_api_key
from coordinator.mcp.servers import credentials
from coordinator.models import (
    Blueprint,
    Capability,
    McpAccessToken,
    McpAuthorization,
    McpCredential,
    McpServer,
)
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


def save_server_credential(
    server_id: str, kind: str, name: str, value: str, *, actor: Actor, now: datetime
) -> McpCredential:
    """Keep a credential of a server, in the place of one of that name. `env:NAME` names a variable.

    Raises NotFound, UnprocessableRequest, Forbidden for an API key.
    """
    refuse_api_key_for_credentials(actor)
    stored = value = value.strip()
    validate_credential(kind, name, value)
    with transaction.atomic():
        server = lock_mcp_server_by_id(server_id)
        if not value.startswith(credentials.FROM_ENVIRONMENT):
            stored = credentials.seal_credential(server_id, kind, name, value)
        rows = McpCredential.objects.filter(server_id=server_id)
        is_new = not rows.filter(kind=kind, name=name).exists()
        if is_new and rows.count() >= MOST_CREDENTIALS:
            raise UnprocessableRequest(f"A server may have at most {MOST_CREDENTIALS} credentials.")
        with mcp_upstreams.renew_command_acceptance_during_block(server, actor):
            row, _ = McpCredential.objects.update_or_create(
                server_id=server_id,
                kind=kind,
                name=name,
                defaults={"value": stored, "set_by": str(actor), "set_at": now},
            )
        logged_value = stored if stored.startswith(credentials.FROM_ENVIRONMENT) else "sealed"
        record_credential_event(
            "MCP_CREDENTIAL_SET",
            f"{server_id} {kind} {name}",
            actor,
            now,
            source=logged_value,
            replaced=not is_new,
        )
    return row


def remove_server_credential(server_id: str, kind: str, name: str, *, actor: Actor, now: datetime) -> None:
    """Take a credential away. Raises NotFound, Forbidden for an API key."""
    refuse_api_key_for_credentials(actor)
    with transaction.atomic():
        with mcp_upstreams.renew_command_acceptance_during_block(lock_mcp_server_by_id(server_id), actor):
            rows = McpCredential.objects.filter(server_id=server_id, kind=kind, name=name)
            deleted, _ = rows.delete()
        if not deleted:
            raise NotFound(f"The server {server_id} has no {name}.")
        record_credential_event("MCP_CREDENTIAL_REMOVED", f"{server_id} {kind} {name}", actor, now)


def refuse_api_key_for_credentials(actor: Actor) -> None:
    require_actor_not_api_key(actor, "An API key cannot change credentials. A person must sign in to do it.")


def lock_mcp_server_by_id(server_id: str) -> McpServer:
    server = McpServer.objects.select_for_update().filter(pk=server_id).first()
    if server is None:
        raise NotFound(f"There is no MCP server {server_id}.")
    return server


def validate_credential(kind: str, name: str, value: str) -> None:
    if kind not in CredentialKind.values:
        raise UnprocessableRequest(f"A credential must be one of: {', '.join(CredentialKind.values)}.")
    if kind == CredentialKind.ENV and (
        not _VARIABLE.fullmatch(name) or name.upper().startswith(credentials.OURS)
    ):
        raise UnprocessableRequest(
            f"{name!r} cannot be a variable of a server. Use letters, digits and _, and none of Signalbox's own "
            "variables."
        )
    if kind == CredentialKind.HEADER and (
        not _HEADER.fullmatch(name)
        or name.lower() in GATEWAYS_OWN
        or name.lower().startswith(("mcp-", "x-signalbox"))
    ):
        raise UnprocessableRequest(f"{name!r} cannot be a header that Signalbox adds.")
    if not value or len(value) > LONGEST_VALUE:
        raise UnprocessableRequest(f"A value must have 1 to {LONGEST_VALUE} characters.")
    if any(ord(sign) < 32 and sign != "\t" for sign in value) and kind == CredentialKind.HEADER:
        raise UnprocessableRequest("A header's value must be one line.")
    if "\0" in value:
        raise UnprocessableRequest("A value may not contain NUL.")
    if value.startswith(credentials.FROM_ENVIRONMENT):
        variable = value.removeprefix(credentials.FROM_ENVIRONMENT)
        if not _VARIABLE.fullmatch(variable) or credentials.is_variable_reserved_for_signalbox(variable):
            raise UnprocessableRequest(
                f"{variable!r} cannot be used. Use letters, digits and _, and none of Signalbox's own settings."
            )


def record_credential_event(event: str, target: str, actor: Actor, now: datetime, **metadata: object) -> None:
    audit.record_audit_entry(
        event, actor=actor, target=target, result="success", metadata=metadata or None, now=now
    )


def rotate_credential_key(*, actor: Actor, now: datetime) -> int:
    """Seal every credential with a new key and forget the old ones; return how many values were resealed.

    Raises keyring.KeyringUnusable where one cannot be opened; then the old keys stay, and nothing is lost. The same
    holds where it is interrupted: it can be run again.
    """
    keyring.add_keyring_key()
    count = 0
    while resealed := reencrypt_all_secrets():  # again for what was sealed with an old key meanwhile
        count += resealed
    metadata = {"count": count}
    audit.record_audit_entry(
        "CREDENTIALS_RESEALED", actor=actor, target=None, result="success", metadata=metadata, now=now
    )
    keyring.remove_all_but_newest_key()
    return count


def reencrypt_all_secrets() -> int:
    """Seal with the newest key what is not; return how many values."""
    with transaction.atomic():
        count = sum(reencrypt_credential(row) for row in McpCredential.objects.select_for_update())
        for noun, model in (("agent", Blueprint), ("capability", Capability)):
            count += sum(
                reencrypt_server_definitions(row, noun) for row in lock_rows_defining_mcp_servers(model)
            )
        count += sum(map(mcp_sign_ins.reencrypt_oauth_tokens, McpAccessToken.objects.select_for_update()))
        count += sum(
            map(mcp_authorizations.reencrypt_client_secret, McpAuthorization.objects.select_for_update())
        )
        return count + notifications.reencrypt_notification_addresses() + push.reencrypt_push_keys()


def lock_rows_defining_mcp_servers(model: Any) -> Any:
    return model._default_manager.select_for_update().exclude(mcp_servers=None)


def reencrypt_credential(row: McpCredential) -> int:
    if (
        not keyring.is_sealed_text(row.value)
        or keyring.key_id_of_sealed_text(row.value) == keyring.load_newest_key_id()
    ):
        return 0
    value = credentials.decrypt_credential_value(row)
    McpCredential.objects.filter(pk=row.pk).update(
        value=credentials.seal_credential(row.server_id, row.kind, row.name, value)
    )
    return 1


def reencrypt_server_definitions(row: Any, noun: str) -> int:
    before = row.mcp_servers
    row.mcp_servers = sealed_servers.reseal_server_values(before, f"{noun} {row.name}")
    row.save(update_fields=["mcp_servers"])
    return sealed_servers.count_different_values(before, row.mcp_servers)
