"""A right that is lost counts from its commit on, whoever is in the middle of deciding."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import connections, transaction

from coordinator.actions import approvals, deciders
from coordinator.actions.approvals import deciding
from coordinator.actions.deciders import groups
from coordinator.actions.people import users
from coordinator.errors import Forbidden
from coordinator.identity.actors import Actor
from coordinator.models import PermissionRequest
from tests.approvals.factories import NOW, asked, fresh, person
from tests.deciders.factories import group, row
from tests.patience import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)
ADMIN = Actor("user", "boss")
GLIMPSE = 0.5  # seconds in which what must not happen would


def emptied(ops: Group) -> None:
    groups.update_decider_group(
        ops.pk, ops.name, [], seen_version=groups.compute_group_version(ops), actor=ADMIN, now=NOW
    )


def decided(request: PermissionRequest, user: User) -> str:
    try:
        by = User.objects.get(pk=user.pk)
        return approvals.decide_request(request.request_id, person=by, verdict="approved", now=NOW).status
    except Forbidden as refusal:
        return str(refusal.detail)
    finally:
        connections.close_all()


def test_who_loses_the_right_in_the_middle_of_a_decision_loses_it_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    anna = person("anna")
    row(ops := group("Operators", anna))
    request, load, lost = asked(), deciding.rights.load_decider_book, Event()

    def lose() -> None:
        emptied(ops)
        lost.set()
        connections.close_all()

    with ThreadPoolExecutor(2) as pool:

        def load_and_lose(now: Any) -> Any:
            book = load(now)
            if request.status == "pending" and not losing:
                losing.append(pool.submit(lose))
                assert not lost.wait(GLIMPSE)  # it waits for the decision
            return book

        losing: list[Any] = []
        monkeypatch.setattr(deciding.rights, "load_decider_book", load_and_lose)
        assert pool.submit(decided, request, anna).result(PATIENCE) == "approved"
        losing[0].result(PATIENCE)
    assert not ops.user_set.exists()
    assert fresh(request).approved_by == "anna"


@pytest.mark.parametrize("how", ["group", "role"])
def test_who_decides_while_the_right_is_being_taken_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    anna = person("anna")
    row(ops := group("Operators", anna, person("bob")))
    request, hold, asking = asked(), deciders.lock_decision_rights, Event()

    def hold_and_tell() -> None:
        asking.set()
        hold()

    monkeypatch.setattr(deciders, "lock_decision_rights", hold_and_tell)
    monkeypatch.setattr(deciders.rights_version, "lock_decision_rights", hold_and_tell)
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            if how == "group":
                emptied(ops)
            else:
                person("boss", "admin")
                users.update_user(anna.pk, {}, role="viewer", actor=ADMIN, now=NOW)
            deciding_ = pool.submit(decided, request, anna)
            # On SQLite it does not come so far: the whole database has one writer.
            asking.wait(GLIMPSE)
            assert not deciding_.done()
        said = deciding_.result(PATIENCE)
    assert ("Nobody may decide" if how == "group" else "role approver") in said
    assert fresh(request).status == "pending"
