"""Sessions, runs and runners as the wire shows them, shared by the REST endpoints, the edge and the streams."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from coordinator.models import Event, Run, Session
from coordinator.runs import blueprints
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.events import EVENT_COLUMNS
from coordinator.sessions.results import parse_result_text_and_data

SESSION_COLUMNS = (
    "session_id", "status", "created_at", "project_dir", "agent_name", "last_resumed_at", "parent_session_id",
    "executor_session_id", "executor_profile", "hostname",
)  # fmt: skip


def format_wire_instant(value: Any) -> str | None:
    """Return an instant as the wire writes it; what cannot be read goes out unchanged."""
    if isinstance(value, datetime):
        return value.isoformat()
    return None if value is None else str(value)


def session_as_json(session: Session) -> dict[str, Any]:
    """Return a session as the wire shows it, instants as text."""
    return {name: format_wire_instant(getattr(session, name)) for name in SESSION_COLUMNS}


def run_parameters(run: Run) -> dict[str, Any]:
    """Return what a run was ordered with. Read the run with `select_related("ordered_with")` where there are many."""
    ordered_with = getattr(run, "ordered_with", None)
    parameters = ordered_with.parameters if ordered_with is not None else None
    return parameters if isinstance(parameters, dict) else {"prompt": run.prompt}


def run_as_json(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "type": run.type,
        "session_id": run.session_id,
        "agent_name": run.agent_name,
        "prompt": run.prompt,
        "parameters": run_parameters(run),
        "project_dir": run.project_dir,
        "parent_session_id": run.parent_session_id,
        "execution_mode": run.execution_mode,
        "demands": run.demands,
        "status": run.status,
        "runner_id": run.runner_id,
        "error": run.error,
        "created_at": format_wire_instant(run.created_at),
        "claimed_at": format_wire_instant(run.claimed_at),
        "started_at": format_wire_instant(run.started_at),
        "completed_at": format_wire_instant(run.completed_at),
        "timeout_at": format_wire_instant(run.timeout_at),
    }


def masked_run_as_json(run: Run) -> dict[str, Any]:
    """Return a run for readers: the secrets of what it was ordered with are for its runner only."""
    shape = run_as_json(run)
    return {
        **shape,
        **{name: mask_secrets_in_value(shape[name]) for name in ("prompt", "parameters", "error")},
    }


def polled_run_as_json(run: Run) -> dict[str, Any]:
    """Return a run as a poll answers it: with what newer runners look for in addition to the recorded fields.

    `parameters` is where newer runners find the prompt; `resolved_agent_blueprint` spares them asking for the
    blueprint and is null where it is unknown or cannot be resolved. Only where it cannot be resolved `blueprint_error`
    says why. Signalbox's own runner then fails the run. Others ask for the blueprint and get the same reason.
    """
    blueprint, problem = blueprints.find_unmasked_blueprint_and_error(run.agent_name)
    answer = {**run_as_json(run), "scope": None, "resolved_agent_blueprint": blueprint}
    return {**answer, "blueprint_error": problem} if problem else answer


def event_as_json(event: Event) -> dict[str, Any]:
    """Return an event's row with its JSON columns decoded; a result's two fields are kept in its output."""
    shape = {"id": event.pk, **{name: getattr(event, name) for name in EVENT_COLUMNS}}
    text, data = parse_result_text_and_data(event.event_type, event.tool_output)
    if text is not None or data is not None:
        shape["tool_output"] = None
    return {**shape, "result_text": text, "result_data": data}
