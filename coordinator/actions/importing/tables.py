"""Import of one table of a foreign database, batch by batch.

Rows are written through SQL, because they may hold values that no action would write. Each batch is one transaction
(but for rows with a file) and compares first, so an import that was interrupted, or is repeated, resumes where it was.
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
from coordinator.importing import column_conversion, seeds
from coordinator.importing.import_files import RejectedRows, restore_raw_bytes_in_row, value_for_json_or_bytes
from coordinator.importing.source_database import TABLES, ImportableTable, Row, SourceDatabase

Progress = Callable[[str, int, int], object]
REFUSED = (DataError, IntegrityError, ValueError, OverflowError)  # of one row; other errors end the import


@dataclass(frozen=True, slots=True)
class ImportJob:
    """What holds for all tables of one import. `write` is False where it is only tried."""

    source: SourceDatabase
    rejected_rows: RejectedRows
    now: datetime
    write: bool
    with_policy: bool


@dataclass(slots=True)
class ImportCandidate:
    """A row of the source: its original values, its values for our columns, and those that have no column here."""

    raw: Row
    row: Row
    masked: int = 0


class TableImport:
    """The import of an ordinary table. Tables with rules of their own have subclasses (table_importers)."""

    placed: frozenset[str] = frozenset()  # columns that have a place of another name here

    def __init__(self, job: ImportJob, table: ImportableTable) -> None:
        self.job, self.table = job, table
        self.kinds = column_conversion.model_columns_by_name(table.name)
        own_columns = set(rows.read_table_columns(table.name)) & set(self.kinds)
        foreign_columns = [
            column for column in job.source.source_columns(table.name) if column != table.own_id
        ]
        # A column's older name is read where the newer one is not there too.
        old = {name: new for name, new in table.renamed.items() if new not in foreign_columns}
        self.column_places = {
            column: old.get(column, column)
            for column in foreign_columns
            if old.get(column, column) in own_columns
        }
        self.columns = list(self.column_places.values())
        self.homeless = [column for column in foreign_columns if column not in self.column_places]
        self.outcome = TableOutcome(table.name, job.source.source_row_count(table.name))
        self.outcome.unreadable += job.source.unreadable_row_reports(table.name)
        self.homeless_values: Counter[str] = Counter()
        self.existing_digests: Counter[bytes] = Counter()
        self.group: Any = object()
        self.disarmed = 0  # what does not decide here

    def import_table_rows(self, progress: Progress) -> TableOutcome:
        """Bring the rows over."""
        needed = [*self.table.key, *self.table.parents, *filter(None, [self.table.group])]
        missing = [name for name in needed if name not in self.columns]
        if missing:
            self.outcome.notes.append(
                f"The column {missing[0]} is missing, so its rows cannot be brought over."
            )
            for batch in self.job.source.iterate_row_chunks(self.table.name):
                for raw in batch:
                    self.record_skipped_row(raw, f"there is no column {missing[0]}")
            return self.outcome
        if not self.table.key and not self.table.group:
            self.existing_digests = self.count_existing_row_digests(self.columns)
        done, later = 0, []
        for batch in self.job.source.iterate_row_chunks(self.table.name, self.table.group):
            with transaction.atomic():
                later += self.import_batch_and_get_deferred(batch)
            self.import_deferred_rows()
            done += len(batch)
            progress(self.table.name, done, self.outcome.rows)
        self.set_deferred_parent_ids(later)
        self.add_outcome_notes()
        return self.outcome

    # What kinds of tables change.

    def fill_columns_from_source(self, raw: Row, row: Row) -> None:
        """Fill columns of ours from what the source holds elsewhere; take from `raw` what found a place so."""

    def restrict_incoming_rows(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        """Return what may come in, of all rows."""
        return candidates

    def restrict_new_rows(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        """Return what may come in, of the rows that are not here yet."""
        return candidates

    def build_seed_replacement_row(self, row: Row, stored_row: Row) -> Row:  # for kinds that keep something
        """Return the row that takes an untouched seed's place."""
        return row

    def select_rows_to_write(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        """Return what is to be written."""
        return candidates

    def undo_row_preparation(self, row: Row) -> None:
        """Undo what `before` did for a row that the database refused."""

    def process_rows_after_insert(
        self, written: list[ImportCandidate], candidates: list[ImportCandidate]
    ) -> None:
        """Do what follows from rows that came in, and from those that are here, these or equal ones."""

    def import_deferred_rows(self) -> None:
        """Bring over what `before` set aside, outside of the batch's transaction."""

    # The way of a batch.

    def import_batch_and_get_deferred(self, batch: list[Row]) -> list[Row]:
        """Bring over one batch; return the rows whose loose parents are to be set once all are there."""
        candidates = [candidate for raw in batch if (candidate := self.convert_and_report_import_row(raw))]
        candidates = self.skip_rows_without_parents(self.restrict_incoming_rows(candidates))
        present: list[ImportCandidate] = []
        wanted_rows = self.restrict_new_rows(self.filter_new_rows_collecting_present(candidates, present))
        loose = [
            dict(one.row) for one in wanted_rows if any(one.row.get(c) is not None for c in self.table.loose)
        ]
        for candidate in wanted_rows:
            candidate.row.update(dict.fromkeys(self.table.loose.keys() & candidate.row.keys()))
        written = self.insert_candidates(self.select_rows_to_write(wanted_rows))
        self.process_rows_after_insert(written, written + present)
        return loose

    def convert_and_report_import_row(self, raw: Row) -> ImportCandidate | None:
        """Return a row with the values of our columns; None for one that cannot be stored, which is reported."""
        rest = dict(raw)
        row = {place: rest.pop(column) for column, place in self.column_places.items()}
        self.fill_columns_from_source(rest, row)
        changes = []
        for name, value in row.items():
            try:
                row[name], change = column_conversion.convert_column_value_with_note(value, self.kinds[name])
            except column_conversion.UnfitValue as problem:
                self.record_skipped_row(raw, str(problem))
                return None
            if change:
                changes.append((name, change, value))
        if any(row[name] is None for name in self.table.key):
            self.record_skipped_row(
                raw, f"it has no {next(name for name in self.table.key if row[name] is None)}"
            )
            return None
        masked = masks.mask_row_and_count_secrets(self.table.name, row)
        self.report_value_changes(row, changes)
        self.save_values_without_column(row, rest)
        return ImportCandidate(raw, row, masked)

    def report_value_changes(self, row: Row, changes: list[tuple[str, str, Any]]) -> None:
        for name, column, value in changes:
            self.outcome.changed[f"{name} {column}"] += 1
            was = masks.mask_rejected_row(self.table.name, {**row, name: value})[name]
            self.save_rejected_row(
                f"{name} {column}",
                key=self.row_key_values_by_name(row),
                column=name,
                was=value_for_json_or_bytes(was),
            )

    def save_values_without_column(self, row: Row, rest: Row) -> None:
        """Keep what of a row has no column here."""
        unplaced = {name: rest[name] for name in self.homeless if rest.get(name) is not None}
        if unplaced:
            self.homeless_values.update(unplaced.keys())
            unplaced = masks.mask_rejected_row(self.table.name, unplaced)
            self.save_rejected_row(
                "no column here",
                key=self.row_key_values_by_name(row),
                values=restore_raw_bytes_in_row(unplaced),
            )

    def row_key_values_by_name(self, row: Row) -> Row:
        names = self.table.key or tuple(
            c for c in ("session_id", "event_type", "timestamp", "agent_id") if c in row
        )
        return {name: row.get(name) for name in names}

    def record_skipped_row(self, raw: Row, reason: str) -> None:
        """Keep a row aside with the reason why it is not imported."""
        self.outcome.left_out.add_line(f"{self.row_label(raw)}: {reason}")
        self.save_rejected_row(
            reason, row=restore_raw_bytes_in_row(masks.mask_rejected_row(self.table.name, raw))
        )

    def save_rejected_row(self, reason: str, **details: Any) -> None:
        self.outcome.aside += 1
        self.job.rejected_rows.write_rejected_row_within_limit(self.table.name, reason, **details)

    def skip_rows_without_parents(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        """Leave out rows that name what is not here: no database of ours would take them."""
        for column, other in self.table.parents.items():
            existing_ids = find_existing_row_ids(other, {candidate.row[column] for candidate in candidates})
            for candidate in candidates:
                if candidate.row[column] not in existing_ids:
                    self.record_skipped_row(
                        candidate.raw, f"there is no {candidate.row[column]!r} in {other}"
                    )
            candidates = [candidate for candidate in candidates if candidate.row[column] in existing_ids]
        return candidates

    def filter_new_rows_collecting_present(
        self, candidates: list[ImportCandidate], present: list[ImportCandidate]
    ) -> list[ImportCandidate]:
        by = self.filter_new_rows_by_key if self.table.key else self.filter_new_rows_by_content
        return by(candidates, present)

    def filter_new_rows_by_key(
        self, candidates: list[ImportCandidate], present: list[ImportCandidate]
    ) -> list[ImportCandidate]:
        if not candidates:
            return []
        keys = self.table.key
        compared = [c for c in candidates[0].row if c != "disk_path"]
        stored = {
            tuple(row[name] for name in keys): row
            for key_row in rows.select_target_table_rows(
                self.table.name, compared, keys[0], [candidate.row[keys[0]] for candidate in candidates]
            )
            for row in [self.normalize_row_for_comparison(dict(zip(compared, key_row, strict=True)))]
        }
        new = []
        for candidate in candidates:
            compared_row = self.normalize_row_for_comparison(
                {name: candidate.row.get(name) for name in compared}
            )
            key = tuple(compared_row[name] for name in keys)
            stored_row = stored.get(key)
            if stored_row is None:
                stored[key] = compared_row  # a second one of the source clashes with it
                new.append(candidate)
                continue
            different = [
                c for c in compared if compared_row[c] != stored_row[c] and c not in self.table.loose
            ]
            if not different or seeds.is_unchanged_seed_row(self.table.name, key, compared_row):
                self.outcome.present += 1
                present.append(candidate)
            elif seeds.is_unchanged_seed_row(self.table.name, key, stored_row):
                self.replace_seed_row(candidate, stored_row, present)
            else:
                self.record_row_conflict(candidate, different)
        return new

    def record_row_conflict(self, candidate: ImportCandidate, different: list[str]) -> None:
        reason = f"{', '.join(different)} differ between the two databases"
        self.outcome.conflicts.add_line(f"{self.row_label(candidate.row)}: {reason}")
        self.save_rejected_row(
            reason, row=restore_raw_bytes_in_row(masks.mask_rejected_row(self.table.name, candidate.raw))
        )

    def replace_seed_row(
        self, candidate: ImportCandidate, stored_row: Row, present: list[ImportCandidate]
    ) -> None:
        """Put an owner's row in the place of one that nobody touched since it was made with the database."""
        row = self.build_seed_replacement_row(candidate.row, stored_row)
        try:
            with transaction.atomic():
                rows.overwrite_table_row(self.table.name, row, self.table.key)
        except REFUSED as problem:
            self.record_skipped_row(candidate.raw, format_database_error(problem))
            return
        self.outcome.replaced += 1
        present.append(candidate)

    def filter_new_rows_by_content(
        self, candidates: list[ImportCandidate], present: list[ImportCandidate]
    ) -> list[ImportCandidate]:
        new = []
        for candidate in candidates:
            if self.table.group and candidate.row[self.table.group] != self.group:
                self.group = candidate.row[self.table.group]
                self.existing_digests = self.count_existing_row_digests(list(candidate.row), self.group)
            digest = self.digest_row(candidate.row) if self.existing_digests else b""
            if self.existing_digests[digest] > 0:
                self.existing_digests[digest] -= 1
                self.outcome.present += 1
                present.append(candidate)
            else:
                new.append(candidate)
        return new

    def count_existing_row_digests(self, names: list[str], group: Any = None) -> Counter[bytes]:
        """Count what is here already, as digests: rows without a key are the same if all they hold is."""
        content_rows = rows.select_target_table_rows(
            self.table.name, names, self.table.group, [group] if self.table.group else None
        )
        return Counter(
            self.digest_row(dict(zip(names, content_row, strict=True))) for content_row in content_rows
        )

    def digest_row(self, row: Row) -> bytes:
        row = self.normalize_row_for_comparison(row)
        present_values = sorted((name, value) for name, value in row.items() if value is not None)
        return hashlib.blake2b(repr(present_values).encode("utf-8", "surrogatepass"), digest_size=16).digest()

    def normalize_row_for_comparison(self, row: Row) -> Row:
        """Return a row so that what means the same compares equal."""
        same = {
            name: column_conversion.normalize_value_for_comparison(value, self.kinds[name])
            for name, value in row.items()
        }
        return masks.normalize_masks_for_comparison(self.table.name, same)

    def row_label(self, row: Row) -> str:
        key = self.table.key or tuple(c for c in ("session_id", "timestamp", "agent_id") if c in row)
        return " ".join(str(row.get(name)) for name in key)[:200]

    def insert_candidates(self, candidates: list[ImportCandidate]) -> list[ImportCandidate]:
        """Write rows and return those that were written; report why any of them could not be."""
        if not candidates:
            return []
        try:
            with transaction.atomic():
                self.insert_rows(candidates)
            written = candidates
        except REFUSED:
            written = [candidate for candidate in candidates if self.try_insert_candidate(candidate)]
        self.outcome.added += len(written)
        self.outcome.masked += sum(one.masked for one in written)
        return written

    def try_insert_candidate(self, candidate: ImportCandidate) -> bool:
        try:
            with transaction.atomic():
                self.insert_rows([candidate])
        except REFUSED as problem:
            self.undo_row_preparation(candidate.row)
            self.record_skipped_row(candidate.raw, format_database_error(problem))
            return False
        return True

    def insert_rows(self, candidates: list[ImportCandidate]) -> None:
        """Insert the rows."""
        names = list(candidates[0].row)
        with connection.cursor() as cursor:
            cursor.executemany(
                rows.build_insert_sql(self.table.name, names),
                [list(candidate.row.values()) for candidate in candidates],
            )

    def set_deferred_parent_ids(self, later: list[Row]) -> None:
        """Set the parents of rows that came in before their parents did."""
        for column, other in self.table.loose.items():
            for start in range(0, len(later), rows.AT_ONCE):
                part = [row for row in later[start : start + rows.AT_ONCE] if row.get(column) is not None]
                existing_ids = find_existing_row_ids(other, {row[column] for row in part})
                with transaction.atomic():
                    for row in part:
                        self.set_deferred_parent_id(row, column, existing_ids)

    def set_deferred_parent_id(self, row: Row, column: str, existing_ids: set[Any]) -> None:
        if row[column] not in existing_ids:
            self.outcome.notes.append(f"{self.row_label(row)} was imported without its parent {row[column]}.")
            self.save_rejected_row(
                "there is no such parent",
                key=self.row_key_values_by_name(row),
                column=column,
                was=row[column],
            )
            return
        key = self.table.key[0]
        rows.overwrite_table_row(self.table.name, {column: row[column], key: row[key]}, (key,))

    def add_outcome_notes(self) -> None:
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
        elif (
            not masks.is_masking_on()
            and masks.find_table_columns_to_mask(self.table.name)
            and self.outcome.added
        ):
            self.outcome.notes.append("Secrets are not masked: SIGNALBOX_MASK_SECRETS is off.")


def find_existing_row_ids(table: str, ids: set[Any]) -> set[Any]:
    """Return those of the ids that a table of ours has."""
    key = next(one.key[0] for one in TABLES if one.name == table)
    return {row[0] for row in rows.select_target_table_rows(table, [key], key, list(ids))}


def format_database_error(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or ["the database refused it"])[0]
