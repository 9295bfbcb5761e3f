"""The transparency log: a leaf for each audit row, numbered in commit order in the row's own transaction.

SQLite has one writer at a time, so the next number is the order. On PostgreSQL a deferred trigger numbers the leaf at
commit, under the lock that the feed's triggers take too (engine/change_triggers.py): no gap, no fork, no deadlock.
Rows that are there already are numbered by their ids; their hashes are filled in by the sealing job.
"""

from __future__ import annotations

from django.db import migrations, models

from coordinator.engine.change_triggers import COMMIT_ORDER_LOCK
from coordinator.migrations._sql import remove_feed_triggers, step
from coordinator.models.fields import IsoTextField

NEXT = "(SELECT coalesce(max(leaf_index) + 1, 0) FROM audit_leaves)"


class Migration(migrations.Migration):
    dependencies = [("coordinator", "0046_search_pieces")]

    operations = [
        step(
            [
                """
CREATE TABLE audit_leaves (
    audit_id INTEGER NOT NULL PRIMARY KEY,
    leaf_index INTEGER UNIQUE,
    leaf_hash BLOB,
    by_signalbox BOOLEAN NOT NULL DEFAULT 0
)""",
                # What the sealing job looks for: leaves without a hash, few or none.
                "CREATE INDEX sbx_audit_leaves_bare ON audit_leaves (leaf_index) WHERE leaf_hash IS NULL",
                "INSERT INTO audit_leaves (audit_id, leaf_index)"
                " SELECT id, row_number() OVER (ORDER BY id) - 1 FROM audit_logs",
                {
                    "sqlite": f"""
CREATE TRIGGER sbx_audit_leaf AFTER INSERT ON audit_logs BEGIN
    INSERT OR IGNORE INTO audit_leaves (audit_id, leaf_index) VALUES (NEW.id, {NEXT});
END""",
                    "postgresql": """
CREATE FUNCTION sbx_audit_leaf() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    INSERT INTO audit_leaves (audit_id) VALUES (NEW.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$body$""",
                },
                {
                    "sqlite": "",
                    "postgresql": f"""
CREATE FUNCTION sbx_audit_leaf_number() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM pg_advisory_xact_lock({COMMIT_ORDER_LOCK});
    UPDATE audit_leaves SET leaf_index = {NEXT} WHERE audit_id = NEW.audit_id AND leaf_index IS NULL;
    RETURN NULL;
END
$body$""",
                },
                {
                    "sqlite": "",
                    "postgresql": "CREATE TRIGGER sbx_audit_leaf AFTER INSERT ON audit_logs"
                    " FOR EACH ROW EXECUTE FUNCTION sbx_audit_leaf()",
                },
                {
                    "sqlite": "",
                    "postgresql": "CREATE CONSTRAINT TRIGGER sbx_audit_leaf_number AFTER INSERT ON audit_leaves"
                    " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION sbx_audit_leaf_number()",
                },
            ],
            [
                {
                    "sqlite": "DROP TRIGGER sbx_audit_leaf",
                    "postgresql": "DROP TRIGGER sbx_audit_leaf ON audit_logs",
                },
                "DROP TABLE audit_leaves",
                {"sqlite": "", "postgresql": "DROP FUNCTION sbx_audit_leaf()"},
                {"sqlite": "", "postgresql": "DROP FUNCTION sbx_audit_leaf_number()"},
            ],
            [
                migrations.CreateModel(
                    "AuditLeaf",
                    [
                        ("audit_id", models.BigIntegerField(primary_key=True, serialize=False)),
                        ("leaf_index", models.BigIntegerField(null=True, unique=True)),
                        ("leaf_hash", models.BinaryField(null=True)),
                        ("by_signalbox", models.BooleanField(db_default=False)),
                    ],
                    {"db_table": "audit_leaves", "managed": False},
                ),
            ],
        ),
        migrations.RunPython(migrations.RunPython.noop, remove_feed_triggers),
        migrations.CreateModel(
            "AuditNode",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("level", models.BigIntegerField()),
                ("position", models.BigIntegerField()),
                ("node_hash", models.BinaryField()),
            ],
            {
                "db_table": "audit_nodes",
                "constraints": (
                    models.UniqueConstraint(fields=("level", "position"), name="sbx_audit_nodes_place"),
                ),
            },
        ),
        migrations.CreateModel(
            "AuditCheckpoint",
            [
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("tree_size", models.BigIntegerField(unique=True)),
                ("root_hash", models.BinaryField()),
                ("note", models.TextField()),
                ("created_at", IsoTextField(db_index=True)),
            ],
            {"db_table": "audit_checkpoints"},
        ),
        migrations.CreateModel(
            "AuditKey",
            [
                ("verifier", models.TextField(primary_key=True, serialize=False)),
                ("first_used_at", IsoTextField()),
            ],
            {"db_table": "audit_keys"},
        ),
        migrations.CreateModel(
            "AuditDelivery",
            [
                ("place", models.TextField(primary_key=True, serialize=False)),
                ("tree_size", models.BigIntegerField(default=0)),
                ("delivered_at", IsoTextField(null=True)),
                ("failed_at", IsoTextField(null=True)),
                ("error", models.TextField(null=True)),
            ],
            {"db_table": "audit_deliveries"},
        ),
    ]
