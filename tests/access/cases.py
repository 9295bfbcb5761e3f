"""The recorded cases of the ClotoCore schema (tests/data/conformance/access.json) and rows made for tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from coordinator.models import Agent, Event, EventContext, Grant, McpServer, McpTool, Session, UnreadableText

NOW = datetime(2026, 2, 23, 12, tzinfo=UTC)
CASES: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "conformance" / "access.json").read_text()
)


def named(cases: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return the cases as pytest parameters, each under its id."""
    import pytest

    return [pytest.param(case, id=case["id"].replace(" ", "-")) for case in cases]


def add_agents(*ids: str) -> None:
    Agent.objects.bulk_create([Agent(id=i, name=i, default_engine_id="mind.test") for i in ids])


def add_server(name: str, default_policy: str = "opt-in", tools: Iterable[str] = ()) -> McpServer:
    server = McpServer.objects.create(
        name=name, command="python3", created_at=NOW, default_policy=default_policy
    )
    for tool in tools:
        add_tool(name, tool)
    return server


def add_tool(server: str, name: str, **values: Any) -> McpTool:
    columns = {
        "definition_hash": "1",
        "accepted_hash": "1",
        "first_listed_at": NOW,
        "listed_at": NOW,
    }
    return McpTool.objects.create(server_id=server, name=name, **(columns | values))


def add_grants(rows: Iterable[Mapping[str, Any]]) -> list[Grant]:
    """Write rows as another program would: any text, byte for byte."""
    return [Grant.objects.create(**{**row, **_raw_dates(row)}) for row in rows]


def _raw_dates(row: Mapping[str, Any]) -> dict[str, Any]:
    names = ("granted_at", "expires_at")
    return {name: UnreadableText(row[name]) for name in names if isinstance(row.get(name), str)}


def grant(
    agent: str, server: str, tool: str | None = None, permission: str = "allow", **others: Any
) -> Grant:
    """Write one grant."""
    columns: dict[str, Any] = {
        "entry_type": "tool_grant" if tool else "server_grant",
        "agent_id": agent,
        "server_id": server,
        "tool_name": tool,
        "permission": permission,
        "granted_at": "2026-02-20T00:00:00Z",
        "expires_at": None,
    }
    return add_grants([columns | others])[0]


def call(tool: str, *, agent: str = "a", days_ago: float = 1, event_type: str = "post_tool") -> None:
    """Record one call as an executor tells of it."""
    now = timezone.now()
    session, _ = Session.objects.get_or_create(
        session_id=f"ses_{agent}", defaults={"status": "running", "created_at": now, "agent_name": agent}
    )
    at = now - timedelta(days=days_ago)
    event = Event.objects.create(session=session, event_type=event_type, timestamp="t", tool_name=tool)
    EventContext.objects.create(
        event=event, session_id=session.pk, instant_us=int(at.timestamp() * 1e6), received_at=at
    )
