"""Imports one table of a foreign database, batch by batch.

Rows go in as they are, through SQL, because they may hold what no action would write. Each batch is one
transaction (but for rows with a file) and looks first, so an import that was broken off, or is repeated, goes on
where it was.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import DataError, IntegrityError, connection, transaction

from coordinator.actions.importing import masks, rows
from coordinator.actions.importing.outcomes import TableOutcome
from coordinator.importing import seeds, values
from coordinator.importing.foreign import TABLES, Foreign, Row, Table
from coordinator.importing.keeping import RejectedRows, as_kept, kept_value

Progress = Callable[[str, int, int], object]
REFUSED = (DataError, IntegrityError, ValueError, OverflowError)  # of one row; other errors end the import


@dataclass(frozen=True, slots=True)
class Job:
    """What holds for all tables of one import. `write` is False where it is only tried."""

    source: Foreign
    kept: RejectedRows
    now: datetime
    write: bool
    with_policy: bool


@dataclass(slots=True)
class Candidate:
    """A row of the source: as it stands there, as our columns would hold it, and what has no column here."""

    raw: Row
    row: Row
    masked: int = 0


class TableImport:
    """What most tables need. Tables with rules of their own have a kind of their own (importing.kinds)."""

    placed: frozenset[str] = frozenset()  # columns that have a place of another name here

    def __init__(self, job: Job, table: Table) -> None:
        self.job, self.table = job, table
        self.kinds = values.columns_of(table.name)
        ours = set(rows.columns(table.name)) & set(self.kinds)
        theirs = [column for column in job.source.columns(table.name) if column != table.own_id]
        # A column's older name is read where the newer one is not there too.
        old = {name: new for name, new in table.renamed.items() if new not in theirs}
        self.places = {
            column: old.get(column, column) for column in theirs if old.get(column, column) in ours
        }
        self.columns = list(self.places.values())
        self.homeless = [column for column in theirs if column not in self.places]
        self.outcome = TableOutcome(table.name, job.source.count(table.name))
        self.outcome.unreadable += job.source.damage(table.name)
        self.homeless_values: Counter[str] = Counter()
        self.there: Counter[bytes] = Counter()
        self.group: Any = object()
        self.disarmed = 0  # what does not decide here

    def run(self, progress: Progress) -> TableOutcome:
        """Bring the rows over."""
        needed = [*self.table.key, *self.table.parents, *filter(None, [self.table.group])]
        missing = [name for name in needed if name not in self.columns]
        if missing:
            self.outcome.notes.append(
                f"The column {missing[0]} is missing, so its rows cannot be brought over."
            )
            for batch in self.job.source.rows(self.table.name):
                for raw in batch:
                    self._leave_out(raw, f"there is no column {missing[0]}")
            return self.outcome
        if not self.table.key and not self.table.group:
            self.there = self._digests(self.columns)
        done, later = 0, []
        for batch in self.job.source.rows(self.table.name, self.table.group):
            with transaction.atomic():
                later += self._batch(batch)
            self.bring_slow_ones()
            done += len(batch)
            progress(self.table.name, done, self.outcome.rows)
        self._link(later)
        self._tell()
        return self.outcome

    # What kinds of tables change.

    def adapt(self, raw: Row, row: Row) -> None:
        """Fill columns of ours from what the source holds elsewhere; take from `raw` what found a place so."""

    def admitted(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return what may come in, of all rows."""
        return candidates

    def allowed(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return what may come in, of the rows that are not here yet."""
        return candidates

    def seed_replaced_by(self, row: Row, ours: Row) -> Row:  # for kinds that keep something
        """Return the row that takes an untouched seed's place."""
        return row

    def before(self, candidates: list[Candidate]) -> list[Candidate]:
        """Return what is to be written."""
        return candidates

    def not_written(self, row: Row) -> None:
        """Undo what `before` did for a row that the database refused."""

    def after(self, written: list[Candidate], standing: list[Candidate]) -> None:
        """Do what follows from rows that came in, and from those that are here, these or equal ones."""

    def bring_slow_ones(self) -> None:
        """Bring over what `before` set aside, outside of the batch's transaction."""

    # The way of a batch.

    def _batch(self, batch: list[Row]) -> list[Row]:
        """Bring over one batch; return the rows whose loose parents are to be set once all are there."""
        candidates = [one for raw in batch if (one := self._candidate(raw))]
        candidates = self._with_parents(self.admitted(candidates))
        present: list[Candidate] = []
        wanted = self.allowed(self._new(candidates, present))
        loose = [dict(one.row) for one in wanted if any(one.row.get(c) is not None for c in self.table.loose)]
        for one in wanted:
            one.row.update(dict.fromkeys(self.table.loose.keys() & one.row.keys()))
        written = self._insert(self.before(wanted))
        self.after(written, written + present)
        return loose

    def _candidate(self, raw: Row) -> Candidate | None:
        """Return a row as our columns hold it; None for one that cannot be kept, which is told."""
        rest = dict(raw)
        row = {place: rest.pop(column) for column, place in self.places.items()}
        self.adapt(rest, row)
        changes = []
        for name, value in row.items():
            try:
                row[name], change = values.fitted(value, self.kinds[name])
            except values.Unfit as problem:
                self._leave_out(raw, str(problem))
                return None
            if change:
                changes.append((name, change, value))
        if any(row[name] is None for name in self.table.key):
            self._leave_out(raw, f"it has no {next(name for name in self.table.key if row[name] is None)}")
            return None
        masked = masks.mask_row(self.table.name, row)
        self._tell_changes(row, changes)
        self._keep_homeless(row, rest)
        return Candidate(raw, row, masked)

    def _tell_changes(self, row: Row, changes: list[tuple[str, str, Any]]) -> None:
        for name, told, value in changes:
            self.outcome.changed[f"{name} {told}"] += 1
            was = masks.without_secrets(self.table.name, {name: value})[name]
            self._keep(f"{name} {told}", key=self._key(row), column=name, was=kept_value(was))

    def _keep_homeless(self, row: Row, rest: Row) -> None:
        """Keep what of a row has no column here."""
        held = {name: rest[name] for name in self.homeless if rest.get(name) is not None}
        if held:
            self.homeless_values.update(held.keys())
            held = masks.without_secrets(self.table.name, held)
            self._keep("no column here", key=self._key(row), values=as_kept(held))

    def _key(self, row: Row) -> Row:
        names = self.table.key or tuple(
            c for c in ("session_id", "event_type", "timestamp", "agent_id") if c in row
        )
        return {name: row.get(name) for name in names}

    def _leave_out(self, raw: Row, why: str) -> None:
        """Keep a row aside with the reason why it is not imported."""
        self.outcome.left_out.add(f"{self._name(raw)}: {why}")
        self._keep(why, row=as_kept(masks.without_secrets(self.table.name, raw)))

    def _keep(self, why: str, **details: Any) -> None:
        self.outcome.aside += 1
        self.job.kept.add(self.table.name, why, **details)

    def _with_parents(self, candidates: list[Candidate]) -> list[Candidate]:
        """Leave out rows that name what is not here: no database of ours would take them."""
        for column, other in self.table.parents.items():
            there = existing(other, {one.row[column] for one in candidates})
            for one in candidates:
                if one.row[column] not in there:
                    self._leave_out(one.raw, f"there is no {one.row[column]!r} in {other}")
            candidates = [one for one in candidates if one.row[column] in there]
        return candidates

    def _new(self, candidates: list[Candidate], present: list[Candidate]) -> list[Candidate]:
        by = self._new_by_key if self.table.key else self._new_by_content
        return by(candidates, present)

    def _new_by_key(self, candidates: list[Candidate], present: list[Candidate]) -> list[Candidate]:
        if not candidates:
            return []
        keys = self.table.key
        compared = [c for c in candidates[0].row if c != "disk_path"]
        stored = {
            tuple(row[name] for name in keys): row
            for found in rows.select(
                self.table.name, compared, keys[0], [one.row[keys[0]] for one in candidates]
            )
            for row in [self.comparable(dict(zip(compared, found, strict=True)))]
        }
        new = []
        for one in candidates:
            mine = self.comparable({name: one.row.get(name) for name in compared})
            key = tuple(mine[name] for name in keys)
            ours = stored.get(key)
            if ours is None:
                stored[key] = mine  # a second one of the source clashes with it
                new.append(one)
                continue
            different = [c for c in compared if mine[c] != ours[c] and c not in self.table.loose]
            if not different or seeds.is_seed(self.table.name, key, mine):
                self.outcome.present += 1
                present.append(one)
            elif seeds.is_seed(self.table.name, key, ours):
                self._replace(one, ours, present)
            else:
                self._clash(one, different)
        return new

    def _clash(self, one: Candidate, different: list[str]) -> None:
        why = f"{', '.join(different)} differ between the two databases"
        self.outcome.conflicts.add(f"{self._name(one.row)}: {why}")
        self._keep(why, row=as_kept(masks.without_secrets(self.table.name, one.raw)))

    def _replace(self, one: Candidate, ours: Row, present: list[Candidate]) -> None:
        """Put an owner's row in the place of one that nobody touched since it was made with the database."""
        row = self.seed_replaced_by(one.row, ours)
        try:
            with transaction.atomic():
                rows.update(self.table.name, row, self.table.key)
        except REFUSED as problem:
            self._leave_out(one.raw, _first_line(problem))
            return
        self.outcome.replaced += 1
        present.append(one)

    def _new_by_content(self, candidates: list[Candidate], present: list[Candidate]) -> list[Candidate]:
        new = []
        for one in candidates:
            if self.table.group and one.row[self.table.group] != self.group:
                self.group = one.row[self.table.group]
                self.there = self._digests(list(one.row), self.group)
            digest = self._digest(one.row) if self.there else b""
            if self.there[digest] > 0:
                self.there[digest] -= 1
                self.outcome.present += 1
                present.append(one)
            else:
                new.append(one)
        return new

    def _digests(self, names: list[str], group: Any = None) -> Counter[bytes]:
        """Count what is here already, as digests: rows without a key are the same if all they hold is."""
        found = rows.select(self.table.name, names, self.table.group, [group] if self.table.group else None)
        return Counter(self._digest(dict(zip(names, one, strict=True))) for one in found)

    def _digest(self, row: Row) -> bytes:
        row = self.comparable(row)
        held = sorted((name, value) for name, value in row.items() if value is not None)
        return hashlib.blake2b(repr(held).encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def comparable(self, row: Row) -> Row:
        """Return a row so that what means the same compares equal."""
        same = {name: values.to_compare(value, self.kinds[name]) for name, value in row.items()}
        return masks.to_compare(self.table.name, same)

    def _name(self, row: Row) -> str:
        key = self.table.key or tuple(c for c in ("session_id", "timestamp", "agent_id") if c in row)
        return " ".join(str(row.get(name)) for name in key)[:200]

    def _insert(self, candidates: list[Candidate]) -> list[Candidate]:
        """Write rows and return those that were; where one cannot be written, the others are, and it is told why."""
        if not candidates:
            return []
        try:
            with transaction.atomic():
                self.write(candidates)
            written = candidates
        except REFUSED:
            written = [one for one in candidates if self._is_written(one)]
        self.outcome.added += len(written)
        self.outcome.masked += sum(one.masked for one in written)
        return written

    def _is_written(self, one: Candidate) -> bool:
        try:
            with transaction.atomic():
                self.write([one])
        except REFUSED as problem:
            self.not_written(one.row)
            self._leave_out(one.raw, _first_line(problem))
            return False
        return True

    def write(self, candidates: list[Candidate]) -> None:
        """Insert the rows."""
        names = list(candidates[0].row)
        with connection.cursor() as cursor:
            cursor.executemany(
                rows.insert_sql(self.table.name, names), [list(one.row.values()) for one in candidates]
            )

    def _link(self, later: list[Row]) -> None:
        """Set the parents of rows that came in before their parents did."""
        for column, other in self.table.loose.items():
            for start in range(0, len(later), rows.AT_ONCE):
                part = [row for row in later[start : start + rows.AT_ONCE] if row.get(column) is not None]
                there = existing(other, {row[column] for row in part})
                with transaction.atomic():
                    for row in part:
                        self._set_parent(row, column, there)

    def _set_parent(self, row: Row, column: str, there: set[Any]) -> None:
        if row[column] not in there:
            self.outcome.notes.append(f"{self._name(row)} was imported without its parent {row[column]}.")
            self._keep("there is no such parent", key=self._key(row), column=column, was=row[column])
            return
        key = self.table.key[0]
        rows.update(self.table.name, {column: row[column], key: row[key]}, (key,))

    def _tell(self) -> None:
        for name in self.homeless:
            if number := self.homeless_values[name]:
                self.outcome.notes.append(
                    f"Signalbox has no column {name}; its {number:,} values are kept aside."
                )
            elif name not in self.placed:
                self.outcome.notes.append(f"Signalbox has no column {name}; it held nothing.")
        if self.outcome.masked:
            self.outcome.notes.append(
                f"{self.outcome.masked:,} secrets are masked, as in all that programs report."
            )
        elif not masks.is_on() and masks.columns_of(self.table.name) and self.outcome.added:
            self.outcome.notes.append("Secrets are not masked: SIGNALBOX_MASK_SECRETS is off.")


def existing(table: str, ids: set[Any]) -> set[Any]:
    """Return those of the ids that a table of ours has."""
    key = next(one.key[0] for one in TABLES if one.name == table)
    return {row[0] for row in rows.select(table, [key], key, list(ids))}


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or ["the database refused it"])[0]
