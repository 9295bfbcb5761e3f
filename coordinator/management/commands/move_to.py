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
from coordinator.operations.moving.move import Move
from coordinator.operations.moving.source import Source

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
            self._on_the_target(options)
            return
        try:
            move = Move(
                options["source"],
                os.environ["DATABASE_URL"],
                self._say,
                mend=options["mend"] or options["undo"],
            )
            if options["check"]:
                move.check()
            elif options["undo"]:
                move.undo(timezone.now())
            else:
                move.move(timezone.now(), afresh=options["afresh"])
                if not (options["named_outside"] or options["no_restart"]):
                    self._restart()
                self._tell_what_next(named_outside=options["named_outside"])
        except sqlite3.Error as problem:
            raise CommandError(f"SQLite: {problem}. Run this again to continue.") from problem
        except KeyboardInterrupt:
            raise CommandError("Stopped. Run this again to continue.") from None
        except DatabaseError as problem:
            said = target.in_one_line(problem)
            raise CommandError(f"PostgreSQL: {said} Run this again to continue.") from problem

    def _on_the_target(self, options: dict[str, Any]) -> None:
        """Execute this command again with the target as its database, so that all of our code works on that."""
        source = options["source"] or self._own_file()
        if options["undo"] and self._forgot(source):
            return
        words = [sys.executable, sys.argv[0], "move_to", IN_ENVIRONMENT, "--from", str(source.absolute())]
        words += [f"--{name}" for name in FLAGS if options[name.replace("-", "_")]]
        if os.environ.get("DATABASE_URL", "").strip():
            words.append("--named-outside")
        self.stdout.flush()
        env = os.environ | {"DATABASE_URL": options["url"], "SIGNALBOX_MOVING": "on"}
        os.execve(sys.executable, words, env)  # noqa: S606

    def _forgot(self, path: Path) -> bool:
        """Forget a move that was not switched yet, for which PostgreSQL need not answer; say whether it was so."""
        source = Source(path)
        try:
            if source.is_shut():
                return False
            if source.move_id() is None:
                raise CommandError(f"{path} is not being moved, so there is nothing to undo.")
            source.open_again()
        finally:
            source.close()
        self._say(
            f"{path} is the database, as before. The copy in PostgreSQL is not needed any more: drop it."
        )
        return True

    def _own_file(self) -> Path:
        if is_sqlite():
            return Path(connection.settings_dict["NAME"])
        return Path(settings.DATA_DIR, "signalbox.sqlite3")

    def _say(self, line: object) -> None:
        self.stdout.write(str(line))
        self.stdout.flush()

    def _tell_what_next(self, *, named_outside: bool) -> None:
        if named_outside:
            self._say(
                "DATABASE_URL is set for this command and takes precedence: change it to PostgreSQL where the server "
                "gets it from, then restart the server. Until then it refuses writes (503)."
            )
        else:
            self._say(f"{settings.DATA_DIR / chosen_database.NAME} names PostgreSQL from now on.")
        self._say(
            "Older events are indexed for search again in the background; `manage.py rebuild_search` does it at once. "
            "The old file stays as it is and refuses writes. Attachments stay in the data folder."
        )

    def _restart(self) -> None:
        """Restart the running server on PostgreSQL: until then it refuses writes."""
        try:
            call_command("restart", stdout=self.stdout)
        except CommandError as problem:
            self._say(str(problem))
