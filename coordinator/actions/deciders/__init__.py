"""Actions that change who decides: rules that name people, groups of people, and temporary delegations.

Each change is one transaction with its audit row. It increments the rights' version, so that decisions and open pages
notice it.
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
