"""Who decides what: the rows that name people, the groups that they name, and rights handed over for a while.

Each change is one transaction with its audit row, and counts the rights' version up, so that decisions and open
pages know of it.
"""

from __future__ import annotations

from coordinator.actions.deciders.standing import as_now, changed, follow_the_clock, hold

__all__ = ["as_now", "changed", "follow_the_clock", "hold"]
