from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail

from coordinator.actions import approvals, notifications, users
from coordinator.errors import Conflict, Invalid, NotFound
from coordinator.identity.actors import Actor
from coordinator.models import AuditLog, Notification, NotificationTarget
from tests.approvals.factories import MINUTE, NOW, asked, person
from tests.people import PASSWORD

pytestmark = pytest.mark.django_db


class Receiver:
    """A webhook's receiver on this machine: keeps what came and answers `status`."""

    def __init__(self) -> None:
        self.status, self.came = 200, []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.came.append((dict(self.headers), body))
                self.send_response(receiver.status)
                self.send_header("Location", f"{receiver.url}elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                receiver.came.append((dict(self.headers), b"followed"))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_args: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


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
    return notifications.add(by=user, kind="webhook", address=url, now=NOW)


def test_a_waiting_request_is_posted_signed_with_a_link_and_no_way_to_decide(
    receiver: Receiver, alice: User, settings
) -> None:
    settings.PUBLIC_URL = "https://box.example"
    target = hook(alice, receiver.url)
    row = asked()
    notifications.deliver(Notification.objects.get().pk, NOW)
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
    users.update(alice.pk, {"username": "alicia"}, by=by, now=NOW)
    assert list(NotificationTarget.objects.values_list("pk", "person")) == [(target.pk, "alicia")]
    asked()
    users.delete(alice.pk, by=by, now=NOW)
    assert (NotificationTarget.objects.count(), Notification.objects.count()) == (0, 0)


def test_a_new_person_gets_no_address_of_one_who_had_the_name() -> None:
    NotificationTarget.objects.create(
        person="alice", kind="webhook", address="https://example.org/", secret="x", created_at=NOW
    )
    users.create("alice", password=PASSWORD, role="approver", by=Actor("user", "ada"), now=NOW)
    assert not NotificationTarget.objects.exists()


def test_a_message_is_written_with_the_request_or_not_at_all(alice: User) -> None:
    hook(alice, "https://example.org/")
    with pytest.raises(Invalid):
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
        notifications.deliver(message.pk, now)
        message.refresh_from_db()
        if message.next_at:
            waits.append(message.next_at - now)
            now = message.next_at
    assert (message.state, message.attempts, message.outcome) == ("failed", 7, "answered 500")
    assert waits == list(notifications.BACKOFF)
    assert len(receiver.came) == 7


def test_a_message_whose_turn_has_not_come_is_left_alone(receiver: Receiver, alice: User) -> None:
    hook(alice, receiver.url)
    asked()
    pk = Notification.objects.get().pk
    notifications.deliver(pk, NOW - MINUTE)
    assert receiver.came == []
    Notification.objects.update(next_at=NOW + notifications.TURN)  # another worker is at it
    notifications.deliver(pk, NOW)
    assert receiver.came == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(receiver: Receiver, alice: User, status: int) -> None:
    receiver.status = status
    hook(alice, receiver.url)
    asked()
    notifications.deliver(Notification.objects.get().pk, NOW)
    assert len(receiver.came) == 1
    assert Notification.objects.get().outcome == f"answered {status}"


def test_nobody_is_told_of_a_request_that_is_closed_by_then(receiver: Receiver, alice: User) -> None:
    hook(alice, receiver.url)
    row = asked()
    approvals.decide(row.request_id, by=alice, verdict="denied", now=NOW)
    notifications.deliver(Notification.objects.get().pk, NOW)
    assert receiver.came == []
    assert Notification.objects.get().state == "dropped"


def test_somebody_who_may_not_decide_any_more_is_not_told(receiver: Receiver, alice: User) -> None:
    hook(alice, receiver.url)
    asked()
    alice.groups.clear()
    notifications.deliver(Notification.objects.get().pk, NOW)
    assert receiver.came == []
    assert Notification.objects.get().state == "dropped"


def test_a_mail_has_the_link_and_no_way_to_decide(alice: User, settings) -> None:
    settings.EMAIL_HOST, settings.PUBLIC_URL = "mail.example", "https://box.example"
    notifications.add(by=alice, kind="email", address="alice@example.org", now=NOW)
    row = asked(plugin_id="mind.x\nBcc: eve@example.org")
    notifications.deliver(Notification.objects.get().pk, NOW)
    [letter] = mail.outbox
    assert letter.to == ["alice@example.org"]
    assert letter.subject == "Signalbox: mind.x Bcc: eve@example.org asks for ProcessExecution"
    assert f"https://box.example/ui/approvals/{row.request_id}/" in letter.body
    assert letter.bcc == []


def test_without_a_mail_server_the_log_says_so(alice: User, settings) -> None:
    settings.EMAIL_HOST = ""
    notifications.add(by=alice, kind="email", address="alice@example.org", now=NOW)
    asked()
    notifications.deliver(Notification.objects.get().pk, NOW)
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
    with pytest.raises(Invalid):
        hook(alice, address)


def test_the_same_address_is_on_the_list_once(alice: User) -> None:
    hook(alice, "https://example.org/")
    with pytest.raises(Conflict):
        hook(alice, "https://example.org/")


def test_an_address_is_its_owners_alone(alice: User) -> None:
    target, bob = hook(alice, "https://example.org/"), person("bob")
    for verb in (notifications.remove, notifications.send_test):
        with pytest.raises(NotFound):
            verb(target.pk, by=bob)
    assert NotificationTarget.objects.filter(pk=target.pk).exists()


def test_the_audit_log_knows_of_an_address_but_not_the_address(alice: User) -> None:
    target = hook(alice, "https://hooks.example/very-secret-path")
    notifications.remove(target.pk, by=alice, now=NOW)
    told = json.dumps(list(AuditLog.objects.filter(event_type__startswith="NOTIFICATION").values("metadata")))
    assert "hooks.example" in told
    assert "very-secret-path" not in told
    assert target.secret not in told


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


def test_a_viewer_is_not_told_and_cannot_be(signed_in) -> None:
    browser = signed_in("eve", "viewer")
    assert browser.get("/ui/approvals/notifications/").status_code == 403
    assert (
        browser.post("/ui/approvals/notifications/add/", {"kind": "email", "address": "e@x.org"}).status_code
        == 403
    )
