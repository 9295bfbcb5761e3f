"""Asking a person for access: approving it makes the grant, and revoking the approval ends it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.approvals import NewPermissionRequest
from coordinator.actions.mcp import mcp_servers
from coordinator.errors import NotFound
from coordinator.identity.actors import Actor, person_actor
from coordinator.models import Grant, PermissionRequest
from coordinator.policy.grants import access
from coordinator.policy.grants.access_requests import RequestedAccess, parse_access_request_or_none
from coordinator.policy.requests.approvals import Scope, Validity
from tests.access.cases import add_agents, add_server, grant
from tests.people import person as new_person

pytestmark = pytest.mark.django_db
NOW = timezone.now()


@pytest.fixture
def approver() -> User:
    add_agents("agent.a")
    add_server("s")
    return new_person("approver")


def asked(tool: str | None = "t") -> PermissionRequest:
    wish = RequestedAccess("agent.a", "s", tool)
    ask = NewPermissionRequest(
        wish.permission_subject, justification="The release waits.", agent_id="agent.a"
    )
    row = approvals.request_permission(ask, actor=Actor("user", "vera"), now=NOW).request
    assert parse_access_request_or_none(row) == wish
    return row


@pytest.mark.parametrize(
    ("change", "speaks_as"),
    [
        ({"target_resource": "weather of s"}, None),
        ({"plugin_id": "harmless"}, None),
        ({"tool_name": "t"}, None),
        ({}, "agent.b"),
    ],
)
def test_a_request_whose_words_say_something_else_than_its_input_grants_nothing(
    approver: User, change: dict[str, str], speaks_as: str | None
) -> None:
    subject = replace(RequestedAccess("agent.a", "s", None).permission_subject, **change)
    ask = NewPermissionRequest(subject, justification="To look up the weather.", agent_id=speaks_as)
    row = approvals.request_permission(ask, actor=Actor("key", "k"), now=NOW).request
    approve(row, approver)
    assert not Grant.objects.exists()


def approve(row: PermissionRequest, by: User, validity: Validity = Validity.SHIFT) -> PermissionRequest:
    return approvals.decide_request(
        row.request_id, person=by, verdict="approved", validity=validity, scope=Scope.EVERYWHERE, now=NOW
    )


def test_approving_grants_the_tool_for_the_chosen_time(approver: User) -> None:
    approve(asked(), approver)
    verdict = access.resolve_tool_access("agent.a", "s", "t", NOW)
    assert (verdict.source, verdict.expires_at) == ("tool_grant", NOW + timedelta(hours=8))
    assert verdict.grant is not None
    assert verdict.grant.granted_by == str(person_actor(approver))
    assert "The release waits." in (verdict.grant.justification or "")
    assert not access.resolve_tool_access("agent.a", "s", "u", NOW).is_allowed


def test_approving_for_the_server_grants_all_of_it(approver: User) -> None:
    approve(asked(None), approver, Validity.UNTIL_REVOKED)
    verdict = access.resolve_tool_access("agent.a", "s", "u", NOW)
    assert (verdict.source, verdict.expires_at) == ("server_grant", None)


def test_once_is_an_hour(approver: User) -> None:
    row = approve(asked(), approver, Validity.ONCE)
    assert (
        access.resolve_tool_access("agent.a", "s", "t", NOW).expires_at
        == NOW + timedelta(hours=1)
        == row.expires_at
    )


def test_approving_replaces_a_denial(approver: User) -> None:
    grant("agent.a", "s", "t", permission="deny")
    approve(asked(), approver)
    assert access.resolve_tool_access("agent.a", "s", "t", NOW).is_allowed


def test_approving_does_not_shorten_what_stands(approver: User) -> None:
    row = grant("agent.a", "s", "t")
    approve(asked(), approver)
    assert [one.pk for one in Grant.objects.not_ended(NOW)] == [row.pk]


def test_denying_grants_nothing(approver: User) -> None:
    approvals.decide_request(asked().request_id, person=approver, verdict="denied", now=NOW)
    assert not Grant.objects.exists()


def test_without_the_grant_there_is_no_approval(approver: User) -> None:
    row = asked()
    mcp_servers.delete_server_with_grants("s", actor=Actor("user", "alice"), now=NOW)
    with pytest.raises(NotFound):
        approve(row, approver)
    row.refresh_from_db()
    assert row.status == "pending"


def test_revoking_the_approval_ends_its_grant_and_no_other(approver: User) -> None:
    other = grant("agent.a", "s")
    row = approve(asked(), approver)
    approvals.revoke_approval(row.request_id, person=approver, now=NOW + timedelta(minutes=1))
    standing = Grant.objects.not_ended(NOW + timedelta(minutes=1))
    assert [one.pk for one in standing] == [other.pk]
