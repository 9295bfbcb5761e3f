"""Leases: a thing that any worker may do, done by one of them at a time."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction

from coordinator.models import Lease

HOLDER = f"{socket.gethostname()}:{os.getpid()}"


def free(names: Iterable[str], *, now: datetime) -> set[str]:
    """Return those of `names` that nobody holds: a look that takes no lock, before `take`."""
    wanted = set(names)
    return wanted - set(Lease.objects.filter(name__in=wanted, until__gt=now).values_list("name", flat=True))


def take(name: str, *, length: timedelta, now: datetime, holder: str = HOLDER) -> bool:
    """Take the lease `name` for `length` and return True; False while somebody holds it (also `holder` itself)."""
    until = now + length
    with transaction.atomic():
        moved = Lease.objects.filter(name=name, until__lte=now).update(holder=holder, until=until)
    if moved:
        return True
    if Lease.objects.filter(name=name).exists():
        return False
    try:
        with transaction.atomic():
            Lease.objects.create(name=name, holder=holder, until=until)
    except IntegrityError:
        return False
    return True
