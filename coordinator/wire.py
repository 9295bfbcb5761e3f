"""Sessions, runs and runners as the wire shows them, shared by the REST doors, the edge and the streams."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coordinator import blueprints
from coordinator.models import Event, Run, Session


def moment(value: Any) -> str | None:
    """Return an instant as the wire writes it; what cannot be read goes out as it stands."""
    if isinstance(value, datetime):
        return value.isoformat()
    return None if value is None else str(value)


def session_shape(session: Session) -> dict[str, Any]:
    """Return a session's ten fields."""
    return {
        "session_id": session.session_id,
        "status": session.status,
        "created_at": moment(session.created_at),
        "project_dir": session.project_dir,
        "agent_name": session.agent_name,
        "last_resumed_at": moment(session.last_resumed_at),
        "parent_session_id": session.parent_session_id,
        "executor_session_id": session.executor_session_id,
        "executor_profile": session.executor_profile,
        "hostname": session.hostname,
    }


def run_shape(run: Run) -> dict[str, Any]:
    """Return a run's sixteen fields."""
    return {
        "run_id": run.run_id,
        "type": run.type,
        "session_id": run.session_id,
        "agent_name": run.agent_name,
        "prompt": run.prompt,
        "project_dir": run.project_dir,
        "parent_session_id": run.parent_session_id,
        "execution_mode": run.execution_mode,
        "demands": run.demands,
        "status": run.status,
        "runner_id": run.runner_id,
        "error": run.error,
        "created_at": moment(run.created_at),
        "claimed_at": moment(run.claimed_at),
        "started_at": moment(run.started_at),
        "completed_at": moment(run.completed_at),
        "timeout_at": moment(run.timeout_at),
    }


def polled_run(run: Run) -> dict[str, Any]:
    """Return a run as a poll answers it: with what newer runners look for beside the recorded fields.

    `parameters` is where newer runners find the prompt; `resolved_agent_blueprint` spares them asking for the
    blueprint and is absent where it is unknown or cannot be resolved (the runner's own request then says why).
    """
    shape = {**run_shape(run), "parameters": {"prompt": run.prompt}}
    blueprint = blueprints.resolved_or_none(run.agent_name)
    return shape if blueprint is None else {**shape, "resolved_agent_blueprint": blueprint}


def event_shape(event: Event) -> dict[str, Any]:
    """Return an event's row with its JSON columns decoded."""
    return {
        "id": event.pk,
        "session_id": event.session_id,
        "event_type": event.event_type,
        "timestamp": event.timestamp,
        "tool_name": event.tool_name,
        "tool_input": event.tool_input,
        "tool_output": event.tool_output,
        "error": event.error,
        "exit_code": event.exit_code,
        "reason": event.reason,
        "role": event.role,
        "content": event.content,
    }
