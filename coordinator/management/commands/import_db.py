"""`manage.py import_db PATH`: imports a database of ClotoCore or the Agent Coordinator."""

from __future__ import annotations

import contextlib
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from django.utils import timezone

from coordinator.actions.importing import (
    ImportOutcome,
    TableOutcome,
    import_database,
    record_unreadable_database,
)
from coordinator.actions.importing.outcomes import CappedReportLines
from coordinator.errors import SignalboxError
from coordinator.importing.blueprint_files import blueprints_folder_of_database
from coordinator.importing.import_files import MOST_BYTES
from coordinator.importing.source_database import SourceDatabase
from coordinator.operations import startup

BAR = 24
MOST_LISTED = 20
NUMBERS = ("rows", "added", "known", "replaced", "conflicts", "left out", "kept aside")


class Command(BaseCommand):
    """Reads the file, which may be in use and is never written to, and adds what is not here yet.

    May be repeated: rows that are here already are skipped. Those that differ here are listed and left unchanged.
    Rows and columns that Signalbox has no place for are kept as JSON lines in the data folder, beside a report.
    """

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, help="the database file; attachments are expected beside it")
        parser.add_argument(
            "--dry-run", action="store_true", help="do the whole import, show the result, and undo it"
        )
        parser.add_argument(
            "--with-policy",
            action="store_true",
            help="import grants, servers open to all agents and approvals in force as they are: they decide here, too",
        )
        parser.add_argument(
            "--agents",
            type=Path,
            metavar="FOLDER",
            help="the folder of the coordinator's blueprints, beside which its capabilities are; default: `agents`"
            " beside the database",
        )
        parser.add_argument("--all", action="store_true", help="list every conflict, not only the first few")

    def handle(self, *args: Any, **options: Any) -> None:
        startup.require_migrated_database()
        write, now = not options["dry_run"], timezone.now()
        if options["agents"] is not None and not options["agents"].is_dir():
            raise CommandError(f"{options['agents']} is no folder.")
        try:
            source = self.require_readable_source_database(options["path"], write=write, now=now)
            try:
                done = import_database(
                    source,
                    now=now,
                    write=write,
                    with_policy=options["with_policy"],
                    agents_folder=options["agents"] or blueprints_folder_of_database(options["path"]),
                    progress=self.show_table_progress,
                )
            finally:
                source.delete_database_copy()
                self.clear_table_progress_bar()
        except SignalboxError as problem:
            raise CommandError(str(problem.detail)) from None
        self.print_import_outcome(done, source, None if options["all"] else MOST_LISTED)
        if not write:
            self.stdout.write("Nothing was changed (--dry-run).")
        if done.unreadable_lines:
            raise CommandError(
                f"{options['path']} is damaged: {len(done.unreadable_lines)} places could not be read."
                f" All else {'was' if write else 'would be'} imported."
            )

    def require_readable_source_database(self, path: Path, *, write: bool, now: datetime) -> SourceDatabase:
        try:
            return SourceDatabase(path, Path(settings.DATA_DIR))
        except SignalboxError as problem:
            if write:
                with contextlib.suppress(DatabaseError):
                    record_unreadable_database(path, str(problem.detail), now)
            raise

    def print_import_outcome(self, done: ImportOutcome, source: SourceDatabase, most: int | None) -> None:
        width = max([22, *(len(outcome.table) + 1 for outcome in done.outcomes)])
        self.stdout.write(f"{'table':<{width}}" + "".join(f"{name:>12}" for name in NUMBERS))
        for outcome in done.outcomes:
            numbers = (
                outcome.rows,
                outcome.added,
                outcome.present,
                outcome.replaced,
                outcome.conflicts.total,
                outcome.left_out.total,
                outcome.aside,
            )
            self.stdout.write(f"{outcome.table:<{width}}" + "".join(f"{number:>12,}" for number in numbers))
        for outcome in done.outcomes:
            self.print_table_outcome(outcome, most)
        if source.replaced:
            self.stdout.write(
                f"{source.replaced} texts were not UTF-8. Their unreadable characters are marked."
            )
        if done.aside:
            self.stdout.write(
                f"Kept aside in {done.aside}, which only its owner can read and which may hold secrets."
            )
        if done.dropped_rows:
            self.stdout.write(
                f"{done.dropped_rows:,} rows or values were not kept: the file is limited to {MOST_BYTES // 2**30} GiB."
            )
        if done.report:
            self.stdout.write(f"The report: {done.report}")

    def print_table_outcome(self, outcome: TableOutcome, most: int | None) -> None:
        if not outcome.is_known:
            self.stdout.write(
                f"note: {outcome.table} has no counterpart here; its {outcome.rows:,} rows are kept aside."
            )
        changed = [
            f"{change_label}, in {number:,} rows" for change_label, number in outcome.changed.most_common()
        ]
        for kind, lines in (
            ("damaged", outcome.unreadable),
            ("conflict", outcome.conflicts),
            ("left out", outcome.left_out),
            ("changed", changed),
            ("note", outcome.notes),
        ):
            number = lines.total if isinstance(lines, CappedReportLines) else len(lines)
            self.print_limited_lines(f"{kind}: {outcome.table}", lines, number, most)

    def print_limited_lines(self, label: str, lines: Iterable[str], number: int, most: int | None) -> None:
        shown_lines = list(lines)[:most]
        for line in shown_lines:
            self.stdout.write(f"{label} {line}")
        if number > len(shown_lines):
            where = " (--all lists them)" if most is not None else " (in the file beside the report)"
            self.stdout.write(f"{label} and {number - len(shown_lines):,} more{where}")

    def show_table_progress(self, table: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            filled = BAR * done // max(total, 1)
            bar = "#" * filled + "." * (BAR - filled)
            sys.stderr.write(f"\r{table:<22}{bar} {done:,}/{total:,}\x1b[K")

    def clear_table_progress_bar(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
