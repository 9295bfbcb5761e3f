"""What the pages about notifications say of addresses, quiet hours and escalation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from zoneinfo import available_timezones

from django.contrib.auth.models import Group, User
from django.db.models import Q

from coordinator.identity.roles import ADMIN, APPROVER, ROLES
from coordinator.models import EscalationStep, Notification, NotificationTarget, QuietHours
from coordinator.notifications import quiet

Kind = NotificationTarget.Kind
About = NotificationTarget.About
AWAY = (Kind.APPRISE, Kind.EMAIL, Kind.WEBHOOK)  # what a person types; devices are added on them
LOG = 30  # messages


@dataclass(frozen=True, slots=True)
class Address:
    """One of a person's addresses as the page shows it: what it is, what it hears of, what came of it last."""

    target: NotificationTarget
    kind: str
    place: str
    about: str
    last: Notification | None


def addresses(person: str, log: Iterable[Notification]) -> list[Address]:
    """Return a person's addresses; `log` are their latest messages, the newest first."""
    last: dict[int, Notification] = {}
    for message in log:
        last.setdefault(message.target_id, message)
    rows = NotificationTarget.objects.filter(person=person, kind__in=AWAY).order_by("id")
    return [
        Address(row, kind_in_words(row.kind), row.shown or row.address, about_in_words(row), last.get(row.pk))
        for row in rows
    ]


def sent_to(person: str) -> list[Notification]:
    """Return the latest messages to a person, the newest first."""
    rows = Notification.objects.select_related("target").filter(target__person=person)
    return list(rows.order_by("-id")[:LOG])


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
    """A step of escalation as a sentence."""

    row: EscalationStep
    when: str
    whom: str


def steps() -> list[Step]:
    """Return the steps in their order. Who is told at once comes first, also where no step says so."""
    rows = list(EscalationStep.objects.select_related("group"))
    return [Step(row, when(row.after_minutes), whom(row)) for row in rows]


def when(minutes: int) -> str:
    if minutes == 0:
        return "At once"
    return f"After {minutes} minute{'s' if minutes != 1 else ''}, if nobody has decided"


def whom(row: EscalationStep) -> str:
    return f"the group {row.group.name}" if row.group else str(row.person)


def to_choose() -> list[tuple[str, list[tuple[str, str]]]]:
    """Return whom a step can tell, groups and people who may decide: the value of each choice and its words."""
    groups = Group.objects.exclude(name__in=ROLES).order_by("name")
    able = Q(is_superuser=True) | Q(groups__name__in=(APPROVER, ADMIN))
    people = User.objects.filter(able, is_active=True).distinct().order_by("username")
    return [
        ("Groups", [(f"group:{one.pk}", one.name) for one in groups]),
        ("People", [(f"person:{one.get_username()}", one.get_username()) for one in people]),
    ]
