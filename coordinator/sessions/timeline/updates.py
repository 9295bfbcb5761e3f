"""Events that arrived in a session since a page last loaded it, by the feed's count, which skips nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Max, Min

from coordinator.lib.storable import parse_database_id_or_none
from coordinator.models import Change

# Beyond this it is cheaper, and for the reader clearer, to load the end of the timeline afresh.
MOST_CHANGES = 20_000
MOST_EVENTS = 300


@dataclass(frozen=True, slots=True)
class TimelineChanges:
    """The events and permission requests that arrived, or changed, up to change `upto`.

    With `too_many` set there is more, or more is forgotten, than can be shown one by one.
    """

    event_ids: list[int]
    request_ids: list[int]
    upto: int
    too_many: bool = False


def newest_feed_change_id() -> int:
    """Return the number of the newest change. Read it before the rows it is to continue."""
    return Change.objects.aggregate(newest=Max("id"))["newest"] or 0


def load_timeline_changes(session_id: str, since: int) -> TimelineChanges:
    """Return which events the session got after change `since`."""
    upto = newest_feed_change_id()
    if not max(0, upto - MOST_CHANGES) <= since <= upto or are_feed_changes_pruned_since(since, upto):
        return TimelineChanges([], [], upto, too_many=True)
    new = Change.objects.filter(id__gt=since, id__lte=upto)
    events = new.filter(topic="events", parent=session_id, op="insert").values_list("key", flat=True)
    ids = [int(key) for key in events[: MOST_EVENTS + 1]]
    request_rows = new.filter(topic="permission_requests").exclude(op="delete").values_list("key", flat=True)
    request_keys = list(request_rows.distinct()[: MOST_EVENTS + 1])
    too_many = len(ids) > MOST_EVENTS or len(request_keys) > MOST_EVENTS
    return TimelineChanges(
        ids[:MOST_EVENTS], parse_permission_request_ids(request_keys), upto, too_many=too_many
    )


def parse_permission_request_ids(keys: Iterable[str]) -> list[int]:
    """Return the ids in the keys of changed permission requests.

    A vote or an assignment, whose key is a `request_id`, changes nothing that a timeline shows.
    """
    return [row_id for key in keys if (row_id := parse_database_id_or_none(key)) is not None]


def are_feed_changes_pruned_since(since: int, upto: int) -> bool:
    oldest = Change.objects.aggregate(oldest=Min("id"))["oldest"] or 0
    return since < upto and since < oldest - 1
