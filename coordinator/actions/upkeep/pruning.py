"""Retention: how long rows are kept, and the deletion of older ones in steps so small that writers hardly wait.

What people and agents made is kept for ever unless a setting says otherwise. Kept elsewhere, for times of their own:

- the feed's `changes` (feed/reader.py) and the audit log (models/audit.py: a trigger of its own table);
- the gateway's calls, sessions and figures (gateway_upkeep.py);
- what a budget counts, and its marks (budgets.py);
- callbacks that were delivered (housekeeping.py);
- connect codes (connecting.py), and the sources of events (origins.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.sessions.models import Session as SignIn
from django.db import transaction
from django.db.models import Exists, Max, Min, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Coalesce, Length
from django.utils import timezone

from coordinator.actions.audit import audit
from coordinator.actions.chat import chat
from coordinator.actions.sessions import sessions
from coordinator.actions.upkeep import idempotency
from coordinator.engine import bulk, partitions
from coordinator.errors import Conflict, NotFound
from coordinator.identity.actors import system_actor
from coordinator.lib.instants import instant_to_microseconds
from coordinator.models import (
    ChatAttachment,
    ChatMessage,
    Event,
    EventContext,
    GatewayCall,
    IdempotencyKey,
    Notification,
    PermissionContext,
    PermissionRequest,
    Run,
    Session,
)
from coordinator.models.gateway import CallState
from coordinator.models.permissions import RequestStatus
from coordinator.runs.statuses import OPEN
from coordinator.sessions.statuses import ENDED, LIVE

log = logging.getLogger(__name__)

PRUNER = system_actor("prune")
STEP = 500  # rows a transaction
REST_PER_WORK = 1.0  # as long as a step took, others have their turn
GENTLE_FOR = 2.0  # seconds one call of housekeeping takes
PRUNED = {"pruned": True}
# The text that replaces a pruned body: pages show it as they would any other.
MARKS: dict[str, Any] = {
    "tool_input": PRUNED,
    "tool_output": PRUNED,
    "content": [{"type": "text", "text": "(pruned)"}],
}


@dataclass(frozen=True, slots=True)
class PrunableSize:
    """How much there is to take away; bytes are those of the texts, about."""

    rows: int = 0
    bytes: int = 0

    def __add__(self, other: PrunableSize) -> PrunableSize:
        return PrunableSize(self.rows + other.rows, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """One thing that is kept for `days` (0: for ever).

    `pages` yields the keys of what is older than an instant, `measure` says how much a page is, and `remove`
    takes it away (the page, that instant, now), in transactions of its own, and says how many rows that were.
    """

    name: str
    description: str
    days: float
    pages: Callable[[datetime], Iterator[list[Any]]]
    measure: Callable[[list[Any]], PrunableSize]
    remove: Callable[[list[Any], datetime, datetime], int]


def build_retention_rules(**days: float | None) -> list[RetentionRule]:
    """Return the rules by the settings; `days` (sessions=30) overrides them by name."""
    saved_rules = [
        RetentionRule(
            "sessions",
            "ended sessions, with their events and runs",
            settings.KEEP_SESSIONS_DAYS,
            lambda before: iterate_primary_key_pages(find_prunable_sessions(before), size=20),
            measure_session_rows_and_bytes,
            delete_prunable_sessions_of_page,
        ),
        RetentionRule(
            "event-bodies",
            "inputs, outputs and messages of events",
            settings.KEEP_EVENT_BODIES_DAYS,
            iterate_prunable_event_body_pages,
            measure_event_bodies,
            blank_event_bodies_in_pruning_step,
        ),
        build_table_retention_rule(
            PermissionRequest,
            "requests",
            "permission requests that are closed and not in force",
            settings.KEEP_REQUESTS_DAYS,
            find_prunable_permission_requests,
        ),
        RetentionRule(
            "chat",
            "chat messages, with their files",
            settings.KEEP_CHAT_DAYS,
            lambda before: iterate_primary_key_pages(ChatMessage.objects.filter(created_at__lt=before)),
            measure_chat_messages,
            prune_chat_messages,
        ),
        build_table_retention_rule(
            Notification,
            "notifications",
            "the log of webhooks and mails",
            settings.KEEP_NOTIFICATIONS_DAYS,
            lambda before: Notification.objects.filter(created_at__lt=before).exclude(state="waiting"),
        ),
        build_table_retention_rule(
            IdempotencyKey,
            "idempotency",
            "answers kept for resends",
            idempotency.KEEP_FOR / timedelta(days=1),
            "created_at",
        ),
        build_table_retention_rule(SignIn, "sign-ins", "sign-ins that are over", 1, "expire_date"),
    ]
    retention_days = {
        name.replace("_", "-"): day_count for name, day_count in days.items() if day_count is not None
    }
    return [replace(rule, days=retention_days.get(rule.name, rule.days)) for rule in saved_rules]


def apply_retention_rule(
    rule: RetentionRule,
    now: datetime,
    *,
    write: bool,
    progress: Callable[[int], object] = lambda _done: None,
    until: float = float("inf"),
) -> PrunableSize:
    """Take away what a rule does not keep, or with `write=False` only say how much that is.

    Stops after the page at hand when time.monotonic() has passed `until`. Audited once, with the count: also where an
    error ends it, since the pages before that are gone.
    """
    if not rule.days:
        return PrunableSize()
    try:
        horizon = now - timedelta(days=rule.days)
    except OverflowError:  # before the first date that there is
        return PrunableSize()
    deleted_size = PrunableSize()
    try:
        for page in rule.pages(horizon):
            if page:
                size = rule.measure(page)
                if write:
                    size = PrunableSize(rule.remove(page, horizon, now), size.bytes)
                deleted_size += size
                progress(deleted_size.rows)
            if time.monotonic() > until:
                break
    finally:
        if write and deleted_size.rows:
            facts = {"rows": deleted_size.rows, "bytes": deleted_size.bytes, "before": horizon.isoformat()}
            audit.record_audit_entry(
                "DATA_PRUNED", actor=PRUNER, target=rule.name, result="success", metadata=facts, now=now
            )
    return deleted_size


def prune_slice_and_drop_partitions(now: datetime) -> None:
    """Do a moment's work; housekeeping comes again until nothing is left."""
    until = time.monotonic() + GENTLE_FOR
    for rule in build_retention_rules():
        if time.monotonic() < until:
            apply_retention_rule(rule, now, write=True, until=until)
    for name in partitions.drop_empty_partitions():
        log.info("Dropped %s, a part of the events table that was empty.", name)


def run_pruning_step_and_sleep(work: Callable[[], int]) -> int:
    """Do one step in a transaction, then let others have their turn."""
    started_at = time.monotonic()
    with transaction.atomic():
        done = work()
    time.sleep(REST_PER_WORK * (time.monotonic() - started_at))
    return done


def iterate_primary_key_pages(rows: QuerySet[Any], size: int = STEP) -> Iterator[list[Any]]:
    """Yield the rows' keys in order; what is taken away meanwhile changes nothing. Rows without a key stay."""
    rows = rows.exclude(pk=None)  # SQLite takes them from other programs
    after: Any = None
    while page := list(
        (rows if after is None else rows.filter(pk__gt=after))
        .order_by("pk")
        .values_list("pk", flat=True)[:size]
    ):
        yield page
        after = page[-1]


def build_table_retention_rule(
    model: Any, name: str, description: str, days: float, old: Callable[[datetime], QuerySet[Any]] | str
) -> RetentionRule:
    """Return the rule of a table whose rows simply go; what belongs to them goes by the database's cascades.

    `old` gives the rows from before an instant, or names the column that says when they were made.
    """

    def iterate_expired_key_pages(before: datetime) -> Iterator[list[Any]]:
        return iterate_primary_key_pages(
            model.objects.filter(**{f"{old}__lt": before}) if isinstance(old, str) else old(before)
        )

    def delete_rows_of_key_page(page: list[Any], *_: datetime) -> int:
        return run_pruning_step_and_sleep(lambda: model.objects.filter(pk__in=page).delete()[1].get(label, 0))

    label = model._meta.label
    return RetentionRule(
        name,
        description,
        days,
        iterate_expired_key_pages,
        lambda page: PrunableSize(len(page)),
        delete_rows_of_key_page,
    )


def find_prunable_sessions(before: datetime) -> QuerySet[Session]:
    """Return ended sessions that nothing has happened in since: no resume, no event, no run or child at work.

    One stays, too, while a person may still decide a request of it, or a call of it may still run by an approval.
    """
    at_work = Run.objects.filter(session=OuterRef("pk"), status__in=OPEN)
    children = Session.objects.filter(parent_session=OuterRef("pk"), status__in=LIVE)
    young = EventContext.objects.filter(
        session_id=OuterRef("pk"), instant_us__gte=instant_to_microseconds(before)
    )
    # A run whose call was deferred has ended, and is resumed once a person has decided.
    pending_contexts = PermissionContext.objects.filter(
        session_id=OuterRef("pk"), request__status=RequestStatus.PENDING
    )
    return Session.objects.filter(
        ~Exists(pending_contexts),
        ~Exists(approvals_usable_by_deferred_calls(session_id=OuterRef("pk"))),
        ~Exists(at_work),
        ~Exists(children),
        ~Exists(young),
        Q(last_resumed_at__isnull=True) | Q(last_resumed_at__lt=before),
        status__in=ENDED,
        created_at__lt=before,
    )


def lock_sessions_for_pruning(session_ids: list[str]) -> None:
    """Keep events, runs and children from being added to these sessions until the transaction ends."""
    list(Session.objects.select_for_update().filter(pk__in=session_ids).order_by("pk").values_list("pk"))


def sum_event_body_lengths(events: QuerySet[Event]) -> int:
    total = sum(Coalesce(Sum(Length(column)), 0) for column in MARKS)
    return int(events.aggregate(bytes=total)["bytes"] or 0)


def measure_session_rows_and_bytes(page: list[str]) -> PrunableSize:
    events = Event.objects.filter(session_id__in=page)
    return PrunableSize(len(page) + events.count(), sum_event_body_lengths(events))


def delete_prunable_sessions_of_page(page: list[str], before: datetime, now: datetime) -> int:
    return sum(delete_session_if_prunable(session_id, before, now) for session_id in page)


def delete_session_if_prunable(session_id: str, before: datetime, now: datetime) -> int:
    """Remove one session, a large one's events first; one that comes alive meanwhile keeps what it has left."""
    deleted_count = 0
    with suppress(NotFound, Conflict):
        for events in iterate_primary_key_pages(Event.objects.filter(session_id=session_id)):
            if len(events) < STEP:
                break  # the rest goes with the session
            deleted_count += run_pruning_step_and_sleep(
                partial(delete_events_of_prunable_session, session_id, events, before)
            )
        reason = (
            f"Past the retention period; {deleted_count} events were removed earlier."
            if deleted_count
            else "Past the retention period."
        )
        with transaction.atomic():
            lock_and_require_prunable_session(session_id, before)
            last = sessions.remove_session(session_id, actor=PRUNER, now=now, reason=reason)
        deleted_count += last.events + 1
    return deleted_count


def delete_events_of_prunable_session(session_id: str, events: list[int], before: datetime) -> int:
    lock_and_require_prunable_session(session_id, before)
    return Event.objects.filter(pk__in=events).delete()[0]


def lock_and_require_prunable_session(session_id: str, before: datetime) -> None:
    """Keep events, runs and children from being added to a session; raise Conflict if it is not an old one now."""
    lock_sessions_for_pruning([session_id])  # not the weak lock, which lets events in
    if not find_prunable_sessions(before).filter(pk=session_id).exists():
        raise Conflict("This session is active again.")


def iterate_prunable_event_body_pages(before: datetime) -> Iterator[list[int]]:
    """Yield events with a body to take out, from where this process found the last one; pages may be empty."""
    yield from iterate_newly_expired_event_body_pages(before)
    BodyPruningProgress.before = before
    old = EventContext.objects.filter(received_at__lt=before, pk__gte=BodyPruningProgress.upto)
    # Two queries: SQLite finds both ends in one statement by walking through all of the index.
    low = old.aggregate(first=Min("pk"))["first"] or 0
    end = old.aggregate(last=Max("pk"))["last"] or 0
    for first, last in bulk.iterate_id_ranges("event_context", "event_id", STEP, low - 1):
        if first > end:
            break
        old_ones = Event.objects.filter(context__received_at__lt=before, pk__range=(first, last))
        old_ones = old_ones.filter(context__event_id__gte=first, context__event_id__lte=last)
        yield list(filter_events_with_unpruned_bodies(old_ones).order_by("pk").values_list("pk", flat=True))
        BodyPruningProgress.upto = min(last + 1, end)


def iterate_newly_expired_event_body_pages(before: datetime) -> Iterator[list[int]]:
    """Yield those with a body to take out that were walked past as too young: an import's old events follow them."""
    while BodyPruningProgress.before is not None and BodyPruningProgress.before < before:
        until = load_pruning_step_end_time(BodyPruningProgress.before, before)
        events = Event.objects.filter(
            context__received_at__gte=BodyPruningProgress.before,
            context__received_at__lt=until,
            pk__lt=BodyPruningProgress.upto,
        )
        page = list(filter_events_with_unpruned_bodies(events).order_by("pk").values_list("pk", flat=True))
        if page:
            yield page
        BodyPruningProgress.before = until


def load_pruning_step_end_time(since: datetime, before: datetime) -> datetime:
    """Return an instant up to which about STEP events were received; those of one millisecond stay together."""
    received = EventContext.objects.filter(received_at__gte=since, received_at__lt=before)
    following = received.order_by("received_at").values_list("received_at", flat=True)[STEP : STEP + 1]
    return min([before, *(max(at, since + timedelta(milliseconds=1)) for at in following)])


class BodyPruningProgress:
    """How far this process has walked: below the id `upto`, what was received before `before` has been done."""

    upto = 0
    before: datetime | None = None


def filter_events_with_unpruned_bodies(events: QuerySet[Event]) -> QuerySet[Event]:
    body_filter = Q()
    for column, mark in MARKS.items():
        body_filter |= Q(**{f"{column}__isnull": False}) & ~Q(**{column: mark})
    return events.filter(body_filter)


def measure_event_bodies(page: list[int]) -> PrunableSize:
    return PrunableSize(len(page), sum_event_body_lengths(Event.objects.filter(pk__in=page)))


def blank_event_bodies_in_pruning_step(page: list[int], *_: datetime) -> int:
    def blank_event_bodies() -> int:
        for column, mark in MARKS.items():
            Event.objects.filter(pk__in=page, **{f"{column}__isnull": False}).update(**{column: mark})
        return len(page)

    return run_pruning_step_and_sleep(blank_event_bodies)


def find_prunable_permission_requests(before: datetime) -> QuerySet[PermissionRequest]:
    """Return requests that were asked and closed before then, no longer in force, and that no call may use still."""
    in_force = PermissionRequest.objects.approvals_in_force(before).values("pk")
    young = PermissionContext.objects.filter(request_id=OuterRef("request_id"), closed_at__gte=before)
    calls = GatewayCall.objects.filter(
        request_id=OuterRef("request_id"), state__in=[CallState.WAITING, CallState.RUNNING]
    )
    return (
        PermissionRequest.objects.filter(
            ~Exists(young),
            ~Exists(approvals_usable_by_deferred_calls()),
            ~Exists(calls),
            created_at__lt=before,
        )
        .exclude(status=RequestStatus.PENDING)
        .exclude(pk__in=in_force)
    )


def approvals_usable_by_deferred_calls(**of: Any) -> QuerySet[PermissionContext]:
    """Return approvals by which a deferred call may still run (policy.requests.approvals.single_use_valid_until)."""
    return PermissionContext.objects.filter(
        **(of or {"request_id": OuterRef("request_id")}),
        closed_at__gt=timezone.now() - timedelta(seconds=settings.HELD_FOR),
        request__status=RequestStatus.APPROVED,
        repeat_key__isnull=False,
        used_at__isnull=True,
        revoked_at__isnull=True,
    )


def measure_chat_messages(page: list[str]) -> PrunableSize:
    messages = ChatMessage.objects.filter(pk__in=page).aggregate(bytes=Sum(Length("content")))["bytes"] or 0
    files = ChatAttachment.objects.filter(message__in=page).aggregate(bytes=Sum("size_bytes"))["bytes"] or 0
    return PrunableSize(len(page), int(messages) + int(files))


def prune_chat_messages(page: Sequence[str], *_: datetime) -> int:
    def delete_chat_message_page() -> int:
        chat.purge_messages_and_count_attachments(ChatMessage.objects.filter(pk__in=page))
        return len(page)

    return run_pruning_step_and_sleep(delete_chat_message_page)
