"""`manage.py partition_events`: puts the events table of a PostgreSQL database into parts of about a month each."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from django.utils import timezone

from coordinator.actions import partitions as parts_of_events
from coordinator.engine import is_sqlite, partitions
from coordinator.errors import Conflict
from coordinator.lib import instants, sizes

REMEDY = (
    "Drop these, run this again, and create them again afterwards. With --anyway they apply "
    "only to the first part, which gets no new events, and triggers are dropped. Nothing was changed."
)


class Command(BaseCommand):
    """Works beside running servers. May be interrupted and run again; once it is done, it shows the parts."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--show", action="store_true", help="show the parts, and change nothing")

        parser.add_argument(
            "--anyway",
            action="store_true",
            help="go on even if views, rules or triggers of yours do not follow the tables into parts",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if is_sqlite():
            raise CommandError("SQLite keeps its events in one table. Parts are for PostgreSQL.")
        now = timezone.now()
        if not options["show"]:
            try:
                if not partitions.stand():
                    parts_of_events.convert(now, self.stdout.write, anyway=options["anyway"])
                last = partitions.counter()
                parts_of_events.make_ahead(last, parts_of_events.month(last, now), most_moved=partitions.LAST)
                parts_of_events.note_spans(self.stdout.write)
                partitions.analyze()
            except Conflict as refusal:
                raise CommandError(f"{refusal.detail} {REMEDY}") from None
            except DatabaseError as problem:
                raise CommandError(
                    f"Not finished: {str(problem).strip()} Nothing is lost; run this again to continue."
                ) from problem
        self._show()

    def _show(self) -> None:
        if not partitions.stand():
            self.stdout.write(
                "The events table is not in parts. `manage.py partition_events` puts it into parts."
            )
            return
        self.stdout.write(f"{'part':<6}{'from event':>16}{'to before':>16}{'newest':>22}{'size':>12}")
        for part in partitions.parts():
            first = "" if part.first == partitions.FIRST else f"{part.first:,}"
            at = partitions.newest_in(part)
            newest = "" if at is None else f"{instants.from_us(at * 1000):%Y-%m-%d %H:%M}"
            size = sizes.in_words(partitions.size(part))
            self.stdout.write(f"{part.number:<6}{first:>16}{part.before:>16,}{newest:>22}{size:>12}")
        if waiting := partitions.in_default():
            self.stdout.write(f"{waiting:,} events are outside the parts.")
