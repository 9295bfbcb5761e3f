"""Density of a session over time: how much happened when, where it failed, where people were asked.

However long the session, this is a scan of the timeline's own index (two for a session that mostly slept) and a
look at its errors and requests. Stretches in which nothing happened for long are left out, so that the hours that
matter keep their width.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, QuerySet
from django.db.models.functions import Mod

from coordinator.engine.event_counts import count_events_per_slot
from coordinator.lib import instants
from coordinator.models import Event, EventContext, PermissionRequest
from coordinator.models.permissions import RequestStatus

SLOTS = 96
BUSY = SLOTS // 3  # slots that must hold something; with fewer, idle stretches are left out
MOST_STRETCHES = 8
LEAST_SLOTS = 4  # of a stretch, however short it was
MOST_ERRORS = 2_000  # that are looked at one by one; of more, every n-th
MOST_REQUESTS = 500
MOST_SESSIONS = 256

Stretch = tuple[int, int]  # first and last instant, in microseconds


@dataclass(slots=True)
class DensitySlot:
    """A slice of a session's time: [from_us, to_us). `idle_us` is what was left out just before it."""

    from_us: int
    to_us: int
    events: int = 0
    errors: int = 0
    first_error: int | None = None  # the id of an event
    question_count: int = 0
    waits: bool = False
    idle_us: int = 0


_known: OrderedDict[tuple[str, int, int], list[DensitySlot]] = OrderedDict()


def load_cached_density_slots(session_id: str, *, total: int, errors: int) -> list[DensitySlot]:
    """Return the session's slots, in order; none where it has no instants. `total` and `errors` are its counts.

    What was counted once is cached as long as those numbers are unchanged; requests are looked up each time.
    """
    key = (session_id, total, errors)
    slots = _known.get(key)
    if slots is None:
        slots = load_density_slots(session_id, errors)
        _known[key] = slots
        while len(_known) > MOST_SESSIONS:
            _known.popitem(last=False)
    slots = [
        DensitySlot(
            slot.from_us, slot.to_us, slot.events, slot.errors, slot.first_error, idle_us=slot.idle_us
        )
        for slot in slots
    ]
    if slots:
        fill_slot_request_counts(session_id, slots)
    return slots


def load_density_slots(session_id: str, errors: int) -> list[DensitySlot]:
    instant = EventContext.objects.filter(session_id=session_id).order_by("instant_us", "event_id")
    first = instant.values_list("instant_us", flat=True).first()
    last = instant.values_list("instant_us", flat=True).last()
    if first is None or last is None:
        return []
    slots = split_stretches_into_density_slots([(first, last)])
    fill_slot_event_counts(session_id, slots)
    if sum(slot.events > 0 for slot in slots) < BUSY:
        slots = split_stretches_into_density_slots(
            [shrink_stretch_to_events(instant, stretch) for stretch in find_stretches_with_events(slots)]
        )
        fill_slot_event_counts(session_id, slots)
    if errors:
        fill_slot_error_counts(session_id, slots, errors)
    return slots


def split_stretches_into_density_slots(stretches: Sequence[Stretch]) -> list[DensitySlot]:
    """Return SLOTS slots, or a few more or less, shared among the stretches by their lengths."""
    total_ids = sum(last + 1 - first for first, last in stretches)
    slots: list[DensitySlot] = []
    for first, last in stretches:
        length = last + 1 - first
        step = -(-length // max(LEAST_SLOTS, round(SLOTS * length / total_ids)))
        idle = first - slots[-1].to_us if slots else 0
        slots += [
            DensitySlot(start, min(start + step, last + 1), idle_us=idle if start == first else 0)
            for start in range(first, last + 1, step)
        ]
    return slots


def fill_slot_event_counts(session_id: str, slots: list[DensitySlot]) -> None:
    """Count each slot's events. Between two stretches there are none: rows of slots end and begin there."""
    begins = [number for number, slot in enumerate(slots) if number == 0 or slot.idle_us]
    rows = [slots[begin:end] for begin, end in zip(begins, [*begins[1:], len(slots)], strict=True)]
    ranges = [[(slot.from_us, slot.to_us) for slot in row] for row in rows]
    counts = count_events_per_slot(session_id, ranges)
    for slot, events in zip(slots, counts, strict=True):
        slot.events = events


def find_stretches_with_events(slots: Sequence[DensitySlot]) -> list[Stretch]:
    """Return the stretches of slots that hold something, the nearest ones joined until there are few."""
    stretches: list[Stretch] = []
    for slot in slots:
        if not slot.events:
            continue
        if stretches and stretches[-1][1] == slot.from_us:
            stretches[-1] = (stretches[-1][0], slot.to_us)
        else:
            stretches.append((slot.from_us, slot.to_us))
    while len(stretches) > MOST_STRETCHES:
        at = min(
            range(len(stretches) - 1), key=lambda number: stretches[number + 1][0] - stretches[number][1]
        )
        stretches[at : at + 2] = [(stretches[at][0], stretches[at + 1][1])]
    return stretches


def shrink_stretch_to_events(instant: QuerySet[EventContext], stretch: Stretch) -> Stretch:
    """Return the stretch from its first event to its last."""
    inside = instant.filter(instant_us__gte=stretch[0], instant_us__lt=stretch[1])
    first, last = inside.first(), inside.last()
    return (first.instant_us, last.instant_us) if first and last else stretch


def density_slot_at_instant(slots: Sequence[DensitySlot], at_us: int) -> DensitySlot:
    return slots[max(bisect_right(slots, at_us, key=lambda slot: slot.from_us) - 1, 0)]


def fill_slot_error_counts(session_id: str, slots: Sequence[DensitySlot], errors: int) -> None:
    """Note in each slot how many of its events failed, and the first."""
    step = -(-errors // MOST_ERRORS)
    failed = Event.objects.filter(session_id=session_id, error__isnull=False, context__isnull=False)
    if step > 1:
        failed = failed.annotate(turn=Mod(F("id"), step)).filter(turn=0)
    for event_id, at_us in sorted(
        failed.values_list("id", "context__instant_us"), key=lambda row: (row[1], row[0])
    ):
        slot = density_slot_at_instant(slots, at_us)
        slot.errors = min(slot.errors + step, slot.events)
        slot.first_error = slot.first_error or event_id


def fill_slot_request_counts(session_id: str, slots: Sequence[DensitySlot]) -> None:
    """Note in each slot how often people were asked, and whether somebody still is."""
    permission_requests = PermissionRequest.objects.filter(context__session_id=session_id).order_by("id")
    for at, status in permission_requests.values_list("created_at", "status")[:MOST_REQUESTS]:
        if isinstance(at, datetime):
            slot = density_slot_at_instant(slots, instants.instant_to_microseconds(at))
            slot.question_count += 1
            slot.waits = slot.waits or status == RequestStatus.PENDING
