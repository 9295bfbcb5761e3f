"""`manage.py rebuild_search`: rebuilds the search indexes from all events and all chat messages."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from coordinator.actions import search
from coordinator.actions.chat import chat_search
from coordinator.models import Event


class Command(BaseCommand):
    """Empties the search indexes and fills them again; searching goes on meanwhile, and finds more and more."""

    help = "Rebuild the search indexes from all events and chat messages."

    def handle(self, *args: Any, **options: Any) -> None:
        total = Event.objects.count()

        def show_indexing_progress(done: int) -> None:
            if self.stdout.isatty():
                self.stdout.write(f"\r{done:,} of {total:,} events", ending="")
                self.stdout.flush()

        done = search.rebuild_search_index(show_indexing_progress)
        begin = "\r" if self.stdout.isatty() else ""
        self.stdout.write(f"{begin}Indexed {done:,} events.")
        self.stdout.write(f"Indexed {chat_search.rebuild_chat_index():,} chat messages.")
