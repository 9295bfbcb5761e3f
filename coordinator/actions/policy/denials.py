"""Audit entries of calls that were not simply allowed: the first of a kind at once, the rest as a count.

So a loop cannot fill the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.people import key_quotas
from coordinator.identity.actors import Actor
from coordinator.lib import instants
from coordinator.models import ApiKey, AuditLog
from coordinator.policy.grants.access import Verdict

EVENT = "ACCESS_DENIED"
APPROVAL_NEEDED_EVENT = "ACCESS_ASKED"
OVER_QUOTA_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class AccessDenial:
    """A call that was denied or is left to a person, who asked for it, and how often since `since`."""

    agent_id: str
    server_id: str
    tool_name: str
    verdict: Verdict
    by: Actor
    count: int = 1
    since: datetime | None = None


def record_access_denials(denials: Sequence[AccessDenial], *, omitted_count: int = 0, now: datetime) -> None:
    """Write one audit row for each denial; `omitted_count` counts those that were too many to name."""
    with transaction.atomic():
        for denial in denials:
            write_denial_audit_entry(denial, now)
        if omitted_count:
            audit.record_audit_entry(
                EVENT,
                actor=Actor("system", "access"),
                target=None,
                permission="deny",
                result="denied",
                reason="More calls were denied or left to a person than are listed one by one.",
                metadata={"count": omitted_count},
                now=now,
            )


def should_skip_denial_of_key_over_quota(event: str, actor: Actor, now: datetime) -> bool:
    """Return whether a denial need not be written: of a key that has reached its quota, one a minute is.

    Nothing has run. What was allowed is always written: then it is all that is left of it.
    """
    if actor.kind != "key" or not settings.KEY_BYTES_PER_DAY:
        return False
    numbers = ApiKey.objects.filter(name=actor.name).values_list("pk", flat=True)
    if not any(key_quotas.is_quota_reached(f"key:{number}", now) for number in numbers):
        return False
    lately = AuditLog.objects.filter(timestamp__gt=now - OVER_QUOTA_EVERY, event_type=event)
    return lately.filter(actor_id=str(actor)).exists()


def write_denial_audit_entry(denial: AccessDenial, now: datetime) -> None:
    metadata: dict[str, object] = {
        "source": denial.verdict.source,
        "grant_id": denial.verdict.grant.id if denial.verdict.grant else None,
        "count": denial.count,
    }
    if denial.since is not None:
        metadata["since"] = instants.format_canonical_instant(denial.since)
    requires_approval = denial.verdict.requires_approval
    audit.record_audit_entry(
        APPROVAL_NEEDED_EVENT if requires_approval else EVENT,
        actor=denial.by,
        target=f"{denial.agent_id} {denial.server_id} {denial.tool_name}",
        permission=denial.verdict.decision,
        result="asked" if requires_approval else "denied",
        reason=denial.verdict.reason,
        metadata=metadata,
        now=now,
    )
