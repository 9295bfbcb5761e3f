"""Leases: a thing that any worker may do, done by one of them at a time."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q

from coordinator.models import Lease

# Clocks of machines on one database may differ by this much. A lease that lasts longer than its length and this was
# taken before a clock was set back: it is nobody's.
SKEW = timedelta(seconds=60)


def free(lengths: Mapping[str, timedelta], *, now: datetime) -> set[str]:
    """Return the names of `lengths` (name: how long it is taken for) that nobody holds; takes no lock."""
    found = dict(Lease.objects.filter(name__in=lengths).values_list("name", "until"))
    return {
        name
        for name, length in lengths.items()
        if not (isinstance(until := found.get(name), datetime) and now < until <= now + length + SKEW)
    }


def take(name: str, *, length: timedelta, now: datetime, holder: str = "") -> bool:
    """Take the lease `name` for `length` and return True; False while somebody holds it (also `holder` itself).

    `holder` is for people who look: this process where none is given.
    """
    holder = holder or f"{socket.gethostname()}:{os.getpid()}"
    until = now + length
    over = Q(until__lte=now) | Q(until__gt=until + SKEW)
    with transaction.atomic():
        moved = Lease.objects.filter(over, name=name).update(holder=holder, until=until)
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
