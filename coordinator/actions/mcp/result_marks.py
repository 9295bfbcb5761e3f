"""Marks of results: written before the agent gets the result, and forgotten once no rule can ask for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from coordinator.models import McpResultMark

KEPT_FOR = timedelta(days=2)  # rules ask about a day at most


def record_result_marks(session_id: str, server_id: str, marks: Sequence[str], now: datetime) -> None:
    """Note that a session got a marked result of a server."""
    McpResultMark.objects.create(session_id=session_id, server_id=server_id, marks=list(marks), marked_at=now)


def delete_old_marks(now: datetime) -> None:
    """Delete marks that no rule asks for any more."""
    McpResultMark.objects.filter(marked_at__lt=now - KEPT_FOR).delete()
