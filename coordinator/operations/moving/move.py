"""The move from its first check to the switch, and back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError, IntegrityError, connection, connections, transaction

from coordinator.actions import audit
from coordinator.actions import partitions as parts_of_events
from coordinator.engine import health, is_sqlite
from coordinator.identity.actors import system
from coordinator.lib import chosen_database, sizes
from coordinator.operations import startup
from coordinator.operations.moving import Say, clock, rows, target
from coordinator.operations.moving.rows import OddValues, Row, Sum
from coordinator.operations.moving.source import Source
from coordinator.operations.moving.tables import Table, to_move, unknown_to_us
from coordinator.settings import sqlite_database

MANY = 1_000_000  # rows that it takes a while to count
AT_ONCE = 50_000  # noted writes in one step
FEW = 500  # noted rows that may be left for the pause
SHORT = 1.0  # seconds of a round after which the next is for the pause, however many rows that are
MOST_ROUNDS = 50
SAID_EVERY = 2.0  # seconds


class Move:
    """One move of the database `path` into the default connection's, which `url` names; `say` prints its progress."""

    def __init__(self, path: Path, url: str, say: Say, *, mend: bool = False) -> None:
        if is_sqlite():
            raise CommandError("Name a PostgreSQL database: postgres://user:password@host:5432/name.")
        startup.require_database()
        self.source = Source(path)
        self.url = url
        self.say = say
        self.odds = OddValues(mend=mend)
        self.tables: list[Table] = []
        self.counted: set[str] = set()  # tables that need not be counted again in the pause

    # The whole of it.

    def move(self, now: datetime, *, afresh: bool = False) -> None:
        """Move everything and switch. Raises CommandError, and then nothing was switched."""
        if self._was_switched():
            self._choose()
            self.say("Everything is in PostgreSQL already.")
            return
        self._require_same_migrations()
        self._require_target()
        self._begin(afresh=afresh)
        self._copy_all()
        self._bring_the_rest()
        self._switch(now)

    def check(self) -> None:
        """Look at every row and at the target, and change nothing. Raises CommandError where the move would fail."""
        self._require_same_migrations()
        self._require_target()
        with transaction.atomic():
            known = target.state()
            if known is None or known.noting is None:
                self.say("Making the tables there, to compare with them; that is undone.")
                target.begin(str(self.source.path))
            self.tables = to_move(self.source.db)
            transaction.set_rollback(True)
        with self.source.moment():
            for table in self.tables:
                if total := self._sum_of_source(table).count:
                    self.say(f"  {table.name:<26}{total:>12,} rows")
            orphans = self.source.orphans(self.tables)
        if orphans and self.odds.number:
            self.say("\n".join(f"  {said}" for said in orphans))
        self._tell_odds()
        self._refuse(orphans)
        self._tell_unknown()
        self.say(
            f"All of it can be moved: {sizes.in_words(self.source.path.stat().st_size)}. Nothing was changed."
        )

    def undo(self, now: datetime) -> None:
        """Go back to SQLite, which refuses writes. Raises CommandError where that would lose something."""
        known = target.state()
        if known is None or known.move_id != self.source.move_id():
            raise CommandError(
                "No move of this database into that one is known, so there is nothing to undo."
            )
        if known.moved_at:
            self._require_unchanged(known.audit_id)
            target.noted(moved_at=None)
        # In this order: until SQLite takes writes again it knows of the move, so that this can be done once more.
        chosen_database.forget(settings.DATA_DIR)
        self.source.open_again()
        self._record_undone(now, startup.describe_database())
        self.say(
            f"{clock()}  {self.source.path} takes writes again, and is the database. The PostgreSQL database is no "
            "longer used: drop it."
        )

    def _record_undone(self, now: datetime, target_name: str) -> None:
        """Write the audit row of `undo` where it belongs: into SQLite, which is the default connection from here on."""
        connections.close_all()
        connections.settings["default"] = connections.configure_settings(
            {"default": sqlite_database(self.source.path)}
        )["default"]
        del connections["default"]  # this thread's, which leads to PostgreSQL
        with transaction.atomic():
            audit.record(
                "DATABASE_MOVE_UNDONE", actor=system("move_to"), target=target_name, result="success", now=now
            )

    # Before anything is copied.

    def _was_switched(self) -> bool:
        known = target.state()
        return bool(
            known and known.moved_at and known.move_id == self.source.move_id() and self.source.is_shut()
        )

    def _require_same_migrations(self) -> None:
        known, applied = startup.migrations_on_disk(), self.source.migrations()
        if not applied:
            raise CommandError(f"{self.source.path} has no tables of Signalbox.")
        startup.refuse_newer_database(known, applied)
        if known - applied:
            raise CommandError(
                f"{self.source.path} lacks {len(known - applied)} migrations of this version. Start the server on it "
                "once (or run `manage.py migrate`), and run this again."
            )

    def _require_target(self) -> None:
        if why := target.why_not(self.source.move_id()):
            raise CommandError(f"Nothing can be moved to {startup.describe_database()}. {why}")

    def _begin(self, *, afresh: bool) -> None:
        self.say(f"{clock()}  Moving {self.source.path} to {startup.describe_database()}.")
        known = target.state()
        if known is None or known.noting is None:
            self.say(f"{clock()}  Making the tables …")
            target.begin(str(self.source.path))
        elif startup.migrations_on_disk() - startup.applied_migrations():
            raise CommandError(
                "This move was begun by an older version. Drop and make the database again, and run this again."
            )
        self.tables = to_move(self.source.db)
        if self.source.is_shut():  # cut off in the last moment of a pause
            self.source.take_writes_again(self.tables)
        self._refuse(self.source.orphans(self.tables))
        self._tell_unknown()
        move_id, noting = self.source.note_from_now_on(self.tables, afresh=afresh)
        if known and known.noting == noting:
            self.say(f"{clock()}  Continuing the move that was interrupted.")
        else:
            target.noted(move_id=move_id)
            target.empty(self.tables, self.source.counters().get("events", 0))
            target.noted(self.source.last_noted(), noting=noting, copied=False)
        target.loosen()

    def _refuse(self, orphans: Sequence[str]) -> None:
        if orphans:
            self.say("\n".join(f"  {said}" for said in orphans))
            raise CommandError(
                "PostgreSQL keeps its foreign keys, and these rows refer to rows that do not exist. Another program "
                "left them; delete them or restore what they refer to, and run this again. Nothing was moved."
            )

    def _tell_unknown(self) -> None:
        for name, number in unknown_to_us(self.source.db, self.tables).items():
            self.say(f"Not moved: {name}, a table of another program ({number:,} rows).")

    # The copy, while the server runs.

    def _copy_all(self) -> None:
        known = target.state()
        if known and known.copied:
            return
        for table in self.tables:
            self._copy(table)
        self._tell_odds()
        target.noted(copied=True)

    def _copy(self, table: Table) -> None:
        after, done = target.came_to(table)
        total, began, before, said = self.source.count(table), time.monotonic(), done, time.monotonic()
        while raw := self.source.stretch(table, after):
            fit = self._fitted(table, raw)
            after = table.key_of(raw[-1])
            if not self.odds.number:  # else only looked at, for all that is odd to be told at once
                self._add(table, fit, after)
            done += len(raw)
            if time.monotonic() - said > SAID_EVERY:
                said = time.monotonic()
                self._tell_rate(table, done, total, (done - before) / (said - began))
        if done - before:
            self._tell_rate(table, done, max(done, total), (done - before) / (time.monotonic() - began))

    def _add(self, table: Table, fit: Sequence[Row], after: Row) -> None:
        try:
            target.add(table, fit, after)
        except IntegrityError:
            self._make_way([table], loose=True)
            target.add(table, fit, after)

    def _tell_rate(self, table: Table, done: int, total: int, rate: float) -> None:
        self.say(f"{clock()}  {table.name:<26}{done:>12,} of {total:<12,}{rate:>10,.0f} rows/s")

    def _fitted(self, table: Table, raw: Sequence[Row]) -> list[Row]:
        return [row for one in raw if (row := rows.fitted(table, one, self.odds)) is not None]

    def _tell_odds(self) -> None:
        if self.odds.mended:
            self.say("Changed, as import_db does, because PostgreSQL would not accept it:")
            self.say("\n".join(f"  {said}" for said in self.odds.mended))
            self.odds.mended.clear()
        if self.odds.number:
            self.say("\n".join(f"  {said}" for said in self.odds.refused))
            raise CommandError(
                f"PostgreSQL cannot hold {self.odds.number:,} rows as they are; the first are named above. Correct "
                "them in SQLite, or add --mend to change them as import_db does (never rows of the audit log). "
                "Nothing was "
                "switched."
            )

    # What was written meanwhile, and the comparison.

    def _bring_the_rest(self) -> None:
        self._rounds(loose=True)
        self.say(f"{clock()}  Comparing every table …")
        with self.source.moment():
            self._round(loose=True)
            self._compare_all()
        self.say(f"{clock()}  Checking foreign keys …")
        target.gather_figures()
        target.tighten()
        parts_of_events.note_spans(lambda _said: None)
        self._rounds(loose=False)

    def _rounds(self, *, loose: bool) -> None:
        """Copy what was written meanwhile until little is left, or no less will ever be left."""
        for _ in range(MOST_ROUNDS):
            began = time.monotonic()
            with self.source.moment():
                number = self._round(loose=loose)
            if number <= FEW or time.monotonic() - began < SHORT:
                return
        raise CommandError(
            "More is written to SQLite than can be brought over. Nothing was switched. Run this again when the "
            "server is less busy; it continues."
        )

    def _round(self, *, loose: bool) -> int:
        """Copy the rows that were noted since the last round; return how many."""
        known, last, number = target.state(), self.source.last_noted(), 0
        upto = known.noted if known and known.noted else 0
        while upto < last:
            upto = min(upto + AT_ONCE, last)
            with transaction.atomic():
                number += len(self._bring(upto, loose=loose))
                target.noted(upto)
        if number:
            self.say(f"{clock()}  Copied {number:,} rows that were written meanwhile.")
        return number

    def _bring(self, upto: int, *, loose: bool) -> list[tuple[Table, Row]]:
        """Copy the noted rows, delete those that were deleted, and return their keys."""
        noted = self._noted(upto)
        found = {
            table.name: self._fitted(table, list(self.source.rows_of(table, noted[table]))) for table in noted
        }
        self._tell_odds()
        try:
            with transaction.atomic():
                self._apply(noted, found, loose=loose)
        except IntegrityError:
            self._make_way(list(noted), loose=loose)
            self._apply(noted, found, loose=loose)
        return [(table, key) for table, keys in noted.items() for key in rows.keys(table, keys)]

    def _noted(self, upto: int) -> dict[Table, list[Row]]:
        """Return the keys of the rows that were noted since what is here, by table, parents first."""
        known = target.state()
        found = self.source.noted(known.noted if known and known.noted else 0, upto)
        return {table: found[table.name] for table in self.tables if table.name in found}

    def _apply(self, noted: dict[Table, list[Row]], found: dict[str, list[Row]], *, loose: bool) -> None:
        for table in reversed(noted):
            there = set() if loose else {table.key_of(row) for row in found[table.name]}
            target.delete(table, [key for key in rows.keys(table, noted[table]) if key not in there])
        for table in noted:
            (target.copy if loose else target.write)(table, found[table.name])

    def _make_way(self, tables: Sequence[Table], *, loose: bool) -> None:
        """Take away rows that hold what must be unique and is another row's by now.

        Those that a REPLACE took away in SQLite, which no trigger sees; and, where no foreign key takes others along,
        those that were written since: they are noted and come again.
        """
        noted = self._noted(self.source.last_noted()) if loose else {}
        for table in tables:
            target.delete(table, rows.keys(table, noted.get(table, [])))
            if self.source.has_other_keys(table):
                target.delete(table, list(target.all_keys(table) - self.source.all_keys(table)))

    def _sum_of_source(self, table: Table, beside: int | None = None) -> Sum:
        found = Sum()
        found.add(
            row
            for one in self.source.rows(table, beside)
            if (row := rows.fitted(table, one, self.odds)) is not None
        )
        return found

    def _compare_all(self) -> None:
        """Compare all rows of all tables; raise CommandError where they differ."""
        different = [name for name, same in self._compared().items() if not same]
        if different:
            raise CommandError(
                f"{', '.join(different)} differ between the two databases. Nothing was switched. Run this again with "
                "--afresh, which copies everything again."
            )

    def _compared(self) -> dict[str, bool]:
        same = {}
        for table in self.tables:
            here, there = self._sum_of_source(table), Sum()
            there.add(target.rows(table))
            same[table.name] = here == there
            if here.count > MANY and not self.source.has_other_keys(table):
                self.counted.add(table.name)
            word = "the same" if here == there else f"DIFFERENT: {there.count:,} rows, {there.digest}"
            if here.count or there.count:
                self.say(f"  {table.name:<26}{here.count:>12,} rows  {here.digest}  {word}")
        return same

    def _choose(self) -> None:
        chosen_database.write(settings.DATA_DIR, self.url)

    # The pause.

    def _switch(self, now: datetime) -> None:
        self.source.require_noting(self.tables)
        self.say(f"{clock()}  The pause begins. Writers wait now, or are told to try again.")
        began = time.monotonic()
        try:
            with self.source.held(), transaction.atomic():
                number = self._finish(now)
                self.source.shut()
                self.source.commit()
        except BaseException:
            self._go_on_in_sqlite()
            raise
        self._choose()
        self.say(
            f"{clock()}  The pause is over after {time.monotonic() - began:.2f} s: {number:,} rows were copied, and "
            "nothing differs."
        )
        target.tidy()

    def _finish(self, now: datetime) -> int:
        self.source.require_noting(self.tables)
        upto = self.source.last_noted()
        brought = self._bring(upto, loose=False)
        self._compare_rows(brought)
        self._compare_counts()
        target.set_counters(self.tables, self.source.counters())
        target.check_all_now()
        target.with_triggers_again()
        row = audit.record(
            "DATABASE_MOVED",
            actor=system("move_to"),
            target=startup.describe_database(),
            result="success",
            metadata={"from": str(self.source.path)},
            now=now,
        )
        target.noted(upto)
        target.finish(datetime.now(UTC), row.pk)
        return len(brought)

    def _compare_rows(self, brought: Sequence[tuple[Table, Row]]) -> None:
        """Compare the rows that were just copied, one by one."""
        for table in {table.name: table for table, _ in brought}.values():
            keys = [key for one, key in brought if one is table]
            here = set(map(rows.digest, self._fitted(table, list(self.source.rows_of(table, keys)))))
            there = set(map(rows.digest, target.rows_of(table, keys)))
            if here != there:
                raise CommandError(
                    f"{table.name} differs after the last rows. Nothing was switched. Run this again."
                )

    def _compare_counts(self) -> None:
        """Count what was noted and brought over did not account for; raise CommandError where that differs.

        Only a REPLACE of another program takes rows away that nobody notes, where two keys meet the same new row. A
        table with one key has none of those: it was counted with the comparison, and every write since was noted.
        """
        for table in self.tables:
            if table.name in self.counted or self.source.count(table) == target.count(table):
                continue
            target.delete(table, list(target.all_keys(table) - self.source.all_keys(table)))
            here, there = self.source.count(table), target.count(table)
            if here != there:
                raise CommandError(
                    f"{table.name} has {here:,} rows in SQLite and {there:,} in PostgreSQL. Nothing was switched."
                )

    def _go_on_in_sqlite(self) -> None:
        """After a pause that failed: take writes in SQLite again, unless PostgreSQL has committed after all."""
        if not self.source.is_shut():
            return
        try:
            connection.close()
            known = target.state()
        except DatabaseError:
            raise CommandError(
                "PostgreSQL does not answer whether the switch was committed. SQLite refuses writes until that is "
                "known: run this again, or with --undo."
            ) from None
        if known and not known.moved_at:
            self.source.take_writes_again(self.tables)

    # Back.

    def _require_unchanged(self, audit_id: int | None) -> None:
        """Raise CommandError where anything was written to PostgreSQL since it was switched to."""
        if health.servers_at_work():
            raise CommandError("A server is connected to PostgreSQL. Stop it first, on every machine.")
        self.tables = to_move(self.source.db)
        changed = []
        for table in self.tables:
            if table.name == "leases":  # who does the housekeeping
                continue
            beside = audit_id if table.name in {"audit_logs", "audit_leaves"} else None
            there = Sum()
            there.add(target.rows(table, beside))
            if self._sum_of_source(table, beside) != there:
                changed.append(table.name)
        if changed:
            raise CommandError(
                f"PostgreSQL was written to since the switch ({', '.join(changed)}), and going back would lose that. "
                "Nothing was changed."
            )
