"""Moving from SQLite to PostgreSQL beside a running server (`manage.py move_to`).

1. Triggers in SQLite note the key of every row that is written from now on (`source`).
2. All rows are copied, a stretch at a time; each stretch is committed with how far it came, so a move that was killed
   goes on there. What is written meanwhile is noted.
3. The noted rows are brought over in rounds. The last round and the comparison of every table, by count and digest,
   read the same moment of SQLite; nobody waits for it.
4. The pause: SQLite's write lock is held. The few rows noted since are brought over and compared one by one, all tables
   are counted, SQLite is closed by triggers that refuse every write, and PostgreSQL commits. Its commit decides.

The default connection is PostgreSQL throughout; SQLite is read through a connection of its own. What is worked out of
other rows (the search index, files touched, the feed) is not copied: the server works it out again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

Say = Callable[[str], object]


def progress_timestamp() -> str:
    """Return the time for a line of progress."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
