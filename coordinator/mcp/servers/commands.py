"""The digest of a stdio server's command and isolation: a command that no admin has accepted is not started.

Other programs write the same tables. So the digest of what an admin's action wrote last is stored with it, made with
this installation's key: a program that can only write the tables cannot make one.
"""

from __future__ import annotations

from dataclasses import asdict

from coordinator.mcp.isolation import process_isolation as isolation
from coordinator.mcp.isolation.process_isolation import Isolation
from coordinator.mcp.servers.credentials import FROM_ENVIRONMENT
from coordinator.models import McpCredential, McpServer, McpUpstream
from coordinator.models.mcp import CredentialKind
from coordinator.secrets.digests import keyed_digest


def hash_server_command(server: McpServer) -> str:
    """Return the digest of a server's current command, arguments, variables and isolation.

    A sealed value counts as such, whatever it is: nobody else can make one.
    """
    rows = McpCredential.objects.filter(server_id=server.name, kind=CredentialKind.ENV)
    variables = {
        name: value if value.startswith(FROM_ENVIRONMENT) else "sealed"
        for name, value in rows.values_list("name", "value")
    }
    args = server.args if isinstance(server.args, list) else str(server.args)
    current_isolation = isolation.build_isolation(McpUpstream.objects.filter(pk=server.name).first())
    # The usual isolation is left out: what was accepted before there was any stays so.
    more = [] if current_isolation == Isolation() else [asdict(current_isolation)]
    return keyed_digest("mcp command", server.name, server.command, args, variables, *more)


def has_admin_accepted_command(server: McpServer, upstream: McpUpstream) -> bool:
    """Return whether an admin has accepted the server's current command."""
    return upstream.accepted_command == hash_server_command(server)
