"""The move from its first check to the switch, and back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError, IntegrityError, connection, connections, transaction

from coordinator.actions.audit import audit
from coordinator.actions.upkeep import partitions as parts_of_events
from coordinator.engine import health, is_sqlite
from coordinator.identity.actors import system_actor
from coordinator.lib import chosen_database, sizes
from coordinator.operations import startup
from coordinator.operations.moving import Say, progress_timestamp, rows, target
from coordinator.operations.moving.rows import OddValueReport, Row, RowsDigest
from coordinator.operations.moving.source import SqliteSource
from coordinator.operations.moving.tables import MovedTable, count_unknown_table_rows, find_tables_to_move
from coordinator.settings import sqlite_database_settings

MANY = 1_000_000  # rows that it takes a while to count
AT_ONCE = 50_000  # noted writes in one step
FEW = 500  # noted rows that may be left for the pause
SHORT = 1.0  # seconds of a round after which the next is for the pause, however many rows that are
MOST_ROUNDS = 50
SAID_EVERY = 2.0  # seconds


class DatabaseMove:
    """One move of the database `path` into the default connection's, which `url` names; `say` prints its progress."""

    def __init__(self, path: Path, url: str, say: Say, *, mend: bool = False) -> None:
        if is_sqlite():
            raise CommandError("Name a PostgreSQL database: postgres://user:password@host:5432/name.")
        startup.require_database()
        self.source = SqliteSource(path)
        self.url = url
        self.say = say
        self.odds = OddValueReport(mend=mend)
        self.tables: list[MovedTable] = []
        self.counted: set[str] = set()  # tables that need not be counted again in the pause

    # The whole of it.

    def move_everything(self, now: datetime, *, afresh: bool = False) -> None:
        """Move everything and switch. Raises CommandError, and then nothing was switched."""
        if self.was_switched():
            self.choose_target_database()
            self.say("Everything is in PostgreSQL already.")
            return
        self.require_same_migrations()
        self.require_usable_target()
        self.begin_move(afresh=afresh)
        self.copy_all_tables()
        self.copy_remaining_rows()
        self.switch_to_target(now)

    def check_everything_movable(self) -> None:
        """Look at every row and at the target, and change nothing. Raises CommandError where the move would fail."""
        self.require_same_migrations()
        self.require_usable_target()
        with transaction.atomic():
            known = target.load_move_state()
            if known is None or known.noting is None:
                self.say("Making the tables there, to compare with them; that is undone.")
                target.create_target_tables(str(self.source.path))
            self.tables = find_tables_to_move(self.source.db)
            transaction.set_rollback(True)
        with self.source.read_one_snapshot():
            for table in self.tables:
                if total := self.digest_source_rows(table).count:
                    self.say(f"  {table.name:<26}{total:>12,} rows")
            orphans = self.source.find_orphan_rows(self.tables)
        if orphans and self.odds.refused_count:
            self.say("\n".join(f"  {said}" for said in orphans))
        self.report_odd_values()
        self.refuse_orphan_rows(orphans)
        self.print_unknown_tables()
        self.say(
            f"All of it can be moved: {sizes.format_byte_count(self.source.path.stat().st_size)}. Nothing was changed."
        )

    def undo_move(self, now: datetime) -> None:
        """Go back to SQLite, which refuses writes. Raises CommandError where that would lose something."""
        known = target.load_move_state()
        if known is None or known.move_id != self.source.read_move_id():
            raise CommandError(
                "No move of this database into that one is known, so there is nothing to undo."
            )
        if known.moved_at:
            self.require_unchanged_target(known.audit_id)
            target.note_move_progress(moved_at=None)
        # In this order: until SQLite takes writes again it knows of the move, so that this can be done once more.
        chosen_database.forget_database_url(settings.DATA_DIR)
        self.source.accept_writes_and_forget()
        self.record_undone_move(now, startup.describe_database())
        self.say(
            f"{progress_timestamp()}  {self.source.path} takes writes again, and is the database. The"
            " PostgreSQL database is no longer used: drop it."
        )

    def record_undone_move(self, now: datetime, target_name: str) -> None:
        """Write the audit row of `undo` where it belongs: into SQLite, which is the default connection from here on."""
        connections.close_all()
        connections.settings["default"] = connections.configure_settings(
            {"default": sqlite_database_settings(self.source.path)}
        )["default"]
        del connections["default"]  # this thread's, which leads to PostgreSQL
        with transaction.atomic():
            audit.record_audit_entry(
                "DATABASE_MOVE_UNDONE",
                actor=system_actor("move_to"),
                target=target_name,
                result="success",
                now=now,
            )

    # Before anything is copied.

    def was_switched(self) -> bool:
        known = target.load_move_state()
        return bool(
            known
            and known.moved_at
            and known.move_id == self.source.read_move_id()
            and self.source.is_refusing_writes()
        )

    def require_same_migrations(self) -> None:
        known, applied = startup.migrations_on_disk(), self.source.load_source_migrations()
        if not applied:
            raise CommandError(f"{self.source.path} has no tables of Signalbox.")
        startup.refuse_newer_database(known, applied)
        if known - applied:
            raise CommandError(
                f"{self.source.path} lacks {len(known - applied)} migrations of this version. Start the server on it "
                "once (or run `manage.py migrate`), and run this again."
            )

    def require_usable_target(self) -> None:
        if why := target.explain_unusable_target(self.source.read_move_id()):
            raise CommandError(f"Nothing can be moved to {startup.describe_database()}. {why}")

    def begin_move(self, *, afresh: bool) -> None:
        self.say(f"{progress_timestamp()}  Moving {self.source.path} to {startup.describe_database()}.")
        known = target.load_move_state()
        if known is None or known.noting is None:
            self.say(f"{progress_timestamp()}  Making the tables …")
            target.create_target_tables(str(self.source.path))
        elif startup.migrations_on_disk() - startup.applied_migrations():
            raise CommandError(
                "This move was begun by an older version. Drop and make the database again, and run this again."
            )
        self.tables = find_tables_to_move(self.source.db)
        if self.source.is_refusing_writes():  # cut off in the last moment of a pause
            self.source.resume_noted_writes(self.tables)
        self.refuse_orphan_rows(self.source.find_orphan_rows(self.tables))
        self.print_unknown_tables()
        move_id, noting = self.source.start_noting_writes(self.tables, afresh=afresh)
        if known and known.noting == noting:
            self.say(f"{progress_timestamp()}  Continuing the move that was interrupted.")
        else:
            target.note_move_progress(move_id=move_id)
            target.empty_target_tables(self.tables, self.source.load_id_counters().get("events", 0))
            target.note_move_progress(self.source.last_noted_write(), noting=noting, copied=False)
        target.drop_target_constraints()

    def refuse_orphan_rows(self, orphans: Sequence[str]) -> None:
        if orphans:
            self.say("\n".join(f"  {said}" for said in orphans))
            raise CommandError(
                "PostgreSQL keeps its foreign keys, and these rows refer to rows that do not exist. Another program "
                "left them; delete them or restore what they refer to, and run this again. Nothing was moved."
            )

    def print_unknown_tables(self) -> None:
        for name, number in count_unknown_table_rows(self.source.db, self.tables).items():
            self.say(f"Not moved: {name}, a table of another program ({number:,} rows).")

    # The copy, while the server runs.

    def copy_all_tables(self) -> None:
        known = target.load_move_state()
        if known and known.copied:
            return
        for table in self.tables:
            self.copy_table(table)
        self.report_odd_values()
        target.note_move_progress(copied=True)

    def copy_table(self, table: MovedTable) -> None:
        after, done = target.load_copy_progress(table)
        total, began, before, said = (
            self.source.count_source_rows(table),
            time.monotonic(),
            done,
            time.monotonic(),
        )
        while raw := self.source.read_next_rows(table, after):
            fit = self.convert_source_rows(table, raw)
            after = table.extract_row_key(raw[-1])
            if not self.odds.refused_count:  # else only looked at, for all that is odd to be told at once
                self.add_copied_rows(table, fit, after)
            done += len(raw)
            if time.monotonic() - said > SAID_EVERY:
                said = time.monotonic()
                self.print_copy_rate(table, done, total, (done - before) / (said - began))
        if done - before:
            self.print_copy_rate(table, done, max(done, total), (done - before) / (time.monotonic() - began))

    def add_copied_rows(self, table: MovedTable, fit: Sequence[Row], after: Row) -> None:
        try:
            target.copy_rows_and_note(table, fit, after)
        except IntegrityError:
            self.delete_conflicting_rows([table], loose=True)
            target.copy_rows_and_note(table, fit, after)

    def print_copy_rate(self, table: MovedTable, done: int, total: int, rate: float) -> None:
        self.say(f"{progress_timestamp()}  {table.name:<26}{done:>12,} of {total:<12,}{rate:>10,.0f} rows/s")

    def convert_source_rows(self, table: MovedTable, raw: Sequence[Row]) -> list[Row]:
        return [row for one in raw if (row := rows.convert_row(table, one, self.odds)) is not None]

    def report_odd_values(self) -> None:
        if self.odds.mended:
            self.say("Changed, as import_db does, because PostgreSQL would not accept it:")
            self.say("\n".join(f"  {said}" for said in self.odds.mended))
            self.odds.mended.clear()
        if self.odds.refused_count:
            self.say("\n".join(f"  {said}" for said in self.odds.refused))
            raise CommandError(
                f"PostgreSQL cannot hold {self.odds.refused_count:,} rows as they are; the first are named"
                " above. Correct them in SQLite, or add --mend to change them as import_db does (never rows"
                " of the audit log). Nothing was switched."
            )

    # What was written meanwhile, and the comparison.

    def copy_remaining_rows(self) -> None:
        self.copy_in_rounds(loose=True)
        self.say(f"{progress_timestamp()}  Comparing every table …")
        with self.source.read_one_snapshot():
            self.copy_one_round(loose=True)
            self.require_equal_tables()
        self.say(f"{progress_timestamp()}  Checking foreign keys …")
        target.analyze_target()
        target.restore_foreign_keys()
        parts_of_events.backfill_session_spans(lambda _said: None)
        self.copy_in_rounds(loose=False)

    def copy_in_rounds(self, *, loose: bool) -> None:
        """Copy what was written meanwhile until little is left, or no less will ever be left."""
        for _ in range(MOST_ROUNDS):
            began = time.monotonic()
            with self.source.read_one_snapshot():
                number = self.copy_one_round(loose=loose)
            if number <= FEW or time.monotonic() - began < SHORT:
                return
        raise CommandError(
            "More is written to SQLite than can be brought over. Nothing was switched. Run this again when the "
            "server is less busy; it continues."
        )

    def copy_one_round(self, *, loose: bool) -> int:
        """Copy the rows that were noted since the last round; return how many."""
        known, last, number = target.load_move_state(), self.source.last_noted_write(), 0
        upto = known.noted if known and known.noted else 0
        while upto < last:
            upto = min(upto + AT_ONCE, last)
            with transaction.atomic():
                number += len(self.copy_noted_rows(upto, loose=loose))
                target.note_move_progress(upto)
        if number:
            self.say(f"{progress_timestamp()}  Copied {number:,} rows that were written meanwhile.")
        return number

    def copy_noted_rows(self, upto: int, *, loose: bool) -> list[tuple[MovedTable, Row]]:
        """Copy the noted rows, delete those that were deleted, and return their keys."""
        noted = self.load_noted_keys(upto)
        found = {
            table.name: self.convert_source_rows(
                table, list(self.source.iterate_source_rows_by_key(table, noted[table]))
            )
            for table in noted
        }
        self.report_odd_values()
        try:
            with transaction.atomic():
                self.apply_noted_rows(noted, found, loose=loose)
        except IntegrityError:
            self.delete_conflicting_rows(list(noted), loose=loose)
            self.apply_noted_rows(noted, found, loose=loose)
        return [(table, key) for table, keys in noted.items() for key in rows.convert_noted_keys(table, keys)]

    def load_noted_keys(self, upto: int) -> dict[MovedTable, list[Row]]:
        """Return the keys of the rows that were noted since what is here, by table, parents first."""
        known = target.load_move_state()
        found = self.source.load_written_keys(known.noted if known and known.noted else 0, upto)
        return {table: found[table.name] for table in self.tables if table.name in found}

    def apply_noted_rows(
        self, noted: dict[MovedTable, list[Row]], found: dict[str, list[Row]], *, loose: bool
    ) -> None:
        for table in reversed(noted):
            there = set() if loose else {table.extract_row_key(row) for row in found[table.name]}
            target.delete_target_rows(
                table, [key for key in rows.convert_noted_keys(table, noted[table]) if key not in there]
            )
        for table in noted:
            (target.copy_new_rows if loose else target.upsert_target_rows)(table, found[table.name])

    def delete_conflicting_rows(self, tables: Sequence[MovedTable], *, loose: bool) -> None:
        """Take away rows that hold what must be unique and is another row's by now.

        Those that a REPLACE took away in SQLite, which no trigger sees; and, where no foreign key takes others along,
        those that were written since: they are noted and come again.
        """
        noted = self.load_noted_keys(self.source.last_noted_write()) if loose else {}
        for table in tables:
            target.delete_target_rows(table, rows.convert_noted_keys(table, noted.get(table, [])))
            if self.source.has_other_unique_keys(table):
                target.delete_target_rows(
                    table, list(target.load_target_keys(table) - self.source.load_source_keys(table))
                )

    def digest_source_rows(self, table: MovedTable, beside: int | None = None) -> RowsDigest:
        found = RowsDigest()
        found.add_rows(
            row
            for one in self.source.iterate_source_rows(table, beside)
            if (row := rows.convert_row(table, one, self.odds)) is not None
        )
        return found

    def require_equal_tables(self) -> None:
        """Compare all rows of all tables; raise CommandError where they differ."""
        different = [name for name, same in self.compare_all_tables().items() if not same]
        if different:
            raise CommandError(
                f"{', '.join(different)} differ between the two databases. Nothing was switched. Run this again with "
                "--afresh, which copies everything again."
            )

    def compare_all_tables(self) -> dict[str, bool]:
        same = {}
        for table in self.tables:
            here, there = self.digest_source_rows(table), RowsDigest()
            there.add_rows(target.iterate_target_rows(table))
            same[table.name] = here == there
            if here.count > MANY and not self.source.has_other_unique_keys(table):
                self.counted.add(table.name)
            word = "the same" if here == there else f"DIFFERENT: {there.count:,} rows, {there.hex_digest}"
            if here.count or there.count:
                self.say(f"  {table.name:<26}{here.count:>12,} rows  {here.hex_digest}  {word}")
        return same

    def choose_target_database(self) -> None:
        chosen_database.save_database_url(settings.DATA_DIR, self.url)

    # The pause.

    def switch_to_target(self, now: datetime) -> None:
        self.source.require_noted_writes(self.tables)
        self.say(f"{progress_timestamp()}  The pause begins. Writers wait now, or are told to try again.")
        began = time.monotonic()
        try:
            with self.source.hold_write_lock(), transaction.atomic():
                number = self.finish_in_pause(now)
                self.source.refuse_all_writes()
                self.source.commit()
        except BaseException:
            self.resume_in_sqlite()
            raise
        self.choose_target_database()
        self.say(
            f"{progress_timestamp()}  The pause is over after {time.monotonic() - began:.2f} s: {number:,}"
            " rows were copied, and nothing differs."
        )
        target.drop_move_tables()

    def finish_in_pause(self, now: datetime) -> int:
        self.source.require_noted_writes(self.tables)
        upto = self.source.last_noted_write()
        brought = self.copy_noted_rows(upto, loose=False)
        self.compare_copied_rows(brought)
        self.compare_row_counts()
        target.set_target_sequences(self.tables, self.source.load_id_counters())
        target.check_constraints_now()
        target.enable_target_triggers()
        row = audit.record_audit_entry(
            "DATABASE_MOVED",
            actor=system_actor("move_to"),
            target=startup.describe_database(),
            result="success",
            metadata={"from": str(self.source.path)},
            now=now,
        )
        target.note_move_progress(upto)
        target.mark_move_finished(datetime.now(UTC), row.pk)
        return len(brought)

    def compare_copied_rows(self, brought: Sequence[tuple[MovedTable, Row]]) -> None:
        """Compare the rows that were just copied, one by one."""
        for table in {table.name: table for table, _ in brought}.values():
            keys = [key for one, key in brought if one is table]
            here = set(
                map(
                    rows.row_digest,
                    self.convert_source_rows(
                        table, list(self.source.iterate_source_rows_by_key(table, keys))
                    ),
                )
            )
            there = set(map(rows.row_digest, target.iterate_target_rows_by_key(table, keys)))
            if here != there:
                raise CommandError(
                    f"{table.name} differs after the last rows. Nothing was switched. Run this again."
                )

    def compare_row_counts(self) -> None:
        """Count what was noted and brought over did not account for; raise CommandError where that differs.

        Only a REPLACE of another program takes rows away that nobody notes, where two keys meet the same new row. A
        table with one key has none of those: it was counted with the comparison, and every write since was noted.
        """
        for table in self.tables:
            if table.name in self.counted or self.source.count_source_rows(table) == target.count_target_rows(
                table
            ):
                continue
            target.delete_target_rows(
                table, list(target.load_target_keys(table) - self.source.load_source_keys(table))
            )
            here, there = self.source.count_source_rows(table), target.count_target_rows(table)
            if here != there:
                raise CommandError(
                    f"{table.name} has {here:,} rows in SQLite and {there:,} in PostgreSQL. Nothing was switched."
                )

    def resume_in_sqlite(self) -> None:
        """After a pause that failed: take writes in SQLite again, unless PostgreSQL has committed after all."""
        if not self.source.is_refusing_writes():
            return
        try:
            connection.close()
            known = target.load_move_state()
        except DatabaseError:
            raise CommandError(
                "PostgreSQL does not answer whether the switch was committed. SQLite refuses writes until that is "
                "known: run this again, or with --undo."
            ) from None
        if known and not known.moved_at:
            self.source.resume_noted_writes(self.tables)

    # Back.

    def require_unchanged_target(self, audit_id: int | None) -> None:
        """Raise CommandError where anything was written to PostgreSQL since it was switched to."""
        if health.count_server_processes():
            raise CommandError("A server is connected to PostgreSQL. Stop it first, on every machine.")
        self.tables = find_tables_to_move(self.source.db)
        changed = []
        for table in self.tables:
            if table.name == "leases":  # who does the housekeeping
                continue
            beside = audit_id if table.name in {"audit_logs", "audit_leaves"} else None
            there = RowsDigest()
            there.add_rows(target.iterate_target_rows(table, beside))
            if self.digest_source_rows(table, beside) != there:
                changed.append(table.name)
        if changed:
            raise CommandError(
                f"PostgreSQL was written to since the switch ({', '.join(changed)}), and going back would lose that. "
                "Nothing was changed."
            )
