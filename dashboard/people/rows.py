"""What the pages show of each person (role, ways to sign in, last activity) and of each open invitation."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import OuterRef, QuerySet, Subquery, TextField, Value
from django.db.models.functions import Cast, Concat

from coordinator.actions.people import accounts, provider_sign_ins
from coordinator.actions.people.users import group_role_or_empty
from coordinator.identity.roles import ADMIN
from coordinator.models import AuditLog, Invitation, Passkey, ProviderIdentity


@dataclass(frozen=True, slots=True)
class PersonRow:
    """A person, with facts that are not columns of the account."""

    user: User
    role: str  # "" for none
    sign_in_ways: list[str]
    last_seen: datetime | None  # the later of the last sign-in and the last audited action
    session_count: int


@dataclass(frozen=True, slots=True)
class InvitationRow:
    invitation: Invitation
    made_by: str


def annotate_last_audited_action(people: QuerySet[User]) -> QuerySet[User]:
    """Annotate `last_action`: the time of each person's latest audit entry, None if there is no entry."""
    actor = Concat(Value("user:"), Cast(OuterRef("username"), TextField()), output_field=TextField())
    entries = AuditLog.objects.filter(actor_id=actor).order_by("-id")
    return people.annotate(last_action=Subquery(entries.values("timestamp")[:1]))


def load_person_rows(people: list[User], session_counts: Counter[str]) -> list[PersonRow]:
    """Return the rows of people who were loaded with `annotate_last_audited_action`."""
    ids = [person.pk for person in people]
    passkey_counts = Counter(Passkey.objects.filter(user_id__in=ids).values_list("user_id", flat=True))
    at_provider = set(ProviderIdentity.objects.filter(pk__in=ids).values_list("user_id", flat=True))
    return [
        PersonRow(
            user=person,
            role=ADMIN if person.is_superuser else group_role_or_empty(person),
            sign_in_ways=list_sign_in_method_labels(
                person, passkey_counts[person.pk], person.pk in at_provider
            ),
            last_seen=latest_activity_time(person),
            session_count=session_counts[str(person.pk)],
        )
        for person in people
    ]


def list_sign_in_method_labels(person: User, passkey_count: int, is_at_provider: bool) -> list[str]:
    ways = [settings.OIDC_NAME or "single sign-on"] if is_at_provider else []
    if provider_sign_ins.has_password_sign_in(person) and not accounts.has_unknown_password(person):
        ways.append("password")
    if passkey_count:
        ways.append(f"{passkey_count} passkey{'' if passkey_count == 1 else 's'}")
    return ways


def latest_activity_time(person: User) -> datetime | None:
    """Return the later of the last sign-in and the last audited action. Unreadable times are ignored."""
    moments = [person.last_login, getattr(person, "last_action", None)]
    return max((moment for moment in moments if isinstance(moment, datetime)), default=None)


def load_invitation_rows(invitations: QuerySet[Invitation]) -> list[InvitationRow]:
    rows = list(invitations)
    names = dict(User.objects.filter(pk__in={row.made_by for row in rows}).values_list("pk", "username"))
    return [InvitationRow(row, names.get(row.made_by, "somebody who was deleted")) for row in rows]
