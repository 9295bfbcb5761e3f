"""The progress of a move: a bar on a terminal, else a line for each table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator

from coordinator.operations.moving.rows import Row

BAR_CELLS = 30
DRAW_EVERY_ROWS = 1_000
REDRAW_SECONDS = 0.2


class MoveProgress:
    """Counts `total` rows; `say` prints a line for each table where there is no terminal for the bar."""

    def __init__(self, say: Callable[[str], object], total: int) -> None:
        self.say = say
        self.total = total
        self.done = 0
        self.drawn_at = 0.0

    def yield_rows_with_progress(self, table: str, rows: Iterable[Row]) -> Iterator[Row]:
        """Yield the rows of one table, and show how far that is."""
        before = self.done
        for row in rows:
            yield row
            self.done += 1
            if not self.done % DRAW_EVERY_ROWS:
                self.draw_bar(table)
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
        elif self.done > before:
            self.say(f"  {table:<26}{self.done - before:>12,} rows")

    def draw_bar(self, table: str) -> None:
        """Draw the bar, unless it was drawn just now."""
        if not sys.stderr.isatty() or time.monotonic() - self.drawn_at < REDRAW_SECONDS:
            return
        self.drawn_at = time.monotonic()
        share = min(self.done / max(self.total, 1), 1.0)
        bar = "#" * round(share * BAR_CELLS)
        sys.stderr.write(
            f"\r[{bar:<{BAR_CELLS}}] {share:>4.0%}  {self.done:,} of {self.total:,} rows  {table}\x1b[K"
        )
        sys.stderr.flush()
