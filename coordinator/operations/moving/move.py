"""The move, from its first check to the note of its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.engine import is_sqlite
from coordinator.identity.actors import system_actor
from coordinator.lib import sizes
from coordinator.operations import startup
from coordinator.operations.moving import rows, target
from coordinator.operations.moving.progress import MoveProgress
from coordinator.operations.moving.rows import RowsDigest, UnsupportedValueReport
from coordinator.operations.moving.source import SqliteSource
from coordinator.operations.moving.tables import (
    MovedTable,
    require_matching_tables_to_move,
    row_counts_by_unknown_table,
)

Say = Callable[[str], object]

STOP_SERVER = (
    "A move needs it stopped: stop it (`systemctl stop signalbox`, or Ctrl-C where it runs), and run this again. "
    "--dry-run may run beside it."
)


class DatabaseMove:
    """One move of the database `path` into the default connection's; `say` prints lines."""

    def __init__(self, path: Path, say: Say, *, mend: bool = False) -> None:
        if is_sqlite():
            raise CommandError("Name a PostgreSQL database: postgres://user:password@host:5432/name.")
        startup.require_database_connection()
        self.source = SqliteSource(path)
        self.say = say
        self.odds = UnsupportedValueReport(mend=mend)

    def require_everything_movable(self) -> None:
        """Look at every row and at the target, and change nothing. Raises CommandError where the move would fail."""
        self.require_source_fully_migrated()
        target.require_empty_or_interrupted_target()
        tables = require_matching_tables_to_move(self.source.db)
        total = size = 0
        with self.source.read_snapshot_transaction():
            self.say(f"{'table':<26}{'rows':>12}{'size':>12}")
            for table in tables:
                count, characters = self.measure_and_validate_source_table(table)
                total, size = total + count, size + characters
                if count:
                    self.say(f"{table.name:<26}{count:>12,}{sizes.format_byte_count(characters):>12}")
            self.say(f"{'in all':<26}{total:>12,}{sizes.format_byte_count(size):>12}")
            orphans = self.source.describe_orphan_rows(tables)
            self.print_unknown_tables(tables)
        if orphans and self.odds.refused_count:
            self.print_lines(orphans)
        self.report_changes_and_reject_refused_values()
        self.print_orphan_rows_and_refuse_move(orphans)
        self.say("All of it can be moved. Nothing was changed (--dry-run).")

    def measure_and_validate_source_table(self, table: MovedTable) -> tuple[int, int]:
        """Return how many rows a table has and how long their values are; note what PostgreSQL would refuse."""
        count = characters = 0
        for raw in self.source.iterate_source_rows(table):
            count += 1
            characters += sum(len(value) if isinstance(value, str | bytes) else 8 for value in raw)
            rows.convert_row_or_count_refusal(table, raw, self.odds)
        return count, characters

    def move_database_rows(self, now: datetime) -> None:
        """Move everything. Raises CommandError, and then the target is marked as incomplete."""
        with (
            startup.lock_data_folder(settings.DATA_DIR, remedy=STOP_SERVER),
            self.source.hold_write_lock(),
        ):
            self.require_source_fully_migrated()
            target.require_empty_or_interrupted_target()
            self.say(f"Moving {self.source.path} to {startup.describe_database()}.")
            target.record_incomplete_move()
            self.say("Making the tables …")
            target.migrate_target_database()
            tables = require_matching_tables_to_move(self.source.db)
            self.print_orphan_rows_and_refuse_move(self.source.describe_orphan_rows(tables))
            self.print_unknown_tables(tables)
            counters = self.source.load_last_ids_by_table()
            started_at = time.monotonic()
            with transaction.atomic():
                digests = self.copy_and_compare_tables(tables, counters)
                self.audit_move_and_mark_complete(now)
            count = sum(digest.count for digest in digests.values())
            self.say(
                f"{count:,} rows are in PostgreSQL, and no table differs ({time.monotonic() - started_at:.0f} s)."
            )

    def copy_and_compare_tables(
        self, tables: Sequence[MovedTable], counters: Mapping[str, int]
    ) -> dict[str, RowsDigest]:
        """Copy all rows, put the constraints back and compare; part of a transaction. Return what was read of each."""
        total = sum(self.source.count_source_rows(table) for table in tables)
        keys = target.empty_tables_and_drop_constraints(tables)
        self.say(f"Copying {total:,} rows …")
        progress = MoveProgress(self.say, total)
        digests = {table.name: self.copy_table_and_digest_rows(table, progress) for table in tables}
        self.say("Checking foreign keys …")
        target.restore_constraints(tables, keys)
        target.set_target_sequences(counters)
        self.say("Comparing every table …")
        progress = MoveProgress(lambda _line: None, total)
        for table in tables:
            self.verify_copied_table(table, digests[table.name], progress)
        return digests

    def copy_table_and_digest_rows(self, table: MovedTable, progress: MoveProgress) -> RowsDigest:
        """Copy one table; return the count and digest of its rows. Raises CommandError where a value is refused."""
        digest = RowsDigest()
        raw_rows = progress.yield_rows_with_progress(table.name, self.source.iterate_source_rows(table))
        converted = (rows.convert_row_or_count_refusal(table, raw, self.odds) for raw in raw_rows)
        target.write_rows_to_target_table(
            table, digest.yield_and_digest_rows(row for row in converted if row is not None)
        )
        self.report_changes_and_reject_refused_values()
        return digest

    def verify_copied_table(self, table: MovedTable, digest: RowsDigest, progress: MoveProgress) -> None:
        """Read a table back, and raise CommandError where it is not what was read from SQLite."""
        copied = RowsDigest()
        copied.add_rows(progress.yield_rows_with_progress(table.name, target.iterate_target_rows(table)))
        if copied != digest:
            raise CommandError(
                f"{table.name} differs: {digest.count:,} rows ({digest.hex_digest}) in SQLite, {copied.count:,} "
                f"({copied.hex_digest}) in PostgreSQL. Nothing was moved."
            )
        if digest.count:
            self.say(f"  {table.name:<26}{digest.count:>12,} rows  {digest.hex_digest}  the same")

    def audit_move_and_mark_complete(self, now: datetime) -> None:
        audit.record_audit_entry(
            "DATABASE_MOVED",
            actor=system_actor("move_to"),
            target=startup.describe_database(),
            result="success",
            metadata={"from": str(self.source.path)},
            now=now,
        )
        target.clear_incomplete_move_record()

    def require_source_fully_migrated(self) -> None:
        known_migrations, applied = startup.migrations_on_disk(), self.source.load_source_migrations()
        if not applied:
            raise CommandError(f"{self.source.path} has no tables of Signalbox.")
        startup.refuse_newer_database(known_migrations, applied)
        if known_migrations - applied:
            raise CommandError(
                f"{self.source.path} lacks {len(known_migrations - applied)} migrations of this version. Start the "
                "server on it once (or run `signalbox manage migrate`), stop it, and run this again."
            )

    def print_orphan_rows_and_refuse_move(self, orphans: Sequence[str]) -> None:
        if orphans:
            self.print_lines(orphans)
            raise CommandError(
                "PostgreSQL keeps its foreign keys, and these rows refer to rows that do not exist. Another program "
                "left them; delete them or restore what they refer to, and run this again. Nothing was moved."
            )

    def report_changes_and_reject_refused_values(self) -> None:
        """Print what was changed; raise CommandError where PostgreSQL cannot hold a value."""
        if self.odds.mended:
            self.say("Changed, as import_db does, because PostgreSQL would not accept it:")
            self.print_lines(self.odds.mended)
            self.odds.mended.clear()
        if self.odds.refused_count:
            self.print_lines(self.odds.refused)
            raise CommandError(
                f"PostgreSQL cannot hold {self.odds.refused_count:,} rows as they are; the first are named above. "
                "--dry-run looks at all tables. Correct them in SQLite, or add --mend to change them as import_db does "
                "(never rows of the audit log). Nothing was moved."
            )

    def print_unknown_tables(self, tables: list[MovedTable]) -> None:
        for name, number in row_counts_by_unknown_table(self.source.db, tables).items():
            self.say(f"Not moved: {name}, a table of another program ({number:,} rows).")

    def print_lines(self, lines: Sequence[str]) -> None:
        self.say("\n".join(f"  {line}" for line in lines))
