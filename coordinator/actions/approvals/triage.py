"""Triage of waiting requests: assignment to a person, and snoozing in one person's inbox.

Neither decides anything, and neither stops a deadline.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from django.db import transaction

from coordinator.actions.approvals import rows
from coordinator.actions.approvals.rows import Person
from coordinator.errors import BadRequest, Conflict, Forbidden, NotFound
from coordinator.identity.roles import ADMIN, APPROVER, has_role
from coordinator.models import PermissionRequest, RequestAssignment, RequestSnooze
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.deciders.decider_book import DeciderBook

MOST_AT_ONCE = 100  # requests that one question is about: a person must be able to read it
MOST_ARRANGED = 1_000  # requests that are put off or handed over with one press; each is a transaction
# By then a snoozed request is back: somebody must still have time to look.
BEFORE_DEADLINE = timedelta(minutes=5)
LONGEST_SNOOZE = timedelta(days=7)


def assign_requests(request_ids: Sequence[str], to: str, *, person: Person, now: datetime) -> int:
    """Give waiting requests to a person who may decide them; return how many changed hands.

    Raises Forbidden for anyone but an approver, and BadRequest for somebody who may decide none of them.
    """
    require_triage_permission(request_ids, person)
    book = deciders.load_decider_book(now)
    taker = book.approvers_by_name.get(to)
    if taker is None:
        raise BadRequest(f"{to[:100]} cannot decide requests. Choose an approver.")
    assigned_rows = list(
        deciders.iterate_requests_without_inputs(
            PermissionRequest.objects.filter(request_id__in=list(request_ids))
        )
    )
    assignable_ids = [row.request_id for row in assigned_rows if book.can_decide_request(taker, row)]
    if assigned_rows and not assignable_ids:
        raise BadRequest(f"{to[:100]} may not decide this. Choose someone who may.")
    allowed = require_any_triageable_request_ids(assigned_rows, person, book)
    changed = 0
    for request_id in (candidate_id for candidate_id in assignable_ids if candidate_id in allowed):
        with suppress(NotFound), transaction.atomic():
            changed += assign_request_to_person(request_id, taker.get_username(), person, now)
    return changed


def assign_request_to_person(request_id: str, to: str, person: Person, now: datetime) -> bool:
    row = rows.lock_permission_request(request_id)
    if rows.find_closed_request_error(row, now) is not None:
        return False
    before = lock_request_assignee(row)
    if before == to:
        return False
    RequestAssignment.objects.update_or_create(
        request=row, defaults={"person": to, "assigned_by": person.get_username(), "at": now}
    )
    record_assignment_change(row, before, to, person, now)
    return True


def unassign_requests(request_ids: Sequence[str], *, person: Person, now: datetime) -> int:
    """Have requests be nobody's again; return how many were somebody's. Raises Forbidden."""
    require_triage_permission(request_ids, person)
    request_rows = deciders.iterate_requests_without_inputs(
        PermissionRequest.objects.filter(request_id__in=list(request_ids))
    )
    allowed = require_any_triageable_request_ids(request_rows, person, deciders.load_decider_book(now))
    changed = 0
    for request_id in (candidate_id for candidate_id in request_ids if candidate_id in allowed):
        with suppress(NotFound), transaction.atomic():
            row = rows.lock_permission_request(request_id)
            before = lock_request_assignee(row)
            if before is None or not RequestAssignment.objects.filter(request=row, person=before).delete()[0]:
                continue
            record_assignment_change(row, before, None, person, now)
            changed += 1
    return changed


def lock_request_assignee(row: PermissionRequest) -> str | None:
    assignment = RequestAssignment.objects.select_for_update().filter(request=row)
    return assignment.values_list("person", flat=True).first()


def record_assignment_change(
    row: PermissionRequest, before: str | None, after: str | None, person: Person, now: datetime
) -> None:
    event = "PERMISSION_REQUEST_ASSIGNED" if after else "PERMISSION_REQUEST_RELEASED"
    changes = {"before": {"person": before}, "after": {"person": after}}
    rows.audit_request_event(event, row, rows.resolve_decider_actor(person), "success", now, metadata=changes)


def snooze_requests_for_person(
    request_ids: Sequence[str], until: datetime, *, person: Person, now: datetime
) -> int:
    """Hide requests from this person's inbox until a time, or until shortly before their deadline.

    Returns how many. It is the person's own view and changes nothing for anybody else, so it is not audited. Raises
    Forbidden for anyone but an approver, BadRequest for a time that is past or too far ahead, and Conflict where every
    one of the requests is decided or about to expire.
    """
    require_triage_permission(request_ids, person)
    if not now < until <= now + LONGEST_SNOOZE:
        raise BadRequest("Choose a time within the next seven days.")
    waiting = PermissionRequest.objects.awaiting_decision(now).filter(request_id__in=list(request_ids))
    ends = {row.request_id: cap_snooze_end(row, until) for row in waiting.only("request_id", "expires_at")}
    later = {request_id: end for request_id, end in ends.items() if end > now}
    if not later:
        raise Conflict(
            "Nothing was snoozed: the request is already decided, or its deadline is less than 5 minutes "
            "away."
        )
    with transaction.atomic():
        still = PermissionRequest.objects.select_for_update(no_key=True).filter(request_id__in=later)
        snoozed_rows = sorted(
            still.values_list("request_id", flat=True)
        )  # one that was deleted meanwhile is left out
        RequestSnooze.objects.bulk_create(
            [
                RequestSnooze(request_id=request_id, person=person.get_username(), until=later[request_id])
                for request_id in snoozed_rows
            ],
            update_conflicts=True,
            unique_fields=["request", "person"],
            update_fields=["until"],
        )
    return len(snoozed_rows)


def cap_snooze_end(row: PermissionRequest, until: datetime) -> datetime:
    deadline = row.expires_at
    return min(until, deadline - BEFORE_DEADLINE) if isinstance(deadline, datetime) else until


def unsnooze_requests_for_person(request_ids: Sequence[str], *, person: Person) -> int:
    """Have snoozed requests back in this person's inbox now; return how many. Raises Forbidden."""
    require_triage_permission(request_ids, person)
    snoozes = RequestSnooze.objects.filter(request_id__in=list(request_ids), person=person.get_username())
    return snoozes.delete()[0]


def require_any_triageable_request_ids(
    named: Iterable[PermissionRequest], person: Person, book: DeciderBook
) -> set[str]:
    """Return those of the requests, by id, that the person may arrange: what they may decide; all, as an admin.

    Raises Forbidden where that is none of them.
    """
    refusals = {
        row.request_id: "" if has_role(person, ADMIN) else book.cannot_decide_reason_or_empty(person, row)
        for row in named
    }
    if refusals and all(refusals.values()):
        raise Forbidden(f"Nothing was changed. {next(iter(refusals.values()))}")
    return {name for name, why_not in refusals.items() if not why_not}


def require_triage_permission(request_ids: Sequence[str], person: Person) -> None:
    if not has_role(person, APPROVER):
        raise Forbidden("You need the role approver to assign or snooze requests.")
    if len(request_ids) > MOST_ARRANGED:
        raise BadRequest(f"Choose at most {MOST_ARRANGED:,} requests at once.")
