"""What a driven agent is doing now and has not reported as events: growing messages, calls in progress."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.template.loader import render_to_string

from coordinator.dialects.acp import SPEECH
from coordinator.lib import instants
from coordinator.models import Draft, DrivenCall, DrivenSession
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.driven_agent_updates import program_name_of_runner_agent
from coordinator.sessions.timeline import StoredValue
from dashboard.looks import CallDisplay, build_call_display

MOST_WORDS = 8_000  # characters at the end of a growing message that are shown
MOST_OUTPUT = 4_000
MOST_CALLS = 20


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call in progress."""

    look: CallDisplay
    since: datetime | None
    output: str  # the end of its terminal output
    begun: bool  # whether the timeline has a row for it


def build_draft_context(session_id: str) -> dict[str, Any]:
    """Return the context of `sessions/_draft.html`."""
    draft = Draft.objects.filter(pk=session_id).first()
    text = mask_secrets_in_value(draft.text) if draft else ""
    return {
        "draft": draft,
        "draft_words": text[-MOST_WORDS:],
        "draft_cut": len(text) > MOST_WORDS,
        "open_calls": load_open_calls(session_id),
    }


def load_open_calls(session_id: str) -> list[OpenCall]:
    """Return the calls in progress that have no timeline row yet or have terminal output."""
    rows = DrivenCall.objects.filter(session_id=session_id, ended=False).order_by("id")
    waiting = [row for row in rows[: 10 * MOST_CALLS] if row.event_id is None or row.output][-MOST_CALLS:]
    if not waiting:
        return []
    agent = DrivenSession.objects.filter(pk=session_id).values_list("agent", flat=True).first()
    return [build_open_call(row, program_name_of_runner_agent(agent)) for row in waiting]


def build_open_call(row: DrivenCall, program: str) -> OpenCall:
    call = SPEECH.call(row.told, program)
    masked_input = mask_secrets_in_value(call.tool_input)
    call_display = build_call_display(
        call.tool, StoredValue(masked_input, 0) if masked_input else None, None, None
    )
    output = mask_secrets_in_value(row.output or "")
    return OpenCall(
        call_display,
        instants.parse_instant_or_none(row.began_at),
        output[-MOST_OUTPUT:],
        row.event_id is not None,
    )


def render_session_draft(session_id: str) -> str:
    """Return the draft as HTML. It is the same for every viewer."""
    return render_to_string("sessions/_draft.html", build_draft_context(session_id))[:]
