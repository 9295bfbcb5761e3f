"""Creation of context rows for events that other programs write, which else appear in no timeline.

It runs in the feed's thread before subscribers are notified, so that a page that asks at once finds them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from django.db import DatabaseError
from django.utils import timezone

from coordinator.actions.sessions.events import add_contexts_missing_in_range
from coordinator.engine.locks import set_sqlite_busy_timeout
from coordinator.feed.reader import FeedChange
from coordinator.lib.threads import close_broken_database_connections

log = logging.getLogger(__name__)

LOCK_PATIENCE_MS = 250  # the feed must not be blocked for long; what could not be adopted is tried again


class EventAdopter:
    """A listener of the feed, the first one."""

    def __init__(self) -> None:
        self._left: tuple[int, int] | None = None

    def __call__(self, batch: Sequence[FeedChange]) -> None:
        """Adopt the batch's events, and those that could not be before."""
        ids = [int(change.key) for change in batch if change.topic == "events" and change.op == "insert"]
        if self._left is not None:
            ids.extend(self._left)
        if not ids:
            return
        first, last = min(ids), max(ids)
        try:
            close_broken_database_connections()
            set_sqlite_busy_timeout(LOCK_PATIENCE_MS)
            add_contexts_missing_in_range(first, last, timezone.now())
            self._left = None
        except DatabaseError as problem:
            self._left = (first, last)
            log.warning("Events %d to %d have no context yet: %s", first, last, str(problem).strip())
