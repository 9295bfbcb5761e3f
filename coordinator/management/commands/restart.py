"""`manage.py restart`: restart the `serve` that runs on this data folder, with the code as it is now."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from coordinator.operations import restarting


class Command(BaseCommand):
    """Asks the running server to restart, and waits until the new code answers."""

    help = "Restart the running server with the code as it is now. Nobody is refused; settings stay as they were."

    def handle(self, *args: Any, **options: Any) -> None:
        """Ask, wait, and say how it ended; fails where the old server goes on, or none runs."""
        try:
            restarting.restart_server_and_wait(settings.DATA_DIR)
        except restarting.NotRestarted as problem:
            raise CommandError(str(problem)) from None
        self.stdout.write("Restarted: the code as it is now answers.")
