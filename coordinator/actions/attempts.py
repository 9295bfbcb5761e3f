"""Refused attempts: audited, and limited by where they come from.

Counted in the audit log itself: the count then holds for all workers and through a restart, and there is
nothing to keep beside. Only what was refused is counted, so that one program's wrong key never stands in the
way of its neighbours' right ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from coordinator.actions import audit
from coordinator.actors import Actor
from coordinator.errors import TooMany
from coordinator.models import AuditLog


@dataclass(frozen=True, slots=True)
class Limit:
    """How many refusals one source may collect within a window; `says` is what the next one is told."""

    event_type: str
    reason: str  # with {source}
    tries: int
    window: timedelta
    says: str

    def seconds_left(self, source: str, now: datetime) -> int:
        """Return in how many seconds `source` may try again; 0 while it is within the limit."""
        lately = AuditLog.objects.filter(
            event_type=self.event_type,
            reason=self.reason.format(source=source),
            timestamp__gt=now - self.window,
        )
        oldest = lately.order_by("-timestamp").values_list("timestamp", flat=True)[
            self.tries - 1 : self.tries
        ]
        for at in oldest:
            until = at + self.window if isinstance(at, datetime) else now + self.window
            return max(1, math.ceil((until - now).total_seconds()))
        return 0

    def check(self, source: str, now: datetime) -> None:
        """Raise TooMany where `source` has collected too many refusals lately."""
        if seconds := self.seconds_left(source, now):
            raise TooMany(self.says, retry_after=seconds)

    def note(
        self,
        source: str,
        *,
        actor: Actor,
        target: str | None,
        now: datetime,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Write a refusal down."""
        audit.record(
            self.event_type,
            actor=actor,
            target=target,
            result="denied",
            reason=self.reason.format(source=source),
            metadata=metadata,
            now=now,
        )
