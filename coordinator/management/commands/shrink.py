"""`manage.py shrink`: gives the room of deleted rows in SQLite's file back to the disk."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from coordinator.errors import Conflict
from coordinator.lib import sizes
from coordinator.operations import shrinking, startup


class Command(BaseCommand):
    """Works beside a running server. Readers go on; writers wait, at most as long as --longest-wait says."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="show what is free, and change nothing")
        parser.add_argument(
            "--longest-wait",
            type=float,
            default=shrinking.LONGEST_WAIT_SECONDS,
            metavar="SECONDS",
            help="give up, and change nothing, where writers would wait for longer (default: %(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        startup.require_database_connection()
        try:
            if options["dry_run"]:
                shrinking.require_sqlite()
                file_room = shrinking.measure_sqlite_file_space()
                self.stdout.write(
                    f"{sizes.format_byte_count(file_room.free)} are free, "
                    f"{sizes.format_byte_count(file_room.used)} in use."
                    f" Writers would wait for about {file_room.wait_seconds:.1f} s. Nothing was changed (--dry-run)."
                )
                return
            outcome = shrinking.shrink_sqlite_file(options["longest_wait"])
        except Conflict as problem:
            raise CommandError(str(problem)) from None
        self.stdout.write(
            f"{sizes.format_byte_count(outcome.before)} before, {sizes.format_byte_count(outcome.after)} now."
            f" Writers waited while it was copied, {outcome.seconds:.1f} s, and for a moment afterwards."
        )
        if outcome.after >= outcome.before:
            self.stdout.write(
                "A program is reading the file: it gets smaller once nobody reads for a moment."
            )
