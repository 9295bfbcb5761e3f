"""Cleanup of what a driven agent leaves open when its run ends: partial messages, calls, questions."""

from __future__ import annotations

from datetime import datetime

from coordinator.actions.approvals.driven_questions import withdraw_open_questions
from coordinator.lib import instants
from coordinator.models import Draft, DrivenCall, DrivenSession, Event, EventContext, Run
from coordinator.secrets.masking import mask_secrets_in_value

CUT_OFF = "Its end was never reported."


def close_driven_turn(run: Run, reason: str, now: datetime) -> None:
    """Write what was being said, forget the calls under way, and take back the questions, saying why."""
    if not DrivenSession.objects.filter(pk=run.session_id).exists():
        return
    draft = Draft.objects.filter(pk=run.session_id).first()
    if draft is not None:
        move_agent_draft_to_event(draft, run, now)
    DrivenCall.objects.filter(session_id=run.session_id).delete()
    DrivenSession.objects.filter(pk=run.session_id, run_id__isnull=False).update(run_id=None)
    withdraw_open_questions(run.session_id, reason, now=now)


def move_agent_draft_to_event(draft: Draft, run: Run, now: datetime) -> None:
    draft.delete()
    kind = "thinking" if draft.kind == "thought" else "text"
    content = [*([{"type": kind, kind: draft.text}] if draft.text.strip() else []), *(draft.blocks or [])]
    if not content:
        return
    event = Event.objects.create(
        session_id=run.session_id,
        event_type="message",
        timestamp=draft.began_at,
        role="user" if draft.kind == "user" else "assistant",
        content=mask_secrets_in_value(content),
        reason=CUT_OFF,
    )
    begun_at = instants.parse_instant_or_none(draft.began_at)
    EventContext.objects.create(
        event=event,
        session_id=run.session_id,
        instant_us=instants.instant_to_microseconds(begun_at or now),
        received_at=now,
        run_id=run.run_id,
        source="coordinator",
    )
