"""`manage.py move_attachments`: moves attached files between the data folder and S3, while the server runs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from coordinator.actions.chat import moving_attachments
from coordinator.chat import stores
from coordinator.errors import ServiceBusy
from coordinator.lib import sizes
from coordinator.models.chat import FilePlace


class Command(BaseCommand):
    """Moves attached files to where new files go. Reads each copy back before the old one goes; may be repeated."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--to", choices=FilePlace.values, help="where to move them (default: SIGNALBOX_ATTACHMENTS)"
        )
        parser.add_argument("--keep", action="store_true", help="leave the old copies where they are")
        parser.add_argument("--dry-run", action="store_true", help="only show what would be moved")

    def handle(self, *args: Any, **options: Any) -> None:
        to = FilePlace(options["to"] or stores.store_name_for_new_files())
        if to not in stores.list_configured_file_stores():
            raise CommandError("Name the bucket in SIGNALBOX_S3_BUCKET.")
        if options["dry_run"]:
            self.print_misplaced_file_summary(to)
            return
        try:
            moved = moving_attachments.move_attachments(
                to, timezone.now(), keep=options["keep"], say=self.stdout.write
            )
        except ServiceBusy as problem:
            raise CommandError(
                f"{problem.detail} Files that were moved so far stay moved; run this again."
            ) from None
        self.stdout.write(
            f"Moved {moved.files} files ({sizes.format_byte_count(moved.bytes)}). Each copy was compared."
        )
        for pk, reason in moved.stayed.items():
            self.stderr.write(f"not moved  {pk}: {reason}")
        if moved.stayed:
            sys.exit(1)

    def print_misplaced_file_summary(self, to: FilePlace) -> None:
        file_sizes = [row.size_bytes for row in moving_attachments.iterate_misplaced_attachments(to)]
        known_bytes = sum(size for size in file_sizes if isinstance(size, int))
        self.stdout.write(
            f"{len(file_sizes)} files ({sizes.format_byte_count(known_bytes)}) are not in {to}. Nothing was changed."
        )
