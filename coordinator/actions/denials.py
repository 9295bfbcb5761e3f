"""Calls that were not simply allowed, in the audit log: the first of a kind at once, the rest as a count, so that a
loop cannot fill it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from coordinator.actions import audit
from coordinator.identity.actors import Actor
from coordinator.lib import instants
from coordinator.policy.access import Verdict

EVENT = "ACCESS_DENIED"
EVENT_ASKED = "ACCESS_ASKED"


@dataclass(frozen=True, slots=True)
class Denial:
    """A call that was denied or is left to a person, who asked for it, and how often since `since`."""

    agent_id: str
    server_id: str
    tool_name: str
    verdict: Verdict
    by: Actor
    count: int = 1
    since: datetime | None = None


def record(denials: Sequence[Denial], *, others: int = 0, now: datetime) -> None:
    """Write one audit row for each denial; `others` counts those that were too many to name."""
    with transaction.atomic():
        for denial in denials:
            _record_one(denial, now)
        if others:
            audit.record(
                EVENT,
                actor=Actor("system", "access"),
                target=None,
                permission="deny",
                result="denied",
                reason="More calls were denied or left to a person than are listed one by one.",
                metadata={"count": others},
                now=now,
            )


def _record_one(denial: Denial, now: datetime) -> None:
    metadata: dict[str, object] = {
        "source": denial.verdict.source,
        "grant_id": denial.verdict.grant.id if denial.verdict.grant else None,
        "count": denial.count,
    }
    if denial.since is not None:
        metadata["since"] = instants.canonical(denial.since)
    asks = denial.verdict.asks
    audit.record(
        EVENT_ASKED if asks else EVENT,
        actor=denial.by,
        target=f"{denial.agent_id} {denial.server_id} {denial.tool_name}",
        permission=denial.verdict.decision,
        result="asked" if asks else "denied",
        reason=denial.verdict.reason,
        metadata=metadata,
        now=now,
    )
