"""Every check there is, in the order in which one would look."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from coordinator.engine.size import size_in_bytes
from coordinator.operations.doctor import Check, Level, database, machine, server, settings, sign_in, upkeep


def examine(address: str, now: datetime) -> Iterator[Check]:
    """Yield one check after the other; what needs a database that cannot be opened is left out."""
    yield from settings.examine()
    yield from sign_in.examine()
    opened = database.opens()
    yield opened
    if opened.level is Level.FAIL:
        return
    yield from machine.examine(size_in_bytes())
    in_database = list(database.examine(now))
    yield from in_database
    served = list(server.examine(address))
    yield from served
    if not any(check.name == "migrations" and check.level is Level.FAIL for check in in_database):
        yield from upkeep.examine(now, served=server.is_running(served))
