"""Devices that receive push messages, created, kept and removed by their owners; and the installation's push key.

A device is a notification target, so that its messages are written, tried again and listed as all others are.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from urllib.parse import urlsplit

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from coordinator.actions.audit import audit
from coordinator.errors import Conflict, UnprocessableRequest
from coordinator.identity.actors import person_actor, system_actor
from coordinator.identity.roles import APPROVER, has_role
from coordinator.models import NotificationTarget, PushKey, PushSubscription
from coordinator.models.notifications import NotificationTargetQuerySet
from coordinator.notifications import push, webhooks, webpush
from coordinator.secrets import keyring

Kind = NotificationTarget.Kind
MOST_DEVICES = 10
LONGEST_ADDRESS, LONGEST_NAME = 2000, 60
UNNAMED = "Unnamed device"
SIGNED_OUT = "The password has changed since. Sign in on that device and switch push on again."
MOVED_ON = "Another person has signed in on this device."
NO_LONGER_DECIDES = (
    "You signed in on this device while you had no right to decide. Switch push on again there."
)


def ensure_vapid_public_key(*, now: datetime) -> str:
    """Return the key that browsers bind their subscriptions to; makes it where there is none yet.

    Raises Conflict where the keys of this installation cannot be read.
    """
    try:
        private_key = webpush.generate_vapid_key()
        push_key, is_new = PushKey.objects.get_or_create(
            pk=PushKey.ONLY,
            defaults={
                "public_key": webpush.vapid_public_key(private_key),
                "private_key": keyring.seal_text_with_keyring(push.KEY_PURPOSE, private_key),
                "made_at": now,
            },
        )
        if not is_new:
            keyring.unseal_text_with_keyring(push.KEY_PURPOSE, push_key.private_key)
    except keyring.KeyringUnusable as problem:
        raise Conflict(str(problem)) from None
    return push_key.public_key


def subscribe_push_device(
    *, user: User, address: str, p256dh: str, auth: str, device: str, replaces: str = "", now: datetime
) -> NotificationTarget:
    """Keep a device's subscription and return its target; one that is known already gets its new keys and name.

    `replaces` is the address that the same device had before. A device is one person's: another's subscription of
    the same address ends. Raises UnprocessableRequest for what is none, Conflict beyond the limit.
    """
    validate_push_subscription(address, p256dh, auth)
    name = " ".join(device.split())[:LONGEST_NAME]
    try:
        keys = keyring.seal_text_with_keyring(
            push.device_keys_seal_purpose(address), json.dumps({"p256dh": p256dh, "auth": auth})
        )
    except keyring.KeyringUnusable as problem:
        raise Conflict(str(problem)) from None
    try:
        with transaction.atomic():
            return save_push_device(user, (address, replaces), keys, name, now)
    except IntegrityError:
        raise Conflict("This device is just being added. Reload the page.") from None


def save_push_device(
    user: User, addresses: tuple[str, str], keys: str, name: str, now: datetime
) -> NotificationTarget:
    """Write the device down under its address, the first of the two; the second is the one that it had before."""
    address, before = addresses
    mark_other_users_devices_ended(user, address, now)
    devices = find_push_devices(user)
    known_target = devices.filter(address=address).first() or devices.filter(address=before).first()
    if known_target is None and find_push_devices(user).without_ended_devices().count() >= MOST_DEVICES:
        raise Conflict(f"You already have {MOST_DEVICES} devices, which is the limit. Remove one first.")
    if known_target is None:
        delete_old_ended_devices(devices)
    target = known_target or NotificationTarget(person=user.get_username(), kind=Kind.PUSH, created_at=now)
    target.address = address
    target.save()
    push_subscription = PushSubscription.objects.filter(pk=target.pk).first()
    PushSubscription.objects.update_or_create(
        target=target,
        defaults={
            "device": name or (push_subscription.device if push_subscription else UNNAMED),
            "keys": keys,
            "sign_in": hash_user_password_state(user),
            "ended_at": None,
            "why_ended": None,
        },
    )
    if known_target is None or (push_subscription is not None and push_subscription.ended_at is not None):
        record_device_change("PUSH_DEVICE_ADDED", target, user, now)
    return target


def delete_old_ended_devices(devices: NotificationTargetQuerySet) -> None:
    """Delete a person's ended devices but for the latest: a push service could end each one that is added."""
    ended = devices.filter(push__ended_at__isnull=False).order_by("-push__ended_at", "-pk")
    NotificationTarget.objects.filter(pk__in=list(ended.values_list("pk", flat=True)[MOST_DEVICES:])).delete()


def renew_push_device_sign_in(*, user: User, address: str, now: datetime) -> NotificationTarget | None:
    """Tie a known device to this sign-in and return its target; None where it is none of this person's any more.

    Then the browser ends its subscription: the person removed it elsewhere, it was another's, or they may not decide.
    """
    with transaction.atomic():
        mark_other_users_devices_ended(user, address, now)
        if not has_role(user, APPROVER):
            for own in find_push_devices(user).filter(address=address):
                mark_push_device_ended(own, NO_LONGER_DECIDES, now)
            return None
        target = (
            find_push_devices(user)
            .without_ended_devices()
            .filter(address=address, push__isnull=False)
            .first()
        )
        if target is not None:
            PushSubscription.objects.filter(pk=target.pk).update(sign_in=hash_user_password_state(user))
    return target


def remove_signed_out_device(target_id: object, *, user: User, now: datetime) -> None:
    """Remove the device that `by` signs out on, where this is one of theirs."""
    if not isinstance(target_id, int):
        return
    with transaction.atomic():
        target = find_push_devices(user).filter(pk=target_id).first()
        if target is not None:
            record_device_change("PUSH_DEVICE_REMOVED", target, user, now)
            NotificationTarget.objects.filter(pk=target.pk).delete()


def find_push_block_reason(target: NotificationTarget, owner: User) -> str | None:
    """Return why nothing may be sent to a device any more, or None."""
    device = PushSubscription.objects.filter(pk=target.pk).first()
    if device is None or device.ended_at is not None:
        return "the device has ended its subscription"
    if device.sign_in != hash_user_password_state(owner):
        return SIGNED_OUT
    return None


def mark_push_device_ended(target: NotificationTarget, reason: str, now: datetime) -> None:
    """Note that a device takes no messages any more, and forget its keys; its owner reads why, and removes it."""
    with transaction.atomic():
        device = PushSubscription.objects.filter(pk=target.pk, ended_at__isnull=True)
        if device.update(ended_at=now, why_ended=reason, keys=""):
            audit.record_audit_entry(
                "PUSH_DEVICE_ENDED",
                actor=system_actor("notifications"),
                target=f"notification:{target.pk}",
                result="success",
                reason=reason,
                now=now,
            )


def reencrypt_push_keys() -> int:
    """Seal with the newest key what is not, and return how many values. Call it in a transaction.

    Raises KeyringUnusable.
    """
    newest, count = keyring.load_newest_key_id(), 0
    for key in PushKey.objects.select_for_update():
        if keyring.key_id_of_sealed_text(key.private_key) != newest:
            key.private_key = keyring.seal_text_with_keyring(
                push.KEY_PURPOSE, keyring.unseal_text_with_keyring(push.KEY_PURPOSE, key.private_key)
            )
            key.save(update_fields=["private_key"])
            count += 1
    for device in PushSubscription.objects.select_for_update().select_related("target").exclude(keys=""):
        if keyring.key_id_of_sealed_text(device.keys) != newest:
            purpose = push.device_keys_seal_purpose(device.target.address)
            device.keys = keyring.seal_text_with_keyring(
                purpose, keyring.unseal_text_with_keyring(purpose, device.keys)
            )
            device.save(update_fields=["keys"])
            count += 1
    return count


def list_undecryptable_push_key_problems() -> list[str]:
    """Return why the key, or devices' keys, cannot be opened, one sentence each."""
    sealed = [
        (push.KEY_PURPOSE, key.private_key, "The key for push messages") for key in PushKey.objects.all()
    ]
    for device in PushSubscription.objects.select_related("target").exclude(keys="").order_by("pk"):
        name = f"The device {device.device} of {device.target.person}"
        sealed.append((push.device_keys_seal_purpose(device.target.address), device.keys, name))
    problems = []
    for purpose, text, name in sealed:
        try:
            keyring.unseal_text_with_keyring(purpose, text)
        except keyring.KeyringUnusable as problem:
            problems.append(f"{name}: {problem}")
    return problems


def hash_device_address(address: str) -> str:
    """Return the hash by which a page finds its browser's own device in the list, without revealing its address."""
    return hashlib.sha256(address.encode()).hexdigest()[:32]


def hash_user_password_state(user: User) -> str:
    """Return what changes with the person's password, as their sessions do."""
    return hashlib.sha256(user.get_session_auth_hash().encode()).hexdigest()[:32]


def find_push_devices(user: User) -> NotificationTargetQuerySet:
    return NotificationTarget.objects.filter(person=user.get_username(), kind=Kind.PUSH)


def mark_other_users_devices_ended(user: User, address: str, now: datetime) -> None:
    notification_targets = NotificationTarget.objects.filter(kind=Kind.PUSH, address=address)
    for target in notification_targets.exclude(person=user.get_username()):
        mark_push_device_ended(target, MOVED_ON, now)


def validate_push_subscription(address: str, p256dh: str, auth: str) -> None:
    try:
        if len(address) > LONGEST_ADDRESS:
            raise UnprocessableRequest("The address of the push service is too long.")
        webhooks.require_allowed_literal_url_host(address)
        webpush.validate_device_keys(p256dh, auth)
    except webhooks.WebhookAddressRefused as refusal:
        raise UnprocessableRequest(f"The push service's address cannot be used. {refusal}") from None
    except ValueError:
        raise UnprocessableRequest(
            "The browser's keys cannot be read. Reload the page and try again."
        ) from None


def record_device_change(event: str, target: NotificationTarget, user: User, now: datetime) -> None:
    """Write the change down, without the address: who knows it can end the subscription."""
    audit.record_audit_entry(
        event,
        actor=person_actor(user),
        target=f"notification:{target.pk}",
        result="success",
        metadata={"kind": target.kind, "host": urlsplit(target.address).hostname},
        now=now,
    )
