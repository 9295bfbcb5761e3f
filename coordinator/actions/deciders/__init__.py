"""Who decides what: the rows that name people, the groups that they name, and rights handed over for a while.

Each change is one transaction with its audit row, and counts the rights' version up, so that decisions and open
pages know of it.
"""

from __future__ import annotations

from coordinator.actions.deciders.rights_version import (
    announce_delegation_changes,
    bump_decision_rights_version,
    lock_decision_rights,
    reload_person,
)

__all__ = [
    "announce_delegation_changes",
    "bump_decision_rights_version",
    "lock_decision_rights",
    "reload_person",
]
