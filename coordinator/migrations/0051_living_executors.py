"""What the coordinator's newest version knows beside: executors that outlive their runs, and procedural agents."""

from __future__ import annotations

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models import fields


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0050_files_touched")]

    operations = [
        migrations.AddField(
            "blueprint",
            "type",
            models.TextField(help_text="`autonomous` where it does not say.", null=True),
        ),
        migrations.AddField(
            "blueprint",
            "parameters_schema",
            fields.JsonTextField(help_text="JSON Schema of a run's parameters.", null=True),
        ),
        migrations.AddField(
            "capability",
            "type",
            models.TextField(
                help_text="`text`, `mcp` or `script`; told by what it has if not said.", null=True
            ),
        ),
        migrations.AddField(
            "capability",
            "script",
            models.TextField(help_text="The script's name, as its runner knows it.", null=True),
        ),
        step(
            [
                """
CREATE TABLE run_parameters (
    run_id TEXT NOT NULL PRIMARY KEY REFERENCES runs (run_id) ON DELETE CASCADE,
    parameters TEXT NOT NULL
)""",
                """
CREATE TABLE living_executors (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    runner_id TEXT NOT NULL,
    run_id TEXT NOT NULL,
    since TEXT NOT NULL
)""",
                "CREATE INDEX sbx_living_executors_runner ON living_executors (runner_id)",
            ],
            ["DROP TABLE living_executors", "DROP TABLE run_parameters"],
            [
                migrations.CreateModel(
                    name="RunParameters",
                    fields=[
                        (
                            "run",
                            models.OneToOneField(
                                db_column="run_id",
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="ordered_with",
                                serialize=False,
                                to="coordinator.run",
                            ),
                        ),
                        ("parameters", fields.JsonTextField()),
                    ],
                    options={"db_table": "run_parameters"},
                ),
                migrations.CreateModel(
                    name="LivingExecutor",
                    fields=[
                        (
                            "session",
                            models.OneToOneField(
                                db_column="session_id",
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="living_executor",
                                serialize=False,
                                to="coordinator.session",
                            ),
                        ),
                        ("runner_id", models.TextField()),
                        ("run_id", models.TextField()),
                        ("since", fields.IsoTextField()),
                    ],
                    options={"db_table": "living_executors"},
                ),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
