"""Makes sessions with events, as executors would have reported them, a second apart unless told otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from coordinator.lib import instants
from coordinator.models import Event, EventContext, Session

BEGAN = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)
CONTEXT = {"tool_use_id", "subagent", "duration_ms", "model", "run_id", "prompt_id", "source"}


def make_session(session_id: str = "ses_000000000001", **fields: Any) -> Session:
    """Return a new session."""
    fields = {
        "status": "finished",
        "created_at": BEGAN,
        "agent_name": "reviewer",
        "hostname": "build-7",
    } | fields
    return Session.objects.create(session_id=session_id, **fields)


def add_events(session: Session, events: Iterable[dict[str, Any]], *, context: bool = True) -> list[Event]:
    """Write events in this order; `at` is seconds after BEGAN (a datetime, or the text of a timestamp, goes too)."""
    rows, contexts = [], []
    for number, given in enumerate(events):
        fields = dict(given)
        at = fields.pop("at", number)
        beside = {name: fields.pop(name) for name in list(fields) if name in CONTEXT}
        moment = BEGAN + timedelta(seconds=at) if isinstance(at, int | float) else at
        text = moment if isinstance(moment, str) else instants.format_canonical_instant(moment)
        row = Event(session=session, timestamp=text, **fields)
        read = instants.parse_instant_or_none(text)
        rows.append(row)
        contexts.append((instants.instant_to_microseconds(read or BEGAN), beside))
    Event.objects.bulk_create(rows)
    if context:
        EventContext.objects.bulk_create(
            EventContext(
                event=row,
                session_id=session.pk,
                instant_us=instant,
                received_at=instants.instant_to_microseconds(BEGAN) // 1000,
                **beside,
            )
            for row, (instant, beside) in zip(rows, contexts, strict=True)
        )
    return rows


def said(role: str, text: str, **fields: Any) -> dict[str, Any]:
    """Return a message event."""
    return {"event_type": "message", "role": role, "content": [{"type": "text", "text": text}], **fields}


def began(tool: str, given: Any = None, **fields: Any) -> dict[str, Any]:
    """Return the beginning of a call."""
    return {"event_type": "pre_tool", "tool_name": tool, "tool_input": given or {}, **fields}


def ended(tool: str, given: Any = None, came: Any = None, **fields: Any) -> dict[str, Any]:
    """Return the end of a call."""
    return {
        "event_type": "post_tool",
        "tool_name": tool,
        "tool_input": given or {},
        "tool_output": came,
        **fields,
    }


def called(
    tool: str, given: Any, came: Any = None, *, use: str | None = None, took: float = 0.4, **fields: Any
) -> list[dict[str, Any]]:
    """Return both halves of a call."""
    ids = {"tool_use_id": use} if use else {}
    return [
        began(tool, given, **ids),
        ended(tool, given, came, **ids, duration_ms=int(took * 1000), **fields),
    ]
