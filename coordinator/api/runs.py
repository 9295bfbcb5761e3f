"""Runs over HTTP: start, list, get, stop."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Schema, Status
from pydantic import BaseModel, Field, model_validator

from coordinator.actions import runs
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.api.sessions import LARGEST_PAGE, PAGE, StopOut, stop_result_as_json
from coordinator.api.shared_types import ChosenId, Text, error_responses, get_request_key_identity
from coordinator.errors import BadRequest, NotFound
from coordinator.identity import ownership
from coordinator.identity.keys import KeyIdentity
from coordinator.identity.scopes import READERS, SESSION_KEEPERS
from coordinator.models import Run
from coordinator.runs.statuses import RESUME, START
from coordinator.sessions import wire

router = Router(tags=["Runs"])


class RunType(Enum):
    """What a run does."""

    start_session = START
    resume_session = RESUME


class ExecutionMode(Enum):
    """How the caller gets the result: it waits, it polls, or its session is resumed with the result."""

    sync = "sync"
    async_poll = "async_poll"
    async_callback = "async_callback"


class RunDemands(BaseModel):
    """What a runner must have to take the run: equal properties, and all tags."""

    hostname: Text | None = None
    project_dir: Text | None = None
    executor_profile: Text | None = None
    executor_type: Text | None = Field(None, description="`autonomous` (a model) or `procedural` (a script)")
    tags: list[Text] = []


class RunOrder(BaseModel):
    """A run to queue. Give `prompt`, or `parameters`: with a prompt, or with what a procedural agent takes."""

    type: RunType
    prompt: Text
    parameters: dict[str, Any] | None = Field(
        None,
        description="Checked against the agent's `parameters_schema`; without one, only `prompt` is allowed",
    )
    session_id: ChosenId | None = Field(None, description="The session to resume, or the id for the new one")
    agent_name: Text | None = Field(None, description="Name of a blueprint")
    project_dir: Text | None = None
    parent_session_id: Text | None = None
    execution_mode: ExecutionMode = ExecutionMode.sync
    additional_demands: RunDemands | None = None

    @model_validator(mode="before")
    @classmethod
    def copy_missing_prompt_from_parameters(cls, body: Any) -> Any:
        """Take the prompt from `parameters` where it is missing; a procedural agent needs none."""
        parameters = body.get("parameters") if isinstance(body, dict) else None
        if isinstance(parameters, dict) and body.get("prompt") is None:
            prompt = parameters.get("prompt")
            return {**body, "prompt": prompt if isinstance(prompt, str) else ""}
        return body


class QueuedRun(Schema):
    """The run that was queued."""

    run_id: str
    session_id: str
    status: str


@router.post(
    "/runs",
    auth=build_scoped_key_auth(*SESSION_KEEPERS),
    response={201: QueuedRun, **error_responses(400, 404, 409)},
    operation_id="create_run",
    summary="Start or resume a session",
)
def create_run(request: HttpRequest, body: RunOrder) -> Status[dict[str, Any]]:
    """Queues a run; a matching runner gets it on its poll.

    Resuming a busy session waits for its turn: a session runs one run at a time. 404 for an unknown parent, or an
    unknown session to resume. A run whose demands no runner meets fails after SIGNALBOX_RUN_NO_MATCH_TIMEOUT (300 s if
    not set); a run without demands waits. An order with `parameters` needs an executor of its agent's type.

    A run goes from `pending` to `claimed` (a runner has it), `running` (its process has started) and `completed`
    or `failed`; or through `stopping` to `stopped`. A claim that is not reported as started within 60 s falls back
    to `pending`. A run whose runner gives no sign of life for SIGNALBOX_RUNNER_REMOVE_AFTER (600 s) fails, or waits
    again if it had only been claimed. A final status never changes.

    A resume continues from the executor's own state of the session, not from the events here. So it goes to the runner
    that keeps the session's process, where one waits (`idle`); else to a runner with the session's host and executor
    profile (`GET /sessions/{session_id}/affinity`), which finds the session by its `session_id`.
    A procedural agent keeps no state and cannot be resumed (400).
    """
    forked = (body.parameters or {}).get("fork_of")
    touched = (
        body.session_id if body.type is RunType.resume_session else None,
        body.parent_session_id,
        forked if isinstance(forked, str) else None,
    )
    ownership.require_session_write_access(
        get_request_key_identity(request), *(name for name in touched if name)
    )
    demands = body.additional_demands
    run = runs.queue_start_or_resume_run(
        kind=body.type.value,
        prompt=body.prompt,
        parameters=body.parameters,
        session_id=body.session_id,
        agent_name=body.agent_name,
        project_dir=body.project_dir,
        parent_session_id=body.parent_session_id,
        execution_mode=body.execution_mode.value,
        additional_demands=demands.model_dump(exclude_none=True) if demands else None,
        actor=get_request_key_identity(request).caller_actor,
        now=timezone.now(),
    )
    return Status(201, {"run_id": run.run_id, "session_id": run.session_id, "status": run.status})


class RunOut(Schema):
    """A run. Status: pending, claimed, running, stopping, completed, failed or stopped.

    `parameters` are those of the order, `prompt` is the prompt among them, empty where a procedural agent has none.
    """

    run_id: str
    type: str
    session_id: str
    agent_name: str | None
    prompt: str
    parameters: dict[str, Any]
    project_dir: str | None
    parent_session_id: str | None
    execution_mode: str
    demands: Any
    status: str
    runner_id: str | None
    error: str | None
    created_at: str
    claimed_at: str | None
    started_at: str | None
    completed_at: str | None
    timeout_at: str | None


class ManyRuns(Schema):
    """Runs, oldest first; `next_cursor` is present while there are older ones."""

    runs: list[RunOut]
    next_cursor: str | None = None


class RunsPage(Schema):
    """Which runs to list."""

    status: Text | None = Field(None, description="Only runs with this status")
    limit: Annotated[int, Field(ge=1, le=LARGEST_PAGE)] = PAGE
    cursor: Text | None = Field(None, description="`next_cursor` of the previous page")


@router.get(
    "/runs",
    auth=build_scoped_key_auth(*READERS),
    response={200: ManyRuns, **error_responses()},
    exclude_unset=True,
    operation_id="list_runs",
    summary="List runs",
)
def list_runs(request: HttpRequest, page: Query[RunsPage]) -> dict[str, Any]:
    """Without parameters the newest 500, oldest of them first; older ones with `cursor`."""
    runs_found = runs_readable_by_key(get_request_key_identity(request)).order_by("-created_at", "-run_id")
    if page.status is not None:
        runs_found = runs_found.filter(status=page.status)
    if page.cursor is not None:
        runs_found = runs_found.filter(
            older_runs_filter(page.cursor, runs_readable_by_key(get_request_key_identity(request)))
        )
    rows = list(runs_found[: page.limit + 1])
    page_body = {"runs": [wire.masked_run_as_json(row) for row in reversed(rows[: page.limit])]}
    return {**page_body, "next_cursor": rows[page.limit - 1].run_id} if len(rows) > page.limit else page_body


def runs_readable_by_key(key: KeyIdentity) -> QuerySet[Run]:
    everything = Run.objects.select_related("ordered_with")
    if ownership.can_read_all_sessions(key):
        return everything
    return everything.filter(session__in=ownership.readable_sessions(key))


def older_runs_filter(run_id: str, among: QuerySet[Run]) -> Q:
    at = among.filter(pk=run_id).values_list("created_at__text", flat=True).first()
    if at is None:
        raise BadRequest("The cursor names no run that exists")
    return Q(created_at__text__lt=at) | Q(created_at__text=at, run_id__lt=run_id)


@router.get(
    "/runs/{run_id}",
    auth=build_scoped_key_auth(*READERS),
    response={200: RunOut, **error_responses(404)},
    operation_id="get_run",
    summary="Get a run",
)
def get_run(request: HttpRequest, run_id: Text) -> dict[str, Any]:
    """The run itself, not wrapped."""
    run = runs_readable_by_key(get_request_key_identity(request)).filter(pk=run_id).first()
    if run is None:
        raise NotFound("Run not found")
    return wire.masked_run_as_json(run)


@router.post(
    "/runs/{run_id}/stop",
    auth=build_scoped_key_auth(*SESSION_KEEPERS),
    response={200: StopOut, **error_responses(400, 404)},
    exclude_unset=True,
    operation_id="stop_run",
    summary="Stop a run",
)
def stop_run(request: HttpRequest, run_id: Text) -> dict[str, Any]:
    """Cancels a pending run; any other is stopped by its runner, which learns of it at once. 400 once it has ended."""
    session_id = Run.objects.filter(pk=run_id).values_list("session_id", flat=True).first()
    ownership.require_session_write_access(get_request_key_identity(request), *filter(None, [session_id]))
    return stop_result_as_json(
        runs.request_run_stop(
            run_id, actor=get_request_key_identity(request).caller_actor, now=timezone.now()
        )
    )
