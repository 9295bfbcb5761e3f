"""Budgets, what they are counted by, and whose sessions are."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models
from django.utils import timezone

from coordinator.lib import instants
from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models import fields

COUNTED_BACK = timedelta(days=2)
HOUR_MS = 3_600_000
MOST = 1_000_000_000  # tokens of one event that count


def count_back(apps: Any, schema_editor: Any) -> None:  # noqa: ARG001 - the shape Django calls
    """Count what was used today and yesterday, by the hour in which it was received."""
    since = int((timezone.now() - COUNTED_BACK).timestamp() * 1000)
    tokens = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
    sums = ", ".join(
        f"sum(CASE WHEN c.{name} BETWEEN 0 AND {MOST} THEN c.{name} WHEN c.{name} > {MOST} THEN {MOST} ELSE 0 END)"
        for name in tokens
    )
    found: dict[tuple[str, str, str], list[Any]] = {}
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.session_id, CASE WHEN c.output_tokens IS NULL THEN '' ELSE coalesce(c.model, 'unknown') END,"
            f" c.received_at / {HOUR_MS}, s.agent_name, s.executor_profile,"
            " sum(CASE WHEN e.event_type = 'pre_tool' THEN 1 ELSE 0 END),"
            f" {sums} FROM event_context c JOIN events e ON e.id = c.event_id"
            " JOIN sessions s ON s.session_id = c.session_id WHERE c.received_at >= %s"
            " AND (c.output_tokens IS NOT NULL OR e.event_type = 'pre_tool') GROUP BY 1, 2, 3, 4, 5",
            [since],
        )
        for session_id, model, hour, agent, program, *counts in cursor.fetchall():
            day = instants.local_iso_date_of_milliseconds(int(hour) * HOUR_MS, settings.LOCAL_ZONE)
            row = found.setdefault((day, session_id, model), [agent, program, 0, 0, 0, 0, 0])
            row[2:] = [int(have) + int(more) for have, more in zip(row[2:], counts, strict=True)]
        cursor.executemany(
            "INSERT INTO usage_days (day, session_id, model, agent, program, calls, input_tokens, output_tokens,"
            " cache_read_tokens, cache_write_tokens) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            [[*key, *row] for key, row in found.items()],
        )


def _id() -> tuple[str, Any]:
    return ("id", models.BigAutoField(primary_key=True, serialize=False))


REACHES = [("everything", "Everything"), ("agent", "One agent"), ("person", "One person")]
SPANS = [("day", "A day"), ("session", "Each session")]
MEASURES = [("tokens", "Tokens"), ("money", "Money (US dollars)"), ("calls", "Tool calls")]
ENDS = [
    ("warn", "Warn"),
    ("ask", "Ask about each further call"),
    ("hold", "Deny further calls and runs"),
]


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0070_notes")]

    operations = [
        migrations.CreateModel(
            name="Budget",
            fields=[
                _id(),
                ("reach", models.TextField(choices=REACHES)),
                ("name", models.TextField(blank=True, db_default="", default="")),
                ("span", models.TextField(choices=SPANS)),
                ("measure", models.TextField(choices=MEASURES)),
                ("amount", models.FloatField()),
                ("at_limit", models.TextField(choices=ENDS)),
                ("changed_at", fields.IsoTextField()),
                ("changed_by", models.TextField()),
                ("allowed_until", fields.IsoTextField(null=True)),
                ("allowed_by", models.TextField(null=True)),
                ("ended_at", fields.IsoTextField(null=True)),
            ],
            options={"db_table": "budgets"},
        ),
        migrations.CreateModel(
            name="BudgetMark",
            fields=[
                _id(),
                (
                    "budget",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="marks",
                        to="coordinator.budget",
                    ),
                ),
                ("about", models.TextField()),
                ("level", models.IntegerField()),
                ("at", fields.IsoTextField()),
            ],
            options={"db_table": "budget_marks"},
        ),
        migrations.AddConstraint(
            "budgetmark",
            models.UniqueConstraint(fields=["budget", "about", "level"], name="budget_marks_once"),
        ),
        migrations.CreateModel(
            name="UsageDay",
            fields=[
                _id(),
                ("day", models.TextField()),
                ("session_id", models.TextField()),
                ("model", models.TextField()),
                ("agent", models.TextField(null=True)),
                ("program", models.TextField(null=True)),
                ("person", models.TextField(null=True)),
                ("calls", models.BigIntegerField()),
                ("input_tokens", models.BigIntegerField()),
                ("output_tokens", models.BigIntegerField()),
                ("cache_read_tokens", models.BigIntegerField()),
                ("cache_write_tokens", models.BigIntegerField()),
            ],
            options={"db_table": "usage_days"},
        ),
        migrations.AddConstraint(
            "usageday",
            models.UniqueConstraint(fields=["day", "session_id", "model"], name="usage_days_once"),
        ),
        migrations.AddIndex("usageday", models.Index(fields=["session_id"], name="usage_days_of_session")),
        step(
            [
                """
CREATE TABLE session_owners (
    session_id TEXT NOT NULL PRIMARY KEY REFERENCES sessions (session_id) ON DELETE CASCADE,
    person TEXT NOT NULL
)"""
            ],
            ["DROP TABLE session_owners"],
            [
                migrations.CreateModel(
                    name="SessionOwner",
                    fields=[
                        (
                            "session",
                            models.OneToOneField(
                                db_column="session_id",
                                on_delete=django.db.models.deletion.DO_NOTHING,
                                primary_key=True,
                                related_name="owner",
                                serialize=False,
                                to="coordinator.session",
                            ),
                        ),
                        ("person", models.TextField()),
                    ],
                    options={"db_table": "session_owners"},
                ),
            ],
        ),
        migrations.RunPython(count_back, migrations.RunPython.noop),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
    ]
