"""Brings an existing database into ours: what is there already stays, what clashes is told, nothing is overwritten.

Rows go in as they are, through SQL, because they may hold what no action would write. Each batch is one
transaction and looks first, so an import that was broken off, or is repeated, goes on where it was.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import Error as DatabaseError
from django.db import connection, transaction

from coordinator import instants
from coordinator.actions import attachments as attachment_actions
from coordinator.actions import audit, chat_search, events, runs
from coordinator.actors import system
from coordinator.foreign import TABLES, Foreign, Row, Table

AUDIT_KEPT = timedelta(days=90)  # what the audit log's own trigger would remove at once
Progress = Callable[[str, int, int], object]


@dataclass
class Outcome:
    """What became of one table: how many rows came in, were there already, clash or cannot be kept."""

    table: str
    rows: int
    added: int = 0
    present: int = 0
    conflicts: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def import_database(
    source: Foreign, *, now: datetime, write: bool = True, progress: Progress = lambda *_: None
) -> list[Outcome]:
    """Bring over every table that both know. Without `write` nothing is changed and the same is told."""
    outcomes = []
    for table in TABLES:
        if table.name in source.tables:
            outcomes.append(_Importer(source, table, now, write).run(progress))
    if write:
        events.adopt_all_events(now)
        chat_search.index_new(now)
        counts = {one.table: one.added for one in outcomes if one.added}
        audit.record(
            "DATABASE_IMPORTED",
            actor=system("import"),
            target=source.path.name,
            result="success",
            metadata={"added": counts, "conflicts": sum(len(one.conflicts) for one in outcomes)},
            now=now,
        )
    return outcomes


class _Importer:
    """The import of one table."""

    def __init__(self, source: Foreign, table: Table, now: datetime, write: bool) -> None:
        self.source, self.table, self.now, self.write = source, table, now, write
        ours = set(_columns(table.name))
        theirs = [column for column in source.columns(table.name) if column != table.own_id]
        # A column's older name is read where the newer one is not there too.
        old = {name: new for name, new in table.renamed.items() if new not in theirs}
        places = {column: old.get(column, column) for column in theirs}
        self.theirs = [column for column in theirs if places[column] in ours]
        self.columns = [places[column] for column in self.theirs]
        unknown = sorted(column for column in theirs if places[column] not in ours)
        self.outcome = Outcome(table.name, source.count(table.name))
        for column in unknown:
            self.outcome.notes.append(f"The column {column} has no place here and is left out.")
        self.known_parents: dict[str, set[Any]] = {}
        self.there: Counter[bytes] = Counter()
        self.group: Any = object()
        self.held = 0

    def run(self, progress: Progress) -> Outcome:
        """Bring the rows over, batch by batch."""
        done = 0
        if not self.table.key and not self.table.group:
            self.there = self._digests("")
        missing = [c for c in self.table.key if c not in self.columns]
        if missing:
            self.outcome.notes.append(f"Without the column {missing[0]} its rows cannot be told apart.")
            return self.outcome
        later: list[Row] = []
        for batch in self.source.rows(self.table, self.theirs):
            with transaction.atomic():
                later += self._batch(batch)
            done += len(batch)
            progress(self.table.name, done, self.outcome.rows)
        self._link(later)
        if self.held:
            self.outcome.notes.append(
                f"{self.held} were open where they came from and are held: release or stop them on the page Runs."
            )
        return self.outcome

    def _batch(self, batch: list[Row]) -> list[Row]:
        """Bring over one batch; return the rows whose loose parents are to be set once all are there."""
        wanted = self._new(self._with_parents(self._still_kept(batch)))
        loose = [row for row in wanted if any(row.get(column) is not None for column in self.table.loose)]
        rows = [
            {name: None if name in self.table.loose else row[name] for name in self.columns} for row in wanted
        ]
        if self.table.name == "chat_attachments":
            rows = [kept for row in rows if (kept := self._with_file(row))]
        self._insert(rows)
        if self.table.name == "runs":
            self._hold(rows)
        return loose

    def _hold(self, rows: list[Row]) -> None:
        """Let no runner begin what waited elsewhere, perhaps for months, before a person has said so."""
        if self.write:
            self.held += runs.hold([str(row["run_id"]) for row in rows], why=runs.IMPORTED, now=self.now)
        else:
            self.held += sum(row.get("status") in runs.OPEN for row in rows)

    # --- which rows ---------------------------------------------------------------------------------------

    def _still_kept(self, batch: list[Row]) -> list[Row]:
        """Leave out audit rows that the log's own clean-up would take away again at once."""
        if self.table.name != "audit_logs":
            return batch
        limit = self.now - AUDIT_KEPT
        kept = [row for row in batch if not _is_before(row.get("timestamp"), limit)]
        if len(kept) < len(batch):
            self._note_old(len(batch) - len(kept))
        return kept

    def _note_old(self, number: int) -> None:
        words = "rows are older than the 90 days that the audit log is kept."
        before = next((note for note in self.outcome.notes if note.endswith(words)), None)
        if before is not None:
            self.outcome.notes.remove(before)
            number += int(before.split()[0])
        self.outcome.notes.append(f"{number} {words}")

    def _with_parents(self, batch: list[Row]) -> list[Row]:
        """Leave out rows that name what is not here: no database of ours would take them."""
        for column, other in self.table.parents.items():
            there = self._existing_parents(other, {row.get(column) for row in batch})
            for row in batch:
                if row.get(column) not in there:
                    self.outcome.left_out.append(
                        f"{self._name(row)}: there is no {row.get(column)!r} in {other}"
                    )
            batch = [row for row in batch if row.get(column) in there]
        return batch

    def _existing_parents(self, table: str, ids: set[Any]) -> set[Any]:
        key = next(one.key[0] for one in TABLES if one.name == table)
        found = {row[0] for row in _select(table, [key], key, list(ids))}
        # In a dry run the parents of this import are not written: they would be.
        return found if self.write else found | (ids & self._source_keys(table, key))

    def _source_keys(self, table: str, key: str) -> set[Any]:
        if table not in self.known_parents:
            spec = Table(table, key=(key,))
            rows = self.source.rows(spec, [key]) if table in self.source.tables else iter(())
            self.known_parents[table] = {row[key] for batch in rows for row in batch}
        return self.known_parents[table]

    def _new(self, batch: list[Row]) -> list[Row]:
        return self._new_by_key(batch) if self.table.key else self._new_by_content(batch)

    def _new_by_key(self, batch: list[Row]) -> list[Row]:
        first = self.table.key[0]
        compared = [c for c in self.columns if c != "disk_path"]
        stored = {
            tuple(row[name] for name in self.table.key): row
            for values in _select(self.table.name, compared, first, [row[first] for row in batch])
            for row in [self._comparable(dict(zip(compared, values, strict=True)))]
        }
        new = []
        for row in batch:
            ours = stored.get(tuple(self._comparable(row)[name] for name in self.table.key))
            if ours is None:
                new.append(row)
                continue
            mine = self._comparable({name: row[name] for name in compared})
            different = [c for c in compared if mine[c] != ours[c] and c not in self.table.loose]
            if different:
                self.outcome.conflicts.append(
                    f"{self._name(row)}: {', '.join(different)} differ here and there"
                )
            else:
                self.outcome.present += 1
        return new

    def _new_by_content(self, batch: list[Row]) -> list[Row]:
        new = []
        for row in batch:
            if self.table.group and row[self.table.group] != self.group:
                self.group = row[self.table.group]
                self.there = self._digests(self.group)
            digest = _digest(self._comparable(row))
            if self.there[digest] > 0:
                self.there[digest] -= 1
                self.outcome.present += 1
            else:
                new.append(row)
        return new

    def _digests(self, group: Any) -> Counter[bytes]:
        """Count what is here already, as digests: rows without a key are the same if all they hold is."""
        rows = _select(self.table.name, self.columns, self.table.group, [group] if self.table.group else None)
        return Counter(
            _digest(self._comparable(dict(zip(self.columns, values, strict=True)))) for values in rows
        )

    def _comparable(self, row: Row) -> Row:
        return {name: _plain(value) for name, value in row.items()}

    def _name(self, row: Row) -> str:
        key = self.table.key or tuple(c for c in ("session_id", "timestamp", "agent_id") if c in row)
        return " ".join(str(row.get(name)) for name in key)[:200]

    # --- files --------------------------------------------------------------------------------------------

    def _with_file(self, row: Row) -> Row | None:
        """Copy an attachment's file and return the row that names the copy; None where there is no file."""
        if row.get("storage_type") != "disk":
            return row
        path = self.source.file_of(str(row.get("disk_path") or ""))
        if path is None:
            self.outcome.left_out.append(f"{self._name(row)}: its file {row.get('disk_path')} was not found")
            return None
        if not self.write:
            return row
        with path.open("rb") as file:
            return {**row, "disk_path": attachment_actions.keep_copy(file, str(row["mime_type"]))}

    # --- writing ------------------------------------------------------------------------------------------

    def _insert(self, rows: list[Row]) -> None:
        """Write rows; where one of them cannot be written, the others are, and it is told why."""
        if not rows or not self.write:
            self.outcome.added += len(rows)
            return
        names = ", ".join(f'"{column}"' for column in self.columns)
        places = ", ".join(["%s"] * len(self.columns))
        sql = f'INSERT INTO "{self.table.name}" ({names}) VALUES ({places})'  # noqa: S608 # names of ours
        prepared = [[self._prepared(column, row[column]) for column in self.columns] for row in rows]
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.executemany(sql, prepared)
            self.outcome.added += len(rows)
        except (DatabaseError, ValueError, OverflowError):
            for row, values in zip(rows, prepared, strict=True):
                self._insert_one(sql, row, values)

    def _insert_one(self, sql: str, row: Row, values: list[Any]) -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(sql, values)
            self.outcome.added += 1
        except (DatabaseError, ValueError, OverflowError) as problem:
            if self.table.name == "chat_attachments" and row.get("disk_path"):
                attachment_actions.remove(row["disk_path"])
            self.outcome.left_out.append(f"{self._name(row)}: {str(problem).strip().splitlines()[0]}")

    def _prepared(self, column: str, value: Any) -> Any:
        if connection.vendor == "postgresql" and column in self.table.booleans and isinstance(value, int):
            return bool(value)
        return value

    def _link(self, rows: Iterable[Row]) -> None:
        """Set the parents of rows that came in before their parents did."""
        for column, other in self.table.loose.items():
            for row in rows:
                parent = row.get(column)
                if parent is None:
                    continue
                if not self._existing_parents(other, {parent}):
                    self.outcome.notes.append(f"{self._name(row)} came in without its parent {parent}.")
                elif self.write:
                    key = self.table.key[0]
                    with connection.cursor() as cursor:
                        cursor.execute(
                            f'UPDATE "{self.table.name}" SET "{column}" = %s WHERE "{key}" = %s',  # noqa: S608
                            [parent, row[key]],
                        )


def _columns(table: str) -> list[str]:
    with connection.cursor() as cursor:
        return [column.name for column in connection.introspection.get_table_description(cursor, table)]


def _select(
    table: str, columns: Sequence[str], column: str, values: list[Any] | None
) -> list[tuple[Any, ...]]:
    """Return columns of the rows whose `column` is one of `values`, or of all rows."""
    names = ", ".join(f'"{name}"' for name in columns)
    sql, parameters = f'SELECT {names} FROM "{table}"', []  # noqa: S608 # names of ours
    if values is not None:
        parameters = [value for value in values if isinstance(value, str | int) and "\0" not in str(value)]
        if not parameters:
            return []
        sql += f' WHERE "{column}" IN ({", ".join(["%s"] * len(parameters))})'
    with connection.cursor() as cursor:
        cursor.execute(
            sql, [str(one) for one in parameters] if connection.vendor == "postgresql" else parameters
        )
        return list(cursor.fetchall())


def _plain(value: Any) -> Any:
    """Return a value as both engines' forms of it compare equal."""
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return value


def _digest(row: Row) -> bytes:
    held = sorted((name, value) for name, value in row.items() if value is not None)
    return hashlib.blake2b(repr(held).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _is_before(text: Any, limit: datetime) -> bool:
    at = instants.parse(text) if isinstance(text, str) else None
    return at is not None and at < limit
