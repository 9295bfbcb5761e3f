"""Putting a brake on and releasing it. Only people do; what runs already is stopped where it can be."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction

from coordinator.actions import audit
from coordinator.actions.runs import stopping
from coordinator.errors import BadRequest, Conflict, Invalid, NotFound, SignalboxError
from coordinator.identity.actors import Actor
from coordinator.models import Brake, Run, Runner
from coordinator.models.brakes import BrakeReach
from coordinator.policy.approvals import moment
from coordinator.policy.brakes import Braked
from coordinator.runs import offers
from coordinator.runs.statuses import ACTIVE

log = logging.getLogger(__name__)

LONGEST_NAME = 255
LONGEST_REASON = 500
MOST_STOPPED = 1_000  # runs


@dataclass(frozen=True, slots=True)
class PutOn:
    """A brake that was put on: its id, and how many running turns were stopped."""

    id: int
    stopped: int


def put_on(reach: str, name: str, reason: str, *, by: Actor, now: datetime) -> PutOn:
    """Hold everything, an agent or a host from this commit on, then stop the runs at work there.

    Raises Invalid for what names nothing, Conflict where it is held already.
    """
    if by.kind != "user":
        raise BadRequest("Only a signed-in person puts a brake on.")
    name, reason = name.strip(), reason.strip()
    _check(reach, name, reason)
    try:
        with transaction.atomic():
            brake = Brake.objects.create(reach=reach, name=name, reason=reason, set_at=now, set_by=str(by))
            _record("BRAKE_PUT_ON", brake, by, now)
    except IntegrityError:
        raise Conflict(f"The brake on {name or 'everything'} is on already. Nothing was changed.") from None
    return PutOn(brake.pk, _stop_runs(brake, by, now))


def _check(reach: str, name: str, reason: str) -> None:
    if reach not in BrakeReach.values:
        raise Invalid("Say what to hold: everything, an agent or a host.")
    if (reach == BrakeReach.EVERYTHING) is bool(name):
        wanted = "" if name else f" Name the {reach} to hold."
        raise Invalid(
            wanted.strip() or "Everything has no name. Choose an agent or a host to hold that alone."
        )
    if len(name) > LONGEST_NAME or len(reason) > LONGEST_REASON or "\x00" in name + reason:
        raise Invalid(
            f"A name has at most {LONGEST_NAME} characters and a reason {LONGEST_REASON}, without NUL."
        )


def release(brake_id: int, *, by: Actor, now: datetime) -> None:
    """Release a brake. Raises NotFound, and Conflict where somebody has released it already."""
    if by.kind != "user":
        raise BadRequest("Only a signed-in person releases a brake.")
    with transaction.atomic():
        brake = Brake.objects.filter(pk=brake_id).first()
        if brake is None:
            raise NotFound("No such brake.")
        released = Brake.objects.filter(pk=brake_id, released_at__isnull=True)
        if not released.update(released_at=now, released_by=str(by)):
            raise Conflict(f"{brake.released_by} has released it already.")
        _record("BRAKE_RELEASED", brake, by, now)


def _record(event_type: str, brake: Brake, by: Actor, now: datetime) -> None:
    audit.record(
        event_type,
        actor=by,
        target=f"brake:{brake.pk}",
        result="success",
        reason=brake.reason or None,
        metadata={
            "reach": brake.reach,
            "name": brake.name,
            "set_at": moment(brake.set_at),
            "set_by": brake.set_by,
        },
        now=now,
    )


def _stop_runs(brake: Brake, by: Actor, now: datetime) -> int:
    """Stop what is at work; a run that ends by itself meanwhile is stopped enough."""
    held = Braked(brake.pk, brake.reach, brake.name, brake.reason, brake.set_by)
    rows = Run.objects.filter(status__in=ACTIVE).exclude(status=Run.Status.STOPPING)
    at_work = list(rows.select_related("session", "ordered_with")[:MOST_STOPPED])
    runners = Runner.objects.in_bulk({run.runner_id for run in at_work if run.runner_id})
    stopped = 0
    for run in at_work:
        runner = runners.get(run.runner_id or "")
        hosts = {run.session.hostname, runner.hostname if runner else None}
        if not any(held.holds(offers.agents_meant(run, runner), host) for host in hosts):
            continue
        try:
            stopping.stop(run.run_id, by=by, now=now)
            stopped += 1
        except SignalboxError as problem:
            log.info("Run %s was not stopped by the brake: %s", run.run_id, problem.detail)
    return stopped
