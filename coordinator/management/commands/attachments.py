"""`manage.py attachments`: compares the attachments' files with their rows."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from coordinator.actions import attachments


class Command(BaseCommand):
    """Names files that no message names, and messages whose file is gone or damaged. Exits 1 for the latter."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--checksums", action="store_true", help="also compare each file's checksum")
        parser.add_argument(
            "--delete-orphans", action="store_true", help="delete files that belong to no message"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        found = attachments.examine(timezone.now(), checksums=options["checksums"])
        for path in found.orphans:
            self.stdout.write(f"orphan   {path}")
        for pk in found.missing:
            self.stdout.write(f"missing  {pk}")
        for pk in found.damaged:
            self.stdout.write(f"damaged  {pk}")
        if options["delete_orphans"]:
            self.stdout.write(f"Removed {attachments.remove_orphans(found)} orphans.")
        elif not (found.orphans or found.missing or found.damaged):
            self.stdout.write("Every file belongs to a message, and no file is missing.")
        if found.missing or found.damaged:
            sys.exit(1)
