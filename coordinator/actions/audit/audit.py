"""The audit log's only writer: every action writes its row here, inside its own transaction."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import connection
from django.utils import timezone

from coordinator.identity.actors import Actor
from coordinator.lib import trace
from coordinator.models import AuditLog
from coordinator.secrets.masking import mask_secrets_in_value
from coordinator.transparency import entries

SET_HASH = "UPDATE audit_leaves SET leaf_hash = %s, by_signalbox = %s WHERE audit_id = %s"


def record_audit_entry(
    event_type: str,
    *,
    actor: Actor,
    target: str | None,
    result: str,
    permission: str | None = None,
    reason: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    now: datetime | None = None,
    with_leaf: bool = True,
) -> AuditLog:
    """Write one audit row and return it. Call it in the transaction of the change that it records.

    `event_type` is upper snake case (`PERMISSION_REQUEST_APPROVED`); `result` is `allowed`, `denied`, `success`,
    `failure` or `expired`; `metadata` holds `before` and `after` where something changed. Secrets in `reason` and
    `metadata` are masked. The trace id is the request's (coordinator.lib.trace). A trigger makes the row's leaf in the
    transparency log; its hash is written here, in the same transaction. Without `with_leaf` it is not: a database that
    an older version left has no leaves.
    """
    row = AuditLog.objects.create(
        timestamp=now or timezone.now(),
        event_type=event_type,
        actor_id=str(actor),
        target_id=target,
        permission=permission,
        result=result,
        reason=mask_secrets_in_value(reason),
        metadata=mask_secrets_in_value(dict(metadata)) if metadata else None,
        trace_id=trace.current_trace_id(),
    )
    if not with_leaf:
        return row
    entry_hash = entries.compute_audit_leaf_hash_bytes(
        entries.columns_of_written_audit_row(row), by_signalbox=True
    )
    with connection.cursor() as cursor:
        cursor.execute(SET_HASH, [entry_hash, True, row.pk])
    return row
