"""Every check there is, in the order in which one would look."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from coordinator.engine.size import database_size_bytes
from coordinator.operations.doctor import (
    CheckLevel,
    CheckResult,
    database,
    machine,
    server,
    settings,
    sign_in,
    upkeep,
)


def iterate_all_doctor_checks(address: str, now: datetime) -> Iterator[CheckResult]:
    """Yield one check after the other; what needs a database that cannot be opened is left out."""
    yield from settings.iterate_settings_checks()
    yield from sign_in.iterate_single_sign_on_checks()
    opened = database.check_database_opens()
    yield opened
    if opened.level is CheckLevel.FAIL:
        return
    yield from machine.check_data_folder_and_isolation(database_size_bytes())
    in_database = list(database.iterate_database_checks(now))
    yield from in_database
    served = list(server.iterate_server_checks(address))
    yield from served
    if not any(check.name == "migrations" and check.level is CheckLevel.FAIL for check in in_database):
        yield from upkeep.iterate_upkeep_checks(
            now, served=server.has_check_results_of_running_server(served)
        )
