"""`manage.py partition_events`: puts the events table of a PostgreSQL database into parts of about a month each."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError
from django.utils import timezone

from coordinator.actions.upkeep import partitions as parts_of_events
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
                if not partitions.has_partitioned_events():
                    parts_of_events.convert_events_table(now, self.stdout.write, anyway=options["anyway"])
                last = partitions.last_assigned_event_id()
                parts_of_events.create_parts_ahead(
                    last, parts_of_events.estimate_monthly_ids(last, now), most_moved=partitions.LAST
                )
                parts_of_events.backfill_session_spans(self.stdout.write)
                partitions.analyze_event_tables()
            except Conflict as refusal:
                raise CommandError(f"{refusal.detail} {REMEDY}") from None
            except DatabaseError as problem:
                raise CommandError(
                    f"Not finished: {str(problem).strip()} Nothing is lost; run this again to continue."
                ) from problem
        self.print_event_partitions()

    def print_event_partitions(self) -> None:
        if not partitions.has_partitioned_events():
            self.stdout.write(
                "The events table is not in parts. `manage.py partition_events` puts it into parts."
            )
            return
        self.stdout.write(f"{'part':<6}{'from event':>16}{'to before':>16}{'newest':>22}{'size':>12}")
        for part in partitions.list_partitions():
            first = "" if part.first == partitions.FIRST else f"{part.first:,}"
            at = partitions.newest_partition_receipt(part)
            newest = "" if at is None else f"{instants.from_microseconds(at * 1000):%Y-%m-%d %H:%M}"
            size = sizes.format_byte_count(partitions.partition_size_bytes(part))
            self.stdout.write(f"{part.number:<6}{first:>16}{part.before:>16,}{newest:>22}{size:>12}")
        if waiting := partitions.count_default_events():
            self.stdout.write(f"{waiting:,} events are outside the parts.")
