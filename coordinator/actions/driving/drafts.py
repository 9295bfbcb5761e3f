"""The message that an agent is writing: one growing draft per session, saved as one event when it ends."""

from __future__ import annotations

from typing import Any

from django.db.models import F, Value
from django.db.models.functions import Concat, Length

from coordinator.actions.driving.runner_post import RunnerPost
from coordinator.models import Draft
from coordinator.sessions.driven_agent_updates import SpeechPiece

LONGEST = 100_000  # characters; what is longer becomes several events
MOST_BLOCKS = 100


def append_piece_to_agent_draft(post: RunnerPost, piece: SpeechPiece) -> None:
    """Add a piece to what is being said; a piece of something else ends what was."""
    if piece.block is None and try_extend_draft_text(post.session_id, piece):  # nearly always: one statement
        return
    draft = Draft.objects.filter(pk=post.session_id).first()
    if draft is not None and not can_extend_draft(draft, piece):
        replace_draft_with_queued_event(post, draft)
        draft = None
    if draft is None:
        if not piece.text and piece.block is None:
            return
        draft = Draft(
            session_id=post.session_id,
            kind=piece.kind,
            message_id=piece.message_id,
            text="",
            began_at=post.at,
        )
    draft.text += piece.text
    if piece.block is not None:
        draft.blocks = [*(draft.blocks or []), piece.block]
    draft.save()


def try_extend_draft_text(session_id: str, piece: SpeechPiece) -> bool:
    """Add a text to the draft that it continues; say whether there was one."""
    same = Draft.objects.annotate(length=Length("text")).filter(
        pk=session_id, kind=piece.kind, message_id=piece.message_id, length__lt=LONGEST
    )
    return same.update(text=Concat(F("text"), Value(piece.text))) > 0


def can_extend_draft(draft: Draft, piece: SpeechPiece) -> bool:
    is_same = draft.kind == piece.kind and draft.message_id == piece.message_id
    return is_same and len(draft.text) < LONGEST and len(draft.blocks or []) < MOST_BLOCKS


def finish_agent_draft(post: RunnerPost) -> None:
    """End the message that the agent was writing."""
    draft = Draft.objects.filter(pk=post.session_id).first()
    if draft is not None:
        replace_draft_with_queued_event(post, draft)


def replace_draft_with_queued_event(post: RunnerPost, draft: Draft) -> None:
    draft.delete()
    blocks: list[dict[str, Any]] = []
    if draft.text.strip():
        kind = "thinking" if draft.kind == "thought" else "text"  # as the models' APIs name them
        blocks = [{"type": kind, kind: draft.text}]
    blocks += draft.blocks or []
    if blocks:
        role = "user" if draft.kind == "user" else "assistant"
        post.queue_event_for_writing("message", at=draft.began_at, role=role, content=blocks)
