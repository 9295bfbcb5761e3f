from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from coordinator.actions import approvals
from coordinator.models import (
    AuditLog,
    DecidingRule,
    Delegation,
    EscalationStep,
    Grant,
    McpServer,
    PluginSetting,
)
from coordinator.operations.doctor import CheckLevel, upkeep
from coordinator.policy.deciders import decider_book as deciders
from coordinator.policy.deciders import rules as deciding_rules
from coordinator.policy.grants.access_requests import RequestedAccess
from coordinator.policy.requests.judged_content import judged_card_digest
from tests.approvals.cards import form
from tests.approvals.factories import NOW, asked, fresh, person
from tests.deciders.factories import group, row

pytestmark = pytest.mark.django_db
URL, INBOX = "/ui/deciders/", "/ui/approvals/"


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def html_of(client: Client, url: str) -> str:
    answer = client.get(url)
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def rows(*rows: dict[str, Any], seen: str | None = None) -> dict[str, Any]:
    """Return what the page's form sends for these rows, the empty one at the end with them."""
    data: dict[str, Any] = {
        "version": seen
        if seen is not None
        else deciding_rules.deciding_rules_version(deciders.load_decider_book(timezone.now()).rules),
        "form-TOTAL_FORMS": len(rows) + 1,
        "form-INITIAL_FORMS": DecidingRule.objects.count(),
    }
    for number, one in enumerate([*rows, {}]):
        words = dict.fromkeys(deciding_rules.TERMS, "") | {"needed": "1", "ORDER": str(number + 1)} | one
        data |= {f"form-{number}-{name}": value for name, value in words.items()}
    return data


def test_an_admin_saves_rows_in_their_order_and_the_audit_log_says_what_they_were() -> None:
    admin, anna = signed_in(person("boss", "admin")), person("anna")
    ops = group("Operators", anna)
    first, second = {"tool": "Bash", "groups": [ops.pk], "needed": "2"}, {"host": "db-*", "people": [anna.pk]}
    assert admin.post(f"{URL}save/", rows(first | {"ORDER": "2"}, second | {"ORDER": "1"})).status_code == 302
    saved = deciders.load_decider_book(timezone.now()).rules
    assert [(rule.host, rule.tool, rule.needed) for rule in saved] == [("db-*", "", 1), ("", "Bash", 2)]
    entry = AuditLog.objects.get(event_type="DECIDING_RULES_SAVED")
    assert entry.actor_id == "user:boss"
    assert entry.metadata["before"] == []
    assert entry.metadata["after"][1]["groups"] == [{"id": ops.pk, "name": "Operators"}]
    assert "db-*" in html_of(admin, URL)
    assert "requires two people, but only anna may decide" in html_of(admin, URL)


def test_saving_a_stale_page_or_what_cannot_be_changes_nothing() -> None:
    admin, seen = signed_in(person("boss", "admin")), deciding_rules.deciding_rules_version(())
    row(person("anna"))
    stale = admin.post(f"{URL}save/", rows({"tool": "Bash"}, seen=seen))
    assert (stale.status_code, "Somebody else has saved" in stale.content.decode()) == (409, True)
    for odd in ({"people": ["999"]}, {"needed": "3"}, {"tool": "x" * 501}, {"groups": ["approver"]}):
        assert admin.post(f"{URL}save/", rows({"tool": "Bash"} | odd)).status_code == 422
    of_role = Group.objects.get(name="approver")
    assert admin.post(f"{URL}save/", rows({"groups": [of_role.pk]})).status_code == 422
    assert [one.tool for one in DecidingRule.objects.all()] == [""]
    assert not AuditLog.objects.filter(event_type="DECIDING_RULES_SAVED").exists()


def test_groups_are_made_changed_and_deleted_but_never_from_under_a_row() -> None:
    admin, anna, bob = signed_in(person("boss", "admin")), person("anna"), person("bob")
    admin.post(f"{URL}groups/", {"name": " Night  shift ", "people": [anna.pk]})
    made = Group.objects.get(name="Night shift")
    admin.post(f"{URL}groups/", {"name": "Approver", "people": [anna.pk]})
    for odd in ("9" * 5_000, "9" * 19):
        assert admin.post(f"{URL}groups/", {"name": "Odd", "people": [odd]}).status_code == 302
    assert not Group.objects.filter(name="Approver").exists()
    page = admin.get(URL).content.decode()
    seen = page.split('name="seen" value="')[1].split('"')[0]
    url = f"{URL}groups/{made.pk}/"
    admin.post(url, {"name": "Night", "people": [bob.pk], "seen": seen})
    admin.post(url, {"name": "Day", "people": [], "seen": seen})  # of a page that is stale by now
    made.refresh_from_db()
    assert (made.name, list(made.user_set.all())) == ("Night", [bob])
    row(made)
    assert "uses the group Night" in admin.post(f"{url}delete/", follow=True).content.decode()
    DecidingRule.objects.all().delete()
    step = EscalationStep.objects.create(after_minutes=5, group=made, created_at=NOW, created_by="user:boss")
    told = admin.post(f"{url}delete/", follow=True).content.decode()
    assert "Escalation notifies the group Night after 5 minutes" in told
    step.delete()
    admin.post(f"{url}delete/")
    assert not Group.objects.filter(pk=made.pk).exists()
    role = Group.objects.get(name="approver")
    assert (
        "This group no longer exists"
        in admin.post(f"{URL}groups/{role.pk}/delete/", follow=True).content.decode()
    )
    events = AuditLog.objects.filter(target_id__in=["Night shift", "Night"]).order_by("id")
    assert [one.event_type.removeprefix("DECIDERS_GROUP_") for one in events] == [
        "MADE",
        "CHANGED",
        "DELETED",
    ]


def test_the_preview_answers_as_decisions_are_enforced() -> None:
    anna = person("anna")
    row(group("Operators", anna), server="github", needed=2)
    asking = signed_in(person("reader", "viewer"))
    html = html_of(asking, f"{URL}?tool=mcp__github__push&agent=coder")
    assert "1: Waits for two of: the group Operators." in html
    assert "Two people" in html
    assert "No row matches: every approver may decide." in html_of(asking, f"{URL}?server=jira")


def test_a_right_is_handed_over_shown_to_both_and_ended() -> None:
    anna, bob, carol = person("anna"), person("bob"), person("carol")
    row(anna)
    now = timezone.now()
    giver, receiver = signed_in(anna), signed_in(bob)
    end = (now + timedelta(days=2)).isoformat().replace("+00:00", "Z")
    wanted = {"receiver": bob.pk, "starts_at": now.isoformat(), "ends_at": end, "reason": "Holiday"}
    giver.post(f"{URL}delegations/", wanted)
    for page in (html_of(giver, "/ui/account/"), html_of(receiver, "/ui/account/"), html_of(receiver, URL)):
        assert "<strong>bob</strong> decides for <strong>anna</strong>" in page
        assert "Holiday" in page
    assert deciders.can_user_decide_request(bob, asked(now=now), timezone.now())
    [made] = Delegation.objects.all()
    outsider = signed_in(carol)
    assert f"delegations/{made.pk}/end/" not in html_of(outsider, URL)
    outsider.post(f"{URL}delegations/{made.pk}/end/")
    assert Delegation.objects.current_or_upcoming(timezone.now()).exists()
    receiver.post(f"{URL}delegations/{made.pk}/end/")
    assert not deciders.can_user_decide_request(bob, asked(now=now, target_resource="b"), timezone.now())
    events = AuditLog.objects.filter(target_id=f"delegation:{made.pk}").order_by("id")
    assert [(one.event_type, one.actor_id) for one in events] == [
        ("DELEGATION_MADE", "user:anna"),
        ("DELEGATION_REVOKED", "user:bob"),
    ]


@pytest.mark.parametrize(
    ("days", "to", "why"),
    [
        (91, "bob", "at most 90 days"),
        (-1, "bob", "after the start"),
        (1, "anna", "Choose somebody other than yourself"),
        (1, "reader", "is not one of the available choices"),
    ],
)
def test_a_right_cannot_be_handed_over_for_too_long_nor_to_just_anybody(days: int, to: str, why: str) -> None:
    anna = person("anna")
    people = {"anna": anna, "bob": person("bob"), "reader": person("reader", "viewer")}
    now = timezone.now()
    wanted = {
        "receiver": people[to].pk,
        "starts_at": now.isoformat(),
        "ends_at": (now + timedelta(days=days)).isoformat(),
    }
    answer = signed_in(anna).post(f"{URL}delegations/", wanted, follow=True)
    assert why in answer.content.decode()
    assert not Delegation.objects.exists()


def test_two_approvers_see_and_decide_what_is_theirs() -> None:
    anna, bob = person("anna"), person("bob")
    row(anna, tool="Bash")
    row(bob, tool="Read")
    now = timezone.now()
    shell = asked(now=now)
    read = asked(now=now, tool_name="Read", target_resource="/etc/hosts")
    pages = {user: html_of(signed_in(user), INBOX) for user in (anna, bob)}
    assert [(shell.request_id in page, read.request_id in page) for page in pages.values()] == [
        (True, False),
        (False, True),
    ]
    assert [page.split('data-badge="')[1][0] for page in pages.values()] == ["1", "1"]
    both = html_of(signed_in(anna), f"{INBOX}?all=1")
    assert both.count('class="card ask') == 2
    assert both.count('value="approved" data-key="a"') == 1
    assert "Waits for: bob." in both
    assert both.count("You may not decide this.") == 1
    posted = form(signed_in(bob).get(INBOX).content.decode())
    signed_in(anna).post("/ui/approvals/decide/", posted)
    assert fresh(read).status == "pending"
    signed_in(bob).post("/ui/approvals/decide/", posted)
    assert fresh(read).approved_by == "bob"


def test_what_comes_with_an_approval_needs_the_right_to_it_too() -> None:
    row(person("anna"))
    bob, now = signed_in(person("bob")), timezone.now()
    plugin = PluginSetting.objects.create(plugin_id="mind.x", allowed_permissions=[])
    McpServer.objects.create(name="files", command="files", created_at=now)
    wish = RequestedAccess("coder", "files", "delete").permission_subject
    access = {name: getattr(wish, name) for name in ("plugin_id", "permission_type", "target_resource")}
    rows_ = [asked(now=now), asked(now=now, tool_name=wish.tool_name, tool_input=wish.tool_input, **access)]
    for request in rows_:
        said = {"ids": request.request_id, "judged": f"{judged_card_digest(request)}:{request.request_id}"}
        bob.post("/ui/approvals/decide/", said | {"verdict": "approved", "grant": "on"})
    plugin.refresh_from_db()
    assert plugin.allowed_permissions == []
    assert not Grant.objects.exists()
    assert [fresh(one).status for one in rows_] == ["pending", "pending"]


def test_with_rows_only_an_administrator_grants_a_permission_for_good() -> None:
    row(person("anna"), person("boss", "admin"))
    plugin = PluginSetting.objects.create(plugin_id="mind.x", allowed_permissions=[])
    request = asked(now=timezone.now(), plugin_id="mind.x")
    said = {"ids": request.request_id, "judged": f"{judged_card_digest(request)}:{request.request_id}"}
    said |= {"verdict": "approved", "grant": "on"}
    for who, allowed in (("anna", []), ("boss", [request.permission_type])):
        browser = Client()
        browser.force_login(User.objects.get(username=who))
        assert ('name="grant"' in html_of(browser, INBOX)) is bool(allowed)
        browser.post("/ui/approvals/decide/", said)
        plugin.refresh_from_db()
        assert plugin.allowed_permissions == allowed


def test_a_row_without_anybody_is_said_loudly_to_admins_and_by_the_doctor() -> None:
    row(group("Operators"))
    request, boss, anna = (
        asked(now=timezone.now()),
        signed_in(person("boss", "admin")),
        signed_in(person("anna")),
    )
    url = f"{INBOX}{request.request_id}/"
    assert "Nobody can approve this until an administrator changes" in html_of(boss, url)
    assert "Change who decides" in html_of(boss, "/ui/")
    assert 'value="approved" data-key="a"' not in html_of(boss, url)
    assert "Nobody may decide this." in html_of(anna, url)
    assert "Change who decides" not in html_of(anna, "/ui/")
    [check] = [
        one for one in upkeep.iterate_upkeep_checks(timezone.now(), served=False) if one.name == "who decides"
    ]
    assert check.level is CheckLevel.FAIL


def test_a_request_not_theirs_is_not_noted_as_seen_by_somebody_who_could_decide() -> None:
    anna, bob = person("anna"), person("bob")
    row(anna)
    request = asked(now=timezone.now())
    approvals.record_requests_seen([request.request_id], person=bob)
    assert fresh(request).context.seen_by is None
    approvals.record_requests_seen([request.request_id], person=anna)
    assert fresh(request).context.seen_by == "anna"


def test_an_inbox_of_many_requests_asks_no_more_of_the_database(django_assert_max_num_queries) -> None:
    people = [person(f"p{number}") for number in range(3)]
    row(group("Operators", *people), tool="Bash", needed=2)
    for number in range(40):
        asked(now=timezone.now(), target_resource=f"r{number}", agent_id="coder")
    client = signed_in(people[0])
    client.get(INBOX)
    with django_assert_max_num_queries(45) as few:
        client.get(f"{INBOX}?page=2")
    with django_assert_max_num_queries(len(few)):
        client.get(INBOX)
