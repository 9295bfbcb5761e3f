"""`manage.py rebuild_search`: build the search index afresh from all events."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from coordinator.actions import search
from coordinator.models import Event


class Command(BaseCommand):
    """Empties the search index and fills it again; searching goes on meanwhile, and finds more and more."""

    help = "Build the search index afresh from all events."

    def handle(self, *args: Any, **options: Any) -> None:
        """Rebuild, and say how far it has come."""
        total = Event.objects.count()

        def say(done: int) -> None:
            if self.stdout.isatty():
                self.stdout.write(f"\r{done:,} of {total:,} events", ending="")
                self.stdout.flush()

        done = search.rebuild(say)
        self.stdout.write(
            f"\rIndexed {done:,} events." if self.stdout.isatty() else f"Indexed {done:,} events."
        )
