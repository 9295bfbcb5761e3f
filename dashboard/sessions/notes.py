"""Notes to a session's agent, for its page: their texts, their states, and how the next one is delivered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from coordinator.dialects.dialect_registry import DIALECTS
from coordinator.models import Note, Session
from coordinator.policy.requests.tool_calls import GATEWAY
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions import notes
from coordinator.sessions.agent_programs import AGENT_TITLES

BY_HOOK = "It reaches the agent with its next tool call or prompt."
BY_RUNNER = "It reaches the agent at its next step, or else as its next prompt."
BY_GATEWAY = "It reaches the agent with the next result of an MCP tool that it calls through Signalbox."
ONLY_BY_GATEWAY = (
    "{} cannot receive notes while it works, because its hooks carry no text. The note reaches it only "
    "with the result of an MCP tool that it calls through Signalbox. If it calls none, the note is not "
    "delivered."
)


@dataclass(frozen=True, slots=True)
class NoteDisplay:
    """A note, ready for display."""

    note: Note
    text: str  # with secrets masked
    state: str  # "delivered", "waiting" or "lost"
    why: str = ""  # why it was lost


def build_notes_context(session: Session) -> dict[str, Any]:
    """Return the context of `sessions/_notes_now.html`."""
    return {
        "session": session,
        "notes": [build_note_display(note, session) for note in notes.load_newest_notes(session.pk)],
    }


def note_delivery_text_and_doubt(session: Session, *, driven: bool) -> tuple[str, bool]:
    """Return how a note reaches this session's agent, as a sentence, and whether its delivery is doubtful."""
    profile = session.executor_profile or ""
    if driven:
        return BY_RUNNER, False
    if profile == GATEWAY:
        return BY_GATEWAY, False
    dialect = DIALECTS.get(profile)
    if dialect is not None and dialect.notes:
        return BY_HOOK, False
    return ONLY_BY_GATEWAY.format(AGENT_TITLES.get(profile, "This agent")), True


def build_note_display(note: Note, session: Session) -> NoteDisplay:
    text = mask_secrets_in_value(note.text)
    if note.given_at is not None:
        return NoteDisplay(note, text, "delivered")
    if notes.is_note_lost(note, session.status):
        return NoteDisplay(note, text, "lost", note.why_closed or "The session has ended.")
    return NoteDisplay(note, text, "waiting")
