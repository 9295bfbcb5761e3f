"""`manage.py attachments`: compares the attachments' files with their rows."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from coordinator.actions.chat import attachments
from coordinator.chat import stores


class Command(BaseCommand):
    """Names files that no message names, and messages whose file is gone or damaged. Exits 1 for the latter."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--checksums",
            action="store_true",
            help="also read each file and compare it with its checksum; one without gets one",
        )
        parser.add_argument(
            "--delete-orphans", action="store_true", help="delete files that belong to no message"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        now = timezone.now()
        file_report = attachments.compare_stored_files_with_rows(now, checksums=options["checksums"])
        for silence in file_report.silent:
            self.stderr.write(silence)
        for orphan in file_report.orphans:
            self.stdout.write(
                f"orphan   {stores.require_attachment_store(orphan.store_name).describe_file_location(orphan.name)}"
            )
        for path in file_report.thumbnails:
            self.stdout.write(f"orphan   {path}")
        for pk in file_report.missing:
            self.stdout.write(f"missing  {pk}")
        for pk in file_report.damaged:
            self.stdout.write(f"damaged  {pk}")
        if options["delete_orphans"]:
            self.stdout.write(f"Removed {attachments.remove_orphan_files(file_report, now)} orphans.")
        elif not (
            file_report.orphans
            or file_report.thumbnails
            or file_report.missing
            or file_report.damaged
            or file_report.silent
        ):
            self.stdout.write("Every file belongs to a message, and no file is missing.")
        if file_report.missing or file_report.damaged or file_report.silent:
            sys.exit(1)
