"""Devices: kept for one person and sign-in, told of requests and of their end, and ended when their browser says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from coordinator.actions import approvals, notifications
from coordinator.actions.mcp import mcp_credentials
from coordinator.actions.notifications import push
from coordinator.actions.people import users
from coordinator.errors import Conflict, UnprocessableRequest
from coordinator.identity.actors import Actor
from coordinator.models import (
    AuditLog,
    Job,
    Notification,
    NotificationTarget,
    PermissionRequest,
    PushKey,
    PushSubscription,
)
from coordinator.notifications import push as channel
from coordinator.policy.requests.judged_content import judged_card_digest
from tests.approvals.factories import NOW, asked, fresh, person, stored
from tests.people import PASSWORD, signed_in
from tests.push.service import PushService, push_service

pytestmark = pytest.mark.django_db
SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture
def service(settings, tmp_path) -> Iterator[PushService]:
    settings.WEBHOOK_NETWORKS, settings.DATA_DIR = ["127.0.0.1"], tmp_path
    with push_service() as found:
        found.public_key = push.ensure_vapid_public_key(now=NOW)
        yield found


@pytest.fixture
def alice() -> User:
    return person("alice")


def subscribed(service: PushService, by: User, **changes: str) -> NotificationTarget:
    given = {"address": service.address, **service.device.keys, "device": "Alice's phone"}
    return push.subscribe_push_device(user=by, now=NOW, **given | changes)


def deliver(target: NotificationTarget) -> Notification:
    """Try the target's last message as if it were due now."""
    message = Notification.objects.filter(target=target).latest("id")
    Job.objects.filter(subject=str(message.pk)).update(next_at=NOW, chosen_at=NOW)
    notifications.deliver_notification(message.pk, NOW)
    message.refresh_from_db()
    return message


def test_a_waiting_request_reaches_the_device_in_few_words_and_with_its_digest(
    service: PushService, alice: User
) -> None:
    target = subscribed(service, alice)
    tool_input = {"command": f"curl -H 'Authorization: Bearer {SECRET}' example.org", "other": "kept here"}
    row = asked(tool_input=tool_input, deadline=NOW + timedelta(hours=2))
    message = deliver(target)
    assert (message.state, message.outcome) == ("sent", "answered 201"), service.refused
    _, headers, told = service.next()
    assert (headers["urgency"], headers["ttl"], len(headers["topic"])) == ("high", "7200", 32)
    assert told["title"].startswith("Run curl -H 'Authorization: Bearer [masked: ")
    assert told["body"].startswith("Asked by ")
    assert (told["beside"], told["url"]) == ("The release is due", f"/ui/approvals/{row.request_id}/")
    assert (told["kind"], told["waiting"]) == ("waiting", 1)
    assert told["judged"] == judged_card_digest(fresh(row))
    assert SECRET not in json.dumps(told)
    assert "kept here" not in json.dumps(told)


def test_what_a_notification_shows_hides_nothing_and_fits_whatever_a_row_holds(
    service: PushService, alice: User
) -> None:
    target = subscribed(service, alice)
    row = stored(
        request_id="f" * 5000,
        plugin_id="mind.x\u202ecod.exe\n" + "😀" * 500,
        target_resource="rm\u200b -rf /" + "\N{GREEK SMALL LETTER ALPHA}" * 900,
        justification=" ",
    )
    notifications.announce_waiting_request(fresh(row), now=NOW)
    assert deliver(target).state == "sent"
    _, _, told = service.next()
    assert told["body"].startswith("Asked by mind.x\N{REPLACEMENT CHARACTER}cod.exe 😀")
    hostile = "rm\N{REPLACEMENT CHARACTER} -rf /\N{GREEK SMALL LETTER ALPHA}"
    assert told["title"].startswith(f"Allow {hostile}")
    assert told["url"] == "/ui/approvals/"


def test_what_was_decided_is_told_by_whom(service: PushService, alice: User) -> None:
    subscribed(service, alice)
    row = asked()
    approvals.decide_request(row.request_id, person=alice, verdict="denied", now=NOW)
    told = channel.build_push_payload_of_request(fresh(row), 0, NOW)
    assert (told["kind"], told["id"], told["waiting"]) == ("closed", row.request_id, 0)
    assert told["beside"] == "Alice denied it just now."
    assert "judged" not in told


@pytest.mark.parametrize("status", [404, 410])
def test_a_subscription_that_its_browser_ended_is_forgotten_and_told_in_words(
    service: PushService, alice: User, status: int
) -> None:
    target = subscribed(service, alice)
    notifications.queue_test_notification(target.pk, user=alice, now=NOW)
    service.status = status
    message = deliver(target)
    device = PushSubscription.objects.get()
    assert message.state == "failed"
    assert device.keys == ""
    assert f"answered {status}" in device.why_ended
    assert "Switch it on again" in device.why_ended
    asked()
    assert Notification.objects.count() == 1  # nothing more is written for it
    assert subscribed(service, alice).pk == target.pk  # the same browser, switched on again
    assert PushSubscription.objects.get().ended_at is None


def test_a_push_service_that_is_busy_is_tried_again(service: PushService, alice: User) -> None:
    target = subscribed(service, alice)
    asked()
    service.status = 429
    message = deliver(target)
    assert (message.state, message.outcome) == ("waiting", "answered 429")
    service.status = 201
    assert deliver(target).state == "sent"


def test_a_device_is_silent_after_its_person_changed_the_password(service: PushService, alice: User) -> None:
    target = subscribed(service, alice)
    asked()
    alice.set_password("another-one-8")
    alice.save()
    message = deliver(target)
    assert (message.state, message.outcome) == ("dropped", push.SIGNED_OUT)
    assert service.came.empty()
    assert (
        push.renew_push_device_sign_in(user=alice, address=service.address, now=NOW) == target
    )  # signed in there again
    asked(target_resource="other")
    assert deliver(target).state == "sent"


def test_a_device_goes_with_its_person_and_to_the_next_who_signs_in_there(
    service: PushService, alice: User
) -> None:
    person("root", role="admin")
    target, bob = subscribed(service, alice), person("bob")
    assert push.renew_push_device_sign_in(user=bob, address=service.address, now=NOW) is None
    assert PushSubscription.objects.get(pk=target.pk).why_ended == push.MOVED_ON
    own = subscribed(service, bob)
    assert own.pk != target.pk
    users.delete_user(bob.pk, actor=Actor("user", "ada"), now=NOW)
    assert list(PushSubscription.objects.values_list("pk", flat=True)) == [target.pk]


def test_a_device_ends_where_somebody_signs_in_who_decides_nothing(service: PushService, alice: User) -> None:
    target = subscribed(service, alice)
    browser = signed_in("viewer")
    assert browser.post("/ui/push/renew/", {"endpoint": service.address}).json() == {"kept": False}
    assert PushSubscription.objects.get(pk=target.pk).why_ended == push.MOVED_ON
    own = subscribed(service, person("bob", role="viewer"))
    assert (
        push.renew_push_device_sign_in(
            user=User.objects.get(username="bob"), address=service.address, now=NOW
        )
        is None
    )
    assert PushSubscription.objects.get(pk=own.pk).why_ended == push.NO_LONGER_DECIDES


def test_a_changed_address_takes_the_old_ones_place(service: PushService, alice: User) -> None:
    target = subscribed(service, alice)
    moved = subscribed(service, alice, address=f"{service.address}-2", device="", replaces=service.address)
    assert moved.pk == target.pk
    assert PushSubscription.objects.get().device == "Alice's phone"
    notifications.queue_test_notification(target.pk, user=alice, now=NOW)
    assert deliver(target).state == "sent"


def test_a_person_has_so_many_devices_and_no_more(service: PushService, alice: User) -> None:
    for number in range(push.MOST_DEVICES):
        subscribed(service, alice, address=f"{service.address}-{number}")
    with pytest.raises(Conflict, match="limit"):
        subscribed(service, alice)
    notifications.create_notification_target(
        user=alice, kind="email", address="a@example.org", now=NOW
    )  # these count by themselves


def test_ended_devices_do_not_grow_without_end(service: PushService, alice: User) -> None:
    """A push service that ends each subscription at once makes room for the next, but keeps no more rows."""
    for number in range(push.MOST_DEVICES * 3):
        target = subscribed(service, alice, address=f"{service.address}-{number}")
        push.mark_push_device_ended(target, "gone", NOW + timedelta(seconds=number))
    devices = PushSubscription.objects.filter(target__person=alice.username)
    assert devices.count() == push.MOST_DEVICES + 1
    last = devices.order_by("-ended_at").values_list("target__address", flat=True)[0]
    assert last == f"{service.address}-{push.MOST_DEVICES * 3 - 1}"  # what ended last can still be read about


@pytest.mark.parametrize(
    "changes",
    [{"address": "https://10.0.0.1/x"}, {"address": "javascript:1"}, {"p256dh": "x"}, {"auth": ""}],
)
def test_what_is_no_subscription_is_refused(service: PushService, alice: User, changes: dict) -> None:
    with pytest.raises(UnprocessableRequest):
        subscribed(service, alice, **changes)
    assert not NotificationTarget.objects.exists()


def test_the_keys_lie_sealed_for_their_address_and_are_sealed_anew(service: PushService, alice: User) -> None:
    target = subscribed(service, alice)
    before = PushKey.objects.get().private_key, PushSubscription.objects.get().keys
    assert service.device.p256dh not in before[1]
    assert mcp_credentials.rotate_credential_key(actor=Actor("system", "tests"), now=NOW) == 2
    after = PushKey.objects.get().private_key, PushSubscription.objects.get().keys
    assert not set(before) & set(after)
    notifications.queue_test_notification(target.pk, user=alice, now=NOW)
    assert deliver(target).state == "sent"
    NotificationTarget.objects.update(address=f"{service.address}-elsewhere")
    notifications.queue_test_notification(target.pk, user=alice, now=NOW)
    assert "changed" in deliver(target).outcome


def test_the_key_is_made_once(service: PushService) -> None:
    assert push.ensure_vapid_public_key(now=NOW) == service.public_key == PushKey.objects.get().public_key


def test_a_lost_keyring_is_told_and_not_replaced(
    service: PushService, alice: User, settings, tmp_path
) -> None:
    subscribed(service, alice)
    assert push.list_undecryptable_push_key_problems() == []
    settings.DATA_DIR = tmp_path / "other"
    key, device = push.list_undecryptable_push_key_problems()
    assert key.startswith("The key for push messages: ")
    assert device.startswith("The device Alice's phone of alice: ")
    with pytest.raises(Conflict, match="credential_keys"):
        push.ensure_vapid_public_key(now=NOW)


def test_the_audit_log_knows_of_a_device_but_not_its_address(service: PushService, alice: User) -> None:
    target = subscribed(service, alice)
    push.remove_signed_out_device(target.pk, user=person("bob"), now=NOW)  # not theirs
    push.remove_signed_out_device(target.pk, user=alice, now=NOW)
    assert not PushSubscription.objects.exists()
    rows = AuditLog.objects.filter(event_type__startswith="PUSH").order_by("id")
    assert list(rows.values_list("event_type", flat=True)) == ["PUSH_DEVICE_ADDED", "PUSH_DEVICE_REMOVED"]
    assert "a-device" not in json.dumps(list(rows.values("metadata")))


def test_a_request_of_another_program_is_told_too(service: PushService) -> None:
    row = stored(target_resource=None, justification="")
    told = channel.build_push_payload_of_request(PermissionRequest.objects.get(pk=row.pk), 1, NOW)
    assert (told["title"], told["body"]) == ("Allow NetworkAccess", "Asked by mind.x")


def test_the_doors_of_a_device_take_it_in_tie_it_to_the_sign_in_and_refuse_in_words(
    service: PushService,
) -> None:
    browser = signed_in("approver")
    given = {"endpoint": service.address, **service.device.keys, "device": "Phone"}
    assert browser.post("/ui/push/key/").json() == {"key": service.public_key}
    assert browser.post("/ui/push/subscribe/", given).json() == {"kept": True}
    page = browser.get("/ui/approvals/notifications/").content.decode()
    mark = push.hash_device_address(service.address)
    assert f'data-push="{mark}"' in page
    assert f'data-push-device="{mark}"' in page
    assert service.address not in page
    new = {"old_password": PASSWORD, "new_password1": "another-one-8", "new_password2": "another-one-8"}
    assert browser.post(reverse("accounts:password"), new).status_code == 302
    assert 'data-push=""' in browser.get("/ui/approvals/").content.decode()
    assert browser.post("/ui/push/renew/", {"endpoint": service.address}).json() == {"kept": True}
    assert browser.post("/ui/push/renew/", {"endpoint": "https://x.example/"}).json() == {"kept": False}
    refused = browser.post("/ui/push/subscribe/", given | {"auth": "x"})
    assert (refused.status_code, list(refused.json())) == (422, ["detail"])
    browser.post("/ui/sign-out/")
    assert not PushSubscription.objects.exists()


def test_a_denial_by_the_door_needs_the_digest_and_nothing_else_can_be_said(service: PushService) -> None:
    browser, row = signed_in("approver"), asked()
    for form in ({"id": row.request_id}, {"id": row.request_id, "judged": "0" * 64}, {"judged": "x"}):
        form |= {"verdict": "approved"}
        assert browser.post("/ui/push/deny/", form).status_code in {409, 422}
    assert fresh(row).status == "pending"
    judged = judged_card_digest(fresh(row))
    assert browser.post("/ui/push/deny/", {"id": row.request_id, "judged": judged}).status_code == 204
    assert (fresh(row).status, fresh(row).approved_by) == ("denied", "approver")
    told = browser.get("/ui/push/waiting/").json()
    assert (told["count"], told["requests"], bool(told["csrf"])) == (0, [], True)
