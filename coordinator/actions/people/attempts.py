"""Refused attempts: audited, and limited by their source.

They are counted in the audit log itself: the count holds for all workers and through a restart, and needs no other
storage. Only refusals are counted, so that one program's wrong key never blocks its neighbours' right ones.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from coordinator.actions.audit import audit
from coordinator.errors import TooManyRequests
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog

THIS_MACHINE = "127.0.0.1"


def normalize_caller_network(address: str) -> str:
    """Return the network that identifies a caller: the address, of IPv6 its /64, one for this machine's own."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if ip.is_loopback:  # a program may call from any of 127.0.0.0/8
        return THIS_MACHINE
    if isinstance(ip, ipaddress.IPv4Address):
        return str(ip)
    mapped = ip.ipv4_mapped
    return (
        normalize_caller_network(str(mapped)) if mapped else str(ipaddress.ip_network((ip, 64), strict=False))
    )


@dataclass(frozen=True, slots=True)
class AttemptLimit:
    """How many refusals one source may collect within a window; `refusal` is the error for the next one.

    The source is in the refusals' `reason`, at {source}; with `by_target` it is their target. With `target` only its
    refusals count.
    """

    event_type: str
    reason: str
    tries: int
    window: timedelta
    refusal: str
    by_target: bool = False
    target: str | None = None

    def seconds_until_retry(self, source: str, now: datetime) -> int:
        """Return in how many seconds `source` may try again; 0 while it is within the limit."""
        attempt_filter = (
            {"target_id": source} if self.by_target else {"reason": self.reason.format(source=source)}
        )
        if self.target is not None:
            attempt_filter["target_id"] = self.target
        since = now - self.window
        lately = AuditLog.objects.filter(event_type=self.event_type, timestamp__gt=since, **attempt_filter)
        oldest = lately.order_by("-timestamp").values_list("timestamp", flat=True)[
            self.tries - 1 : self.tries
        ]
        for at in oldest:
            until = at + self.window if isinstance(at, datetime) else now + self.window
            return max(1, math.ceil((until - now).total_seconds()))
        return 0

    def require_below_limit(self, source: str, now: datetime) -> None:
        """Raise TooManyRequests where `source` has collected too many refusals lately."""
        if seconds := self.seconds_until_retry(source, now):
            raise TooManyRequests(self.refusal, retry_after=seconds)

    def record_refusal_for_limit(
        self,
        source: str,
        *,
        actor: Actor,
        target: str | None,
        now: datetime,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        audit.record_audit_entry(
            self.event_type,
            actor=actor,
            target=target,
            result="denied",
            reason=self.reason.format(source=source),
            metadata=metadata,
            now=now,
        )
