"""Sums that lists of sessions sort by, and what people do with sessions there: tags, pins, archive, columns, views.

`sbx_figures_progress` has one row: the change up to which figures follow the feed (`followed`), and the session up to
which they were compared with what is stored (`swept`, by id; '' at the beginning of a round).
"""

from __future__ import annotations

from typing import Any

import django.db.models.deletion
from django.db import migrations, models

from coordinator.migrations._sql import step
from coordinator.models.fields import IsoTextField, JsonTextField


def of_session(*, unique: bool, related_name: str) -> models.ForeignKey[Any, Any]:
    if unique:
        return models.OneToOneField(
            db_column="session_id",
            on_delete=django.db.models.deletion.DO_NOTHING,
            primary_key=True,
            related_name=related_name,
            serialize=False,
            to="coordinator.session",
        )
    return models.ForeignKey(
        db_index=False,
        on_delete=django.db.models.deletion.DO_NOTHING,
        related_name=related_name,
        to="coordinator.session",
    )


KEY = "session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE"
FIGURES = f"""
CREATE TABLE sbx_session_figures (
    {KEY},
    cost {{real}},
    tokens {{integer}},
    began_us {{integer}},
    ended_us {{integer}},
    files_changed {{integer}} NOT NULL DEFAULT 0,
    person TEXT
)"""
REFERENCE = "session_id TEXT NOT NULL REFERENCES sessions (session_id) ON DELETE CASCADE"


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0101_telemetry_omissions")]

    operations = [
        step(
            [
                {
                    "sqlite": FIGURES.format(real="REAL", integer="INTEGER"),
                    "postgresql": FIGURES.format(real="double precision", integer="bigint"),
                },
                "CREATE INDEX sbx_session_figures_person ON sbx_session_figures (person)",
                """
CREATE TABLE sbx_figures_progress (
    id INTEGER NOT NULL PRIMARY KEY,
    followed INTEGER NOT NULL DEFAULT 0,
    swept TEXT NOT NULL DEFAULT ''
)""",
                "INSERT INTO sbx_figures_progress (id, followed) SELECT 1, coalesce(max(id), 0) FROM changes",
                f"""
CREATE TABLE sbx_session_tags (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    {REFERENCE},
    tag TEXT NOT NULL,
    tagged_by TEXT NOT NULL,
    tagged_at TEXT NOT NULL,
    CONSTRAINT sbx_session_tags_once UNIQUE (session_id, tag)
)""",
                "CREATE INDEX sbx_session_tags_tag ON sbx_session_tags (tag, session_id)",
                f"""
CREATE TABLE sbx_session_pins (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    {REFERENCE},
    user_id INTEGER NOT NULL,
    pinned_at TEXT NOT NULL,
    CONSTRAINT sbx_session_pins_once UNIQUE (user_id, session_id)
)""",
                "CREATE INDEX sbx_session_pins_session ON sbx_session_pins (session_id)",
                f"""
CREATE TABLE sbx_archived_sessions (
    {KEY},
    archived_by TEXT NOT NULL,
    archived_at TEXT NOT NULL
)""",
            ],
            [
                "DROP TABLE sbx_archived_sessions",
                "DROP TABLE sbx_session_pins",
                "DROP TABLE sbx_session_tags",
                "DROP TABLE sbx_figures_progress",
                "DROP TABLE sbx_session_figures",
            ],
            [
                migrations.CreateModel(
                    name="SessionFigures",
                    fields=[
                        ("session", of_session(unique=True, related_name="figures")),
                        ("cost", models.FloatField(null=True)),
                        ("tokens", models.BigIntegerField(null=True)),
                        ("began_us", models.BigIntegerField(null=True)),
                        ("ended_us", models.BigIntegerField(null=True)),
                        ("files_changed", models.BigIntegerField(db_default=0, default=0)),
                        ("person", models.TextField(null=True)),
                    ],
                    options={
                        "verbose_name_plural": "session figures",
                        "db_table": "sbx_session_figures",
                    },
                ),
                migrations.CreateModel(
                    name="SessionTag",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("session", of_session(unique=False, related_name="tags")),
                        ("tag", models.TextField()),
                        ("tagged_by", models.TextField()),
                        ("tagged_at", IsoTextField()),
                    ],
                    options={
                        "db_table": "sbx_session_tags",
                        "constraints": [
                            models.UniqueConstraint(fields=("session", "tag"), name="sbx_session_tags_once")
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="SessionPin",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        ("session", of_session(unique=False, related_name="pins")),
                        ("user_id", models.BigIntegerField()),
                        ("pinned_at", IsoTextField()),
                    ],
                    options={
                        "db_table": "sbx_session_pins",
                        "constraints": [
                            models.UniqueConstraint(
                                fields=("user_id", "session"), name="sbx_session_pins_once"
                            )
                        ],
                    },
                ),
                migrations.CreateModel(
                    name="ArchivedSession",
                    fields=[
                        ("session", of_session(unique=True, related_name="archived")),
                        ("archived_by", models.TextField()),
                        ("archived_at", IsoTextField()),
                    ],
                    options={"db_table": "sbx_archived_sessions"},
                ),
            ],
        ),
        migrations.CreateModel(
            name="SessionListChoice",
            fields=[
                ("user_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("columns", JsonTextField()),
            ],
            options={"db_table": "sbx_session_list_choices"},
        ),
        migrations.CreateModel(
            name="SavedSessionView",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("user_id", models.BigIntegerField()),
                ("name", models.TextField()),
                ("query", models.TextField()),
            ],
            options={
                "db_table": "sbx_saved_session_views",
                "constraints": [
                    models.UniqueConstraint(fields=("user_id", "name"), name="sbx_saved_session_views_once")
                ],
            },
        ),
    ]
