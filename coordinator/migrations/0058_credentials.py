"""Credentials of MCP servers are sealed: those of registered servers, and the values in blueprints and capabilities.

And servers of which no changed tool is served before a person accepted it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import django.db.models.deletion
from django.db import migrations, models
from django.utils import timezone

from coordinator.lib import instants
from coordinator.mcp.servers import credentials
from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField
from coordinator.runs import sealed_servers
from coordinator.secrets import keyring

OWNERS = (("blueprints", "agent"), ("capabilities", "capability"))


def seal(_apps: Any, schema_editor: Any) -> None:
    """Seal what lies in plain, in place."""
    at = instants.format_canonical_instant(timezone.now())
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT server_id, name, value FROM mcp_server_variables")
        rows = [
            (server, name, credentials.seal_credential(server, "env", name, value), "import", at)
            for server, name, value in cursor.fetchall()
        ]
        cursor.executemany(
            "INSERT INTO mcp_credentials (server_id, kind, name, value, set_by, set_at)"
            " VALUES (%s, 'env', %s, %s, %s, %s)",
            rows,
        )
        _change_servers(cursor, sealed_servers.seal_values_keeping_masked_ones)


def unseal(_apps: Any, schema_editor: Any) -> None:
    """Open what was sealed: the older program knows no sealing."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT server_id, name, value FROM mcp_credentials WHERE kind = 'env'")
        rows = [
            (
                server,
                name,
                keyring.unseal_text_with_keyring(credentials.build_seal_purpose(server, "env", name), value),
            )
            for server, name, value in cursor.fetchall()
            if keyring.is_sealed_text(value)
        ]
        cursor.executemany(
            "INSERT INTO mcp_server_variables (server_id, name, value) VALUES (%s, %s, %s)", rows
        )
        _change_servers(cursor, sealed_servers.unseal_server_values)


def _change_servers(cursor: Any, change: Callable[[Any, str], Any]) -> None:
    for table, noun in OWNERS:
        cursor.execute(f"SELECT name, mcp_servers FROM {table} WHERE mcp_servers IS NOT NULL")
        for name, text in cursor.fetchall():
            try:
                servers = json.loads(text)
            except ValueError:  # another program's: shown as it stands, to nobody
                continue
            changed = json.dumps(change(servers, f"{noun} {name}"))
            cursor.execute(f"UPDATE {table} SET mcp_servers = %s WHERE name = %s", [changed, name])


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0057_grants_that_ask")]

    operations = [
        step(
            [
                """
CREATE TABLE mcp_credentials (
    server_id TEXT NOT NULL REFERENCES mcp_servers (name) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    set_by TEXT NOT NULL,
    set_at TEXT NOT NULL,
    PRIMARY KEY (server_id, kind, name)
)""",
                """
CREATE TABLE accepted_only_servers (
    server_id TEXT NOT NULL PRIMARY KEY REFERENCES mcp_servers (name) ON DELETE CASCADE
)""",
            ],
            ["DROP TABLE accepted_only_servers", "DROP TABLE mcp_credentials"],
            [
                migrations.CreateModel(
                    name="McpCredential",
                    fields=[
                        (
                            "pk",
                            models.CompositePrimaryKey(
                                "server_id",
                                "kind",
                                "name",
                                blank=True,
                                editable=False,
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        (
                            "server",
                            models.ForeignKey(
                                db_index=False,
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                related_name="credentials",
                                to="coordinator.mcpserver",
                            ),
                        ),
                        (
                            "kind",
                            models.TextField(
                                choices=[("env", "Environment variable"), ("header", "HTTP header")]
                            ),
                        ),
                        ("name", models.TextField()),
                        ("value", models.TextField()),
                        ("set_by", models.TextField()),
                        ("set_at", IsoTextField()),
                    ],
                    options={"db_table": "mcp_credentials"},
                ),
                migrations.CreateModel(
                    name="AcceptedOnlyServer",
                    fields=[
                        (
                            "server",
                            models.OneToOneField(
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="accepted_only",
                                serialize=False,
                                to="coordinator.mcpserver",
                            ),
                        ),
                    ],
                    options={"db_table": "accepted_only_servers"},
                ),
            ],
        ),
        migrations.RunPython(seal, unseal),
        step(
            ["DROP TABLE mcp_server_variables"],
            [
                """
CREATE TABLE mcp_server_variables (
    server_id TEXT NOT NULL REFERENCES mcp_servers (name) ON DELETE CASCADE,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (server_id, name)
)"""
            ],
            [migrations.DeleteModel(name="McpServerVariable")],
        ),
    ]
