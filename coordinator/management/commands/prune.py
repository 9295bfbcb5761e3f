"""`manage.py prune`: deletes what is older than its retention time, or shows how much that would be."""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser, ArgumentTypeError
from functools import partial
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from coordinator.actions.upkeep import pruning
from coordinator.actions.upkeep.pruning import RetentionRule
from coordinator.lib import sizes


def parse_days(text: str) -> float:
    """Return a number of days. Raises ArgumentTypeError for less than none: then all would be too old."""
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not 0 <= days < math.inf:
        raise ArgumentTypeError(f"must be a number of days, 0 or more, not {text!r}")
    return days


class Command(BaseCommand):
    """Works beside a running server, in small steps. SIGNALBOX_KEEP_…_DAYS set how long things are kept."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--dry-run", action="store_true", help="show what would be deleted, and change nothing"
        )
        for rule in pruning.build_retention_rules():
            parser.add_argument(
                f"--{rule.name}",
                type=parse_days,
                metavar="DAYS",
                help=f"days to keep {rule.description} (0: forever)",
            )

    def handle(self, *args: Any, **options: Any) -> None:
        write, now = not options["dry_run"], timezone.now()
        names = [rule.name.replace("-", "_") for rule in pruning.build_retention_rules()]
        self.stdout.write(f"{'what':<15}{'kept for':>12}{'rows':>12}{'size':>12}")
        for rule in pruning.build_retention_rules(**{name: options[name] for name in names}):
            pruned = pruning.apply_retention_rule(
                rule, now, write=write, progress=partial(self.show_prune_progress, rule)
            )
            self.clear_prune_progress_bar()
            keep_label = f"{rule.days:g} days" if rule.days else "for ever"
            size = sizes.format_byte_count(pruned.bytes) if pruned.bytes else ""
            self.stdout.write(f"{rule.name:<15}{keep_label:>12}{pruned.rows:>12,}{size:>12}")
            if write and rule.name == "event-bodies" and pruned.rows:
                self.stdout.write(
                    "  A running server takes their words out of the search within about an hour."
                )
        if not write:
            self.stdout.write("Nothing was changed (--dry-run).")

    def show_prune_progress(self, rule: RetentionRule, done: int) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{rule.name:<15}{done:>12,} rows\x1b[K")

    def clear_prune_progress_bar(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
