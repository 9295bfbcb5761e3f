"""A history of calls for tests of what rules and suggestions make of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.sessions import reported_sessions
from coordinator.actions.sessions.events import record_events
from coordinator.identity.actors import key_actor_by_name
from coordinator.lib import instants
from coordinator.models import Agent, Event, PermissionRequest
from coordinator.policy.requests.approvals import PermissionSubject
from coordinator.policy.suggestions.history import CallHistoryReader
from coordinator.sessions.events import NewEvent
from coordinator.sessions.reports import SessionLocation
from dashboard.rules.recorded import READER
from tests.people import person

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)  # a Friday
SHOP = "agent.shop"
FOLDER = "/srv/shop"


def reader(stretch: int = 3) -> CallHistoryReader:
    """Return the pages' reader with stretches of a few events."""
    return CallHistoryReader(READER.sources, READER.subject, READER.refusals, stretch)


def agent(name: str = SHOP) -> str:
    row = Agent.objects.create(
        id=name, name=name, description="", status="online", default_engine_id="e", metadata={}
    )
    return row.pk


def called(
    tool: str,
    *inputs: dict[str, Any],
    by: str = SHOP,
    at: datetime = NOW,
    source: str = "claude-code",
    folder: str | None = FOLDER,
) -> list[int]:
    """Record calls of one tool; return the ids of their events."""
    made = reported_sessions.find_or_create_reported_session(
        f"session of {by} in {folder}", SessionLocation(agent_name=by, project_dir=folder), at
    ).session_id
    last = Event.objects.order_by("-id").values_list("id", flat=True).first() or 0
    events = [
        NewEvent(
            event_type="pre_tool",
            session_id=made,
            timestamp=instants.format_canonical_instant(at),
            tool_name=tool,
            tool_input=given,
            tool_use_id=f"toolu_{last + place}",
            source=source,
        )
        for place, given in enumerate(inputs)
    ]
    record_events(events, at)
    return list(Event.objects.filter(id__gt=last).order_by("id").values_list("id", flat=True))


def ran(*commands: str, **options: Any) -> list[int]:
    """Record shell commands."""
    return called("Bash", *({"command": command} for command in commands), **options)


def rejected_in_the_terminal(event_id: int, words: str = "Rejected in the terminal. No.") -> None:
    """Record what a transcript tells of a call that its person refused."""
    row = Event.objects.select_related("context").get(pk=event_id)
    record_events(
        [
            NewEvent(
                event_type="post_tool",
                session_id=row.session_id,
                timestamp=row.timestamp,
                tool_name=row.tool_name,
                tool_use_id=row.context.tool_use_id,
                error=words,
                source="transcript",
            )
        ],
        NOW,
    )


def answered(
    verdict: str, tool: str, given: dict[str, Any], *, by: str = SHOP, program: str = "claude-code"
) -> PermissionRequest:
    """Let somebody ask for a call, and a person approve or deny it."""
    ask = NewPermissionRequest(
        PermissionSubject(program, "ToolCall", None, tool, given),
        justification="Wants to.",
        agent_id=by,
        folder=FOLDER,
    )
    asked = approvals.request_permission(ask, actor=key_actor_by_name("hooks"), now=NOW)
    judge = User.objects.filter(username="judge").first() or person("approver", "judge")
    return approvals.decide_request(asked.request.request_id, person=judge, verdict=verdict, now=NOW)
