"""Who looks at pages and streams."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.identity.roles import ROLES


@dataclass(frozen=True, slots=True)
class Viewer:
    """A signed-in person who may look: `role` is viewer, approver or admin."""

    user_id: int
    username: str
    role: str

    def has_role(self, least: str) -> bool:
        """Say whether the person has the role `least` or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(least)
