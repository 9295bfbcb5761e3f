"""What a turn changed in a git work tree."""

from __future__ import annotations

from typing import Any


class Changes:
    """Compares a session's directory with how its turn and the session began."""

    def __init__(self, session_id: str, directory: str, state: str) -> None:
        self._directory = directory

    async def turn_starts(self) -> None:
        """Note how the directory stands."""

    async def turn_ended(self) -> list[dict[str, Any]]:
        """Return the `signalbox/changes` updates of the turn."""
        return []
