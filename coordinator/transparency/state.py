"""How far the log is sealed, and what prevents it: for the pages, the doctor and /metrics."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from coordinator.engine.distinct import indexed_values
from coordinator.models import AuditCheckpoint, AuditDelivery, AuditLeaf, AuditLog
from coordinator.transparency import places, tree
from coordinator.transparency.proofs import witnesses_of

LATE = timedelta(minutes=5)  # the job runs every minute


@dataclass(frozen=True, slots=True)
class State:
    """`size` counts entries, `sealed` those that the newest checkpoint covers; `late`: sealing has stopped."""

    size: int
    newest: AuditCheckpoint | None
    late: bool

    @property
    def sealed(self) -> int:
        return self.newest.tree_size if self.newest else 0

    @property
    def waiting(self) -> int:
        return max(self.size - self.sealed, 0)

    @property
    def missing(self) -> int:
        """How many entries the checkpoint covers that the log no longer has."""
        return max(self.sealed - self.size, 0)

    @property
    def witnesses(self) -> list[str]:
        return witnesses_of(self.newest) if self.newest else []


def now_at(now: datetime) -> State:
    """Return the log's state."""
    newest, size = tree.newest_checkpoint(), tree.size()
    behind = size != (newest.tree_size if newest else 0)
    return State(size, newest, behind and _stands_still(newest, now))


def _stands_still(newest: AuditCheckpoint | None, now: datetime) -> bool:
    """Say whether the oldest entry that waits has waited for too long; by the rows' own times."""
    after = newest.tree_size if newest else 0
    oldest = AuditLeaf.objects.filter(leaf_index__gte=after).order_by("leaf_index").first()
    if oldest is None:
        return True  # fewer entries than the checkpoint covers
    written = AuditLog.objects.filter(pk=oldest.audit_id).values_list("timestamp", flat=True).first()
    return isinstance(written, datetime) and written < now - LATE


@dataclass(frozen=True, slots=True)
class Delivery:
    """A configured place, and what is known of the deliveries to it (None: nothing was sent yet)."""

    place: str
    known: AuditDelivery | None

    @property
    def fails(self) -> bool:
        return self.known is not None and self.known.error is not None


def deliveries() -> list[Delivery]:
    """Return every place of the setting. Raises ValueError where the setting cannot be read."""
    known = {row.place: row for row in AuditDelivery.objects.all()}
    return [Delivery(one.name, known.get(one.name)) for one in places.configured()]


def event_types() -> list[str]:
    """Return the kinds of events that the audit log has entries of, in order."""
    return indexed_values("audit_logs", "event_type")
