"""`manage.py import_db PATH`: brings an existing database of ClotoCore or the Agent Coordinator into ours."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from coordinator.actions.importing import Outcome, import_database
from coordinator.errors import SignalboxError
from coordinator.foreign import Foreign

BAR = 24
MOST_LISTED = 20


class Command(BaseCommand):
    """Reads the file, which may be in use and is never written to, and adds what is not here yet.

    May be repeated: what came in once is known again. What is here already with other values is listed and left.
    """

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "path", type=Path, help="the database's file; attachments are looked for beside it"
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="tell what would happen, and change nothing"
        )
        parser.add_argument("--all", action="store_true", help="list every conflict, not only the first ones")

    def handle(self, *args: Any, **options: Any) -> None:
        write = not options["dry_run"]
        try:
            source = Foreign(options["path"])
            try:
                outcomes = import_database(source, now=timezone.now(), write=write, progress=self._show)
            finally:
                source.close()
        except SignalboxError as problem:
            raise CommandError(str(problem.detail)) from None
        self._clear()
        self.stdout.write(
            f"{'table':<22}{'rows':>10}{'added':>10}{'known':>10}{'conflicts':>11}{'left out':>10}"
        )
        for one in outcomes:
            self.stdout.write(
                f"{one.table:<22}{one.rows:>10,}{one.added:>10,}{one.present:>10,}"
                f"{len(one.conflicts):>11,}{len(one.left_out):>10,}"
            )
        for one in outcomes:
            self._list(one, None if options["all"] else MOST_LISTED)
        if source.replaced:
            self.stdout.write(
                f"{source.replaced} texts were not UTF-8; what cannot be read in them is marked."
            )
        if not write:
            self.stdout.write("Nothing was changed (--dry-run).")

    def _list(self, one: Outcome, most: int | None) -> None:
        for kind, lines in (("conflict", one.conflicts), ("left out", one.left_out), ("note", one.notes)):
            for line in lines[:most]:
                self.stdout.write(f"{kind}: {one.table} {line}")
            if most is not None and len(lines) > most:
                self.stdout.write(f"{kind}: {one.table} and {len(lines) - most:,} more (--all lists them)")

    def _show(self, table: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            filled = BAR * done // max(total, 1)
            bar = "#" * filled + "." * (BAR - filled)
            sys.stderr.write(f"\r{table:<22}{bar} {done:,}/{total:,}\x1b[K")

    def _clear(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
