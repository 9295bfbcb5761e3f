"""Which machines send transcripts, with what the newest imports of the audit log say of them."""

from __future__ import annotations

import json
from typing import Any

from django.db import migrations, models
from django.db.models.deletion import CASCADE

from coordinator.lib import instants
from coordinator.migrations._sql import safe_beside_older

NEWEST_IMPORTS = 1_000  # as many as the page read before
COUNTS = {
    "files": "read_count",
    "sessions_made": "session_count",
    "events_added": "event_count",
    "events_known": "known_event_count",
}


@safe_beside_older("it fills a table that the older version does not know")
def fill_senders(apps: Any, schema_editor: Any) -> None:
    """Count what came of earlier imports. What an older server imports meanwhile is not counted."""
    sender_model = apps.get_model("coordinator", "TranscriptSender")
    senders: dict[tuple[str, str, str], Any] = {}
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(
            "SELECT timestamp, actor_id, metadata FROM audit_logs WHERE event_type = 'TRANSCRIPTS_IMPORTED'"
            " ORDER BY id DESC LIMIT %s",
            [NEWEST_IMPORTS],
        )
        rows = cursor.fetchall()
    for timestamp, actor, text in reversed(rows):
        facts, at = read_facts(text), instants.parse_instant_or_none(str(timestamp))
        if at is None or not isinstance(facts.get("profile"), str):
            continue
        at_us = instants.instant_to_microseconds(at)
        kind, _, name = str(actor or "").partition(":")
        key = (
            str(facts.get("hostname") or "")[:255],
            facts["profile"][:50],
            name[:255] if kind == "key" else "",
        )
        if key not in senders:
            hostname, program, sender = key
            senders[key] = sender_model(hostname=hostname, program=program, sender=sender, first_at_us=at_us)
        row = senders[key]
        row.received_at_us = max(row.received_at_us or at_us, at_us)
        for fact, column in COUNTS.items():
            if isinstance(facts.get(fact), int):
                setattr(row, column, getattr(row, column) + facts[fact])
    sender_model.objects.bulk_create(senders.values())


def read_facts(text: Any) -> dict[str, Any]:
    """Return an audit row's metadata; nothing where it is no JSON object."""
    try:
        facts = json.loads(text or "{}")
    except (TypeError, ValueError):
        return {}
    return facts if isinstance(facts, dict) else {}


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0107_gather_index_words")]

    operations = [
        migrations.CreateModel(
            name="TranscriptSender",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("hostname", models.TextField()),
                ("program", models.TextField()),
                ("sender", models.TextField()),
                ("read_count", models.BigIntegerField(default=0)),
                ("session_count", models.BigIntegerField(default=0)),
                ("event_count", models.BigIntegerField(default=0)),
                ("known_event_count", models.BigIntegerField(default=0)),
                ("first_at_us", models.BigIntegerField()),
                ("received_at_us", models.BigIntegerField(null=True)),
                ("reported_at_us", models.BigIntegerField(null=True)),
                ("file_count", models.BigIntegerField(null=True)),
                ("waiting_count", models.BigIntegerField(null=True)),
                ("is_watching", models.BooleanField(default=False)),
            ],
            options={"db_table": "transcript_senders"},
        ),
        migrations.AddConstraint(
            "transcriptsender",
            models.UniqueConstraint(fields=["hostname", "program", "sender"], name="transcript_senders_once"),
        ),
        migrations.CreateModel(
            name="TranscriptProblem",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "transcript_sender",
                    models.ForeignKey(
                        "coordinator.TranscriptSender", on_delete=CASCADE, related_name="problems"
                    ),
                ),
                ("is_from_machine", models.BooleanField()),
                ("file", models.TextField()),
                ("line", models.BigIntegerField(null=True)),
                ("reason", models.TextField()),
                ("line_count", models.BigIntegerField()),
                ("found_at_us", models.BigIntegerField()),
            ],
            options={"db_table": "transcript_problems"},
        ),
        migrations.RunPython(fill_senders, migrations.RunPython.noop),
    ]
