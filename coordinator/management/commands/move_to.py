"""`manage.py move_to URL`: moves everything from SQLite to PostgreSQL, beside the running server."""

from __future__ import annotations

import argparse
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError, connection
from django.utils import timezone

from coordinator.engine import is_sqlite
from coordinator.lib import chosen_database
from coordinator.operations.moving import target
from coordinator.operations.moving.move import DatabaseMove
from coordinator.operations.moving.source import SqliteSource

IN_ENVIRONMENT = "DATABASE_URL"  # stands for the URL, whose password is nothing for a list of processes
FLAGS = ("check", "undo", "mend", "afresh", "no-restart")


class Command(BaseCommand):
    """Continues where it stopped when it is run again. `--undo` goes back while nothing would be lost."""

    help = __doc__

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("url", help="an empty database: postgres://user:password@host:5432/name")
        parser.add_argument(
            "--check", "--dry-run", action="store_true", help="look at every row, move nothing"
        )
        parser.add_argument("--undo", action="store_true", help="go back to SQLite")
        parser.add_argument(
            "--mend", action="store_true", help="change values that PostgreSQL cannot hold; prints each"
        )
        parser.add_argument("--afresh", action="store_true", help="copy everything again, not only the rest")
        parser.add_argument(
            "--from", dest="source", type=Path, help="the SQLite file, if not this installation's"
        )
        parser.add_argument(
            "--no-restart",
            action="store_true",
            help="do not restart the running server; it refuses writes until somebody does",
        )
        # What the first half tells the second.
        parser.add_argument("--named-outside", action="store_true", help=argparse.SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        if os.environ.get("SIGNALBOX_MOVING") != "on":
            self.rerun_on_target(options)
            return
        try:
            move = DatabaseMove(
                options["source"],
                os.environ["DATABASE_URL"],
                self.print_line,
                mend=options["mend"] or options["undo"],
            )
            if options["check"]:
                move.check_everything_movable()
            elif options["undo"]:
                move.undo_move(timezone.now())
            else:
                move.move_everything(timezone.now(), afresh=options["afresh"])
                if not (options["named_outside"] or options["no_restart"]):
                    self.restart_on_postgres()
                self.print_next_move_steps(named_outside=options["named_outside"])
        except sqlite3.Error as problem:
            raise CommandError(f"SQLite: {problem}. Run this again to continue.") from problem
        except KeyboardInterrupt:
            raise CommandError("Stopped. Run this again to continue.") from None
        except DatabaseError as problem:
            said = target.format_one_line_error(problem)
            raise CommandError(f"PostgreSQL: {said} Run this again to continue.") from problem

    def rerun_on_target(self, options: dict[str, Any]) -> None:
        """Execute this command again with the target as its database, so that all of our code works on that."""
        source = options["source"] or self.own_sqlite_path()
        if options["undo"] and self.forget_unswitched_move(source):
            return
        words = [sys.executable, sys.argv[0], "move_to", IN_ENVIRONMENT, "--from", str(source.absolute())]
        words += [f"--{name}" for name in FLAGS if options[name.replace("-", "_")]]
        if os.environ.get("DATABASE_URL", "").strip():
            words.append("--named-outside")
        self.stdout.flush()
        env = os.environ | {"DATABASE_URL": options["url"], "SIGNALBOX_MOVING": "on"}
        os.execve(sys.executable, words, env)  # noqa: S606

    def forget_unswitched_move(self, path: Path) -> bool:
        """Forget a move that was not switched yet, for which PostgreSQL need not answer; say whether it was so."""
        source = SqliteSource(path)
        try:
            if source.is_refusing_writes():
                return False
            if source.read_move_id() is None:
                raise CommandError(f"{path} is not being moved, so there is nothing to undo.")
            source.accept_writes_and_forget()
        finally:
            source.close()
        self.print_line(
            f"{path} is the database, as before. The copy in PostgreSQL is not needed any more: drop it."
        )
        return True

    def own_sqlite_path(self) -> Path:
        if is_sqlite():
            return Path(connection.settings_dict["NAME"])
        return Path(settings.DATA_DIR, "signalbox.sqlite3")

    def print_line(self, line: object) -> None:
        self.stdout.write(str(line))
        self.stdout.flush()

    def print_next_move_steps(self, *, named_outside: bool) -> None:
        if named_outside:
            self.print_line(
                "DATABASE_URL is set for this command and takes precedence: change it to PostgreSQL where the server "
                "gets it from, then restart the server. Until then it refuses writes (503)."
            )
        else:
            self.print_line(f"{settings.DATA_DIR / chosen_database.NAME} names PostgreSQL from now on.")
        self.print_line(
            "Older events are indexed for search again in the background; `manage.py rebuild_search` does it at once. "
            "The old file stays as it is and refuses writes. Attachments stay in the data folder."
        )

    def restart_on_postgres(self) -> None:
        """Restart the running server on PostgreSQL: until then it refuses writes."""
        try:
            call_command("restart", stdout=self.stdout)
        except CommandError as problem:
            self.print_line(str(problem))
