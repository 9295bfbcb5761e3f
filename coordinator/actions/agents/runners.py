"""Registration, polling, liveness and removal of runners.

A runner is alive while it makes requests: registration, a heartbeat, a poll or a report. One whose poll broke off
counts as gone until its next request, so that a crashed runner may register again at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction

from coordinator.actions import runs
from coordinator.actions.audit import audit
from coordinator.actions.driving.commands import claim_due_session_commands
from coordinator.actions.driving.offers import save_runner_offers
from coordinator.actions.driving.session_runners import assign_session_and_build_state
from coordinator.errors import Conflict, Forbidden, NotFound, Unauthorized
from coordinator.identity.actors import Actor
from coordinator.identity.keys import LOCAL_PROGRAM, KeyIdentity
from coordinator.identity.scopes import WRITE_ALL
from coordinator.lib.identifiers import derive_runner_id
from coordinator.models import DrivenCommand, LivingExecutor, Run, Runner, Session, StopCommand
from coordinator.runs.liveness import is_runner_alive
from coordinator.sessions.wire import polled_run_as_json

# A sign of life is written at most this often: a burst of polls stays a burst of reads.
HEARTBEAT_WRITE_INTERVAL = timedelta(seconds=1)
# A stop command that was sent to the runner and is still open is sent again after this time.
STOP_AGAIN_AFTER = timedelta(seconds=15)


@dataclass(frozen=True, slots=True)
class RunnerRegistration:
    """What a runner reports about itself. `extra` holds further fields of newer runners, such as procedural agents."""

    hostname: str
    project_dir: str
    executor_profile: str
    executor: dict[str, Any] | None = None
    tags: list[str] = field(default_factory=list)
    require_matching_tags: bool = False
    extra: dict[str, Any] = field(default_factory=dict)
    offers: dict[str, Any] | None = None  # of one that drives agents (runs.offers)

    @property
    def executor_command(self) -> str | None:
        value = (self.executor or {}).get("command")
        return value if isinstance(value, str) else None

    def resolve_runner_id(self, now: datetime) -> str:
        """Return the id derived from host, directory and profile, and also from a non-default command.

        Two runners that differ only in their command are two.
        """
        identity = (self.hostname, self.project_dir, self.executor_profile)
        own, first = derive_runner_id(*identity, self.executor_command), derive_runner_id(*identity)
        if Runner.objects.filter(pk=own).exists():
            return own
        known_runner = Runner.objects.filter(pk=first).first()
        if (
            known_runner is None
            or None in (known_runner.executor_command, self.executor_command)
            or known_runner.executor_command == self.executor_command
        ):
            return first
        return own if is_runner_alive(known_runner, now) else first


def register_runner_and_recover_runs(
    registration: RunnerRegistration, now: datetime, *, key: KeyIdentity | None = None
) -> Runner:
    """Register a runner, or register it again after it was gone; the runs of its earlier process are recovered.

    From then on only `key` may poll and report for it (`require_runner_and_record_contact`).
    Raises Conflict while a runner of the same identity is alive.
    """
    runner_id = registration.resolve_runner_id(now)
    known_runner = Runner.objects.filter(pk=runner_id).first()
    if known_runner is not None and is_runner_alive(known_runner, now):
        raise build_duplicate_runner_error(known_runner)
    if known_runner is not None:
        runs.recover_runner_runs(known_runner.runner_id, "Runner restarted during execution", now)
    with transaction.atomic():
        known_runner = Runner.objects.select_for_update().filter(pk=runner_id).first()
        if known_runner is not None and is_runner_alive(known_runner, now):
            raise build_duplicate_runner_error(known_runner)
        runner = save_runner_row(runner_id, registration, known_runner, now, registering_api_key_name(key))
        save_runner_offers(runner, registration.offers)
        return runner


def save_runner_row(
    runner_id: str,
    registration: RunnerRegistration,
    existing_runner: Runner | None,
    now: datetime,
    registered_by: str | None,
) -> Runner:
    values = {
        "hostname": registration.hostname,
        "project_dir": registration.project_dir,
        "executor_profile": registration.executor_profile,
        "executor": registration.executor,
        "tags": registration.tags,
        "require_matching_tags": registration.require_matching_tags,
        "extra": registration.extra,
        "registered_by": registered_by,
        "registered_at": now,
        "last_heartbeat": now,
        "gone_at": None,
        "deregistered_at": None,
    }
    if existing_runner is not None:
        Runner.objects.filter(pk=existing_runner.pk).update(**values)
        return Runner.objects.get(pk=existing_runner.pk)
    try:
        with transaction.atomic():
            return Runner.objects.create(runner_id=runner_id, **values)
    except IntegrityError:  # the same runner, started twice, in the same instant
        raise build_duplicate_runner_error(Runner.objects.get(pk=runner_id)) from None


def build_duplicate_runner_error(runner: Runner) -> Conflict:
    identity = f"({runner.hostname}, {runner.project_dir}, {runner.executor_profile})"
    return Conflict(
        {
            "error": "duplicate_runner",
            "message": f"Runner with identity {identity} is already registered and online as {runner.runner_id}",
            "runner_id": runner.runner_id,
            "hostname": runner.hostname,
            "project_dir": runner.project_dir,
            "executor_profile": runner.executor_profile,
        }
    )


def require_runner_and_record_contact(
    runner_id: str, now: datetime, *, key: KeyIdentity | None = None
) -> Runner:
    """Record a contact of the runner and return it.

    Raises Unauthorized for one that is not registered, Forbidden where it registered with another key than `key`.
    """
    return verify_and_record_runner_contact(Runner.objects.filter(pk=runner_id).first(), now, key)


def verify_and_record_runner_contact(runner: Runner | None, now: datetime, key: KeyIdentity | None) -> Runner:
    if runner is None:
        raise Unauthorized("Runner not registered")
    name = registering_api_key_name(key)
    require_registering_api_key(runner, key)
    adopted = name is not None and runner.registered_by is None
    if (
        adopted
        or runner.gone_at is not None
        or abs(runner.heartbeat_age_or_max(now)) >= HEARTBEAT_WRITE_INTERVAL
    ):
        runner.registered_by = runner.registered_by or name
        runner.last_heartbeat, runner.gone_at = now, None
        Runner.objects.filter(pk=runner.pk).update(
            last_heartbeat=now, gone_at=None, registered_by=runner.registered_by
        )
    return runner


def registering_api_key_name(key: KeyIdentity | None) -> str | None:
    """Return under which key a runner is known; none where keys are switched off, so that they can be turned on."""
    return None if key is None or key == LOCAL_PROGRAM else key.name


def require_registering_api_key(runner: Runner, key: KeyIdentity | None) -> None:
    if key is None or key.scopes & WRITE_ALL or runner.registered_by in {None, key.name}:
        return
    raise Forbidden("This runner was registered with another key. Use that key.")


def record_runner_heartbeat(runner_id: str, now: datetime, *, key: KeyIdentity | None = None) -> None:
    """Record the runner's heartbeat. Raises as `require_runner_and_record_contact` does."""
    require_runner_and_record_contact(runner_id, now, key=key)


def claim_next_runner_work(
    runner_id: str, now: datetime, *, key: KeyIdentity | None = None, takes_runs: bool = True
) -> dict[str, Any] | None:
    """Return the next order for the runner; None where there is none.

    Raises as `require_runner_and_record_contact` does.

    The answer is one of `{"stop_runs": […], "stop_sessions": […]}`, `{"deregistered": True}` and `{"run": {…}}`, which
    is claimed then. A runner that drives agents may also get `{"cancel_runs": […]}` and `{"commands": […]}`. The
    endpoint that holds a poll calls this again when the feed reports one of `poll_topics(runner_id)`. It passes an
    answer that could not be sent to `requeue_undelivered_poll_answer`. A run that was sent but is never reported as
    started falls back to pending by itself (actions.upkeep.housekeeping).
    """
    runner = verify_and_record_runner_contact(Runner.load_runner_with_work_flags(runner_id), now, key)
    if runner.deregistered_at is not None:
        delete_runner_and_recover_runs(runner_id, "Runner was deregistered", now)
        return {"deregistered": True}
    if runner.has_stops and (stops := claim_due_stop_commands(runner_id, now)):
        return build_runner_stop_message(stops)
    if runner.has_commands and (commands := claim_due_session_commands(runner_id, now)):
        return {"commands": commands}
    run = runs.claim_next_run(runner, now) if takes_runs and runner.has_work else None
    if run is None:
        return None
    driven = assign_session_and_build_state(run)
    return {"run": polled_run_as_json(run) | ({} if driven is None else {"driven": driven})}


def build_runner_stop_message(stops: list[StopCommand]) -> dict[str, Any]:
    """Return the message that lists the processes and the single turns that the runner must end."""
    ends = [stop for stop in stops if not stop.keeps_process]
    stopped_turns = [stop.run_id for stop in stops if stop.keeps_process]
    message: dict[str, Any] = {"cancel_runs": stopped_turns} if stopped_turns else {}
    if ends:
        message["stop_runs"] = [stop.run_id for stop in ends]
        message["stop_sessions"] = [stop.session_id for stop in ends]
    return message


def list_runner_poll_topics(runner_id: str) -> list[str]:
    """Return the feed topics after which a poll may have an answer."""
    return ["runs", "brakes", "budgets", f"runners:{runner_id}"]


def claim_due_stop_commands(runner_id: str, now: datetime) -> list[StopCommand]:
    """Mark the runner's due stop commands as sent and return them; those of ended runs are sent once."""
    if not [
        stop for stop in StopCommand.objects.filter(runner_id=runner_id) if is_stop_command_due(stop, now)
    ]:
        return []
    with transaction.atomic():
        pending_commands = StopCommand.objects.select_for_update().filter(runner_id=runner_id).order_by("id")
        stops = [stop for stop in pending_commands if is_stop_command_due(stop, now)]
        delivered = StopCommand.objects.filter(pk__in=[stop.pk for stop in stops])
        delivered.update(delivered_at=now)
        stopping = Run.objects.filter(status=Run.Status.STOPPING).values("run_id")
        waiting = LivingExecutor.objects.filter(session__status=Session.Status.STOPPING).values("session_id")
        delivered.exclude(run_id__in=stopping).exclude(session_id__in=waiting).delete()
    return stops


def is_stop_command_due(stop: StopCommand, now: datetime) -> bool:
    """Return whether the command was not sent yet, or was sent long ago without an answer."""
    delivered_at = stop.delivered_at
    return not isinstance(delivered_at, datetime) or now - delivered_at >= STOP_AGAIN_AFTER


def requeue_undelivered_poll_answer(runner_id: str, answer: dict[str, Any] | None, now: datetime) -> None:
    """Mark the runner as gone after its poll's client disconnected, and requeue what the answer held."""
    Runner.objects.filter(pk=runner_id).update(gone_at=now)
    answer = answer or {}
    if "run" in answer:
        runs.unclaim_run(answer["run"]["run_id"], runner_id, now)
    if stopped := [*answer.get("stop_runs", ()), *answer.get("cancel_runs", ())]:
        untold = StopCommand.objects.filter(runner_id=runner_id, run_id__in=stopped)
        untold.update(delivered_at=None)
    if commands := answer.get("commands"):
        undone_commands = DrivenCommand.objects.filter(
            pk__in=[command["id"] for command in commands], done_at__isnull=True
        )
        undone_commands.update(delivered_at=None)


def remove_own_runner_or_deregister(
    runner_id: str, *, actor: Actor, itself: bool, now: datetime, key: KeyIdentity | None = None
) -> None:
    """Remove a runner that leaves by itself; mark any other, whose next poll answers that it is deregistered.

    Raises NotFound, and Forbidden where it registered with another key than `key`.
    """
    with transaction.atomic():
        runner = Runner.objects.select_for_update().filter(pk=runner_id).first()
        if runner is None:
            raise NotFound("Runner not found")
        require_registering_api_key(runner, key)
        if not itself:
            Runner.objects.filter(pk=runner_id).update(deregistered_at=now)
        audit.record_audit_entry(
            "RUNNER_DEREGISTERED",
            actor=actor,
            target=runner_id,
            result="success",
            reason="by itself" if itself else "by others",
            now=now,
        )
    if itself:
        delete_runner_and_recover_runs(runner_id, "Runner deregistered during execution", now)


def delete_runner_and_recover_runs(runner_id: str, reason: str, now: datetime) -> None:
    """Remove a runner and recover the runs that it held, which fail with `reason` if they were running."""
    Runner.objects.filter(pk=runner_id).delete()
    runs.recover_runner_runs(runner_id, reason, now)
