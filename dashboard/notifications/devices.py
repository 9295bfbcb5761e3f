"""A person's devices that receive push messages, as the page lists them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.http import HttpRequest
from django.http.request import split_domain_port

from coordinator.actions.notifications import push
from coordinator.lib.listening_sockets import is_loopback
from coordinator.lib.unfit_values import UnreadableText
from coordinator.models import NotificationTarget, PushSubscription


@dataclass(frozen=True, slots=True)
class PushDevice:
    """A device that receives push messages, or received them until its subscription ended."""

    pk: int
    name: str
    mark: str  # a hash of the push endpoint, by which a browser finds itself in the list
    since: datetime | UnreadableText
    why_ended: str  # empty while the device receives messages


def list_push_devices(person: str) -> list[PushDevice]:
    """Return a person's devices in the order in which they were added."""
    targets = NotificationTarget.objects.filter(person=person, kind=NotificationTarget.Kind.PUSH)
    subscriptions_by_target = {
        push_subscription.pk: push_subscription
        for push_subscription in PushSubscription.objects.filter(target__in=targets)
    }
    return [
        build_push_device(target, subscriptions_by_target.get(target.pk)) for target in targets.order_by("id")
    ]


def build_push_device(target: NotificationTarget, subscription: PushSubscription | None) -> PushDevice:
    ended = "Its keys are missing. Remove the device and add it again." if subscription is None else ""
    if subscription is not None and subscription.ended_at is not None:
        ended = subscription.why_ended or "Its subscription has ended."
    name = subscription.device if subscription is not None else push.UNNAMED
    return PushDevice(target.pk, name, push.hash_device_address(target.address), target.created_at, ended)


def build_page_origin_context(request: HttpRequest) -> dict[str, object]:
    """Return whether the page came over HTTPS or from this machine, and our port.

    The page explains with them how to reach it over HTTPS.
    """
    name, _ = split_domain_port(request.get_host())
    local = is_loopback(name.strip("[]")) or name == "localhost" or name.endswith(".localhost")
    return {"is_secure": request.is_secure(), "is_local": local, "port": settings.BIND_PORT}
