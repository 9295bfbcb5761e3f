"""What a session has to say at its end: the text a caller, or a parent session, is given."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from coordinator.models import Event
from coordinator.sessions import spans


@dataclass(frozen=True, slots=True)
class Result:
    """The last answer of a session; `data` is what newer executors send beside the text, or instead of it."""

    text: str | None
    data: Any = None

    @property
    def in_words(self) -> str:
        """The text, or the data as JSON for those who read nothing else."""
        return self.text if self.text is not None else json.dumps(self.data, ensure_ascii=False)


def result_of(session_id: str) -> Result | None:
    """Return the session's last `result` event or assistant message, whichever is later, or None."""
    answers = Q(event_type="message", role="assistant") | Q(event_type="result")
    span = spans.of(session_id)
    # By the context's columns, all of one index, back from the end: an answer is near it, however long the session is.
    told = Event.objects.filter(answers, context__session_id=session_id)
    told = spans.bounded(told, span, "id", "context__event_id")
    last = told.order_by("-context__instant_us", "-context__event_id").first()
    if last is None:  # one that nobody has given an instant yet
        rest = spans.bounded(Event.objects.filter(answers, session_id=session_id), span, "id")
        last = rest.order_by("-id").first()
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
    text, data = result_fields("result", kept)
    return Result(text, data) if text or data is not None else None


def result_fields(event_type: str, kept: Any) -> tuple[str | None, Any]:
    """Return `result_text` and `result_data` of an event; nothing of one that is no result."""
    if event_type != "result" or not isinstance(kept, dict):
        return None, None
    text = kept.get("result_text")
    return text if isinstance(text, str) else None, kept.get("result_data")
