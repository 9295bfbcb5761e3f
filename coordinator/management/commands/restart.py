"""`manage.py restart`: restart the `serve` that runs on this data folder, with the code as it is now."""

from __future__ import annotations

import contextlib
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from coordinator.lib import restart_socket as handover

NONE_RUNS = (
    "No server that runs on {} can be reached. Start one with `manage.py serve`. (Restart one of another user, or "
    "one older than this command, with SIGHUP.)"
)


class Command(BaseCommand):
    """Asks the running server to restart, and waits until the new one answers."""

    help = "Restart the running server with the code as it is now. Nobody is refused; settings stay as they were."

    def handle(self, *args: Any, **options: Any) -> None:
        """Ask, wait, and say how it ended; fails where the old server goes on, or none runs."""
        connection = handover.connect_to_supervisor(handover.RESTART, str(settings.DATA_DIR))
        if connection is None:
            raise CommandError(NONE_RUNS.format(settings.DATA_DIR))
        answer = b""
        with connection, contextlib.suppress(OSError):
            answer = connection.recv(1)
        if answer == handover.FAILED:
            raise CommandError("The new server did not start, so the old one goes on. It printed why.")
        if answer != handover.READY:
            raise CommandError("The server ended, or is being stopped or replaced.")
        self.stdout.write("Restarted: the code as it is now answers.")
