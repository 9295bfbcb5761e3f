from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from coordinator.actions import approvals
from coordinator.actions import deciders as actions
from coordinator.actions.approvals.always_allow import PermanentApproval
from coordinator.actions.sessions import tool_calls
from coordinator.actions.sessions.tool_calls import ApprovalAdditions, compute_offered_rule_digest
from coordinator.errors import Conflict, Forbidden
from coordinator.identity.actors import person_actor as actor
from coordinator.mcp.servers.names import PREFIX
from coordinator.models import (
    AuditLog,
    DecidingRule,
    Grant,
    McpServer,
    PermissionRequest,
    RightsVersion,
)
from coordinator.operations.doctor.upkeep import check_deciding_rules
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.grants.access_requests import RequestedAccess
from coordinator.policy.requests import agent_options
from coordinator.policy.requests.approvals import Validity
from tests.access.cases import add_agents
from tests.approvals.factories import MINUTE, NOW, approve, ask, asked, fresh, person
from tests.deciders.factories import group, handed, row

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def names(request: PermissionRequest, now=NOW) -> list[str]:
    return [user.get_username() for user in deciders.load_deciders_of_request(request, now=now)]


def decide(request: PermissionRequest, by: User, verdict: str = "approved", now=NOW) -> PermissionRequest:
    return approvals.decide_request(request.request_id, person=by, verdict=verdict, now=now)


def test_without_rows_every_active_approver_decides() -> None:
    person("anna")
    person("boss", "admin")
    person("reader", "viewer")
    User.objects.filter(pk=person("gone").pk).update(is_active=False)
    request = asked()
    assert names(request) == ["anna", "boss"]
    assert deciders.load_decider_description(request, NOW) == ""
    assert decide(request, User.objects.get(username="anna")).status == "approved"


def test_the_first_row_that_fits_says_who_decides() -> None:
    anna, bob, carol = person("anna"), person("bob"), person("carol")
    row(anna, permission_type="ProcessExecution", tool="Bash|Shell")
    row(group("Operators", bob, carol))
    shell, other = asked(), asked(tool_name="Read", target_resource="/etc")
    assert (names(shell), names(other)) == (["anna"], ["bob", "carol"])
    assert deciders.load_decider_description(shell, NOW) == "Waits for: anna."
    assert deciders.load_decider_description(other, NOW) == "Waits for: one of Operators."
    with pytest.raises(Forbidden, match=r"Waits for: anna\. You are not among them"):
        decide(shell, bob)
    for verdict in ("approved", "denied"):
        with pytest.raises(Forbidden):
            decide(other, anna, verdict)
    assert fresh(other).status == "pending"
    refused = AuditLog.objects.filter(event_type="PERMISSION_REQUEST_REFUSED", actor_id="user:anna")
    assert refused.count() == 2
    assert decide(other, carol, "denied").status == "denied"


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ({"permission_type": "ProcessExecution"}, True),
        ({"permission_type": "Process*|Network*"}, True),
        ({"permission_type": "NetworkAccess"}, False),
        ({"tool": "mcp__git.hub__*"}, False),
        ({"tool": "mcp__git_hub__push*"}, True),
        ({"server": "git.hub"}, True),
        ({"server": "jira"}, False),
        ({"agent": "coder"}, True),
        ({"agent": "mind.x"}, True),  # the program that asks
        ({"agent": "tester"}, False),
        ({"host": "web-*"}, True),
        ({"host": "db-1"}, False),
        ({"server": "git.hub", "host": "db-1"}, False),
    ],
)
def test_a_row_names_requests_by_type_tool_server_agent_and_host(terms: dict[str, str], fits: bool) -> None:
    McpServer.objects.create(name="git.hub", command="git", created_at=NOW)
    row(person("anna"), **terms)
    person("bob")
    request = asked(tool_name=f"{PREFIX}git_hub__push_files", agent_id="coder", host="web-1")
    assert names(request) == (["anna"] if fits else ["anna", "bob"])


@pytest.mark.parametrize(
    "tool_name",
    ["mcp__signalbox__git_hub__push", "mcp__plugin_tools_git_hub__push", "mcp__git_hub__push"],
)
def test_no_spelling_of_a_tool_escapes_the_row_of_its_server(tool_name: str) -> None:
    McpServer.objects.create(name="git.hub", command="git", created_at=NOW)
    row(person("anna"), tool="mcp__git_hub__p*", server="git.hub")
    person("bob")
    assert names(asked(tool_name=tool_name)) == ["anna"]


@pytest.mark.parametrize("plugin", ["", "plugin_tools_"])
def test_a_servers_row_is_not_for_another_whose_name_begins_alike(plugin: str) -> None:
    for name in ("a", "a__b"):
        McpServer.objects.create(name=name, command="x", created_at=NOW)
    row(person("anna"), server="a")
    person("bob")
    assert names(asked(tool_name=f"mcp__{plugin}a__run")) == ["anna"]
    assert names(asked(tool_name=f"mcp__{plugin}a__b__run")) == ["anna", "bob"]


@pytest.mark.parametrize("tool", ["delete", None])
def test_asking_for_access_is_decided_by_whoever_decides_the_tool(tool: str | None) -> None:
    row(person("anna"), tool="mcp__files__delete*")
    person("bob")
    wish = RequestedAccess("coder", "files", tool)
    assert names(asked(**_of(wish))) == ["anna"]
    assert names(asked(**_of(RequestedAccess("coder", "files", "read")))) == ["anna", "bob"]
    assert names(asked(**_of(RequestedAccess("coder", "mail", None)))) == ["anna", "bob"]


def _of(wish: RequestedAccess) -> dict[str, object]:
    subject = wish.permission_subject
    named = ("plugin_id", "permission_type", "target_resource", "tool_name", "tool_input")
    return {name: getattr(subject, name) for name in named}


def test_an_unreadable_row_of_another_program_is_nobodys_and_never_everybodys() -> None:
    made = row()
    anna = person("anna")
    for odd in ("everyone", {"a": 1}, ["anna"], [[anna.pk]]):
        type(made).objects.filter(pk=made.pk).update(people=odd, groups=[])
        assert names(asked(target_resource=repr(odd))) == []


def test_a_right_lost_since_the_page_was_opened_does_not_count() -> None:
    anna, bob = person("anna"), person("bob")
    row(ops := group("Operators", anna))
    request = asked()
    assert deciders.can_user_decide_request(anna, request, NOW)
    ops.user_set.set([bob])
    with pytest.raises(Forbidden):
        decide(request, anna)
    bob.groups.remove(
        bob.groups.get(name="approver")
    )  # what the object in hand has cached counts for nothing
    with pytest.raises(Forbidden, match="role approver"):
        decide(request, bob)


def test_an_empty_group_leaves_it_to_nobody_not_even_to_admins() -> None:
    ops = group("Operators")
    row(ops)
    admin, request = person("boss", "admin"), asked()
    assert names(request) == []
    assert deciders.load_decider_description(request, NOW).startswith("Nobody may decide this. Row 1")
    with pytest.raises(Forbidden, match="Nobody may decide"):
        decide(request, admin)
    ops.delete()
    assert names(request) == []
    assert deciders.load_decider_book(NOW).find_rule_problems() != []


@pytest.mark.parametrize(
    ("rows", "numbers"),
    [
        ([{}], [1]),
        ([{"permission_type": "Process*"}, {}], [1]),  # nothing of the type comes to the second
        ([{"permission_type": "ProcessExecution", "tool": "Bash"}, {}], [1, 2]),
        ([{"permission_type": "NetworkAccess"}, {}], [2]),
        ([{"server": "git.hub"}], []),  # it may match none of the type
    ],
)
def test_a_row_of_one_person_for_a_type_of_two_is_a_problem(
    settings, rows: list[dict[str, str]], numbers: list[int]
) -> None:
    anna = person("anna")
    for terms in rows:
        row(anna, **terms)
    assert deciders.load_decider_book(NOW).find_rule_problems() == []
    settings.TWO_PERSON_TYPES = ["ProcessExecution"]
    assert deciders.load_decider_book(NOW).find_rule_problems() == [
        "Two people must approve requests of the type ProcessExecution, but by row "
        f"{number} of Who decides only anna may decide."
        for number in numbers
    ]


def test_a_row_of_one_person_is_a_problem_while_a_request_waits_that_needs_two() -> None:
    anna, bob = person("anna"), person("bob")
    made = row(anna, bob, tool="Bash", needed=2)
    request = asked()
    DecidingRule.objects.filter(pk=made.pk).update(needed=1, people=[anna.pk])
    row(anna, bob)
    problem = (
        f"Two people must approve the waiting request {request.request_id}, but by row 1 of Who decides only "
        "anna may decide."
    )
    assert deciders.load_decider_book(NOW).find_rule_problems() == [problem]
    assert check_deciding_rules(NOW).message == problem
    decide(request, anna, "denied")
    assert deciders.load_decider_book(NOW).find_rule_problems() == []


def test_two_people_by_a_row_and_a_laxer_row_later_does_not_lower_it() -> None:
    anna, bob = person("anna"), person("bob")
    made = row(anna, group("Operators", bob), needed=2)
    request = asked()
    assert deciders.load_decider_description(request, NOW) == "Waits for two of: anna, the group Operators."
    made.delete()
    assert decide(request, anna).status == "pending"
    with pytest.raises(Conflict, match="second person"):
        decide(request, anna)
    assert decide(request, bob).approved_by == "anna, bob"


def test_a_stricter_row_counts_for_what_waits_already() -> None:
    anna, bob, carol = person("anna"), person("bob"), person("carol")
    request = asked()
    row(anna, bob, needed=2)
    assert decide(request, anna).status == "pending"
    with pytest.raises(Forbidden):
        decide(request, carol)
    assert decide(request, bob).status == "approved"


def test_an_approval_by_somebody_who_lost_the_right_since_does_not_count() -> None:
    anna, bob, carol = person("anna"), person("bob"), person("carol")
    made = row(anna, bob, carol, needed=2)
    request = asked()
    decide(request, anna)
    type(made).objects.update(people=[bob.pk, carol.pk])
    assert decide(request, bob).status == "pending"
    assert decide(request, carol).approved_by == "bob, carol"


def test_a_delegate_decides_as_themself_for_the_giver_until_the_instant_it_ends() -> None:
    anna, bob = person("anna"), person("bob")
    row(anna)
    handed(anna, bob, hours=1, after=1)
    request, other = asked(), asked(target_resource="other")
    for early_or_late in (NOW + HOUR - MINUTE, NOW + 2 * HOUR):
        assert names(request, early_or_late) == ["anna"]
        with pytest.raises(Forbidden):
            decide(request, bob, now=early_or_late)
    then = NOW + 2 * HOUR - timedelta(microseconds=1)
    assert names(request, then) == ["anna", "bob"]
    assert deciders.load_decider_description(request, then) == "Waits for: anna, or bob for anna."
    decided = decide(request, bob, now=then)
    assert (decided.approved_by, decided.context.decided_for) == ("bob", "bob for anna")
    entry = AuditLog.objects.get(event_type="PERMISSION_REQUEST_APPROVED")
    assert (entry.actor_id, entry.metadata["decided_for"]) == ("user:bob", "bob for anna")
    assert decide(other, anna, now=then).context.decided_for is None


def test_pages_are_told_when_a_delegation_begins_and_ends() -> None:
    handed(person("anna"), person("bob"), hours=1)

    def told(at: datetime) -> bool:
        before = RightsVersion.objects.get().number
        actions.announce_delegation_changes(at)
        return RightsVersion.objects.get().number > before

    seconds = timedelta(seconds=1)
    assert [
        told(at) for at in (NOW - seconds, NOW + seconds, NOW + HOUR / 2, NOW + HOUR, NOW + 2 * HOUR)
    ] == [
        False,
        True,
        False,
        True,
        False,
    ]


def test_a_delegate_has_no_more_than_the_giver_has_now() -> None:
    anna, bob, carol = person("anna"), person("bob"), person("carol")
    row(ops := group("Operators", anna))
    handed(anna, bob)
    handed(bob, carol)
    request = asked()
    assert names(request) == ["anna", "bob"]  # it is not handed on
    ops.user_set.clear()
    assert names(request) == []
    ops.user_set.add(anna)
    User.objects.filter(pk=anna.pk).update(is_active=False)
    assert names(request) == []


def test_in_a_two_person_row_nobodys_right_counts_twice() -> None:
    anna, bob, carol = person("anna"), person("bob"), person("carol")
    row(anna, carol, needed=2)
    handed(anna, bob)
    first, second = asked(), asked(target_resource="other")
    decide(first, bob)
    with pytest.raises(Conflict, match="bob has already approved this for anna"):
        decide(first, anna)
    decide(second, anna)
    with pytest.raises(Conflict, match="anna has already approved this"):
        decide(second, bob)
    assert (fresh(first).status, fresh(second).status) == ("pending", "pending")
    done = decide(first, carol)
    assert (done.approved_by, done.context.decided_for) == ("bob, carol", "bob for anna")


def test_a_delegate_with_a_right_of_their_own_uses_that_once_and_not_both() -> None:
    anna, bob = person("anna"), person("bob")
    row(anna, bob, needed=2)
    handed(anna, bob)
    request = asked()
    decide(request, bob)
    with pytest.raises(Conflict, match="second person"):
        decide(request, bob)
    assert decide(request, anna).approved_by == "bob, anna"


def test_nobody_decides_what_they_asked_for_nor_does_their_delegate_for_them(settings) -> None:
    settings.DECIDE_OWN_REQUESTS = False
    anna, bob, carol = person("anna"), person("bob"), person("carol")
    row(anna, carol)
    handed(anna, bob)
    own = approvals.request_permission(ask(), actor=actor(anna), now=NOW).request
    assert names(own) == ["carol"]
    with pytest.raises(Forbidden, match="Somebody else must decide"):
        decide(own, anna)
    with pytest.raises(Forbidden):
        decide(own, bob)


def test_many_requests_and_people_take_no_more_queries_than_few(django_assert_max_num_queries) -> None:
    people = [person(f"p{number}") for number in range(10)]
    row(group("Operators", *people[:5]), tool="Bash", needed=2)
    row(*people[5:])
    handed(people[0], people[9])
    for number in range(30):
        asked(target_resource=f"r{number}", tool_name="Bash" if number % 2 else "Read")
    with django_assert_max_num_queries(10):
        book = deciders.load_decider_book(NOW)
        for user in User.objects.filter(username__startswith="p"):
            user._signalbox_role = "approver"  # as a page's person has it
            found = deciders.decidable_request_ids_unless_all(user, book)
            assert len(found) == (30 if user == people[9] else 15)
            break
        rows = list(PermissionRequest.objects.with_context())
        assert sum(len(book.list_request_deciders(one)) for one in rows) == 15 * 6 + 15 * 5


def test_a_card_says_when_too_few_are_left_beside_who_asked(settings) -> None:
    settings.DECIDE_OWN_REQUESTS = False
    anna, bob = person("anna"), person("bob")
    row(anna, bob, needed=2)
    own = approvals.request_permission(ask(), actor=actor(anna), now=NOW).request
    words = deciders.load_decider_description(own, NOW)
    assert words.endswith(
        "anna asked for this and may not decide it, so two people must approve and only bob is left. "
        "An administrator must let somebody else decide."
    )
    DecidingRule.objects.update(needed=1)
    own.context.needed = 1
    assert "is left" not in deciders.load_decider_description(own, NOW)
    DecidingRule.objects.update(people=[anna.pk])
    assert deciders.load_decider_description(own, NOW).endswith(
        "anna asked for this and may not decide it, so nobody is left. An administrator must let somebody else decide."
    )


def test_true_is_nobody_s_id() -> None:
    anna = person("anna")
    row(anna)
    DecidingRule.objects.update(people=[True])
    assert deciders.load_decider_book(NOW).rules[0].people == (-1,)


def test_rows_leave_access_without_an_end_to_administrators() -> None:
    anna, boss = person("anna"), person("boss", "admin")
    McpServer.objects.create(name="jira", command="x", created_at=NOW)
    add_agents("coder")
    row(anna, boss)
    first, second = (
        asked(**asdict(RequestedAccess("coder", "jira", tool).permission_subject), agent_id="coder")
        for tool in ("read", "write")
    )
    assert "Until revoked" not in page_of(first, anna)
    assert "Until revoked" in page_of(first, boss)
    with pytest.raises(Forbidden, match="Only administrators may change rules"):
        approve(first, anna)
    assert not Grant.objects.exists()
    approve(first, anna, validity=Validity.HOUR)
    approve(second, boss)
    ends = dict(Grant.objects.values_list("tool_name", "expires_at"))
    assert (ends["read"] is None, ends["write"] is None) == (False, True)


@pytest.mark.parametrize(
    ("plugin", "hook", "offer"),
    [
        ("claude-code", {}, {"type": "setMode", "mode": "acceptEdits", "destination": "session"}),
        (
            "opencode",
            {"hook": agent_options.PERMISSION_METHOD},
            {"optionId": "always", "name": "Always allow", "kind": "allow_always"},
        ),
    ],
)
def test_rows_leave_the_rules_that_an_agent_offers_to_administrators(
    plugin: str, hook: dict[str, str], offer: dict[str, str]
) -> None:
    anna, boss = person("anna"), person("boss", "admin")
    row(anna, boss)
    metadata, offered = hook | {"permission_suggestions": [offer]}, compute_offered_rule_digest(offer)
    first, second, third = (
        asked(plugin_id=plugin, metadata=metadata, session_id=f"ses_{number}") for number in range(3)
    )
    assert offered not in page_of(first, anna)
    assert offered in page_of(first, boss)

    def pick(request: PermissionRequest, by: User, verdict: Any = "approved") -> PermissionRequest:
        picked = ApprovalAdditions(picked={offered})
        return tool_calls.decide_call_with_additions(
            request.request_id, person=by, verdict=verdict, additions=picked, now=NOW
        )

    with pytest.raises(Forbidden, match="Only administrators may change rules"):
        pick(first, anna)
    assert decide(first, anna).status == "approved"
    assert pick(second, anna, "denied").status == "denied"
    assert pick(third, boss).context.answer == {"suggestions": [offer]}


def page_of(request: PermissionRequest, by: User) -> str:
    browser = Client()
    browser.force_login(by)
    return browser.get(f"/ui/approvals/{request.request_id}/").text


def test_rows_leave_changing_rules_and_grants_to_administrators() -> None:
    anna, boss = person("anna"), person("boss", "admin")
    assert deciders.can_user_edit_policy(anna)
    row(anna)
    assert not deciders.can_user_edit_policy(anna)
    assert deciders.can_user_edit_policy(boss)
    browser = Client()
    browser.force_login(anna)
    assert "Only administrators may change rules" in browser.post("/ui/mcp/access/save/", {}).text
    trial = {"form-TOTAL_FORMS": 0, "form-INITIAL_FORMS": 0, "version": ""}
    assert browser.post("/ui/rules/save/", trial | {"do": "save"}).status_code == 403
    assert browser.post("/ui/rules/save/", trial | {"do": "try"}).status_code == 200
    with pytest.raises(Forbidden, match="Only administrators may change rules"):
        approvals.approve_request_permanently(
            asked().request_id, PermanentApproval(None, "", ()), person=anna, judged=""
        )


def test_pages_of_rules_and_grants_say_beforehand_who_may_change_them() -> None:
    row(person("anna"), person("boss", "admin"))
    McpServer.objects.create(name="till", command="", created_at=1)
    for name, is_told in (("anna", True), ("boss", False)):
        browser = Client()
        browser.force_login(User.objects.get(username=name))
        for page in ("/ui/rules/", "/ui/mcp/access/?server=till"):
            assert ("Only administrators may change rules" in browser.get(page).text) is is_told


def test_with_rows_an_approver_revokes_what_allows_and_not_what_denies() -> None:
    anna = person("anna")
    row(anna)
    McpServer.objects.create(name="till", command="", created_at=1)
    browser = Client()
    browser.force_login(anna)
    for says, still in (("deny", 1), ("allow", 0)):
        made = Grant.objects.create(
            entry_type="tool_grant",
            agent_id="a",
            server_id="till",
            tool_name="x",
            permission=says,
            granted_at=NOW,
        )
        browser.post(f"/ui/mcp/grants/{made.pk}/revoke/")
        assert Grant.objects.filter(pk=made.pk, expires_at__isnull=True).count() == still


def test_of_several_requests_only_what_may_be_decided_is_arranged() -> None:
    anna, bob = person("anna"), person("bob")
    row(anna, bob, tool="Bash")
    row(anna)
    theirs, not_theirs = asked(tool_name="Bash"), asked(tool_name="Edit", target_resource="/other")
    both = [theirs.request_id, not_theirs.request_id]
    assert approvals.assign_requests(both, "anna", person=bob, now=NOW) == 1
    assert approvals.assign_requests(both, "anna", person=anna, now=NOW) == 1
    assert approvals.unassign_requests(both, person=bob, now=NOW) == 1
