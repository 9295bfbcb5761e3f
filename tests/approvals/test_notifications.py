from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from datetime import datetime
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.core import mail

from coordinator.actions import approvals, notifications
from coordinator.actions.people import users
from coordinator.actions.upkeep import jobs
from coordinator.actions.upkeep.jobs import RETRY_BACKOFF
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog, Notification, NotificationTarget, PermissionRequest
from coordinator.notifications import messages
from tests.approvals.factories import AGENT, MINUTE, NOW, asked, person
from tests.notifications.receivers import Receiver
from tests.notifications.telling import next_attempt
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture
def receiver(settings) -> Iterator[Receiver]:
    settings.WEBHOOK_NETWORKS = ["127.0.0.1"]
    found = Receiver()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def alice() -> User:
    return person("alice")


def hook(user: User, url: str) -> NotificationTarget:
    return notifications.create_notification_target(user=user, kind="webhook", address=url, now=NOW)


def test_a_waiting_request_is_posted_signed_with_a_link_and_no_way_to_decide(
    receiver: Receiver, alice: User, settings
) -> None:
    settings.PUBLIC_URL = "https://box.example"
    target = hook(alice, receiver.url)
    row = asked()
    notifications.deliver_notification(Notification.objects.get().pk, NOW)
    [(headers, body)] = receiver.came
    told = json.loads(body)
    assert told["url"] == f"https://box.example/ui/approvals/{row.request_id}/"
    assert (told["event"], told["plugin_id"]) == ("permission_request.waiting", "mind.x")
    assert "make deploy" not in body.decode()
    at, _, digest = headers["X-Signalbox-Signature"].removeprefix("t=").partition(",v1=")
    expected = hmac.new(target.secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    assert hmac.compare_digest(digest, expected)
    message = Notification.objects.get()
    assert (message.state, message.outcome, message.sent_at) == ("sent", "answered 200", NOW)


def test_addresses_follow_a_person_to_a_new_name_and_go_with_them(alice: User) -> None:
    by = Actor("user", "ada")
    person("root", role="admin")
    target = hook(alice, "https://example.org/")
    NotificationTarget.objects.create(  # left by an alicia who was deleted by other means
        person="alicia", kind="webhook", address="https://example.org/", secret="x", created_at=NOW
    )
    users.update_user(alice.pk, {"username": "alicia"}, actor=by, now=NOW)
    assert list(NotificationTarget.objects.values_list("pk", "person")) == [(target.pk, "alicia")]
    asked()
    users.delete_user(alice.pk, actor=by, now=NOW)
    assert (NotificationTarget.objects.count(), Notification.objects.count()) == (0, 0)


def test_what_goes_with_a_person_is_in_the_audit_log_one_by_one(alice: User) -> None:
    by = Actor("user", "ada")
    person("root", role="admin")
    target = hook(alice, "https://hooks.example/very-secret-path")
    notifications.set_quiet_hours(user=alice, begins="22:00", ends="07:00", zone="UTC", now=NOW)
    users.delete_user(alice.pk, actor=by, now=NOW)
    removed = AuditLog.objects.get(event_type="NOTIFICATION_TARGET_REMOVED")
    assert (removed.actor_id, removed.target_id) == (str(by), f"notification:{target.pk}")
    assert removed.metadata == {"person": "alice", "kind": "webhook", "host": "hooks.example"}
    assert AuditLog.objects.get(event_type="QUIET_HOURS_CLEARED").target_id == "alice"


def test_a_new_person_gets_no_address_of_one_who_had_the_name() -> None:
    NotificationTarget.objects.create(
        person="alice", kind="webhook", address="https://example.org/", secret="x", created_at=NOW
    )
    users.create_user("alice", password=PASSWORD, role="approver", actor=Actor("user", "ada"), now=NOW)
    assert not NotificationTarget.objects.exists()


def test_a_message_is_written_with_the_request_or_not_at_all(alice: User) -> None:
    hook(alice, "https://example.org/")
    with pytest.raises(UnprocessableRequest):
        asked(deadline=NOW - MINUTE)
    assert Notification.objects.count() == 0
    asked()
    asked()  # the same question joins, and is not announced again
    assert Notification.objects.count() == 1


def test_a_receiver_that_fails_is_tried_again_later_and_given_up_in_the_end(
    receiver: Receiver, alice: User
) -> None:
    receiver.status = 500
    hook(alice, receiver.url)
    asked()
    message, now, waits = Notification.objects.get(), NOW, []
    while message.state == "waiting":
        notifications.deliver_notification(message.pk, now)
        message.refresh_from_db()
        if at := next_attempt(message):
            waits.append(at - now)
            now = at
    assert (message.state, message.attempts, message.outcome) == ("failed", 7, "answered 500")
    assert waits == list(RETRY_BACKOFF)
    assert len(receiver.came) == 7


def test_a_message_whose_turn_has_not_come_is_left_alone(receiver: Receiver, alice: User) -> None:
    hook(alice, receiver.url)
    asked()
    pk = Notification.objects.get().pk
    notifications.deliver_notification(pk, NOW - MINUTE)
    assert receiver.came == []
    jobs.claim_jobs([notifications.SEND], now=NOW)  # another worker is at it
    notifications.deliver_notification(pk, NOW)
    assert receiver.came == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(receiver: Receiver, alice: User, status: int) -> None:
    receiver.status = status
    hook(alice, receiver.url)
    asked()
    notifications.deliver_notification(Notification.objects.get().pk, NOW)
    assert len(receiver.came) == 1
    assert Notification.objects.get().outcome == f"answered {status}"


def test_nobody_is_told_of_a_request_that_is_closed_by_then(receiver: Receiver, alice: User) -> None:
    hook(alice, receiver.url)
    row = asked()
    approvals.decide_request(row.request_id, person=alice, verdict="denied", now=NOW)
    notifications.deliver_notification(Notification.objects.get().pk, NOW)
    assert receiver.came == []
    assert Notification.objects.get().state == "dropped"


def test_somebody_who_may_not_decide_any_more_is_not_told(receiver: Receiver, alice: User) -> None:
    hook(alice, receiver.url)
    asked()
    alice.groups.clear()
    notifications.deliver_notification(Notification.objects.get().pk, NOW)
    assert receiver.came == []
    assert Notification.objects.get().state == "dropped"


def test_a_mail_has_the_link_and_no_way_to_decide(alice: User, settings) -> None:
    settings.EMAIL_HOST, settings.PUBLIC_URL = "mail.example", "https://box.example"
    notifications.create_notification_target(user=alice, kind="email", address="alice@example.org", now=NOW)
    row = asked(plugin_id="mind.x\nBcc: eve@example.org")
    notifications.deliver_notification(Notification.objects.get().pk, NOW)
    [letter] = mail.outbox
    assert letter.to == ["alice@example.org"]
    assert letter.subject == "Signalbox: mind.x Bcc: eve@example.org asks for ProcessExecution"
    assert f"https://box.example/ui/approvals/{row.request_id}/" in letter.body
    assert letter.bcc == []


def test_without_a_mail_server_the_log_says_so(alice: User, settings) -> None:
    settings.EMAIL_HOST = ""
    notifications.create_notification_target(user=alice, kind="email", address="alice@example.org", now=NOW)
    asked()
    notifications.deliver_notification(Notification.objects.get().pk, NOW)
    assert "SIGNALBOX_SMTP_HOST" in Notification.objects.get().outcome


@pytest.mark.parametrize(
    "address",
    [
        "ftp://example.org/",
        "https://",
        "https://u:p@example.org/",
        "http://169.254.169.254/latest",
        "http://[fe80::1]/",
        "http://0.0.0.0/",
        "https://example.org:port/",
        "javascript:alert(1)",
        "",
    ],
)
def test_what_is_no_address_for_a_webhook_is_refused(alice: User, address: str) -> None:
    with pytest.raises(UnprocessableRequest):
        hook(alice, address)


def test_the_same_address_is_on_the_list_once(alice: User) -> None:
    hook(alice, "https://example.org/")
    with pytest.raises(Conflict):
        hook(alice, "https://example.org/")


def test_an_address_is_its_owners_alone(alice: User) -> None:
    target, bob = hook(alice, "https://example.org/"), person("bob")
    for verb in (notifications.remove_notification_address, notifications.queue_test_notification):
        with pytest.raises(NotFound):
            verb(target.pk, user=bob)
    assert NotificationTarget.objects.filter(pk=target.pk).exists()


def test_the_audit_log_knows_of_an_address_but_not_the_address(alice: User) -> None:
    target = hook(alice, "https://hooks.example/very-secret-path")
    notifications.remove_notification_address(target.pk, user=alice, now=NOW)
    told = json.dumps(list(AuditLog.objects.filter(event_type__startswith="NOTIFICATION").values("metadata")))
    assert "hooks.example" in told
    assert "very-secret-path" not in told
    assert target.secret not in told


def test_no_administrator_reads_or_guesses_the_secrets_of_addresses(alice: User, signed_in) -> None:
    target = hook(alice, "https://hooks.example/very-secret-path")
    browser, place = signed_in("root", "admin"), "/admin/coordinator/notificationtarget/"
    for url in (place, f"{place}{target.pk}/change/", f"{place}?q=whsec", f"{place}?q=very-secret"):
        page = browser.get(url).content.decode()
        assert target.secret not in page
        assert "very-secret-path" not in page
    assert "alice" in browser.get(place).content.decode()
    assert "alice" not in browser.get(f"{place}?q=whsec").content.decode()
    for column in ("secret", "address"):
        assert browser.get(f"{place}?{column}__startswith=w").status_code == 400


def test_the_page_shows_a_webhooks_secret_once_and_what_was_sent(signed_in) -> None:
    browser = signed_in("carol")
    form = {"kind": "webhook", "address": "https://example.org/hook"}
    made = browser.post("/ui/approvals/notifications/add/", form)
    target = NotificationTarget.objects.get()
    assert target.secret in made.content.decode()
    browser.post(f"/ui/approvals/notifications/{target.pk}/test/")
    page = browser.get("/ui/approvals/notifications/").content.decode()
    assert target.secret not in page
    assert "https://example.org/hook" in page
    assert "Test" in page
    browser.post(f"/ui/approvals/notifications/{target.pk}/remove/")
    assert NotificationTarget.objects.count() == 0


def test_the_log_has_pages_and_each_address_its_own_last_outcome(signed_in) -> None:
    browser, place = signed_in("carol"), "/ui/approvals/notifications/"
    carol = User.objects.get(username="carol")
    old, new = hook(carol, "https://old.example/x"), hook(carol, "https://new.example/secret-path")
    for number in range(32):
        target, outcome = (old, "answered by the old") if number == 0 else (new, f"answered {number}")
        Notification.objects.create(
            target=target, request_id="", created_at=NOW, state="sent", outcome=outcome
        )
    first = browser.get(place).content.decode()
    _, _, log = first.partition('id="log"')
    assert "answered by the old" in first  # beside its address
    assert "answered by the old" not in log
    assert "answered 31" in log
    assert "secret-path" not in log
    older = re.search(r'href="([^"]*before=[^"]*)#log"', log)
    _, _, log = browser.get(unescape(older[1])).content.decode().partition('id="log"')
    assert "answered by the old" in log
    assert "answered 31" not in log
    assert browser.get(f"{place}?before=no-number").status_code == 200


def test_an_address_that_cannot_be_read_is_shown_and_removed(signed_in) -> None:
    browser = signed_in("carol")
    odd = NotificationTarget.objects.create(
        person="carol", kind="webhook", address="http://[", created_at=NOW
    )
    Notification.objects.create(target=odd, request_id="", created_at=NOW)
    assert "http://[" in browser.get("/ui/approvals/notifications/").content.decode()
    browser.post(f"/ui/approvals/notifications/{odd.pk}/remove/")
    assert not NotificationTarget.objects.exists()


def test_a_viewer_is_not_told_and_cannot_be(signed_in) -> None:
    browser = signed_in("eve", "viewer")
    assert browser.get("/ui/approvals/notifications/").status_code == 403
    assert (
        browser.post("/ui/approvals/notifications/add/", {"kind": "email", "address": "e@x.org"}).status_code
        == 403
    )


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Who was sent what: the person and the message's title."""
    sent: list[tuple[str, str]] = []

    def send(message: Notification, request: PermissionRequest | None, now: datetime) -> str:
        sent.append((message.target.person, messages.build_message_text(message, request, now).title))
        return "answered 200"

    monkeypatch.setattr(notifications.channels, "send_notification", send)
    return sent


def deliver_all(now: datetime) -> None:
    for pk in notifications.find_due_notifications(now).order_by("id").values_list("pk", flat=True):
        notifications.deliver_notification(pk, now)


def test_who_was_told_of_a_request_is_told_by_whom_it_was_decided(alice: User, told) -> None:
    bob = person("bob")
    hook(alice, "https://a.example/")
    hook(bob, "https://b.example/")
    row = asked()
    deliver_all(NOW)
    approvals.decide_request(row.request_id, person=bob, verdict="denied", now=NOW)
    deliver_all(NOW)
    asks = "Signalbox: mind.x asks for ProcessExecution"
    assert told == [
        ("alice", asks),
        ("bob", asks),
        ("alice", "Signalbox: Denied by bob. mind.x asked for ProcessExecution"),
    ]


@pytest.mark.parametrize("ending", ["expired", "withdrawn"])
def test_who_was_told_is_told_that_nobody_decided(alice: User, told, ending: str) -> None:
    hook(alice, "https://a.example/")
    row = asked(deadline=NOW + MINUTE)
    deliver_all(NOW)
    if ending == "expired":
        approvals.expire_due_requests(NOW + MINUTE)
    else:
        approvals.withdraw_request(row.request_id, actor=AGENT, now=NOW)
    deliver_all(NOW + MINUTE)
    words = {"expired": "Expired without a decision.", "withdrawn": "Withdrawn by its requester."}[ending]
    assert [title for _, title in told][1:] == [f"Signalbox: {words} mind.x asked for ProcessExecution"]


def test_who_was_not_told_in_time_is_not_told_of_the_end(alice: User, told) -> None:
    hook(alice, "https://a.example/")
    row = asked()
    approvals.decide_request(row.request_id, person=person("bob"), verdict="denied", now=NOW)
    deliver_all(NOW)
    assert told == []
    assert [one.state for one in Notification.objects.all()] == ["dropped"]


def test_the_end_waits_for_a_message_that_is_just_being_sent(
    alice: User, told, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook(alice, "https://a.example/")
    row = asked()
    [first] = Notification.objects.all()

    def decided_meanwhile(message: Notification, *_: object) -> str:
        approvals.decide_request(row.request_id, person=person("bob"), verdict="denied", now=NOW)
        deliver_all(NOW)  # another worker is at the end already
        assert told == []
        return "answered 200"

    with monkeypatch.context() as patch:
        patch.setattr(notifications.channels, "send_notification", decided_meanwhile)
        notifications.deliver_notification(first.pk, NOW)
    deliver_all(NOW)
    assert [title for _, title in told] == ["Signalbox: Denied by bob. mind.x asked for ProcessExecution"]


def test_a_webhook_is_told_in_its_body_how_a_request_ended(receiver: Receiver, alice: User) -> None:
    hook(alice, receiver.url)
    row = asked()
    deliver_all(NOW)
    approvals.decide_request(row.request_id, person=person("bob"), verdict="denied", now=NOW)
    deliver_all(NOW)
    waiting, settled = (json.loads(body) for _, body in receiver.came)
    assert "decided_by" not in waiting
    assert settled["event"] == "permission_request.settled"
    assert (settled["status"], settled["decided_by"]) == ("denied", "bob")
