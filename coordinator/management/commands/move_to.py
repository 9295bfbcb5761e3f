"""`manage.py move_to URL`: moves everything from SQLite to an empty PostgreSQL database, with the server stopped."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection
from django.utils import timezone

from coordinator.engine import is_sqlite
from coordinator.operations import startup
from coordinator.operations.moving import target
from coordinator.operations.moving.move import DatabaseMove

IN_ENVIRONMENT = "DATABASE_URL"  # stands for the URL, whose password is nothing for a list of processes
NEXT_STEPS = """
Now
1. Set DATABASE_URL to the address you gave ({target}), where the server gets its settings.
2. Start the server: systemctl start signalbox, or signalbox serve.

The old file is as it was: {source}.
To go back, stop the server and set DATABASE_URL to what it was before. What was written to PostgreSQL meanwhile is
then missing. Attachments stay in the data folder. Older events are indexed for search again in the background;
`signalbox manage rebuild_search` does it at once."""


class Command(BaseCommand):
    """SQLite is not changed. Where this is interrupted, PostgreSQL is marked as incomplete: run it again."""

    help = __doc__

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("url", help="an empty database: postgres://user:password@host:5432/name")
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="say what would be moved and what would fail; write nothing",
        )
        parser.add_argument(
            "--mend", action="store_true", help="change values that PostgreSQL cannot hold; prints each"
        )
        parser.add_argument(
            "--from", dest="source", type=Path, help="the SQLite file, if not this installation's"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if os.environ.get("SIGNALBOX_MOVING") != "on":
            self.exec_command_with_target_database(options)
            return
        try:
            move = DatabaseMove(options["source"], self.print_line, mend=options["mend"])
            if options["dry_run"]:
                move.require_everything_movable()
                return
            move.move_database_rows(timezone.now())
        except sqlite3.Error as problem:
            raise CommandError(f"SQLite: {problem}. Nothing was moved.") from problem
        except KeyboardInterrupt:
            raise CommandError("Stopped. Nothing was moved; run this again to begin again.") from None
        except DatabaseError as problem:
            message = target.format_one_line_error(problem)
            raise CommandError(f"PostgreSQL: {message} Nothing was moved.") from problem
        self.print_line(NEXT_STEPS.format(target=startup.describe_database(), source=options["source"]))

    def exec_command_with_target_database(self, options: dict[str, Any]) -> None:
        """Execute this command again with the target as its database, so that all of our code works on that."""
        source = options["source"] or self.configured_sqlite_path()
        rerun_command = [
            sys.executable,
            sys.argv[0],
            "move_to",
            IN_ENVIRONMENT,
            "--from",
            str(source.absolute()),
        ]
        rerun_command += [f"--{name}" for name in ("dry-run", "mend") if options[name.replace("-", "_")]]
        self.stdout.flush()
        env = os.environ | {"DATABASE_URL": options["url"], "SIGNALBOX_MOVING": "on"}
        os.execve(sys.executable, rerun_command, env)  # noqa: S606

    def configured_sqlite_path(self) -> Path:
        if is_sqlite():
            return Path(connection.settings_dict["NAME"])
        return Path(settings.DATA_DIR, "signalbox.sqlite3")

    def print_line(self, line: object) -> None:
        self.stdout.write(str(line))
        self.stdout.flush()
