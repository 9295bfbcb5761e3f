"""The audit log's one pen: every action writes its row here, inside its own transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.utils import timezone

from coordinator import trace
from coordinator.actors import Actor
from coordinator.models import AuditLog


def record(
    event_type: str,
    *,
    actor: Actor,
    target: str | None,
    result: str,
    permission: str | None = None,
    reason: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> AuditLog:
    """Write one audit row and return it. Call it in the transaction of what it tells of.

    `event_type` is upper snake case (`PERMISSION_REQUEST_APPROVED`); `result` is `allowed`, `denied`,
    `success`, `failure` or `expired`; `metadata` holds `before` and `after` where something changed, never
    a secret. The trace id is the request's (coordinator.trace).
    """
    return AuditLog.objects.create(
        timestamp=now or timezone.now(),
        event_type=event_type,
        actor_id=str(actor),
        target_id=target,
        permission=permission,
        result=result,
        reason=reason,
        metadata=dict(metadata) if metadata else None,
        trace_id=trace.current(),
    )
