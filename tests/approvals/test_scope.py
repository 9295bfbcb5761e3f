"""What an approval covers: this call, unless the person chose more; always by the agent that asked alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.errors import BadRequest
from coordinator.identity.actors import key_actor_by_name
from coordinator.models import PermissionContext, PermissionRequest
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests.approvals import Scope, Validity
from coordinator.policy.requests.verdicts import serialize_permission_request
from tests.approvals.cards import form_for
from tests.approvals.factories import AGENT, MINUTE, NOW, approve, ask, asked, fresh, person

pytestmark = pytest.mark.django_db

HERE = {"agent_id": "coder", "session_id": "ses_1", "folder": "/home/me/toy", "host": "laptop"}
CHANGES: dict[str, dict[str, Any]] = {
    "the same": {},
    "session": {"session_id": "ses_2"},
    "no session": {"session_id": None},
    "folder": {"folder": "/srv/production"},
    "folder and session": {"folder": "/srv/production", "session_id": "ses_2"},
    "host": {"host": "prod-1", "session_id": "ses_2"},
    "agent": {"agent_id": "other"},
    "no agent": {"agent_id": None},
}
COVERED = {
    Scope.CALL: set[str](),
    Scope.SESSION: {"the same"},
    Scope.FOLDER: {"the same", "session", "no session"},
    Scope.EVERYWHERE: {"the same", "session", "no session", "folder", "folder and session", "host"},
}


def approved(scope: Scope, **more: Any) -> PermissionRequest:
    """Return a request from HERE that was approved as widely as `scope`."""
    row = asked(**HERE | more)
    validity = Validity.ONCE if scope is Scope.CALL else Validity.WEEK
    return approve(row, validity=validity, scope=scope)


@pytest.mark.parametrize("scope", list(Scope))
def test_an_approval_covers_as_much_as_was_chosen_and_no_more(scope: Scope) -> None:
    row = approved(scope)
    answered = {name for name, change in CHANGES.items() if asked(now=NOW + MINUTE, **HERE | change) == row}
    assert answered == COVERED[scope]


def test_without_an_agent_an_approval_covers_the_key_that_asked() -> None:
    row = approved(Scope.EVERYWHERE, agent_id=None)
    assert asked(now=NOW + MINUTE, **HERE | {"agent_id": None}) == row
    assert asked(by=key_actor_by_name("another"), now=NOW + MINUTE, **HERE | {"agent_id": None}) != row
    assert (
        asked(by=key_actor_by_name("another"), now=NOW + MINUTE, **HERE | {"agent_id": "key:agent-key"})
        != row
    )


@pytest.mark.parametrize(
    ("known", "offered"),
    [
        ({}, {"call", "everywhere"}),
        ({"session_id": "ses_1"}, {"call", "session", "everywhere"}),
        ({"folder": "/a"}, {"call", "everywhere"}),
        ({"folder": "/a", "host": "h"}, {"call", "folder", "everywhere"}),
    ],
)
def test_a_card_offers_the_scopes_that_its_request_can_have(
    signed_in, known: dict[str, str], offered: set[str]
) -> None:
    asked(now=timezone.now(), **known)
    page = signed_in().get("/ui/approvals/").content.decode()
    assert {scope for scope in Scope if f'<option value="{scope}">' in page} == offered


def test_a_scope_that_the_request_cannot_have_is_refused() -> None:
    row = asked()
    with pytest.raises(BadRequest, match="no session or folder"):
        approve(row, scope=Scope.SESSION)


@pytest.mark.parametrize(
    ("scope", "validity"), [(Scope.CALL, Validity.WEEK), (Scope.EVERYWHERE, Validity.ONCE)]
)
def test_a_scope_and_a_validity_that_contradict_each_other_are_refused(
    scope: Scope, validity: Validity
) -> None:
    row = asked()
    with pytest.raises(BadRequest, match="validity"):
        approvals.decide_request(
            row.request_id, person=person(), verdict="approved", validity=validity, scope=scope, now=NOW
        )


def test_a_form_that_names_no_scope_approves_this_call_alone(signed_in) -> None:
    row = asked(now=timezone.now())
    signed_in().post("/ui/approvals/decide/", form_for(row, validity="7d"))
    assert (fresh(row).context.validity, fresh(row).context.scope) == ("once", "call")
    assert asked(now=timezone.now()) != row


@pytest.mark.parametrize(
    ("text", "zone", "end"),
    [
        ("3 hours", "UTC", timedelta(hours=3)),
        ("until tomorrow 18:00", "UTC", timedelta(hours=30)),
        ("tomorrow 18:00", "Asia/Tokyo", timedelta(hours=21)),
        ("tomorrow 18:00", "no zone", timedelta(hours=30)),
    ],
)
def test_a_person_may_write_when_an_approval_ends(signed_in, monkeypatch, text, zone, end) -> None:
    monkeypatch.setattr(timezone, "now", lambda: NOW)
    row = asked()
    form = form_for(row, scope="everywhere", validity="until", until=text, zone=zone)
    signed_in().post("/ui/approvals/decide/", form)
    row = fresh(row)
    assert (row.status, row.context.validity, row.context.scope) == ("approved", "until", "everywhere")
    assert row.expires_at == NOW + end
    assert asked(now=NOW + MINUTE) == row
    assert asked(now=NOW + end) != row


@pytest.mark.parametrize("text", ["", "no end", "soon", "2 minutes ago", "2001-01-01 10:00", "x" * 61])
def test_words_that_name_no_end_approve_nothing(signed_in, text) -> None:
    row = asked(now=timezone.now())
    form = form_for(row, scope="everywhere", validity="until", until=text)
    toast = (
        signed_in().post("/ui/approvals/decide/", form, headers={"HX-Request": "true"}).headers["HX-Trigger"]
    )
    assert fresh(row).status == "pending"
    assert "for example" in toast or "has passed" in toast


def test_an_end_without_its_validity_and_a_validity_without_its_end_are_refused() -> None:
    row, alice = asked(), person()
    for more in ({"validity": Validity.UNTIL}, {"validity": Validity.HOUR, "until": NOW + MINUTE}):
        with pytest.raises(BadRequest, match="needs that time"):
            approvals.decide_request(
                row.request_id, person=alice, verdict="approved", scope=Scope.EVERYWHERE, now=NOW, **more
            )


def test_two_people_agree_on_the_narrower_scope(settings) -> None:
    settings.TWO_PERSON_TYPES = ["ProcessExecution"]
    row = asked(**HERE)
    for name, scope in (("alice", Scope.EVERYWHERE), ("bob", Scope.SESSION)):
        approve(row, person(name), scope=scope)
    assert fresh(row).context.scope == "session"


def test_the_api_the_page_and_the_history_say_what_an_approval_covers(call, signed_in) -> None:
    row = asked(now=timezone.now(), **HERE)
    approvals.decide_request(
        row.request_id, person=person(), verdict="approved", validity=Validity.HOUR, scope=Scope.FOLDER
    )
    told = call("get", f"/api/permission-requests/{row.request_id}", scope="read").json()
    assert (told["scope"], told["folder"], told["host"]) == ("folder", "/home/me/toy", "laptop")
    browser = signed_in("bob")
    for path in (f"/ui/approvals/{row.request_id}/", "/ui/approvals/history/"):
        assert "The same call in /home/me/toy on laptop" in browser.get(path).content.decode()


def test_a_scope_that_another_program_wrote_is_shown_as_it_stands(signed_in) -> None:
    row = approved(Scope.EVERYWHERE)
    PermissionContext.objects.update(scope="{odd}")
    for path in (f"/ui/approvals/{row.request_id}/", "/ui/approvals/history/"):
        assert "{odd}" in signed_in(path).get(path).content.decode()


def old_approval(**changes: Any) -> PermissionRequest:
    """Return an approval as it was stored before scopes: with the unkeyed digest of what its card showed."""
    row = asked(**changes)
    approve(row)
    PermissionContext.objects.filter(pk=row.request_id).update(
        scope=None, cover_key=None, subject_key=rules.legacy_call_digest(rules.request_subject(row))
    )
    return fresh(row)


def test_an_old_approval_covers_what_it_said(signed_in) -> None:
    row = old_approval(agent_id=None, session_id="ses_1", folder=None, host=None)
    for change in ({}, {"session_id": "ses_2"}, {"folder": "/elsewhere"}, {"agent_id": "coder"}):
        assert asked(now=NOW + MINUTE, **change) == row
    assert asked(now=NOW + MINUTE, tool_input={"command": "make destroy"}) != row
    assert serialize_permission_request(row, NOW)["scope"] == "everywhere"
    page = signed_in("bob").get(f"/ui/approvals/{row.request_id}/").content.decode()
    assert "before the scope could be chosen" in page


def test_an_old_approval_that_names_an_agent_covers_that_agent_alone() -> None:
    row = old_approval(agent_id="coder")
    assert asked(now=NOW + MINUTE, agent_id="coder") == row
    assert asked(now=NOW + MINUTE, agent_id="other") != row
    assert asked(now=NOW + MINUTE, agent_id=None) != row


def test_an_old_approval_of_a_masked_secret_or_with_an_edit_covers_nothing_more() -> None:
    secret = {"command": f"login --token ghp_{'a' * 36}"}
    masked = old_approval(tool_input=secret)
    assert asked(now=NOW + MINUTE, tool_input=secret) != masked
    assert asked(now=NOW + MINUTE, tool_input=masked.context.tool_input) != masked
    edited = asked(tool_input={"command": "rm -rf /data"})
    PermissionRequest.objects.filter(pk=edited.pk).update(status="approved", expires_at=None)
    PermissionContext.objects.filter(pk=edited.request_id).update(
        scope=None,
        pending_key=None,
        validity="until-revoked",
        answer={"updated_input": {"command": "ls"}},
        subject_key=rules.legacy_call_digest(rules.request_subject(edited)),
    )
    assert asked(now=NOW + MINUTE, tool_input={"command": "rm -rf /data"}) != edited


def test_asking_reads_as_much_with_a_thousand_approvals_in_force_as_with_none(
    django_assert_max_num_queries,
) -> None:
    rows = [
        PermissionRequest(
            request_id=f"old-{number}",
            created_at=NOW,
            plugin_id="mind.x",
            permission_type="ProcessExecution",
            target_resource="bash",
            justification="j",
            status="approved",
        )
        for number in range(1_000)
    ]
    PermissionRequest.objects.bulk_create(rows)
    PermissionContext.objects.bulk_create(
        PermissionContext(
            request=row,
            requested_by=str(AGENT),
            subject_key=f"digest {row.request_id}",
            scope=Scope.EVERYWHERE,
            cover_key=f"cover {row.request_id}",
            validity="until-revoked",
        )
        for row in rows
    )
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    with django_assert_max_num_queries(20) as captured:
        approvals.request_permission(ask(), actor=AGENT, now=NOW)
    read = [
        query["sql"]
        for query in captured
        if query["sql"].startswith("SELECT") and "cover_key" in query["sql"]
    ]
    assert read
    for index in ("sbx_permission_context_cover", "sbx_permission_context_unscoped"):
        assert any(index in plan_of(sql) for sql in read), index


def plan_of(sql: str) -> str:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute(f"EXPLAIN {sql}")
        else:
            cursor.execute(f"EXPLAIN QUERY PLAN {sql}")
        return "\n".join(str(row) for row in cursor.fetchall())
