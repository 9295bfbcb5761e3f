"""The recorded cases of the original system, with what this project does where the two differ."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from coordinator.actions import approvals
from coordinator.actions.plugins import plugin_permissions
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.models import PluginSetting
from coordinator.policy.requests.approval_coverage import is_call_approved
from tests.approvals.factories import AGENT, NOW, asked, fresh, person, stored, trail

pytestmark = pytest.mark.django_db

CASES = json.loads((Path(__file__).parents[1] / "data" / "conformance" / "permissions.json").read_text())
LIFECYCLE = {case["id"]: case for case in CASES["permission_request_lifecycle"]}
FROZEN = datetime(2026, 2, 23, 12, tzinfo=UTC)  # the cases' own clock


def by_id(group: str) -> Any:
    return pytest.mark.parametrize("case", CASES[group], ids=lambda case: case["id"])


def raw(table: str, column: str, value: object, key: str, pk: object) -> None:
    """Write a column as another program would."""
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {column} = %s WHERE {key} = %s", [value, pk])


@by_id("is_permission_approved")
def test_is_approved(case: dict[str, Any]) -> None:
    row = stored(case["status"])
    raw("permission_requests", "expires_at", case["expires_at"], "id", row.pk)
    assert is_call_approved("mind.x", "NetworkAccess", "api.example.org", FROZEN) is case["expected"]


def test_what_another_program_approved_by_itself_stands_as_what_a_person_approved() -> None:
    row = stored("auto-approved", approved_by="YOLO")
    for end, stands in (
        (None, True),
        ("2026-02-23T13:00:00+00:00", True),
        ("2026-02-23T11:00:00+00:00", False),
    ):
        raw("permission_requests", "expires_at", end, "id", row.pk)
        assert is_call_approved("mind.x", "NetworkAccess", "api.example.org", FROZEN) is stands
        assert approvals.find_final_answer(row.request_id, FROZEN)["allowed"] is stands


def test_what_is_approved_without_a_person_here_covers_itself_alone(settings) -> None:
    settings.AUTO_APPROVE_TYPES = ["FileRead"]
    row = fresh(asked(permission_type="FileRead"))
    assert not is_call_approved(row.plugin_id, "FileRead", row.target_resource, NOW)


def test_every_lifecycle_case_has_a_test_here() -> None:
    tested = {"pr-01", "pr-03", "pr-04", "pr-06", "pr-07", "pr-09", "pr-11", "pr-13", "pr-14", "pr-15"}
    assert set(LIFECYCLE) == tested  # pr-06, 07, 09 and 13 are in test_deciding.py and test_asking.py


def test_pr_01_approve() -> None:
    row = stored("pending")
    approvals.decide_request(row.request_id, person=person(), verdict="approved", now=NOW)
    row = fresh(row)
    expected = LIFECYCLE["pr-01"]["expected"]
    assert (row.status, row.approved_by, row.approved_at) == (expected["status"], "alice", NOW)
    assert trail(row) == [LIFECYCLE["pr-01"]["audit"]]


@pytest.mark.parametrize("case_id", ["pr-03", "pr-04"])
def test_pr_03_04_a_decided_request_is_a_conflict(case_id: str) -> None:
    case = LIFECYCLE[case_id]
    row = stored(case["start"], approved_by="bob", approved_at=NOW)
    with pytest.raises(Conflict) as refused:
        approvals.decide_request(row.request_id, person=person(), verdict="approved", now=NOW)
    assert refused.value.status == case["expected_http"]


def test_pr_11_a_pending_request_past_its_time_is_expired() -> None:
    row = stored("pending")
    raw("permission_requests", "expires_at", "2026-02-23T11:00:00Z", "id", row.pk)
    with pytest.raises(Conflict, match="deadline passed"):
        approvals.decide_request(row.request_id, person=person(), verdict="approved", now=FROZEN)
    assert approvals.find_final_answer(row.request_id, FROZEN)["status"] == "expired"


def test_pr_14_what_is_approved_without_a_person_says_so(settings) -> None:
    settings.AUTO_APPROVE_TYPES = ["FileRead"]
    row = fresh(asked(permission_type="FileRead"))
    expected = LIFECYCLE["pr-14"]["expected"]
    assert (row.status, row.approved_by) == (expected["status"], expected["approved_by"])
    assert row.approved_at == NOW


def test_pr_15_a_request_id_is_unique() -> None:
    stored(request_id="same")
    with pytest.raises(IntegrityError), transaction.atomic():
        stored(request_id="same")


@pytest.mark.parametrize(
    "case",
    [case for case in CASES["plugin_permissions"] if "grant" in case or "revoke" in case],
    ids=lambda case: case["id"],
)
def test_plugin_permissions(case: dict[str, Any]) -> None:
    PluginSetting.objects.create(plugin_id="mind.p", allowed_permissions=[])
    raw("plugin_settings", "allowed_permissions", case["before"], "plugin_id", "mind.p")
    change = (
        plugin_permissions.add_plugin_permission
        if "grant" in case
        else plugin_permissions.remove_plugin_permission
    )
    permission = case.get("grant") or case["revoke"]
    if case["expected"].startswith("["):
        assert change("mind.p", permission, actor=AGENT, now=NOW) == json.loads(case["expected"])
        assert PluginSetting.objects.get(pk="mind.p").allowed_permissions == json.loads(case["expected"])
        return
    with pytest.raises((Conflict, NotFound)):
        change("mind.p", permission, actor=AGENT, now=NOW)
    with connection.cursor() as cursor:
        cursor.execute("SELECT allowed_permissions FROM plugin_settings WHERE plugin_id = 'mind.p'")
        assert cursor.fetchone()[0] == case["before"]


def test_pg_10_permissions_never_leak_to_another_plugin() -> None:
    for name in ("mind.p", "mind.q"):
        PluginSetting.objects.create(plugin_id=name, allowed_permissions=[])
    plugin_permissions.add_plugin_permission("mind.p", "FileRead", actor=AGENT, now=NOW)
    assert PluginSetting.objects.get(pk="mind.q").allowed_permissions == []


def test_pg_11_only_the_nine_permissions_can_be_granted() -> None:
    [case] = [case for case in CASES["plugin_permissions"] if case["id"] == "pg-11"]
    assert set(plugin_permissions.KNOWN) == set(case["enum"])
    PluginSetting.objects.create(plugin_id="mind.p", allowed_permissions=[])
    with pytest.raises(UnprocessableRequest):
        plugin_permissions.add_plugin_permission("mind.p", "Everything", actor=AGENT, now=NOW)
