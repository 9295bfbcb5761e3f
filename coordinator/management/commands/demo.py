"""`manage.py demo`: a believable week in an empty database, and with --live a small fleet at work."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from coordinator.demo import fill, live, separate
from coordinator.errors import SignalboxError
from coordinator.operations import startup


class Command(BaseCommand):
    """Fills the database; with --live, then keeps working through the HTTP API of a running server.

    With --separate it does both in an instance of its own, which is deleted at the end.
    """

    help = "Fill an empty database with a believable week; --live keeps a small fleet working over HTTP."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--days", type=int, default=7, help="how many days of history (default 7)")
        parser.add_argument("--seed", type=int, default=7, help="the same seed makes the same week")
        parser.add_argument("--anyway", action="store_true", help="fill the database even if it is in use")
        parser.add_argument(
            "--live", action="store_true", help="then keep a small fleet working until Ctrl-C"
        )
        parser.add_argument(
            "--separate",
            action="store_true",
            help="run the demo as an instance of its own until Ctrl-C, which deletes it; this one is not touched",
        )
        parser.add_argument(
            "--port",
            type=int,
            default=settings.BIND_PORT + 1,
            help="the port of --separate (default %(default)s)",
        )
        parser.add_argument(
            "--url", default=f"http://{settings.BIND}", help="the running server's address, for --live"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["separate"]:
            try:
                exit_code = separate.run_separate_demo(
                    options["port"], seed=options["seed"], days=options["days"], say=self.stdout.write
                )
            except live.ServerUnreachable as problem:
                raise CommandError(str(problem)) from None
            sys.exit(exit_code)
        if options["live"]:
            try:
                live.require_reachable_server(options["url"])
            except live.ServerUnreachable as problem:
                raise CommandError(str(problem)) from None
        startup.check_and_migrate_database(migrate=True, say=self.stdout.write)
        if not options["live"] or options["anyway"] or not fill.has_existing_application_data():
            self.fill_with_demo_data(options)
        if options["live"]:
            live.run_demo_fleet(
                options["url"], say=self.stdout.write, unanswered=fill.explain_why_demo_may_not_decide()
            )

    def fill_with_demo_data(self, options: dict[str, Any]) -> None:
        try:
            filled = fill.fill_demo_database(
                seed=options["seed"], days=options["days"], now=timezone.now(), anyway=options["anyway"]
            )
        except SignalboxError as problem:
            raise CommandError(str(problem.detail)) from None
        self.stdout.write(
            f"Wrote {filled.sessions} sessions with {filled.events:,} events, {filled.requests} permission requests, "
            f"{filled.messages} chat messages; {filled.agents} agents."
        )
