"""The addresses at which people are notified: added and removed by their owners."""

from __future__ import annotations

import secrets
from datetime import datetime

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import IntegrityError, transaction
from django.utils import timezone

from coordinator.actions.audit import audit
from coordinator.errors import Conflict, NotFound, UnprocessableRequest
from coordinator.identity.actors import person_actor
from coordinator.models import NotificationTarget
from coordinator.notifications import apprise_channel, webhooks
from coordinator.notifications import filters as hearing
from coordinator.notifications.messages import NotificationNotSent
from coordinator.secrets import keyring

About = NotificationTarget.About
Kind = NotificationTarget.Kind

MOST_TARGETS = 10
LONGEST_NAME = 60
LONGEST_PATTERNS = 500


def create_notification_target(
    *, user: User, kind: str, address: str, name: str = "", now: datetime | None = None
) -> NotificationTarget:
    """Add an address of this person's and return it, a webhook's secret in it. `name` is what they call it.

    Raises UnprocessableRequest for what is no address, Conflict for one that is there already.
    """
    now, address, name = now or timezone.now(), address.strip(), name.strip()
    if len(name) > LONGEST_NAME or any(ord(sign) < 32 for sign in name):
        raise UnprocessableRequest(f"A name has at most {LONGEST_NAME} characters on one line.")
    require_address_quota(user)
    columns = build_address_columns(kind, address)
    try:
        with transaction.atomic():
            target = NotificationTarget.objects.create(
                person=user.get_username(), kind=kind, name=name, created_at=now, **columns
            )
            record_address_change("NOTIFICATION_TARGET_ADDED", target, user, now)
    except IntegrityError:
        raise Conflict("This address is already on your list.") from None
    return target


def require_address_quota(user: User) -> None:
    own_targets = NotificationTarget.objects.filter(person=user.get_username()).exclude(kind=Kind.PUSH)
    if own_targets.count() >= MOST_TARGETS:
        raise Conflict(f"You already have {MOST_TARGETS} addresses, which is the limit. Remove one first.")


def build_address_columns(kind: str, address: str) -> dict[str, str]:
    """Return what is stored of an address of this kind. Raises UnprocessableRequest for what is none."""
    if kind == Kind.WEBHOOK:
        validate_webhook_url(address)
        return {"address": address, "secret": f"whsec_{secrets.token_urlsafe(32)}"}
    if kind == Kind.EMAIL:
        validate_mail_address(address)
        return {"address": address}
    if kind == Kind.APPRISE:
        return build_service_address_columns(address)
    raise UnprocessableRequest("Choose a service, an e-mail address or a webhook.")


def build_service_address_columns(address: str) -> dict[str, str]:
    try:
        service = apprise_channel.require_displayed_address_in_subprocess(address)
        sealed = apprise_channel.seal_service_address(address)
    except apprise_channel.InvalidServiceAddress as problem:
        raise UnprocessableRequest(str(problem)) from None
    except NotificationNotSent as problem:
        raise UnprocessableRequest(f"The address could not be checked: {problem}. Try again.") from None
    except keyring.KeyringUnusable as problem:
        raise UnprocessableRequest(str(problem)) from None
    return {
        "address": apprise_channel.service_address_digest(address),
        "secret": sealed,
        "shown": str(service),
    }


def set_notification_filter(
    target_id: int,
    *,
    user: User,
    about: str,
    patterns: str = "",
    limit_percent: int | None = None,
    now: datetime | None = None,
) -> NotificationTarget:
    """Set which requests, and which levels of subscription limits, one of this person's addresses is notified of.

    Raises NotFound, UnprocessableRequest.
    """
    if about not in About.values:
        raise UnprocessableRequest("Choose which requests this address is notified about.")
    listed = hearing.split_target_patterns(patterns) if about in (About.TYPES, About.TOOLS) else []
    if about in (About.TYPES, About.TOOLS) and not listed:
        raise UnprocessableRequest("Enter at least one, such as ProcessExecution or Bash.")
    if limit_percent is not None and not 1 <= limit_percent <= 100:
        raise UnprocessableRequest(
            "The level of limits is a number from 1 to 100. Leave it empty for no message."
        )
    text = ", ".join(listed)
    if len(text) > LONGEST_PATTERNS or any(ord(sign) < 32 for sign in text):
        raise UnprocessableRequest(f"The list has at most {LONGEST_PATTERNS} characters.")
    with transaction.atomic():
        target = get_own_notification_target(target_id, user)
        after = {"about": about, "patterns": text, "limit_percent": limit_percent}
        before = {name: getattr(target, name) for name in after}
        NotificationTarget.objects.filter(pk=target.pk).update(**after)
        record_address_change(
            "NOTIFICATION_TARGET_CHANGED", target, user, now or timezone.now(), before=before, after=after
        )
    return target


def remove_notification_address(target_id: int, *, user: User, now: datetime | None = None) -> None:
    """Remove an address of this person's, and its log. Raises NotFound for one that is not theirs."""
    with transaction.atomic():
        target = get_own_notification_target(target_id, user)
        record_address_change("NOTIFICATION_TARGET_REMOVED", target, user, now or timezone.now())
        NotificationTarget.objects.filter(pk=target.pk).delete()


def reencrypt_notification_addresses() -> int:
    """Seal addresses with the newest key that are not; return how many. Raises keyring.KeyringUnusable."""
    newest, count = keyring.load_newest_key_id(), 0
    for target in NotificationTarget.objects.select_for_update().filter(kind=Kind.APPRISE):
        if keyring.key_id_of_sealed_text(target.secret or "") != newest:
            secret = apprise_channel.seal_service_address(apprise_channel.unseal_target_address(target))
            count += NotificationTarget.objects.filter(pk=target.pk).update(secret=secret)
    return count


def list_undecryptable_address_problems() -> list[str]:
    """Return why sealed addresses cannot be opened, one sentence each."""
    problems = []
    for target in NotificationTarget.objects.filter(kind=Kind.APPRISE).order_by("id"):
        try:
            apprise_channel.unseal_target_address(target)
        except keyring.KeyringUnusable as problem:
            problems.append(f"The address {target.shown} of {target.person}: {problem}")
    return problems


def get_own_notification_target(target_id: int, user: User) -> NotificationTarget:
    """Return this person's address. Raises NotFound for one that is not theirs."""
    target = NotificationTarget.objects.filter(pk=target_id, person=user.get_username()).first()
    if target is None:
        raise NotFound("You have no such address.")
    return target


def validate_mail_address(address: str) -> None:
    try:
        validate_email(address)
    except ValidationError:
        raise UnprocessableRequest(
            "This is not an e-mail address."
        ) from None  # it may be a secret in the wrong field


def validate_webhook_url(address: str) -> None:
    """Accept http(s) URLs that carry no password; what a name leads to is checked whenever something is sent."""
    try:
        webhooks.require_allowed_literal_url_host(address)
    except webhooks.WebhookAddressRefused as refusal:
        raise UnprocessableRequest(str(refusal)) from None


def record_address_change(
    event: str, target: NotificationTarget, user: User, now: datetime, **more: object
) -> None:
    """Write the change down, without the address: it often is a secret itself."""
    audit.record_audit_entry(
        event,
        actor=person_actor(user),
        target=f"notification:{target.pk}",
        result="success",
        metadata={**serialize_address_for_audit(target), **more},
        now=now,
    )


def serialize_address_for_audit(target: NotificationTarget) -> dict[str, object]:
    """Return what an audit entry says of an address: never the address itself."""
    return {"kind": target.kind, "host": target.shown or webhooks.webhook_host(target.address) or "mail"}
