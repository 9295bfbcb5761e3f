"""Leases: a thing that any worker may do, done by one of them at a time."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Case, Q, Value, When

from coordinator.models import Lease
from coordinator.models.fields import MsField

# Clocks of machines on one database may differ by this much. A lease that lasts longer than its length and this was
# taken before a clock was set back: it is nobody's.
SKEW = timedelta(seconds=60)


def find_free_leases(lengths: Mapping[str, timedelta], *, now: datetime) -> set[str]:
    """Return the names of `lengths` (name: how long it is taken for) that nobody holds; takes no lock."""
    return filter_free_leases(
        lengths, dict(Lease.objects.filter(name__in=lengths).values_list("name", "until")), now
    )


def filter_free_leases(
    lengths: Mapping[str, timedelta], found: Mapping[str, object], now: datetime
) -> set[str]:
    return {
        name
        for name, length in lengths.items()
        if not (isinstance(until := found.get(name), datetime) and now < until <= now + length + SKEW)
    }


def take_free_leases(lengths: Mapping[str, timedelta], *, now: datetime) -> set[str]:
    """Take those of `lengths` (name: how long it is taken for) that nobody holds, by one write; return their names."""
    if not lengths:
        return set()  # on SQLite a transaction takes the write lock
    with transaction.atomic():
        locked = Lease.objects.select_for_update().filter(name__in=lengths).order_by("name")
        found = dict(locked.values_list("name", "until"))
        taken = filter_free_leases(lengths, found, now) & found.keys()
        if taken:
            until = Case(*(When(name=name, then=Value(now + lengths[name], MsField())) for name in taken))
            Lease.objects.filter(name__in=taken).update(holder=current_process_name(), until=until)
    return taken | {
        name for name in lengths.keys() - found.keys() if take_lease(name, length=lengths[name], now=now)
    }


def take_lease(name: str, *, length: timedelta, now: datetime, holder: str = "") -> bool:
    """Take the lease `name` for `length` and return True; False while somebody holds it (also `holder` itself).

    `holder` is for people who look: this process where none is given.
    """
    holder = holder or current_process_name()
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


def renew_lease(name: str, *, length: timedelta, now: datetime) -> bool:
    """Have this process hold a lease that it has for `length` from now on; False where another took it meanwhile."""
    with transaction.atomic():
        held = Lease.objects.filter(name=name, holder=current_process_name())
        return bool(held.update(until=now + length))


def give_back_lease(name: str, *, due: datetime) -> None:
    """Have a lease that this process renewed end when it was due; it stays with whoever took it meanwhile."""
    with transaction.atomic():
        Lease.objects.filter(name=name, holder=current_process_name(), until__gt=due).update(until=due)


def current_process_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
