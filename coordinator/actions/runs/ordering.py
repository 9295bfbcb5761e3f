"""Ordering a run."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from coordinator.actions import audit, writers
from coordinator.actions.runs.machine import RESUME, lock_session, queue
from coordinator.actors import Actor
from coordinator.errors import BadRequest, Conflict, NotFound
from coordinator.identifiers import new_session_id
from coordinator.models import Run, Session


def create(
    *,
    kind: str,
    prompt: str,
    by: Actor,
    now: datetime,
    session_id: str | None = None,
    agent_name: str | None = None,
    project_dir: str | None = None,
    parent_session_id: str | None = None,
    execution_mode: str = "sync",
    additional_demands: dict[str, Any] | None = None,
) -> Run:
    """Queue a run that starts a new session (`kind` START) or resumes one (RESUME), and return it.

    Raises NotFound for an unknown parent or session, Conflict for a session id in use, BadRequest for a
    resume that names no session. A resume of a session at work waits until that work has ended.
    """
    if kind == RESUME and not session_id:
        raise BadRequest("session_id is required for resume_session")
    with transaction.atomic():
        if parent_session_id is not None and not Session.objects.filter(pk=parent_session_id).exists():
            raise NotFound("Parent session not found")
        if kind == RESUME:
            session = lock_session(str(session_id))
        else:
            session = _new_session(session_id, agent_name, project_dir, parent_session_id, now)
            writers.note_maker(session.session_id, by)
        run = queue(
            session,
            kind=kind,
            prompt=prompt,
            agent_name=agent_name or session.agent_name,
            project_dir=project_dir or session.project_dir,
            parent_session_id=parent_session_id,
            execution_mode=execution_mode,
            additional_demands=additional_demands,
            now=now,
        )
        audit.record(
            "RUN_CREATED",
            actor=by,
            target=run.run_id,
            result="success",
            metadata={"type": kind, "session_id": session.session_id, "agent_name": run.agent_name},
            now=now,
        )
    return run


def _new_session(
    session_id: str | None, agent_name: str | None, project_dir: str | None, parent: str | None, now: datetime
) -> Session:
    session_id = session_id or new_session_id()
    try:
        with transaction.atomic():
            return Session.objects.create(
                session_id=session_id,
                status=Session.Status.PENDING,
                created_at=now,
                agent_name=agent_name,
                project_dir=project_dir,
                parent_session_id=parent,
            )
    except IntegrityError:
        raise Conflict(f"Session '{session_id}' already exists") from None
