from __future__ import annotations

from django.db import migrations, models

import coordinator.models.fields


class Migration(migrations.Migration):
    dependencies = [
        ("coordinator", "0025_audit_ahead_index"),
    ]

    operations = [
        migrations.CreateModel(
            name="Blueprint",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("description", models.TextField()),
                ("system_prompt", models.TextField(null=True)),
                ("mcp_servers", coordinator.models.fields.JsonTextField(null=True)),
                ("skills", coordinator.models.fields.JsonTextField(null=True)),
                ("tags", coordinator.models.fields.JsonTextField(default=list)),
                ("capabilities", coordinator.models.fields.JsonTextField(default=list)),
                ("demands", coordinator.models.fields.JsonTextField(null=True)),
                ("status", models.TextField(db_default="active", default="active")),
                ("created_at", coordinator.models.fields.IsoTextField()),
                ("modified_at", coordinator.models.fields.IsoTextField()),
            ],
            options={
                "db_table": "blueprints",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Capability",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("description", models.TextField()),
                ("text", models.TextField(null=True)),
                ("mcp_servers", coordinator.models.fields.JsonTextField(null=True)),
                ("created_at", coordinator.models.fields.IsoTextField()),
                ("modified_at", coordinator.models.fields.IsoTextField()),
            ],
            options={
                "verbose_name_plural": "capabilities",
                "db_table": "capabilities",
                "ordering": ["name"],
            },
        ),
        migrations.CreateModel(
            name="Runner",
            fields=[
                ("runner_id", models.TextField(primary_key=True, serialize=False)),
                ("hostname", models.TextField()),
                ("project_dir", models.TextField()),
                ("executor_profile", models.TextField()),
                ("executor", coordinator.models.fields.JsonTextField(null=True)),
                ("tags", coordinator.models.fields.JsonTextField(default=list)),
                ("require_matching_tags", models.BooleanField(db_default=False, default=False)),
                (
                    "extra",
                    coordinator.models.fields.JsonTextField(
                        default=dict, help_text="What newer runners send beside the known fields."
                    ),
                ),
                ("registered_at", coordinator.models.fields.IsoTextField()),
                (
                    "last_heartbeat",
                    coordinator.models.fields.IsoTextField(
                        help_text="The last sign of life: a heartbeat, a poll or a report."
                    ),
                ),
                (
                    "gone_at",
                    coordinator.models.fields.IsoTextField(
                        help_text="When its poll broke off; cleared by the next sign of life.", null=True
                    ),
                ),
                (
                    "deregistered_at",
                    coordinator.models.fields.IsoTextField(
                        help_text="When it was told to go; its next poll says so.", null=True
                    ),
                ),
            ],
            options={
                "db_table": "runners",
                "ordering": ["registered_at", "runner_id"],
            },
        ),
        migrations.CreateModel(
            name="Callback",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("child_run_id", models.TextField(unique=True)),
                ("child_session_id", models.TextField()),
                ("parent_session_id", models.TextField()),
                ("succeeded", models.BooleanField()),
                ("text", models.TextField(help_text="The child's result, or why it failed.")),
                ("created_at", coordinator.models.fields.IsoTextField()),
                ("delivered_run_id", models.TextField(null=True)),
            ],
            options={
                "db_table": "callbacks",
                "indexes": [
                    models.Index(
                        condition=models.Q(("delivered_run_id__isnull", True)),
                        fields=["parent_session_id"],
                        name="sbx_callbacks_waiting",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StopCommand",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("runner_id", models.TextField()),
                ("run_id", models.TextField()),
                ("session_id", models.TextField()),
                ("requested_at", coordinator.models.fields.IsoTextField()),
                ("delivered_at", coordinator.models.fields.IsoTextField(null=True)),
            ],
            options={
                "db_table": "stop_commands",
                "constraints": [
                    models.UniqueConstraint(fields=("runner_id", "run_id"), name="sbx_stop_commands_once")
                ],
            },
        ),
    ]
