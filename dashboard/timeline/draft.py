"""What a driven agent does this moment: words that grow, calls that are begun or put something out. No events yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.template.loader import render_to_string

from coordinator.dialects.acp import SPEECH
from coordinator.lib import instants
from coordinator.models import Draft, DrivenCall, DrivenSession
from coordinator.secrets.masking import without_secrets
from coordinator.sessions.driving import program_of
from coordinator.sessions.timeline import StoredValue
from dashboard.looks import Look, look_of

MOST_WORDS = 8_000  # characters of a message that are drawn while it grows: its end
MOST_OUTPUT = 4_000
MOST_CALLS = 20


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call under way: how it looks, since when, and the end of what its terminal shows."""

    look: Look
    since: datetime | None
    output: str
    begun: bool


def draft_context(session_id: str) -> dict[str, Any]:
    """Return what `sessions/_draft.html` draws."""
    draft = Draft.objects.filter(pk=session_id).first()
    text = without_secrets(draft.text) if draft else ""
    return {
        "draft": draft,
        "draft_words": text[-MOST_WORDS:],
        "draft_cut": len(text) > MOST_WORDS,
        "open_calls": _open_calls(session_id),
    }


def _open_calls(session_id: str) -> list[OpenCall]:
    """Return the calls that have no row yet, and those whose terminal shows something."""
    rows = DrivenCall.objects.filter(session_id=session_id, ended=False).order_by("id")
    waiting = [row for row in rows[: 10 * MOST_CALLS] if row.event_id is None or row.output][-MOST_CALLS:]
    if not waiting:
        return []
    agent = DrivenSession.objects.filter(pk=session_id).values_list("agent", flat=True).first()
    return [_open_call(row, program_of(agent)) for row in waiting]


def _open_call(row: DrivenCall, program: str) -> OpenCall:
    call = SPEECH.call(row.told, program)
    given = without_secrets(call.tool_input)
    look = look_of(call.tool, StoredValue(given, 0) if given else None, None, None)
    output = without_secrets(row.output or "")
    return OpenCall(look, instants.parse(row.began_at), output[-MOST_OUTPUT:], row.event_id is not None)


def drawn(session_id: str) -> str:
    """Return the draft as HTML, the same for every reader."""
    return render_to_string("sessions/_draft.html", draft_context(session_id))[:]
