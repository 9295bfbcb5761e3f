"""What runners call: registering, heartbeats, reports. Their poll, GET /runner/runs, is the edge's door."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db import OperationalError
from django.http import HttpRequest
from django.utils import timezone
from ninja import Router, Schema
from pydantic import BaseModel, ConfigDict, Field

from coordinator.actions import runners, runs
from coordinator.api.auth import requires
from coordinator.api.vocabulary import Ok, Text, caller, problems

router = Router(tags=["Runner"])

RUNNERS = requires("runner")
ATTEMPTS = 3
BETWEEN_ATTEMPTS = 0.2  # seconds


class Executor(BaseModel):
    """How the runner starts its agent; kept as it is sent."""

    model_config = ConfigDict(extra="allow")

    type: Text | None = None
    command: Text | None = None
    config: dict[str, Any] | None = None


class Registration(BaseModel):
    """Who the runner is and what it offers. Fields that are not listed here are kept."""

    model_config = ConfigDict(extra="allow")

    hostname: Text
    project_dir: Text
    executor_profile: Text
    executor: Executor | None = None
    tags: list[Text] | None = None
    require_matching_tags: bool = False


class Registered(Schema):
    """The runner's id, and how it is expected to poll and beat, in seconds."""

    runner_id: str
    poll_endpoint: str = "/runner/runs"
    poll_timeout_seconds: int | float
    heartbeat_interval_seconds: int | float


@router.post(
    "/runner/register",
    auth=RUNNERS,
    response={200: Registered, **problems(409)},
    operation_id="register_runner",
    summary="Register a runner",
)
def register_runner(request: HttpRequest, body: Registration) -> dict[str, Any]:
    """The id follows from host, directory and profile. 409 while a runner of that identity is alive.

    A runner that has crashed may come back at once: its broken poll tells that it is gone. What its former
    process held is recovered: runs it had claimed wait again, runs it ran have failed.
    """
    runner = runners.register(
        runners.Registration(
            hostname=body.hostname,
            project_dir=body.project_dir,
            executor_profile=body.executor_profile,
            executor=body.executor.model_dump(exclude_unset=True) if body.executor else None,
            tags=body.tags or [],
            require_matching_tags=body.require_matching_tags,
            extra=body.model_extra or {},
        ),
        timezone.now(),
        key=caller(request),
    )
    return {
        "runner_id": runner.runner_id,
        "poll_endpoint": "/runner/runs",
        "poll_timeout_seconds": whole(settings.RUNNER_POLL_TIMEOUT),
        "heartbeat_interval_seconds": whole(settings.RUNNER_HEARTBEAT_INTERVAL),
    }


def whole(seconds: float) -> int | float:
    """Return seconds without a needless `.0`: clients read an integer."""
    return int(seconds) if seconds == int(seconds) else seconds


class FromRunner(BaseModel):
    """Which runner reports."""

    runner_id: Text


@router.post(
    "/runner/heartbeat",
    auth=RUNNERS,
    response={200: Ok, **problems()},
    operation_id="runner_heartbeat",
    summary="Say that the runner is there",
)
def runner_heartbeat(request: HttpRequest, body: FromRunner) -> dict[str, bool]:
    """Polls and reports count as heartbeats too. 401 for a runner that is not registered."""
    runners.heartbeat(body.runner_id, timezone.now(), key=caller(request))
    return {"ok": True}


def taken(report: Callable[[], None]) -> dict[str, bool]:
    """Take a report, again if the database was busy or two transactions were in each other's way.

    Runners send a report once and only log an error: one that is refused is lost.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            report()
        except OperationalError:
            if attempt == ATTEMPTS:
                raise
            time.sleep(BETWEEN_ATTEMPTS * attempt)
        else:
            break
    return {"ok": True}


REPORT = {200: Ok, **problems(404)}


@router.post(
    "/runner/runs/{run_id}/started",
    auth=RUNNERS,
    response=REPORT,
    operation_id="report_run_started",
    summary="Report that the run's process has started",
)
def report_run_started(request: HttpRequest, run_id: Text, body: FromRunner) -> dict[str, bool]:
    """The session runs now and gets its `session_start` event. 403 for a run that another runner holds.

    For a run that is to be stopped or has ended meanwhile, nothing changes and the next poll says to stop it.
    """
    runner = runners.heard_from(body.runner_id, timezone.now(), key=caller(request))
    return taken(lambda: runs.started(run_id, runner, timezone.now()))


class Completed(FromRunner):
    """The run's process ended well."""

    status: Text | None = None
    session_status: Text | None = Field(
        None, description="Sent by newer runners; the session is finished anyway"
    )


@router.post(
    "/runner/runs/{run_id}/completed",
    auth=RUNNERS,
    response=REPORT,
    operation_id="report_run_completed",
    summary="Report that the run's process ended well",
)
def report_run_completed(request: HttpRequest, run_id: Text, body: Completed) -> dict[str, bool]:
    """The session is finished and gets a `session_stop` event if its executor sent none.

    Reports about a run that has ended before are answered and change nothing.
    """
    runner = runners.heard_from(body.runner_id, timezone.now(), key=caller(request))
    return taken(lambda: runs.completed(run_id, runner, timezone.now()))


class Failed(FromRunner):
    """Why the run's process could not start or ended badly."""

    error: Text = "Unknown error"


@router.post(
    "/runner/runs/{run_id}/failed",
    auth=RUNNERS,
    response=REPORT,
    operation_id="report_run_failed",
    summary="Report that the run failed",
)
def report_run_failed(request: HttpRequest, run_id: Text, body: Failed) -> dict[str, bool]:
    """The session's status becomes `error`."""
    runner = runners.heard_from(body.runner_id, timezone.now(), key=caller(request))
    return taken(lambda: runs.failed(run_id, runner, body.error, timezone.now()))


class Stopped(FromRunner):
    """The run's process was ended."""

    signal: Text | None = None


@router.post(
    "/runner/runs/{run_id}/stopped",
    auth=RUNNERS,
    response=REPORT,
    operation_id="report_run_stopped",
    summary="Report that the run was stopped",
)
def report_run_stopped(request: HttpRequest, run_id: Text, body: Stopped) -> dict[str, bool]:
    """The run and its session are stopped."""
    runner = runners.heard_from(body.runner_id, timezone.now(), key=caller(request))
    return taken(lambda: runs.stopped(run_id, runner, timezone.now()))
