"""The result of a session: the text that a caller, or a parent session, receives at its end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from coordinator.models import Event


@dataclass(frozen=True, slots=True)
class SessionResult:
    """The last answer of a session; `data` is what newer executors send in addition to the text, or instead of it."""

    text: str | None
    data: Any = None

    @property
    def session_result_text_or_json(self) -> str:
        """The text, or the data as JSON for those who read nothing else."""
        return self.text if self.text is not None else json.dumps(self.data, ensure_ascii=False)


def load_session_result(session_id: str) -> SessionResult | None:
    """Return the session's last `result` event or assistant message, whichever is later, or None."""
    answers = Q(event_type="message", role="assistant") | Q(event_type="result")
    # By the context's columns, all of one index, back from the end: an answer is near it, however long the session is.
    answer_events = Event.objects.filter(answers, context__session_id=session_id)
    last = answer_events.order_by("-context__instant_us", "-context__event_id").first()
    if last is None:  # one that nobody has given an instant yet
        last = Event.objects.filter(answers, session_id=session_id).order_by("-id").first()
    if last is None:
        return None
    return (
        session_result_from_result_event(last.tool_output)
        if last.event_type == "result"
        else session_result_from_message(last.content)
    )


def session_result_from_message(content: Any) -> SessionResult | None:
    """The first block's text, as every generation of clients expects."""
    first = content[0] if isinstance(content, list) and content else None
    text = first.get("text") if isinstance(first, dict) else None
    return SessionResult(text) if isinstance(text, str) else None


def session_result_from_result_event(stored: Any) -> SessionResult | None:
    """The events table has no columns for these two fields: ingest keeps them in tool_output."""
    text, data = parse_result_text_and_data("result", stored)
    return SessionResult(text, data) if text or data is not None else None


def parse_result_text_and_data(event_type: str, stored: Any) -> tuple[str | None, Any]:
    """Return `result_text` and `result_data` of an event; nothing of one that is no result."""
    if event_type != "result" or not isinstance(stored, dict):
        return None, None
    text = stored.get("result_text")
    return text if isinstance(text, str) else None, stored.get("result_data")
