"""The MCP gateway: where servers are reached, clients' sessions, held calls, and what calls came to."""

from __future__ import annotations

from django.db import migrations, models

import coordinator.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0060_danger_marks"),
    ]

    operations = [
        migrations.CreateModel(
            name="GatewaySession",
            fields=[
                ("session_id", models.TextField(primary_key=True, serialize=False)),
                ("door", models.TextField()),
                ("key_id", models.BigIntegerField()),
                ("agent_id", models.TextField()),
                ("protocol_version", models.TextField()),
                ("client", coordinator.models.fields.JsonTextField(blank=True, null=True)),
                ("capabilities", coordinator.models.fields.JsonTextField(blank=True, null=True)),
                ("created_at", coordinator.models.fields.IsoTextField()),
                ("used_at", coordinator.models.fields.IsoTextField()),
            ],
            options={
                "db_table": "mcp_gateway_sessions",
            },
        ),
        migrations.CreateModel(
            name="McpUpstream",
            fields=[
                ("server_id", models.TextField(primary_key=True, serialize=False)),
                (
                    "transport",
                    models.TextField(choices=[("http", "HTTP"), ("stdio", "stdio")], default="http"),
                ),
                ("url", models.TextField(blank=True, null=True)),
                (
                    "sharing",
                    models.TextField(choices=[("shared", "Shared"), ("caller", "Caller")], default="shared"),
                ),
                ("private_network", models.BooleanField(default=False)),
                ("call_seconds", models.IntegerField(default=300)),
                ("enabled", models.BooleanField(default=True)),
                ("changed_at", coordinator.models.fields.IsoTextField()),
            ],
            options={
                "verbose_name": "upstream of an MCP server",
                "db_table": "mcp_upstreams",
            },
        ),
        migrations.CreateModel(
            name="GatewayCall",
            fields=[
                ("call_id", models.TextField(primary_key=True, serialize=False)),
                ("request_id", models.TextField(blank=True, null=True)),
                ("key_id", models.BigIntegerField()),
                ("agent_id", models.TextField()),
                ("server_id", models.TextField()),
                ("tool_name", models.TextField()),
                ("session_id", models.TextField(blank=True, null=True)),
                ("gateway_session", models.TextField(blank=True, null=True)),
                ("call_key", models.TextField()),
                ("arguments_digest", models.TextField()),
                ("definition_digest", models.TextField()),
                ("policy_version", models.TextField()),
                ("is_task", models.BooleanField(default=False)),
                ("rounds", models.IntegerField(default=0)),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("waiting", "Waiting"),
                            ("running", "Running"),
                            ("done", "Done"),
                            ("denied", "Denied"),
                            ("cancelled", "Cancelled"),
                            ("lost", "Lost"),
                        ]
                    ),
                ),
                ("message", models.TextField(blank=True, null=True)),
                ("result", models.TextField(blank=True, null=True)),
                ("worker", models.TextField(blank=True, null=True)),
                ("created_at", coordinator.models.fields.IsoTextField()),
                ("expires_at", coordinator.models.fields.IsoTextField()),
                ("started_at", coordinator.models.fields.IsoTextField(blank=True, null=True)),
                ("run_until", coordinator.models.fields.IsoTextField(blank=True, null=True)),
                ("ended_at", coordinator.models.fields.IsoTextField(blank=True, null=True)),
                ("delivered_at", coordinator.models.fields.IsoTextField(blank=True, null=True)),
            ],
            options={
                "db_table": "mcp_gateway_calls",
                "indexes": [
                    models.Index(fields=["call_key", "created_at"], name="sbx_gateway_calls_key"),
                    models.Index(fields=["request_id"], name="sbx_gateway_calls_request"),
                ],
            },
        ),
        migrations.CreateModel(
            name="GatewayFigures",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("server_id", models.TextField()),
                ("tool_name", models.TextField()),
                ("hour", coordinator.models.fields.IsoTextField()),
                ("outcome", models.TextField()),
                ("calls", models.BigIntegerField()),
                ("upstream", coordinator.models.fields.JsonTextField()),
                ("own", coordinator.models.fields.JsonTextField()),
            ],
            options={
                "db_table": "mcp_gateway_figures",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("server_id", "tool_name", "hour", "outcome"), name="sbx_gateway_figures_hour"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="GatewayLink",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("session_id", models.TextField()),
                ("server_id", models.TextField()),
                ("upstream_session", models.TextField(blank=True, null=True)),
                ("protocol_version", models.TextField()),
            ],
            options={
                "db_table": "mcp_gateway_links",
                "constraints": [
                    models.UniqueConstraint(
                        fields=("session_id", "server_id"), name="sbx_gateway_links_server"
                    )
                ],
            },
        ),
    ]
