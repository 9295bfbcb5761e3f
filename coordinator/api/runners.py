"""The registered runners, for people and programs that operate them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from django.utils import timezone
from ninja import Query, Schema
from pydantic import Field

from coordinator.actions.agents import runners
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.api.shared_types import Ok, Text, error_responses, get_request_key_identity
from coordinator.models import Runner
from coordinator.runs.liveness import runner_stale_after
from coordinator.sessions import wire

router = Router(tags=["Runners"])


class RunnerOut(Schema):
    """A runner. Its status is online, or stale after SIGNALBOX_RUNNER_STALE_AFTER without a sign of life."""

    runner_id: str
    registered_at: str
    last_heartbeat: str
    hostname: str
    project_dir: str
    executor_profile: str
    executor: Any
    tags: list[Any]
    require_matching_tags: bool
    status: str
    seconds_since_heartbeat: float


class ManyRunners(Schema):
    """All registered runners, by when they registered."""

    runners: list[RunnerOut]


def runner_as_json(runner: Runner, now: datetime) -> dict[str, Any]:
    """Return a runner as the wire shows it."""
    silence = runner.heartbeat_age_or_max(now)
    return {
        "runner_id": runner.runner_id,
        "registered_at": wire.format_wire_instant(runner.registered_at),
        "last_heartbeat": wire.format_wire_instant(runner.last_heartbeat),
        "hostname": runner.hostname,
        "project_dir": runner.project_dir,
        "executor_profile": runner.executor_profile,
        "executor": runner.executor,
        "tags": runner.tags if isinstance(runner.tags, list) else [],
        "require_matching_tags": runner.require_matching_tags,
        "status": "stale" if silence >= runner_stale_after() else "online",
        "seconds_since_heartbeat": silence.total_seconds(),
    }


@router.get(
    "/runners",
    auth=build_scoped_key_auth("read", "operator", "runner"),
    response={200: ManyRunners, **error_responses()},
    operation_id="list_runners",
    summary="List the registered runners",
)
def list_runners(request: HttpRequest) -> dict[str, Any]:
    """A stale runner is online again with its next sign of life; after SIGNALBOX_RUNNER_REMOVE_AFTER it is removed."""
    now = timezone.now()
    return {"runners": [runner_as_json(runner, now) for runner in Runner.objects.all()]}


class DeregisteredRunner(Ok):
    """Who deregistered it: the runner itself (`self`), or somebody else (`external`)."""

    message: str
    initiated_by: str


class Deregistration(Schema):
    """Who deregisters the runner."""

    itself: Annotated[bool, Field(alias="self", description="Sent by the runner itself before it exits")] = (
        False
    )


@router.delete(
    "/runners/{runner_id}",
    auth=build_scoped_key_auth("operator", "runner"),
    response={200: DeregisteredRunner, **error_responses(404)},
    operation_id="deregister_runner",
    summary="Deregister a runner",
)
def deregister_runner(
    request: HttpRequest, runner_id: Text, leaving: Query[Deregistration]
) -> dict[str, Any]:
    """A runner that leaves by itself is removed at once; another learns it from its next poll. Runs are recovered."""
    itself = leaving.itself
    key = get_request_key_identity(request)
    runners.remove_own_runner_or_deregister(
        runner_id, actor=key.caller_actor, itself=itself, now=timezone.now(), key=key
    )
    message = "Runner deregistered" if itself else "Runner marked for deregistration"
    return {"ok": True, "message": message, "initiated_by": "self" if itself else "external"}
