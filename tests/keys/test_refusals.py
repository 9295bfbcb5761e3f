"""Refused keys are audited and, from one address, limited; right keys are never in the way of wrong ones."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client

from coordinator.actions.people import keys
from coordinator.errors import TooManyRequests, Unauthorized
from coordinator.models import AuditLog
from tests.keys.test_authenticate import BY, NOW, make

pytestmark = pytest.mark.django_db


def refused(source: str, seconds: float = 0) -> None:
    with pytest.raises(Unauthorized):
        keys.authenticate_api_key("sbx_wrong", NOW + timedelta(seconds=seconds), source=source)


def test_a_refused_key_is_audited_by_name_and_address() -> None:
    row, raw = make()
    keys.invalidate_api_key(row.id, actor=BY, now=NOW)
    with pytest.raises(Unauthorized):
        keys.authenticate_api_key(raw, NOW, source="10.0.0.1")
    entry = AuditLog.objects.get(event_type="API_KEY_REFUSED")
    assert (entry.target_id, entry.result, entry.reason) == ("ci", "denied", "from 10.0.0.1")
    assert raw not in str(AuditLog.objects.values())


def test_too_many_refusals_are_answered_with_when_to_come_back() -> None:
    for n in range(keys.REFUSED.tries):
        refused("10.0.0.1", n * 0.1)
    with pytest.raises(TooManyRequests) as limited:
        keys.authenticate_api_key("sbx_wrong", NOW + timedelta(seconds=10), source="10.0.0.1")
    assert limited.value.retry_after == 50
    assert AuditLog.objects.filter(event_type="API_KEY_REFUSED").count() == keys.REFUSED.tries
    refused("10.0.0.2", 10)
    refused("10.0.0.1", 60.1)


def test_a_right_key_works_beside_any_number_of_wrong_ones() -> None:
    _row, raw = make()
    for _ in range(keys.REFUSED.tries):
        refused("10.0.0.1")
    assert keys.authenticate_api_key(raw, NOW, source="10.0.0.1").name == "ci"


def test_the_limit_is_a_429_with_retry_after() -> None:
    client = Client(headers={"Authorization": "Bearer sbx_wrong"})
    answers = [client.get("/runs") for _ in range(keys.REFUSED.tries + 1)]
    assert {answer.status_code for answer in answers[:-1]} == {401}
    assert answers[-1].status_code == 429
    assert 0 < int(answers[-1].headers["Retry-After"]) <= 60
    assert "detail" in answers[-1].json()


def test_a_key_used_beyond_its_scopes_is_audited() -> None:
    _row, raw = make(scopes=["read"])
    answer = Client(headers={"X-API-Key": raw}).delete("/agents/some-agent")
    assert answer.status_code == 403
    entry = AuditLog.objects.get(event_type="API_KEY_OUT_OF_SCOPE")
    assert (entry.actor_id, entry.metadata["what"]) == ("key:ci", "DELETE /agents/some-agent")
