"""Cards, history, exports and the enforcing doors never disagree about one request, whatever its row holds."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
import time_machine
from django.db import connection
from django.http import HttpResponse
from django.utils import timezone

from coordinator.api.permission_requests import PermissionAnswer
from coordinator.models import PermissionContext, PermissionRequest
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests import verdicts
from coordinator.policy.requests.judged_content import SHOWN_OF_CONTEXT
from dashboard.approvals.filters import STATE_CHOICES, PermissionRequestFilter

pytestmark = pytest.mark.django_db

STATUSES = (
    "pending",
    "approved",
    "denied",
    "expired",
    "withdrawn",
    "auto-approved",
    "rejected",
    "PENDING",
    "",
)
OFFSETS = (-900, -60, -1, 1, 60, 900)


def texts_of(moment) -> list[str | None]:
    """The forms in which programs write an instant, and some that are none."""
    return [
        None,
        moment.isoformat(),
        moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        moment.strftime("%Y-%m-%d %H:%M:%S"),
        (moment + timedelta(hours=5)).strftime("%Y-%m-%dT%H:%M:%S+05:00"),
        "soon",
        "",
    ]


def scatter(number: int, dice: random.Random, now) -> None:
    """Write rows as they may stand in an old database, half of them with a context of ours."""
    for index in range(number):
        row = PermissionRequest.objects.create(
            request_id=f"r{index}",
            created_at=now,
            plugin_id=f"p{index}",
            permission_type="NetworkAccess",
            justification="j",
            status=dice.choice(STATUSES),
            approved_by=dice.choice([None, "alice"]),
        )
        until = dice.choice(texts_of(now + timedelta(seconds=dice.choice(OFFSETS))))
        with connection.cursor() as cursor:
            cursor.execute("UPDATE permission_requests SET expires_at = %s WHERE id = %s", [until, row.pk])
        if dice.random() < 0.5:
            PermissionContext.objects.create(
                request=row,
                requested_by="key:x",
                subject_key=rules.request_subject(row).subject_digest,
                validity=dice.choice([None, "once", "1h", "until-revoked"]),
                revoked_at=dice.choice([None, None, now]),
            )


@pytest.fixture
def rows() -> Iterator[list[PermissionRequest]]:
    """Rows whose times lie seconds apart from one frozen now."""
    with time_machine.travel(timezone.now(), tick=False):
        scatter(100, random.Random(6), timezone.now())
        yield list(PermissionRequest.objects.with_context().order_by("id"))


def test_the_doors_and_the_pages_say_the_same(rows, call: Callable[..., HttpResponse], signed_in) -> None:
    now, browser = timezone.now(), signed_in()
    exported = browser.get("/ui/approvals/history.csv")
    table = {row["request_id"]: row for row in csv.DictReader(io.StringIO(exported.getvalue().decode()))}
    inbox = browser.get("/ui/approvals/").content.decode()
    for row in rows:
        state = rules.current_request_state(row, now)
        door = call("get", f"/api/permission-requests/{row.request_id}", scope="read").json()
        query = f"plugin_id={row.plugin_id}&permission_type=NetworkAccess"
        check = call("get", f"/api/permission-requests/check?{query}", scope="read").json()
        assert door["status"] == state.status == table[row.request_id]["status"]
        assert door["allowed"] == state.allowed
        assert check["approved"] == state.in_force
        assert (f'value="{row.request_id}"' in inbox) == state.waiting
        assert (verdicts.find_final_answer(row.request_id, now) is None) == state.waiting


def test_the_api_and_the_export_tell_all_of_the_answer(rows, signed_in) -> None:
    """A schema drops in silence what it does not list."""
    told = verdicts.build_requester_answer_with_brake(rows[0], timezone.now())
    exported = signed_in().get("/ui/approvals/history.csv").getvalue().decode()
    [columns, *_] = csv.reader(io.StringIO(exported))
    assert set(PermissionAnswer.model_fields) == set(told)
    # History tells nothing of a brake that is on now.
    assert set(columns) == set(told) - {"brake"} | {"waited_seconds"}
    assert set(SHOWN_OF_CONTEXT) <= set(told)


def test_queries_and_the_rule_pick_the_same_rows(rows) -> None:
    now = timezone.now()
    picked = {
        "waiting": PermissionRequest.objects.awaiting_decision(now),
        "in-force": PermissionRequest.objects.approvals_in_force(now),
        "expired": PermissionRequest.objects.past_deadline(now),
    }
    states = {row.pk: rules.current_request_state(row, now) for row in rows}
    wanted = {
        "waiting": {pk for pk, state in states.items() if state.waiting},
        "in-force": {pk for pk, state in states.items() if state.in_force},
        "expired": {pk for pk, state in states.items() if state.status == "expired"},
    }
    assert {name: set(found.values_list("pk", flat=True)) for name, found in picked.items()} == wanted
    assert all(wanted.values())


@pytest.mark.parametrize("standing", [name for name, _ in STATE_CHOICES])
def test_each_filter_of_the_history_keeps_what_stands_so(rows, standing: str) -> None:
    now = timezone.now()
    found = set(
        PermissionRequestFilter({"status": standing}, PermissionRequest.objects.all()).qs.values_list(
            "pk", flat=True
        )
    )
    rule = {
        "waiting": lambda state: state.waiting,
        "in-force": lambda state: state.in_force,
        "over": lambda state: state.status == "approved" and not state.in_force,
    }.get(standing, lambda state: state.status == standing)
    assert found == {row.pk for row in rows if rule(rules.current_request_state(row, now))}
