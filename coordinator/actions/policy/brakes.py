"""Setting and release of brakes. Only people do either; running work is stopped where it can be."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import DatabaseError, IntegrityError, transaction

from coordinator.actions.audit import audit
from coordinator.actions.runs import stopping
from coordinator.errors import BadRequest, Conflict, NotFound, SignalboxError, UnprocessableRequest
from coordinator.identity.actors import Actor, system_actor
from coordinator.models import Brake, Run, Runner
from coordinator.models.brakes import BrakeReach
from coordinator.policy.limits import brakes
from coordinator.policy.limits.brakes import ActiveBrake
from coordinator.policy.requests.approvals import canonical_instant_or_text
from coordinator.runs import offers

log = logging.getLogger(__name__)

LONGEST_NAME = 255
LONGEST_REASON = 500
MOST_STOPPED = 1_000  # runs in one go
BY = system_actor("brake")


@dataclass(frozen=True, slots=True)
class BrakeResult:
    """A brake that was put on: its id, and how many running turns were stopped."""

    id: int
    stopped: int


def apply_brake_and_stop_runs(
    reach: str, name: str, reason: str, *, actor: Actor, now: datetime
) -> BrakeResult:
    """Hold everything, an agent or a host from this commit on, then stop the runs at work there.

    Raises UnprocessableRequest for what names nothing, Conflict where it is held already.
    """
    if actor.kind != "user":
        raise BadRequest("Only a signed-in person can put a brake on.")
    name, reason = name.strip(), reason.strip()
    validate_brake(reach, name, reason)
    try:
        with transaction.atomic():
            brake = Brake.objects.create(reach=reach, name=name, reason=reason, set_at=now, set_by=str(actor))
            audit_brake_event("BRAKE_PUT_ON", brake, actor, now)
    except IntegrityError:
        raise Conflict(f"The brake for {name or 'everything'} is already on. Nothing was changed.") from None
    active_brake = ActiveBrake(brake.pk, brake.reach, brake.name, brake.reason, brake.set_by)
    try:
        stopped = sum(
            stop_braked_run(run_id, actor, now)
            for run_id in find_braked_run_ids([active_brake])[:MOST_STOPPED]
        )
    except DatabaseError as problem:  # it is on all the same; stop_held goes on
        log.warning("Not all that the brake holds is stopped yet: %s", str(problem).strip())
        stopped = 0
    return BrakeResult(brake.pk, stopped)


def validate_brake(reach: str, name: str, reason: str) -> None:
    if reach not in BrakeReach.values:
        raise UnprocessableRequest("Choose what to hold: everything, an agent or a host.")
    if (reach == BrakeReach.EVERYTHING) is bool(name):
        hint = "" if name else f" Enter the {reach} to hold."
        raise UnprocessableRequest(
            hint.strip()
            or "To hold everything, leave the name empty. To hold one agent or host, choose which of the "
            "two it is."
        )
    if len(name) > LONGEST_NAME or len(reason) > LONGEST_REASON or "\x00" in name + reason:
        raise UnprocessableRequest(
            f"A name may have at most {LONGEST_NAME} characters and a reason {LONGEST_REASON}, without NUL."
        )


def lift_brake(brake_id: int, *, actor: Actor, now: datetime) -> None:
    """Release a brake. Raises NotFound, and Conflict where somebody has released it already."""
    if actor.kind != "user":
        raise BadRequest("Only a signed-in person can release a brake.")
    with transaction.atomic():
        brake = Brake.objects.filter(pk=brake_id).first()
        if brake is None:
            raise NotFound("No such brake.")
        released = Brake.objects.filter(pk=brake_id, released_at__isnull=True)
        if not released.update(released_at=now, released_by=str(actor)):
            brake.refresh_from_db()  # another process may have released it since it was read
            raise Conflict(f"{brake.released_by} has already released it.")
        audit_brake_event("BRAKE_RELEASED", brake, actor, now)


def audit_brake_event(event_type: str, brake: Brake, actor: Actor, now: datetime) -> None:
    audit.record_audit_entry(
        event_type,
        actor=actor,
        target=f"brake:{brake.pk}",
        result="success",
        reason=brake.reason or None,
        metadata={
            "reach": brake.reach,
            "name": brake.name,
            "set_at": canonical_instant_or_text(brake.set_at),
            "set_by": brake.set_by,
        },
        now=now,
    )


def stop_runs_under_active_brakes(now: datetime) -> None:
    """Stop what is at work though a brake holds it: what was claimed while it was put on, or was not reached then."""
    for run_id in find_braked_run_ids(brakes.load_active_brakes())[:MOST_STOPPED]:
        try:
            stop_braked_run(run_id, BY, now)
        except Exception:
            log.exception("Run %s, which a brake holds, was not stopped", run_id)


def stop_braked_run(run_id: str, actor: Actor, now: datetime) -> bool:
    """Stop a run; say whether it was still at work. One that ends by itself meanwhile is stopped enough."""
    try:
        stopping.request_run_stop(run_id, actor=actor, now=now)
    except SignalboxError as problem:
        log.info("Run %s was not stopped by the brake: %s", run_id, problem.detail)
        return False
    return True


def find_braked_run_ids(on: Sequence[ActiveBrake]) -> list[str]:
    """Return the runs at work that one of these brakes holds, oldest first: three queries."""
    if not on:
        return []
    rows = Run.objects.filter(status__in=(Run.Status.CLAIMED, Run.Status.RUNNING))
    runs = list(rows.select_related("session__driven", "ordered_with").order_by("created_at", "run_id"))
    runners = Runner.objects.in_bulk({run.runner_id for run in runs if run.runner_id})
    offered = offers.load_offers_by_runner_id(runners)
    return [
        run.run_id
        for run in runs
        if is_run_braked(run, runners.get(run.runner_id or ""), offered.get(run.runner_id or ""), on)
    ]


def is_run_braked(run: Run, runner: Runner | None, offered: Any, on: Sequence[ActiveBrake]) -> bool:
    driven = getattr(run.session, "driven", None)
    chosen = (offers.ordered_agent_name(run), driven.agent if driven is not None else None)
    names = offers.agent_names_for_run(
        run, {active_brake for active_brake in chosen if active_brake is not None}, runner, offered
    )
    hosts_of_run = {run.session.hostname, runner.hostname if runner is not None else None}
    hosts: list[str | None] = [host for host in hosts_of_run if host] or [None]
    return any(one.applies_to(names, host) for one in on for host in hosts)
