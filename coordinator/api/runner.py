"""The endpoints for runners: registration, heartbeats, reports. The edge serves their poll, GET /runner/runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum
from typing import Any

from django.conf import settings
from django.db import OperationalError
from django.http import HttpRequest
from django.utils import timezone
from ninja import Schema
from pydantic import BaseModel, ConfigDict, Field

from coordinator.actions import runs
from coordinator.actions.agents import runners
from coordinator.actions.people import session_keys
from coordinator.api.auth import build_scoped_key_auth
from coordinator.api.router import Router
from coordinator.api.shared_types import Ok, Text, error_responses, get_request_key_identity

router = Router(tags=["Runner"])

RUNNERS = build_scoped_key_auth("runner")
ATTEMPTS = 3
BETWEEN_ATTEMPTS = 0.2  # seconds


class ExecutorSpec(BaseModel):
    """How the runner starts its agent; kept as it is sent.

    `type` is `procedural` for scripts; anything else is an agent. `lifecycle` is sent by the newest runners:
    `persistent` for executors that outlive a run, else `one_shot`.
    """

    model_config = ConfigDict(extra="allow")

    type: Text | None = None
    command: Text | None = None
    config: dict[str, Any] | None = None
    lifecycle: Text | None = None


class ProceduralAgent(BaseModel):
    """A procedural agent that its runner offers; it can be started while the runner is registered."""

    model_config = ConfigDict(extra="allow")

    name: Text
    description: Text | None = None
    command: Text | None = None
    parameters_schema: dict[str, Any] | None = None


class AgentAbilities(BaseModel):
    """What an agent's answer to `initialize` says that it can do; `logins` are its ways to sign in."""

    model_config = ConfigDict(extra="allow")

    images: bool = False
    audio: bool = False
    files: bool = False
    resumes: bool = False
    forks: bool = False
    mcp_over_http: bool = False
    logins: list[Text] = Field([], max_length=20)


class OfferedAgent(BaseModel):
    """An agent that the runner can drive, or one that its machine lacks (then `how` says how to get it)."""

    model_config = ConfigDict(extra="allow")

    name: Text
    title: Text | None = None
    version: Text | None = None
    how: Text | None = None
    abilities: AgentAbilities | None = None
    is_configured: bool = False  # its command is from the settings of the runner's machine


class RunnerOfferIn(BaseModel):
    """What a runner has that drives agents by the Agent Client Protocol.

    It takes only runs for these `agents` in these `directories`, at most `at_once` together. Its poll answers contain
    more than other runners': `cancel_runs`, `commands`, and with a run the state of its session (`driven`).
    """

    model_config = ConfigDict(extra="allow")

    agents: list[OfferedAgent] = Field([], max_length=100)
    missing: list[OfferedAgent] = Field([], max_length=100)
    directories: list[Text] = Field([], max_length=500)
    at_once: int | None = Field(None, ge=1)
    worktrees: bool = False


class RunnerRegistrationIn(BaseModel):
    """Who the runner is and what it offers. Fields that are not listed here are kept."""

    model_config = ConfigDict(extra="allow")

    hostname: Text
    project_dir: Text
    executor_profile: Text
    executor: ExecutorSpec | None = None
    tags: list[Text] | None = None
    require_matching_tags: bool = False
    agents: list[ProceduralAgent] | None = Field(None, max_length=500)
    offers: RunnerOfferIn | None = None


class RegisteredRunner(Schema):
    """The runner's id, and in seconds how long its polls are held and how often it should send a heartbeat."""

    runner_id: str
    poll_endpoint: str = "/runner/runs"
    poll_timeout_seconds: int | float
    heartbeat_interval_seconds: int | float


@router.post(
    "/runner/register",
    auth=RUNNERS,
    response={200: RegisteredRunner, **error_responses(409)},
    operation_id="register_runner",
    summary="Register a runner",
)
def register_runner(request: HttpRequest, body: RunnerRegistrationIn) -> dict[str, Any]:
    """The id is derived from host, directory and profile. 409 while a runner with that identity is alive.

    Runners that differ only in their executor's command are different runners: the second gets another id.

    A runner that has crashed may come back at once: its broken poll shows that it is gone. What its former
    process held is recovered: runs it had claimed wait again, runs it ran have failed.
    """
    runner = runners.register_runner_and_recover_runs(
        runners.RunnerRegistration(
            hostname=body.hostname,
            project_dir=body.project_dir,
            executor_profile=body.executor_profile,
            executor=body.executor.model_dump(exclude_unset=True) if body.executor else None,
            tags=body.tags or [],
            require_matching_tags=body.require_matching_tags,
            extra=extra_registration_fields(body),
            offers=body.offers.model_dump(exclude_unset=True) if body.offers else None,
        ),
        timezone.now(),
        key=get_request_key_identity(request),
    )
    return {
        "runner_id": runner.runner_id,
        "poll_endpoint": "/runner/runs",
        "poll_timeout_seconds": integer_if_whole(settings.RUNNER_POLL_TIMEOUT),
        "heartbeat_interval_seconds": integer_if_whole(settings.RUNNER_HEARTBEAT_INTERVAL),
    }


def extra_registration_fields(body: RunnerRegistrationIn) -> dict[str, Any]:
    agents = (
        {"agents": [agent.model_dump(exclude_unset=True) for agent in body.agents]} if body.agents else {}
    )
    return {**(body.model_extra or {}), **agents}


def integer_if_whole(seconds: float) -> int | float:
    """Return seconds without a needless `.0`: clients read an integer."""
    return int(seconds) if seconds == int(seconds) else seconds


class RunnerReport(BaseModel):
    """Which runner reports."""

    runner_id: Text


@router.post(
    "/runner/heartbeat",
    auth=RUNNERS,
    response={200: Ok, **error_responses()},
    operation_id="runner_heartbeat",
    summary="Send a runner's heartbeat",
)
def receive_runner_heartbeat(request: HttpRequest, body: RunnerReport) -> dict[str, bool]:
    """Polls and reports count as heartbeats too. 401 for a runner that is not registered."""
    runners.record_runner_heartbeat(body.runner_id, timezone.now(), key=get_request_key_identity(request))
    return {"ok": True}


def apply_runner_report_with_retry(report: Callable[[], None]) -> dict[str, bool]:
    """Accept a report; retry if the database was busy or two transactions were in each other's way.

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


REPORT = {200: Ok, **error_responses(404)}


@router.post(
    "/runner/runs/{run_id}/started",
    auth=RUNNERS,
    response=REPORT,
    operation_id="report_run_started",
    summary="Report that the run has started",
)
def report_run_started(request: HttpRequest, run_id: Text, body: RunnerReport) -> dict[str, bool]:
    """The session's status becomes `running`, and it gets its `session_start` event. 403 for another runner's run.

    For a run that was stopped or has ended meanwhile nothing changes, and the next poll says to stop it.
    """
    runner = runners.require_runner_and_record_contact(
        body.runner_id, timezone.now(), key=get_request_key_identity(request)
    )
    return apply_runner_report_with_retry(
        lambda: runs.record_start_or_order_stop(run_id, runner, timezone.now())
    )


class CompletedRunReport(RunnerReport):
    """The run ended without an error."""

    status: Text | None = None
    session_status: Text | None = Field(
        None,
        description="`idle`: the process goes on and waits for the session's next run; else it has ended",
    )


@router.post(
    "/runner/runs/{run_id}/completed",
    auth=RUNNERS,
    response=REPORT,
    operation_id="report_run_completed",
    summary="Report that the run has completed",
)
def report_run_completed(request: HttpRequest, run_id: Text, body: CompletedRunReport) -> dict[str, bool]:
    """The session is finished, or idle, and gets a `session_stop` event if its executor sent none.

    If the run was being stopped and its process goes on, it is stopped. This report may come before the one of the
    start. For a runner that registered with a `lifecycle` the two events are `run_start` and `run_completed`.
    A report about a run that has already ended is accepted and changes nothing.
    """
    runner = runners.require_runner_and_record_contact(
        body.runner_id, timezone.now(), key=get_request_key_identity(request)
    )
    return apply_runner_report_with_retry(
        lambda: runs.record_run_completed(run_id, runner, timezone.now(), session_status=body.session_status)
    )


class FailedRunReport(RunnerReport):
    """Why the run's process could not start, or failed."""

    error: Text = "Unknown error"


@router.post(
    "/runner/runs/{run_id}/failed",
    auth=RUNNERS,
    response=REPORT,
    operation_id="report_run_failed",
    summary="Report that the run failed",
)
def report_run_failed(request: HttpRequest, run_id: Text, body: FailedRunReport) -> dict[str, bool]:
    """The session's status becomes `error`."""
    runner = runners.require_runner_and_record_contact(
        body.runner_id, timezone.now(), key=get_request_key_identity(request)
    )
    return apply_runner_report_with_retry(
        lambda: runs.record_run_failed(run_id, runner, body.error, timezone.now())
    )


class StoppedRunReport(RunnerReport):
    """The run's process was ended."""

    signal: Text | None = None


@router.post(
    "/runner/runs/{run_id}/stopped",
    auth=RUNNERS,
    response=REPORT,
    operation_id="report_run_stopped",
    summary="Report that the run was stopped",
)
def report_run_stopped(request: HttpRequest, run_id: Text, body: StoppedRunReport) -> dict[str, bool]:
    """The run and its session are stopped."""
    runner = runners.require_runner_and_record_contact(
        body.runner_id, timezone.now(), key=get_request_key_identity(request)
    )
    return apply_runner_report_with_retry(lambda: runs.record_run_stopped(run_id, runner, timezone.now()))


class IdleSessionEnd(Enum):
    """How an idle session's process has ended."""

    finished = "finished"
    stopped = "stopped"
    failed = "failed"


class ExecutorEnd(RunnerReport):
    """The process that waited in an idle session has ended."""

    status: IdleSessionEnd


@router.post(
    "/runner/sessions/{session_id}/status",
    auth=RUNNERS,
    response=REPORT,
    operation_id="report_session_status",
    summary="Report that an idle session's process has ended",
)
def report_session_status(request: HttpRequest, session_id: Text, body: ExecutorEnd) -> dict[str, bool]:
    """The session is finished, stopped, or in error. 403 where another runner keeps the process.

    For a session whose process this runner no longer keeps it changes nothing.
    """
    runner = runners.require_runner_and_record_contact(
        body.runner_id, timezone.now(), key=get_request_key_identity(request)
    )
    status = body.status.value
    return apply_runner_report_with_retry(
        lambda: runs.executors.record_idle_executor_end(session_id, runner, status, timezone.now())
    )


class AgentStart(RunnerReport):
    """The runner is about to start the session's agent."""

    agent: Text


class GatewayAccess(Schema):
    """The MCP gateway for that agent: as which agent it calls, and the key, shown only once. null: it gets none."""

    agent_id: str | None = None
    key: str | None = None


@router.post(
    "/runner/sessions/{session_id}/gateway",
    auth=RUNNERS,
    response={200: GatewayAccess, **error_responses(401, 403, 404, 409)},
    operation_id="hand_gateway",
    summary="Get the MCP gateway's key for the agent that is about to start",
)
def issue_gateway_key(request: HttpRequest, session_id: Text, body: AgentStart) -> dict[str, str | None]:
    """Revokes an earlier key of the session. The new key is for this agent, and valid only at `/mcp`."""
    runner = runners.require_runner_and_record_contact(
        body.runner_id, timezone.now(), key=get_request_key_identity(request)
    )
    handed = session_keys.issue_gateway_key_or_none(
        session_id, runner, program=body.agent, now=timezone.now()
    )
    return {"agent_id": handed.agent_id, "key": handed.key} if handed else {"agent_id": None, "key": None}
