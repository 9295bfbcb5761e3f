"""How far the log is sealed, and what prevents it: for the pages, the doctor and /metrics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from coordinator.engine.distinct import list_distinct_values
from coordinator.models import AuditCheckpoint, AuditDelivery, AuditLeaf, AuditLog, Job
from coordinator.transparency import destinations as places
from coordinator.transparency import tree
from coordinator.transparency.proofs import list_witness_names

# The name of the jobs that send the newest checkpoint to a place; their subject is the place's name.
SEND_CHECKPOINT = "checkpoints:send"
LATE = timedelta(minutes=5)  # the job runs every minute


@dataclass(frozen=True, slots=True)
class LogState:
    """`size` counts entries, `sealed` those that the newest checkpoint covers; `late`: sealing has stopped."""

    size: int
    newest: AuditCheckpoint | None
    late: bool

    @property
    def sealed_count(self) -> int:
        return self.newest.tree_size if self.newest else 0

    @property
    def unsealed_count(self) -> int:
        return max(self.size - self.sealed_count, 0)

    @property
    def missing_count(self) -> int:
        """How many entries the checkpoint covers that the log no longer has."""
        return max(self.sealed_count - self.size, 0)

    @property
    def witness_names(self) -> list[str]:
        return list_witness_names(self.newest) if self.newest else []


def load_log_state(now: datetime) -> LogState:
    """Return the log's state."""
    newest, size = tree.find_newest_checkpoint(), tree.count_log_entries()
    behind = size != (newest.tree_size if newest else 0)
    return LogState(size, newest, behind and has_sealing_stopped(newest, now))


def has_sealing_stopped(newest: AuditCheckpoint | None, now: datetime) -> bool:
    """Say whether the oldest entry that waits has waited for too long; by the rows' own times."""
    after = newest.tree_size if newest else 0
    oldest = AuditLeaf.objects.filter(leaf_index__gte=after).order_by("leaf_index").first()
    if oldest is None:
        return True  # fewer entries than the checkpoint covers
    written = AuditLog.objects.filter(pk=oldest.audit_id).values_list("timestamp", flat=True).first()
    return isinstance(written, datetime) and written < now - LATE


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """A configured place, what was delivered to it (None: nothing yet), and why the last attempt failed."""

    place: str
    known: AuditDelivery | None
    error: str | None


def list_checkpoint_deliveries() -> list[DeliveryState]:
    """Return every place of the setting. Raises ValueError where the setting cannot be read."""
    rows_by_place = {row.place: row for row in AuditDelivery.objects.all()}
    errors = dict(Job.objects.filter(name=SEND_CHECKPOINT).values_list("subject", "error"))
    return [
        DeliveryState(place.name, rows_by_place.get(place.name), errors.get(place.name))
        for place in places.load_checkpoint_destinations()
    ]


def list_audit_event_types() -> list[str]:
    """Return the kinds of events that the audit log has entries of, in order."""
    return list_distinct_values("audit_logs", "event_type")
