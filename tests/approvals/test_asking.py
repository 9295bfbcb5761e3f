from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta

import pytest
from django.db import IntegrityError, connection, connections, transaction

from coordinator.actions import approvals
from coordinator.errors import Conflict, RequestTooLarge, UnprocessableRequest
from coordinator.identity.actors import key_actor_by_name
from coordinator.models import PermissionContext, PermissionRequest
from coordinator.policy.requests.approval_coverage import Requester
from coordinator.policy.requests.approvals import Validity
from coordinator.secrets.masking import SecretMasker
from tests.approvals.factories import AGENT, MINUTE, NOW, approve, ask, asked, fresh, person, trail

pytestmark = pytest.mark.django_db


def test_a_request_keeps_what_was_asked_and_by_whom() -> None:
    deadline = NOW + 5 * MINUTE
    row = fresh(asked(session_id="ses_1", agent_id="coder", event_id=7, deadline=deadline, metadata={"a": 1}))
    assert (row.status, row.expires_at, row.metadata) == ("pending", deadline, {"a": 1})
    context = row.context
    assert (context.requested_by, context.session_id, context.event_id) == ("key:agent-key", "ses_1", 7)
    assert context.tool_input == {"command": "make deploy"}
    assert trail(row) == ["PERMISSION_REQUEST_CREATED"]


def test_the_same_question_joins_the_request_that_waits() -> None:
    first = approvals.request_permission(ask(), actor=AGENT, now=NOW)
    twin = approvals.request_permission(ask(justification="in other words"), actor=AGENT, now=NOW + MINUTE)
    assert (first.created, twin.created) == (True, False)
    assert twin.request == first.request


@pytest.mark.parametrize(
    "difference",
    [
        {"plugin_id": "mind.y"},
        {"permission_type": "FileWrite"},
        {"target_resource": "zsh"},
        {"target_resource": None},
        {"tool_name": "Shell"},
        {"tool_input": {"command": "make  deploy"}},
        {"session_id": "ses_2"},
        {"agent_id": "other"},
    ],
)
def test_a_different_question_is_a_request_of_its_own(difference: dict[str, object]) -> None:
    assert asked() != asked(**difference)


def test_another_asker_gets_a_request_of_its_own() -> None:
    assert asked(by=key_actor_by_name("one")) != asked(by=key_actor_by_name("two"))


def test_the_order_of_an_inputs_fields_makes_no_difference() -> None:
    assert asked(tool_input={"a": 1, "b": [2]}) == asked(tool_input={"b": [2], "a": 1})


def test_a_twin_past_its_deadline_is_closed_and_not_joined() -> None:
    late = asked(deadline=NOW + MINUTE)
    again = asked(now=NOW + 2 * MINUTE)
    assert again != late
    assert fresh(late).status == "expired"
    assert fresh(again).status == "pending"


def test_an_approval_in_force_answers_the_same_question() -> None:
    row = asked()
    approve(row, validity=Validity.HOUR)
    again = approvals.request_permission(ask(session_id="ses_other"), actor=AGENT, now=NOW + MINUTE)
    assert (again.created, again.request) == (False, row)
    assert trail(row)[-1] == "PERMISSION_APPROVAL_USED"


@pytest.mark.parametrize("validity", [Validity.ONCE, Validity.HOUR])
def test_a_question_after_the_approval_is_over_is_a_new_request(validity: Validity) -> None:
    row = asked()
    approve(row, validity=validity)
    again = asked(now=NOW + timedelta(hours=1))
    assert again != row
    assert fresh(again).status == "pending"


def test_an_approval_for_one_input_does_not_cover_another() -> None:
    row = asked()
    approve(row)
    assert asked(tool_input={"command": "rm -rf /"}).status == "pending"
    assert asked(tool_name=None, tool_input=None).status == "pending"


def test_an_approval_for_one_agent_does_not_cover_another() -> None:
    row = asked(agent_id="one")
    approve(row)
    assert asked(agent_id="one").status == "approved"
    assert asked(agent_id="two").status == "pending"
    assert asked(agent_id=None).status == "pending"


def test_a_denial_does_not_answer_the_next_question() -> None:
    row = asked()
    approvals.decide_request(row.request_id, person=person(), verdict="denied", now=NOW)
    assert asked() != row


def test_an_idempotency_key_gives_the_same_request_whatever_became_of_it() -> None:
    row = asked(idempotency_key="k1")
    approvals.decide_request(row.request_id, person=person(), verdict="denied", now=NOW)
    assert asked(idempotency_key="k1") == row
    assert asked(idempotency_key="k2") != row


def test_an_idempotency_key_is_the_askers_own() -> None:
    assert asked(by=key_actor_by_name("one"), idempotency_key="k") != asked(
        by=key_actor_by_name("two"), idempotency_key="k"
    )


def test_an_idempotency_key_of_another_question_is_refused() -> None:
    asked(idempotency_key="k1")
    with pytest.raises(Conflict, match="different request"):
        asked(idempotency_key="k1", target_resource="zsh")


@pytest.mark.parametrize(
    "other", [{"folder": "/srv"}, {"host": "prod"}, {"agent_id": "b"}, {"session_id": "s"}]
)
def test_an_idempotency_key_brings_no_approval_to_another_place(other: dict[str, str]) -> None:
    place = {"folder": "/home/toy", "host": "laptop", "agent_id": "a", "session_id": "ses_1"}
    approve(asked(idempotency_key="k1", **place))
    with pytest.raises(Conflict, match="different request"):
        asked(idempotency_key="k1", **place | other)


@pytest.mark.parametrize("name", ["plugin_id", "permission_type", "justification"])
def test_what_a_person_decides_by_must_be_said(name: str) -> None:
    with pytest.raises(UnprocessableRequest, match=name):
        asked(**{name: " "})


def test_a_deadline_in_the_past_is_refused() -> None:
    with pytest.raises(UnprocessableRequest, match="past"):
        asked(deadline=NOW)


def test_an_input_nobody_can_judge_is_refused() -> None:
    with pytest.raises(RequestTooLarge):
        asked(tool_input={"command": "x" * 1_000_001})


def test_what_a_card_cannot_show_whole_is_not_asked_and_not_covered_by_what_begins_alike() -> None:
    begins = "token a " * 50_001
    with pytest.raises(RequestTooLarge, match="for a person to judge"):
        asked(tool_input={"command": f"{begins}; reboot"})
    assert not PermissionRequest.objects.exists()

    row = asked()
    approve(row)
    context = fresh(row).context
    context.tool_input = SecretMasker(judged=True).mask_value(
        {"command": f"{begins}; reboot"}
    )  # as it was once shown
    context.save()
    assert not approvals.is_call_approved(
        "mind.x",
        "ProcessExecution",
        "bash",
        NOW,
        requester=Requester(requested_by=str(AGENT)),
        tool_name="Bash",
        tool_input={"command": f"{begins}; poweroff"},
    )


def test_types_an_operator_lists_are_approved_at_once_for_that_request_alone(settings) -> None:
    settings.AUTO_APPROVE_TYPES = ["ProcessExecution"]
    row = fresh(asked())
    assert (row.status, row.approved_by, row.approved_at) == ("auto-approved", "YOLO", NOW)
    assert approvals.find_final_answer(row.request_id, NOW)["allowed"]
    assert asked() != row
    assert trail(row) == ["PERMISSION_REQUEST_CREATED", "PERMISSION_REQUEST_AUTO_APPROVED"]


@pytest.mark.django_db(transaction=True)
def test_concurrent_twins_join_one_request() -> None:
    def twin(_: int) -> tuple[str, bool]:
        try:
            answer = approvals.request_permission(ask(), actor=AGENT, now=NOW)
            return answer.request.request_id, answer.created
        finally:
            connections.close_all()

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(twin, range(24)))
    assert len({request_id for request_id, _ in answers}) == 1
    assert [created for _, created in answers].count(True) == 1
    assert PermissionRequest.objects.count() == 1


def test_two_waiting_rows_with_one_pending_key_cannot_be() -> None:
    asked()
    twin = PermissionRequest.objects.create(
        request_id="r2", created_at=NOW, plugin_id="p", permission_type="t", justification="j"
    )
    pending_key = PermissionContext.objects.get().pending_key
    with pytest.raises(IntegrityError), transaction.atomic():
        PermissionContext.objects.create(
            request=twin, requested_by="key:x", subject_key="s", pending_key=pending_key
        )


@pytest.mark.skipif(
    connection.vendor != "sqlite", reason="PostgreSQL enforces foreign keys for every program"
)
@pytest.mark.django_db(transaction=True)
def test_a_row_deleted_by_a_program_without_foreign_keys_does_not_block_its_question() -> None:
    row = asked(idempotency_key="k")
    with closing(sqlite3.connect(connection.settings_dict["NAME"])) as other, other:
        other.execute("DELETE FROM permission_requests")
    assert asked(idempotency_key="k") != row
