"""What the pages about notifications say of addresses, quiet hours and escalation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from zoneinfo import available_timezones

from django.contrib.auth.models import Group
from django.db.models import Max, QuerySet

from coordinator.actions.push import UNNAMED
from coordinator.identity.roles import APPROVER, ROLES, people_with
from coordinator.models import EscalationStep, Notification, NotificationTarget, QuietHours
from coordinator.notifications import quiet, recipients, webhooks

Kind = NotificationTarget.Kind
About = NotificationTarget.About
AWAY = (Kind.APPRISE, Kind.EMAIL, Kind.WEBHOOK)  # what a person types; devices are added on them
LOG = 30  # messages on a page


@dataclass(frozen=True, slots=True)
class Address:
    """One of a person's addresses as the page shows it: what it is, what it hears of, what came of it last."""

    target: NotificationTarget
    kind: str
    place: str
    about: str
    last: Notification | None


def addresses(person: str) -> list[Address]:
    """Return a person's addresses, each with what came of the last message to it."""
    rows = NotificationTarget.objects.filter(person=person, kind__in=AWAY).order_by("id")
    newest = Notification.objects.filter(target__in=rows).values("target").annotate(last=Max("id"))
    last = {one.target_id: one for one in Notification.objects.filter(pk__in=newest.values("last"))}
    return [
        Address(row, kind_in_words(row.kind), row.shown or row.address, about_in_words(row), last.get(row.pk))
        for row in rows
    ]


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of the log, and what its owner calls the address or device."""

    row: Notification
    to: str


def sent_to(person: str) -> QuerySet[Notification]:
    """Return all messages to a person that the log still has."""
    return Notification.objects.select_related("target__push").filter(target__person=person)


def sent(row: Notification) -> Sent:
    target = row.target
    if target.kind == Kind.PUSH:
        device = getattr(target, "push", None)
        return Sent(row, device.device if device else UNNAMED)
    host = webhooks.host_of(target.address) if target.kind == Kind.WEBHOOK else target.address
    return Sent(row, target.name or target.shown or host or kind_in_words(target.kind))


def is_test_on_its_way(row: Notification) -> bool:
    """Say whether a test's answer is still to come: the page that asked for it then looks again."""
    return not row.request_id and row.state == Notification.State.WAITING


KINDS: dict[str, str] = {
    Kind.APPRISE.value: "Service",
    Kind.EMAIL.value: "E-mail",
    Kind.WEBHOOK.value: "Webhook",
    Kind.PUSH.value: "Device",
}


def kind_in_words(kind: str) -> str:
    return KINDS.get(kind, kind)


def about_in_words(target: NotificationTarget) -> str:
    """Return of which requests an address hears, as its owner chose."""
    words = dict(About.choices).get(target.about, About.EVERYTHING.label)
    return f"{words}: {target.patterns}" if target.patterns else words


@dataclass(frozen=True, slots=True)
class Quiet:
    """A person's quiet hours, and until when they are quiet now."""

    hours: QuietHours | None
    until: datetime | None


def quiet_of(person: str, now: datetime) -> Quiet:
    hours = QuietHours.objects.filter(pk=person).first()
    return Quiet(hours, quiet.ends(hours, now) if hours else None)


@cache
def zones() -> tuple[str, ...]:
    """Return the names of the zones that a person may choose."""
    return ("UTC", *sorted(one for one in available_timezones() if "/" in one and not one.startswith("Etc/")))


@dataclass(frozen=True, slots=True)
class Step:
    """A step of escalation as a sentence; `is_heard` where one of those it names could be told by now."""

    row: EscalationStep
    when: str
    whom: str
    is_heard: bool


def steps() -> list[Step]:
    """Return the steps in their order. Who is told at once comes first, also where no step says so."""
    rows = list(EscalationStep.objects.select_related("group"))
    reachable = NotificationTarget.objects.reachable().values("person")
    able = people_with(APPROVER).filter(username__in=reachable).values_list("username", flat=True)
    hearing = set(able) if rows else set()
    return [
        Step(row, when(row.after_minutes), whom(row), bool(recipients.named([row]) & hearing)) for row in rows
    ]


def when(minutes: int) -> str:
    if minutes == 0:
        return "At once"
    return f"After {minutes} minute{'s' if minutes != 1 else ''}, if nobody has decided"


def whom(row: EscalationStep) -> str:
    return f"the group {row.group.name}" if row.group else str(row.person)


def to_choose() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return whom a step can tell, groups and people who may decide: the value of each choice and its words."""
    groups = Group.objects.exclude(name__in=ROLES).order_by("name")
    people = people_with(APPROVER).order_by("username")
    return [
        ("Groups", [(f"group:{one.pk}", one.name) for one in groups]),
        ("People", [(f"person:{one.get_username()}", one.get_username()) for one in people]),
    ]
