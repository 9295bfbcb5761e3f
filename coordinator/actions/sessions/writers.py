"""Records of the key that made a session, and of the runner's key that took a run of it (identity/ownership.py)."""

from __future__ import annotations

from coordinator.identity.actors import Actor
from coordinator.models import SessionWriter


def record_session_creator_key(session_id: str, actor: Actor) -> None:
    """Remember the key that made a session. People need no note: their pages are open to all of them."""
    if actor.kind == "key":
        row = SessionWriter(session_id=session_id, writer=actor.name)
        SessionWriter.objects.bulk_create([row], ignore_conflicts=True)


def add_runner_session_writer(session_id: str, key: str | None) -> None:
    """Remember that a runner which registered with this key has taken a run of the session."""
    if key is not None:
        SessionWriter.objects.bulk_create(
            [SessionWriter(session_id=session_id, writer=key, is_runner=True)],
            update_conflicts=True,
            unique_fields=["session", "writer"],
            update_fields=["is_runner"],
        )
