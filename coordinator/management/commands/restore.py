"""`manage.py restore PATH`: replaces the data with a backup; the server must not run."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from coordinator.operations.backups import restoring


class Command(BaseCommand):
    """Checks every file first; brings an older database up to this version."""

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", type=Path, help="the folder that `backup` made")
        parser.add_argument("--replace", action="store_true", help="replace the existing data")

    def handle(self, *args: Any, **options: Any) -> None:
        done = restoring.restore_backup(
            options["path"], timezone.now(), replace=options["replace"], say=self.stdout.write
        )
        self.stdout.write(f"Restored as of {done.made_at}. Start the server: signalbox serve")
