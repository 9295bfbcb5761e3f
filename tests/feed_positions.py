"""How far each worker of a served program has followed the feed, for tests that wait until it knows of a row.

An app of `tests.served_settings`: after each batch whose listeners have been called, a worker writes its position into
a file of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from django.apps import AppConfig
from django.conf import settings

FOLDER = "feed-positions"


class FeedPositions(AppConfig):
    name = "tests.feed_positions"

    def ready(self) -> None:
        """Have the hub of each worker write down its position."""
        from coordinator.feed.reader import FeedChange
        from coordinator.live.hub import FeedHub

        start_following, call_listeners = FeedHub.start_following_feed, FeedHub._call_listeners

        def write_position(hub: FeedHub) -> None:
            folder = Path(settings.DATA_DIR, FOLDER)  # a forked server's own: tests/forked.py
            folder.mkdir(exist_ok=True)
            Path(folder, str(os.getpid())).write_text(str(hub.position))

        def start_following_and_write(hub: FeedHub) -> None:
            start_following(hub)
            write_position(hub)

        def call_listeners_and_write(hub: FeedHub, batch: Sequence[FeedChange]) -> None:
            call_listeners(hub, batch)
            write_position(hub)

        FeedHub.start_following_feed = start_following_and_write  # type: ignore[method-assign]
        FeedHub._call_listeners = call_listeners_and_write  # type: ignore[method-assign]


def read_position(data_folder: Path, process: int) -> int:
    """Return the change up to which a worker's listeners have been called; 0 where there was none yet."""
    try:
        return int(Path(data_folder, FOLDER, str(process)).read_text() or 0)
    except FileNotFoundError:
        return 0
