"""Credentials of MCP servers: headers of each request, variables of the process. No API key can read them.

A value is sealed (secrets.keyring) or names a variable of the server's own environment: `env:GITHUB_TOKEN`.
"""

from __future__ import annotations

import os

from django.conf import settings

from coordinator.errors import SignalboxError
from coordinator.models import McpCredential
from coordinator.models.mcp import CredentialKind
from coordinator.secrets import keyring

FROM_ENVIRONMENT = "env:"
# What decides about a process itself, and Signalbox's own settings and secrets: no credential is called so.
OURS = ("SIGNALBOX_", "DATABASE_URL", "PGPASS", "LD_", "DYLD_")
# Signalbox's own too, where it keeps files in a bucket (coordinator/chat/stores).
OF_THE_BUCKET = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class CredentialUnusable(SignalboxError):
    """A credential of a server is not to be had; the text says which, and what to do."""

    status = 503


def is_variable_reserved_for_signalbox(variable: str) -> bool:
    """Say whether a variable of the server's environment is for Signalbox alone: no MCP server is given it."""
    name = variable.upper()
    return name.startswith(OURS) or (bool(settings.S3_BUCKET) and name in OF_THE_BUCKET)


def build_seal_purpose(server_id: str, kind: str, name: str) -> str:
    """Return what a credential is sealed for."""
    return "\x1f".join(("mcp", server_id, kind, name))


def load_credential_header_pairs(server_id: str) -> list[tuple[str, str]]:
    """Return the headers that go with each request to the server. Raises CredentialUnusable."""
    return [*load_credential_values(server_id, CredentialKind.HEADER).items()]


def load_server_environment(server_id: str) -> dict[str, str]:
    """Return the variables that the server's process is started with. Raises CredentialUnusable."""
    credential_values = load_credential_values(server_id, CredentialKind.ENV)
    return {name: value for name, value in credential_values.items() if not name.upper().startswith(OURS)}


def load_credential_values(server_id: str, kind: CredentialKind) -> dict[str, str]:
    rows = McpCredential.objects.filter(server_id=server_id, kind=kind).order_by("name")
    return {row.name: decrypt_credential_value(row) for row in rows}


def decrypt_credential_value(row: McpCredential) -> str:
    """Return a credential's value. Raises CredentialUnusable."""
    if row.value.startswith(FROM_ENVIRONMENT):
        variable = row.value.removeprefix(FROM_ENVIRONMENT)
        value = os.environ.get(variable)
        if not value:
            raise CredentialUnusable(
                f"{row.name} of the MCP server {row.server_id} comes from the variable {variable}, which is not set "
                "where Signalbox runs."
            )
        return value
    try:
        return keyring.unseal_text_with_keyring(
            build_seal_purpose(row.server_id, row.kind, row.name), row.value
        )
    except keyring.KeyringUnusable as problem:
        raise CredentialUnusable(
            f"{row.name} of the MCP server {row.server_id} cannot be read: {problem}"
        ) from None


def seal_credential(server_id: str, kind: str, name: str, value: str) -> str:
    """Return `value` as it is stored."""
    return keyring.seal_text_with_keyring(build_seal_purpose(server_id, kind, name), value)
