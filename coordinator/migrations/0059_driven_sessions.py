"""Sessions whose agent our runner drives: what the agent says of itself, its calls and words under way, and orders."""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models import fields


def _of_session(related_name: str, kind: type[models.Field[Any, Any]], **how: Any) -> Any:
    return kind(
        on_delete=django.db.models.deletion.DO_NOTHING,
        related_name=related_name,
        to="coordinator.session",
        **how,
    )


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0058_credentials")]

    operations = [
        step(
            [
                """
CREATE TABLE driven_sessions (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    runner_id TEXT NOT NULL,
    run_id TEXT,
    agent TEXT,
    agent_session_id TEXT,
    agent_info TEXT,
    capabilities TEXT,
    mode TEXT,
    mode_choices TEXT,
    model TEXT,
    model_choices TEXT,
    config_options TEXT,
    commands TEXT,
    plan TEXT,
    usage TEXT,
    worktree TEXT,
    last_n INTEGER NOT NULL DEFAULT 0
)""",
                "CREATE INDEX sbx_driven_sessions_agent ON driven_sessions (agent_session_id)",
                """
CREATE TABLE driven_calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    call_id TEXT NOT NULL,
    event_id INTEGER,
    told TEXT NOT NULL,
    output TEXT,
    began_at TEXT NOT NULL,
    ended BOOLEAN NOT NULL DEFAULT 0,
    CONSTRAINT driven_calls_once UNIQUE (session_id, call_id)
)""",
                """
CREATE TABLE drafts (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    message_id TEXT,
    text TEXT NOT NULL,
    blocks TEXT,
    began_at TEXT NOT NULL
)""",
                """
CREATE TABLE driven_commands (
    command_id TEXT NOT NULL PRIMARY KEY,
    session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE,
    runner_id TEXT NOT NULL,
    command TEXT NOT NULL,
    ordered_by TEXT NOT NULL,
    ordered_at TEXT NOT NULL,
    delivered_at TEXT,
    done_at TEXT,
    error TEXT
)""",
                "CREATE INDEX sbx_driven_commands_session ON driven_commands (session_id)",
                "CREATE INDEX sbx_driven_commands_open ON driven_commands (runner_id) WHERE done_at IS NULL",
                """
CREATE TABLE runner_offers (
    runner_id TEXT NOT NULL PRIMARY KEY REFERENCES runners (runner_id) ON DELETE CASCADE,
    offers TEXT NOT NULL
)""",
                "ALTER TABLE stop_commands ADD COLUMN keeps_process BOOLEAN NOT NULL DEFAULT 0",
            ],
            [
                "ALTER TABLE stop_commands DROP COLUMN keeps_process",
                "DROP TABLE runner_offers",
                "DROP TABLE driven_commands",
                "DROP TABLE drafts",
                "DROP TABLE driven_calls",
                "DROP TABLE driven_sessions",
            ],
            [
                migrations.AddField(
                    "stopcommand",
                    "keeps_process",
                    models.BooleanField(
                        db_default=False,
                        default=False,
                        help_text="The turn alone ends; the agent waits for the next prompt.",
                    ),
                ),
                migrations.CreateModel(
                    name="DrivenSession",
                    fields=[
                        (
                            "session",
                            _of_session(
                                "driven",
                                models.OneToOneField,
                                db_column="session_id",
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("runner_id", models.TextField()),
                        ("run_id", models.TextField(null=True)),
                        ("agent", models.TextField(null=True)),
                        ("agent_session_id", models.TextField(null=True)),
                        ("agent_info", fields.JsonTextField(null=True)),
                        ("capabilities", fields.JsonTextField(null=True)),
                        ("mode", models.TextField(null=True)),
                        ("mode_choices", fields.JsonTextField(null=True)),
                        ("model", models.TextField(null=True)),
                        ("model_choices", fields.JsonTextField(null=True)),
                        ("config_options", fields.JsonTextField(null=True)),
                        ("commands", fields.JsonTextField(null=True)),
                        ("plan", fields.JsonTextField(null=True)),
                        ("usage", fields.JsonTextField(null=True)),
                        ("worktree", models.TextField(null=True)),
                        ("last_n", models.BigIntegerField(default=0, db_default=0)),
                    ],
                    options={"db_table": "driven_sessions"},
                ),
                migrations.CreateModel(
                    name="DrivenCall",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("session", _of_session("driven_calls", models.ForeignKey, db_index=False)),
                        ("call_id", models.TextField()),
                        ("event_id", models.BigIntegerField(null=True)),
                        ("told", fields.JsonTextField()),
                        ("output", models.TextField(null=True)),
                        ("began_at", models.TextField()),
                        ("ended", models.BooleanField(default=False, db_default=False)),
                    ],
                    options={"db_table": "driven_calls"},
                ),
                migrations.AddConstraint(
                    "drivencall",
                    models.UniqueConstraint(fields=["session", "call_id"], name="driven_calls_once"),
                ),
                migrations.CreateModel(
                    name="Draft",
                    fields=[
                        (
                            "session",
                            _of_session(
                                "draft",
                                models.OneToOneField,
                                db_column="session_id",
                                primary_key=True,
                                serialize=False,
                            ),
                        ),
                        ("kind", models.TextField()),
                        ("message_id", models.TextField(null=True)),
                        ("text", models.TextField()),
                        ("blocks", fields.JsonTextField(null=True)),
                        ("began_at", models.TextField()),
                    ],
                    options={"db_table": "drafts"},
                ),
                migrations.CreateModel(
                    name="DrivenCommand",
                    fields=[
                        ("command_id", models.TextField(primary_key=True, serialize=False)),
                        ("session", _of_session("driven_commands", models.ForeignKey, db_index=False)),
                        ("runner_id", models.TextField()),
                        ("command", fields.JsonTextField()),
                        ("ordered_by", models.TextField()),
                        ("ordered_at", fields.IsoTextField()),
                        ("delivered_at", fields.IsoTextField(null=True)),
                        ("done_at", fields.IsoTextField(null=True)),
                        ("error", models.TextField(null=True)),
                    ],
                    options={"db_table": "driven_commands"},
                ),
                migrations.CreateModel(
                    name="RunnerOffers",
                    fields=[
                        (
                            "runner",
                            models.OneToOneField(
                                db_column="runner_id",
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="offers",
                                serialize=False,
                                to="coordinator.runner",
                            ),
                        ),
                        ("offers", fields.JsonTextField()),
                    ],
                    options={"db_table": "runner_offers"},
                ),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
