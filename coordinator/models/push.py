"""Devices that take push messages, and the key that push services know this installation by."""

from __future__ import annotations

from django.db import models

from coordinator.models.fields import IsoTextField
from coordinator.models.notifications import NotificationTarget


class PushKey(models.Model):
    """The installation's one key (VAPID). Browsers bind their subscriptions to its public half."""

    ONLY = 1

    id = models.BigIntegerField(primary_key=True, default=ONLY)
    public_key = models.TextField()
    private_key = models.TextField()  # sealed (coordinator.secrets.keyring)
    made_at = IsoTextField()

    class Meta:
        db_table = "push_keys"

    def __str__(self) -> str:
        return "the key for push messages"


class PushSubscription(models.Model):
    """The data of a target of kind push besides its address: the device's name and its keys, until it has ended.

    `keys` seals the JSON of `p256dh` and `auth`, bound to the address. `sign_in` is the person's session auth hash
    at the time: a changed password ends it. An ended one keeps its row, so that its owner reads why.
    """

    target = models.OneToOneField(
        NotificationTarget,
        models.DO_NOTHING,  # the database cascades
        primary_key=True,
        related_name="push",
    )
    device = models.TextField()
    keys = models.TextField()
    sign_in = models.TextField()
    ended_at = IsoTextField(null=True, blank=True)
    why_ended = models.TextField(null=True, blank=True)

    class Meta:
        db_table = "push_subscriptions"

    def __str__(self) -> str:
        return self.device
