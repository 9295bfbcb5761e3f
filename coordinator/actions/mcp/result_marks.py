"""Marks of results: written before the agent gets the result, and deleted once no rule can use them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from coordinator.actions.mcp.result_hosts import ResultHosts, record_hosts_return_whether_new
from coordinator.mcp.gateway.injection_signs import NEW_ADDRESS
from coordinator.models import McpResultMark

MARK_RETENTION = timedelta(days=2)  # rules ask about a day at most


def record_and_list_result_marks(
    session_id: str, server_id: str, marks: Sequence[str], now: datetime, *, hosts: ResultHosts | None = None
) -> list[str]:
    """Note that a session got a marked result of a server; return its marks.

    `hosts` are those of its addresses: one that was not seen before is a mark, too. None where that is not marked.
    """
    all_marks = list(marks)
    if hosts is not None and record_hosts_return_whether_new(session_id, server_id, hosts, now):
        all_marks.append(NEW_ADDRESS)
    if all_marks:
        McpResultMark.objects.create(
            session_id=session_id, server_id=server_id, marks=all_marks, marked_at=now
        )
    return all_marks


def delete_old_result_marks(now: datetime) -> None:
    """Delete marks that no rule asks for any more."""
    McpResultMark.objects.filter(marked_at__lt=now - MARK_RETENTION).delete()
