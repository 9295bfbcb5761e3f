"""`manage.py backup PATH`: copies everything into a new folder, while the server runs."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from coordinator.lib import sizes
from coordinator.operations.backups import making


class Command(BaseCommand):
    """The database, the attachments and the secret key, with a manifest of checksums. Keep it as you keep secrets."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, help="a new folder")
        parser.add_argument("--with-s3", action="store_true", help="also copy the attachments that are in S3")

    def handle(self, *args: Any, **options: Any) -> None:
        backup = making.write_backup_folder(
            options["path"], timezone.now(), say=self.stdout.write, with_bucket=options["with_s3"]
        )
        size = sizes.format_byte_count(backup.total_size)
        self.stdout.write(f"{options['path']} holds {len(backup.files)} files, {size}.")
