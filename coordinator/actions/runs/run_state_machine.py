"""The state machine of runs and its effects on their sessions. The only module that changes either's status.

pending → claimed → running → completed | failed | stopping → stopped

In addition: pending → stopped (cancelled) | failed (nobody took it); claimed → pending (its runner never
started it); claimed and stopping may also end as running does, because a runner's report says what happened.
An end is final: later reports are answered and change nothing.

Every move happens under the lock of the run's session, in one transaction with its effects (the session's
status, its events, the parent's callback), and is an UPDATE that names the status it starts from. Locks are
taken from child to parent, never the other way. A session runs one run at a time; others wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import QuerySet

from coordinator.actions.audit import audit
from coordinator.actions.people import session_keys
from coordinator.actions.runs import turns
from coordinator.actions.sessions import callbacks
from coordinator.errors import NotFound
from coordinator.identity.actors import system_actor
from coordinator.lib import instants
from coordinator.lib.identifiers import new_run_id
from coordinator.models import (
    Blueprint,
    Event,
    EventContext,
    LivingExecutor,
    Run,
    Runner,
    RunParameters,
    Session,
    StopCommand,
)
from coordinator.runs import demands
from coordinator.runs.statuses import ACTIVE, OPEN, OVER, RESUME, START_EVENTS, STOP_EVENTS
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.sessions.results import load_session_result

NOBODY_CAME = "No matching runner available within timeout"
UNCONFIRMED_STOP = "The runner did not confirm the stop"
# From which statuses a run may come to each.
SOURCES: dict[str, tuple[str, ...]] = {
    Run.Status.PENDING: (Run.Status.CLAIMED,),
    Run.Status.CLAIMED: (Run.Status.PENDING,),
    Run.Status.RUNNING: (Run.Status.CLAIMED, Run.Status.PENDING),
    Run.Status.STOPPING: (Run.Status.CLAIMED, Run.Status.RUNNING),
    Run.Status.COMPLETED: ACTIVE,
    Run.Status.FAILED: (Run.Status.PENDING, *ACTIVE),
    Run.Status.STOPPED: (Run.Status.PENDING, *ACTIVE),
}
# The answer to a driven agent's open question, by how the run ended.
ENDED: dict[str, str] = {
    Run.Status.COMPLETED: "The turn has ended.",
    Run.Status.FAILED: "The run has failed, and its agent is gone.",
    Run.Status.STOPPED: "The turn was stopped.",
}
# The session's status, by how its run ended.
AFTERWARDS: dict[str, str] = {
    Run.Status.COMPLETED: Session.Status.FINISHED,
    Run.Status.FAILED: Session.Status.ERROR,
    Run.Status.STOPPED: Session.Status.STOPPED,
}


def lock_session(session_id: str) -> Session:
    """Lock and return a session; raise NotFound. A weak lock: events may be added meanwhile."""
    session = Session.objects.select_for_update(no_key=True).filter(pk=session_id).first()
    if session is None:
        raise NotFound("Session not found")
    return session


def lock_session_and_load_run(run_id: str) -> tuple[Run, Session]:
    """Lock a run's session and return the current rows of both; raise NotFound."""
    session_id = Run.objects.filter(pk=run_id).values_list("session_id", flat=True).first()
    session = session_id and Session.objects.select_for_update(no_key=True).filter(pk=session_id).first()
    run = Run.objects.select_related("ordered_with").filter(pk=run_id).first()
    if not session or run is None:
        raise NotFound("Run not found")
    return run, session


def filter_active_runs_of_session(session_id: str) -> QuerySet[Run]:
    """Return the session's run at work, if any."""
    return Run.objects.filter(session_id=session_id, status__in=ACTIVE)


def is_session_busy(session: Session) -> bool:
    """Return whether a session has work before it, or an executor at work without a run."""
    if Run.objects.filter(session_id=session.session_id, status__in=OPEN).exists():
        return True
    return session.status in {Session.Status.RUNNING, Session.Status.STOPPING}


def transition_run(run: Run, to: str, **fields: Any) -> bool:
    """Compare and swap: change the run's status if `to` can be reached from its current one."""
    changed = {"status": str(to), **fields}
    if not Run.objects.filter(pk=run.pk, status__in=SOURCES[to]).update(**changed):
        return False
    for name, value in changed.items():
        setattr(run, name, value)
    return True


def set_session_status(session: Session, status: str) -> None:
    """Write the status only if it differs; an unchanged one would be broadcast twice."""
    if session.status != status:
        session.status = status
        session.save(update_fields=["status"])


def try_end_run(run: Run, session: Session, status: str, now: datetime, *, error: str | None = None) -> bool:
    """End a run and do what follows; a run that has ended before stays as it is.

    Its prompt, parameters and error are masked: while it lasted, its runner needed them as they were written.
    """
    before, started_at = run.status, run.started_at
    texts = {"prompt": mask_secrets_in_value(run.prompt), "error": mask_secrets_in_value(error)}
    if not transition_run(run, status, completed_at=now, **texts):
        return False
    mask_stored_run_parameters(run)
    turns.close_driven_turn(run, ENDED[status], now)
    StopCommand.objects.filter(run_id=run.run_id).delete()
    if not LivingExecutor.objects.filter(pk=session.session_id).exists():
        session_keys.end_session_key(session.session_id, ENDED[status], now)
    update_session_after_run(run, session, before)
    if status == Run.Status.COMPLETED:
        add_missing_run_end_event(run, now, since=started_at, reason="completed")
    restart_pending_run_timeouts(session.session_id, now)
    if callbacks.should_report_run_end_to_parent(run):
        notify_parent_session(run, now)
    # After a stop the session must not go on at once; waiting callbacks are sent with the next run that ends.
    if status != Run.Status.STOPPED:
        resume_parent_with_callbacks(session, now)
    return True


def add_missing_run_end_event(run: Run, now: datetime, *, since: Any, reason: str) -> None:
    """Write the end of a run's process, unless its executor has sent it since the run began."""
    stopped_at = since if isinstance(since, datetime) else now
    if not has_session_event_since(run.session_id, STOP_EVENTS, since=stopped_at):
        add_run_event(run, event_names_for_runner_version(run).stop, now, exit_code=0, reason=reason)


def mask_stored_run_parameters(run: Run) -> None:
    ordered_with = RunParameters.objects.filter(pk=run.pk).first()
    if ordered_with is not None:
        ordered_with.parameters = mask_secrets_in_value(ordered_with.parameters)
        ordered_with.save(update_fields=["parameters"])


def update_session_after_run(run: Run, session: Session, before: str) -> None:
    """Let the session say how its run ended, unless another is at work or waits, or its process lives on.

    `before` is what the run was. A resume that was stopped before it began leaves the session as it was. A run that was
    pending leaves a session running whose agent is at work without a run, as in a terminal.
    """
    if filter_active_runs_of_session(session.session_id).exists():
        return
    if before == Run.Status.PENDING and session.status == Session.Status.RUNNING:
        return
    waits = Run.objects.filter(session_id=session.session_id, status=Run.Status.PENDING).exists()
    afterwards: str = AFTERWARDS[run.status]
    if waits:
        afterwards = Session.Status.PENDING
    elif LivingExecutor.objects.filter(pk=session.session_id).exists():
        afterwards = Session.Status.IDLE
    elif run.type == RESUME and run.status == Run.Status.STOPPED and run.started_at is None:
        afterwards = load_session_status_before_run(run)
    set_session_status(session, afterwards)


def load_session_status_before_run(run: Run) -> str:
    """Return what the session of a resume that never began was before, as far as it can be told.

    Its latest run that began or failed says it, else its latest start or end among its events. A session in which
    nothing has ended is stopped.
    """
    others = Run.objects.filter(session_id=run.session_id, status__in=OVER).exclude(
        status=Run.Status.STOPPED, started_at__isnull=True
    )
    last = others.order_by("-created_at", "-run_id").values_list("status", flat=True).first()
    if last is not None:
        return AFTERWARDS[last]
    lifecycle = Event.objects.filter(session_id=run.session_id, event_type__in=(*START_EVENTS, *STOP_EVENTS))
    newest = lifecycle.order_by("-id").values_list("event_type", flat=True).first()
    return Session.Status.FINISHED if newest in STOP_EVENTS else Session.Status.STOPPED


def restart_pending_run_timeouts(session_id: str, now: datetime) -> None:
    """Runs that waited for their session have not yet waited for a runner."""
    waiting = Run.objects.filter(session_id=session_id, status=Run.Status.PENDING, timeout_at__isnull=False)
    waiting.update(timeout_at=now + runner_match_timeout())


def notify_parent_session(run: Run, now: datetime) -> None:
    """Report to the run's parent how it ended: now if the parent is free, else when it is."""
    succeeded = run.status == Run.Status.COMPLETED
    if succeeded:
        result = load_session_result(run.session_id)
        text = result.session_result_text_or_json if result else callbacks.NO_RESULT
    else:
        text = callbacks.STOPPED_BY_HAND if run.status == Run.Status.STOPPED else run.error or "Unknown error"
    parent = Session.objects.select_for_update(no_key=True).filter(pk=run.parent_session_id).first()
    if parent is not None:
        callbacks.save_child_callback(run, succeeded=succeeded, text=text, now=now)
        resume_parent_with_callbacks(parent, now)


def resume_parent_with_callbacks(parent: Session, now: datetime) -> Run | None:
    """Resume a free session with everything its children have to say, as one run. Its lock must be held."""
    if is_session_busy(parent):
        return None
    run_id = new_run_id()
    prompt = callbacks.consume_callbacks_as_prompt(parent.session_id, run_id)
    if prompt is None:
        return None
    run = create_pending_run(
        parent,
        kind=RESUME,
        prompt=prompt,
        agent_name=parent.agent_name,
        project_dir=parent.project_dir,
        parent_session_id=None,
        execution_mode="sync",
        additional_demands=None,
        now=now,
    )
    audit.record_audit_entry(
        "RUN_CREATED",
        actor=system_actor("callbacks"),
        target=run.run_id,
        result="success",
        metadata={"type": RESUME, "session_id": parent.session_id},
        now=now,
    )
    return run


def create_pending_run(
    session: Session, *, kind: str, additional_demands: dict[str, Any] | None, now: datetime, **fields: Any
) -> Run:
    """Add a pending run to `session`, whose lock is held. A session that is not at work says that it waits."""
    run_demands = demands.merge_run_demands_by_precedence(
        session_affinity_demands(session) if kind == RESUME else None,
        find_blueprint_demands(fields["agent_name"]),
        additional_demands,
    )
    parameters = fields.pop("parameters", None)
    run = Run.objects.create(
        run_id=new_run_id(),
        session=session,
        type=kind,
        status=Run.Status.PENDING,
        demands=run_demands,
        created_at=now,
        timeout_at=now + runner_match_timeout() if run_demands else None,
        **fields,
    )
    if parameters is not None:
        RunParameters.objects.create(run=run, parameters=parameters)
    # An agent may be at work without a run: in a terminal, say.
    is_at_work = session.status == Session.Status.RUNNING
    if not is_at_work and not filter_active_runs_of_session(session.session_id).exists():
        set_session_status(session, Session.Status.PENDING)
    return run


def session_affinity_demands(session: Session) -> dict[str, Any]:
    """A resumed session goes back to where its executor keeps its state."""
    return {"hostname": session.hostname, "executor_profile": session.executor_profile}


def find_blueprint_demands(name: str | None) -> dict[str, Any] | None:
    """An unknown name demands nothing: the runner that takes the run says that the blueprint is missing."""
    blueprint = Blueprint.objects.filter(pk=name).first() if name else None
    return blueprint.demands if blueprint and isinstance(blueprint.demands, dict) else None


def runner_match_timeout() -> timedelta:
    """Return how long a run with demands waits for a runner that meets them."""
    return timedelta(seconds=settings.RUN_NO_MATCH_TIMEOUT)


def command_runner_to_stop_run(
    run: Run, runner_id: str, now: datetime, *, keeps_process: bool = False
) -> None:
    """Queue a command for the runner to end the run's process, again if one was sent before it had a process.

    Where it `keeps_process`, the turn alone ends, and the agent waits for the next prompt.
    """
    command_runner_to_stop_process(run.run_id, run.session_id, runner_id, now, keeps_process=keeps_process)


def command_runner_to_stop_process(
    run_id: str, session_id: str, runner_id: str, now: datetime, *, keeps_process: bool = False
) -> None:
    """Queue a command for the runner to end a session's process, which runs this run or ran it last."""
    StopCommand.objects.update_or_create(
        runner_id=runner_id,
        run_id=run_id,
        defaults={
            "session_id": session_id,
            "requested_at": now,
            "delivered_at": None,
            "keeps_process": keeps_process,
        },
    )


@dataclass(frozen=True, slots=True)
class RunEventNames:
    """The names of a run's start and end in its session's events."""

    start: str
    stop: str


SESSION_WORDS = RunEventNames("session_start", "session_stop")
RUN_WORDS = RunEventNames("run_start", "run_completed")


def event_names_for_runner_version(run: Run) -> RunEventNames:
    """Return the words that the run's runner, and the clients of its version, know."""
    runner = Runner.objects.filter(pk=run.runner_id).first()
    return RUN_WORDS if runner is not None and runner.executor_lifecycle is not None else SESSION_WORDS


def has_session_event_since(session_id: str, event_types: tuple[str, ...], *, since: datetime) -> bool:
    """Return whether the session received such an event at `since` or later (receipt is kept in ms)."""
    since = since.replace(microsecond=since.microsecond // 1000 * 1000)
    return Event.objects.filter(
        session_id=session_id, event_type__in=event_types, context__received_at__gte=since
    ).exists()


def add_run_event(run: Run, event_type: str, now: datetime, **fields: Any) -> None:
    """Add an event to the run's session that its executor did not send."""
    event = Event.objects.create(
        session_id=run.session_id,
        event_type=event_type,
        timestamp=instants.format_canonical_instant(now),
        **fields,
    )
    EventContext.objects.create(
        event=event,
        session_id=run.session_id,
        instant_us=instants.instant_to_microseconds(now),
        received_at=now,
        run_id=run.run_id,
        source="coordinator",
    )
