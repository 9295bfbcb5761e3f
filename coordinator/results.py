"""What a session has to say at its end: the text a caller, or a parent session, is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import F, Q

from coordinator.models import Event


@dataclass(frozen=True, slots=True)
class Result:
    """The last answer of a session; `data` is what newer executors send beside the text."""

    text: str
    data: Any = None


def result_of(session_id: str) -> Result | None:
    """Return the session's last `result` event or assistant message, whichever is later, or None."""
    answers = Q(event_type="message", role="assistant") | Q(event_type="result")
    last = (
        Event.objects.filter(answers, session_id=session_id)
        .order_by(F("context__instant_us").desc(nulls_last=True), "-id")
        .first()
    )
    if last is None:
        return None
    return _of_result_event(last.tool_output) if last.event_type == "result" else _of_message(last.content)


def _of_message(content: Any) -> Result | None:
    """The first block's text, as every generation of clients expects."""
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    return Result(text) if isinstance(text, str) else None


def _of_result_event(kept: Any) -> Result | None:
    """The events table has no columns for these two fields: ingest keeps them in tool_output."""
    if not isinstance(kept, dict):
        return None
    text, data = kept.get("result_text"), kept.get("result_data")
    return Result(text if isinstance(text, str) else "", data) if text or data is not None else None
