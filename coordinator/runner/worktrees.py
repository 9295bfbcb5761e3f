"""Work trees of a session's own."""

from __future__ import annotations

from coordinator.runner.errors import Refused

ARE_MADE = False


async def make(session_id: str, directory: str, state: str) -> str:
    """Return a new work tree's path. Raises Refused."""
    raise Refused(f"No work tree is made for {session_id} in {directory} ({state}).")


async def remove(session_id: str, directory: str, state: str) -> None:
    """Remove a session's work tree. Raises Refused."""
    raise Refused(f"There is no work tree of {session_id} in {directory} ({state}).")
