"""Passkeys: their challenges, registration, removal and use.

A challenge is good once, for five minutes, for one purpose, and only in the browser that requested it. It is a row of
the database, so it holds for all workers and through a restart. Its use deletes it, before anything is verified: of two
answers to one challenge the second finds none, whatever the first was.

The sign-in limits hold as for passwords, with counts of their own: an attacker who guesses passwords must not lock out
somebody with a passkey.
"""

from __future__ import annotations

import base64
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.utils.crypto import salted_hmac

from coordinator.actions.audit import audit
from coordinator.actions.people.accounts import SignInAttempt
from coordinator.actions.people.attempts import THIS_MACHINE, AttemptLimit, normalize_caller_network
from coordinator.actions.people.provider_sign_ins import has_lost_last_sign_in, has_password_sign_in
from coordinator.errors import Conflict, Forbidden, NotFound, SignalboxError
from coordinator.identity import passkeys
from coordinator.identity.actors import Actor, person_actor, system_actor
from coordinator.identity.passkeys import PasskeyAnswer, PasskeyRefused
from coordinator.models import Passkey, PasskeyChallenge

log = logging.getLogger(__name__)
Purpose = PasskeyChallenge.Purpose
CHALLENGE_BYTES = 32
CHALLENGE_GOOD_FOR = timedelta(minutes=5)
# Who asks for more has the oldest of their own network dropped: nobody is locked out for longer than that lasts.
MAX_OPEN_CHALLENGES = 200
MAX_OPEN_CHALLENGES_ON_THIS_MACHINE = (
    2000  # where a proxy does not say whom it speaks for, everybody comes from here
)
MAX_PASSKEYS = 20  # of one person
MAX_NAME_CHARACTERS = 64
REFUSED = AttemptLimit(
    "SIGN_IN_FAILED",
    "refused passkey from {source}",
    tries=30,
    window=timedelta(minutes=10),
    refusal="Too many passkeys from your network were refused. Try again in a few minutes.",
)
REFUSED_ON_THIS_MACHINE = replace(REFUSED, tries=300)
REFUSED_ON_DEVICE = replace(
    REFUSED,
    reason="refused passkey on known device {source}",
    tries=10,
    refusal="Too many passkeys were refused in this browser. Try again in a few minutes.",
)
ONLY_WAY_IN = "Set a password or make recovery codes first."
EXPIRED = "That took more than five minutes, or was sent twice. Try again."


def list_passkeys(user: User) -> list[Passkey]:
    """Return a person's passkeys, the oldest first."""
    return list(Passkey.objects.filter(user_id=user.pk).order_by("id"))


def list_usable_passkeys(user: User) -> list[Passkey]:
    """Return those that work at this installation's address."""
    if passkeys.passkey_configuration_problem_or_empty():
        return []
    return [row for row in list_passkeys(user) if row.rp_id == passkeys.relying_party_id()]


def begin_adding_passkey(user: User, browser: str, address: str, now: datetime) -> dict[str, object]:
    """Return what the browser needs to make a passkey for `user`.

    Args:
        user: The signed-in person.
        browser: The hash of the browser's secret.
        address: The caller's address.
        now: The time.

    Raises:
        Conflict: They have as many as one person may have, or passkeys cannot work here.
    """
    existing = list_passkeys(user)
    require_passkeys_possible()
    require_passkey_quota(len(existing))
    challenge = create_passkey_challenge(Purpose.ADD, browser, address, now, user=user)
    own_passkeys = [row for row in existing if row.rp_id == passkeys.relying_party_id()]
    return passkeys.build_passkey_creation_options(
        challenge,
        user_handle=get_or_derive_user_handle(user, existing),
        username=user.username,
        full_name=user.get_full_name(),
        existing=own_passkeys,
    )


def begin_passkey_sign_in(browser: str, address: str, now: datetime) -> dict[str, object]:
    """Return what a browser needs to sign somebody in. Raises Conflict where passkeys cannot work."""
    require_passkeys_possible()
    return passkeys.build_passkey_request_options(
        create_passkey_challenge(Purpose.SIGN_IN, browser, address, now), []
    )


def begin_passkey_confirmation(user: User, browser: str, address: str, now: datetime) -> dict[str, object]:
    """Return what the browser needs for `user` to confirm that it is them. Raises Conflict where they have none."""
    require_passkeys_possible()
    usable = list_usable_passkeys(user)
    if not usable:
        raise Conflict("You have no passkey that works at this address.")
    challenge = create_passkey_challenge(Purpose.CONFIRM, browser, address, now, user=user)
    return passkeys.build_passkey_request_options(challenge, usable)


def add_passkey(user: User, text: str, name: str, *, browser: str, address: str, now: datetime) -> Passkey:
    """Store a passkey that a browser has just made for `user`.

    Args:
        user: The signed-in person.
        text: What the browser sent, as JSON.
        name: What they call it; "" gives it a name.
        browser: The hash of the browser's secret.
        address: The caller's address.
        now: The time.

    Raises:
        PasskeyRefused: What was sent proves nothing.
        Conflict: It is known already, or there are too many.
    """
    credential = verify_new_passkey_consuming_challenge(text, browser, now, user=user)
    with transaction.atomic():
        User.objects.select_for_update().filter(pk=user.pk).first()  # two at once count each other
        existing = list_passkeys(user)
        require_passkey_quota(len(existing))
        handle = get_or_derive_user_handle(user, existing)
        name = normalize_passkey_name(name, len(existing))
        return store_passkey(user, credential, name, handle, address=address, now=now)


def verify_new_passkey_consuming_challenge(
    text: str, browser: str, now: datetime, *, user: User | None = None
) -> passkeys.NewCredential:
    """Return a browser's new passkey for `user`, or for a person with an invitation. Raises PasskeyRefused."""
    try:
        answer = passkeys.parse_passkey_answer(text)
        consume_passkey_challenge(Purpose.ADD, answer, browser, now, user=user)
        return passkeys.verify_new_passkey(answer)
    except PasskeyRefused as refusal:
        owner = user.username if user else "somebody who joins"
        log.warning("new passkey of %s refused: %s", owner, refusal.problem)
        raise


def store_passkey(
    user: User,
    credential: passkeys.NewCredential,
    name: str,
    handle: str,
    *,
    address: str,
    now: datetime,
) -> Passkey:
    """Store a verified passkey. Raises Conflict where somebody has it already."""
    try:
        with transaction.atomic():
            row = Passkey.objects.create(
                user_id=user.pk,
                name=name,
                credential_id=credential.credential_id,
                public_key=credential.public_key,
                user_handle=handle,
                rp_id=passkeys.relying_party_id(),
                sign_count=credential.sign_count,
                made_at=now,
            )
            record_passkey_event(
                "PASSKEY_ADDED", row, user, actor=person_actor(user), reason=f"from {address}", now=now
            )
    except IntegrityError:
        raise Conflict("This passkey is already in use.") from None
    return row


def begin_joining_with_passkey(
    handle: str, username: str, browser: str, address: str, now: datetime
) -> dict[str, object]:
    """Return what the browser of somebody invited needs to make a passkey. Raises Conflict where none can work."""
    require_passkeys_possible()
    return passkeys.build_passkey_creation_options(
        create_passkey_challenge(Purpose.ADD, browser, address, now),
        user_handle=handle,
        username=username,
        full_name="",
        existing=[],
    )


def sign_in_with_passkey(text: str, browser: str, attempt: SignInAttempt, now: datetime) -> User:
    """Return whom a passkey signs in, and write it down.

    Args:
        text: What the browser sent, as JSON.
        browser: The hash of the browser's secret.
        attempt: Where it comes from; its name is not looked at.
        now: The time.

    Raises:
        PasskeyRefused: It proves nothing.
        Forbidden: Whose passkey it is may not sign in with it.
        TooManyRequests: Too many were refused lately.
    """
    with rate_limit_passkey_refusals_in_block(find_user_of_passkey_answer(text), attempt, now):
        answer = passkeys.parse_passkey_answer(text)
        consume_passkey_challenge(Purpose.SIGN_IN, answer, browser, now)
        row = find_passkey(answer)
        user = User.objects.filter(pk=row.user_id).first() if row else None
        if row is None or user is None:
            raise PasskeyRefused(
                "an unknown passkey",
                "Signalbox does not know this passkey. It may have been removed: sign in another way.",
            )
        with transaction.atomic():
            verify_passkey_and_advance_counter(answer, row, now)
            require_passkey_sign_in_allowed(user)
            record_passkey_event(
                "SIGNED_IN", row, user, actor=person_actor(user), reason=f"from {attempt.address}", now=now
            )
    return user


def confirm_with_passkey(user: User, text: str, browser: str, attempt: SignInAttempt, now: datetime) -> None:
    """Note that a signed-in person has shown with one of their passkeys that it is them.

    Raises PasskeyRefused, also for somebody else's passkey, and TooManyRequests after many.
    """
    with rate_limit_passkey_refusals_in_block(user, attempt, now):
        answer = passkeys.parse_passkey_answer(text)
        consume_passkey_challenge(Purpose.CONFIRM, answer, browser, now, user=user)
        row = find_passkey(answer)
        if row is None or row.user_id != user.pk:
            raise PasskeyRefused("a passkey of somebody else, or of nobody", "This is none of your passkeys.")
        with transaction.atomic():
            verify_passkey_and_advance_counter(answer, row, now)
            record_passkey_event(
                "SIGN_IN_CONFIRMED",
                row,
                user,
                actor=person_actor(user),
                reason=f"from {attempt.address}",
                now=now,
            )


def remove_own_passkey(user: User, passkey_id: int, *, now: datetime) -> Passkey:
    """Remove one of a person's own passkeys, unless it is their only way to sign in.

    Args:
        user: The signed-in person.
        passkey_id: Which of their passkeys.
        now: The time.

    Raises:
        NotFound: They have no such passkey, or no account any more.
        Conflict: They could not sign in without it. Nothing is removed.
    """
    with transaction.atomic():
        owner = User.objects.select_for_update().filter(pk=user.pk).first()  # two at once count each other
        if owner is None:
            raise NotFound("This person no longer exists.")
        row = remove_passkey(owner, passkey_id, actor=person_actor(owner), now=now)
        if has_lost_last_sign_in(owner):
            raise Conflict(ONLY_WAY_IN)
    return row


def remove_passkey(user: User, passkey_id: int, *, actor: Actor, now: datetime) -> Passkey:
    """Remove one passkey of `user`, at their own wish or an administrator's. Raises NotFound."""
    with transaction.atomic():
        row = Passkey.objects.select_for_update().filter(pk=passkey_id, user_id=user.pk).first()
        if row is None:
            raise NotFound("This passkey is already removed.")
        record_passkey_event("PASSKEY_REMOVED", row, user, actor=actor, reason="", now=now)
        Passkey.objects.filter(pk=row.pk).delete()
    return row


def create_passkey_challenge(
    purpose: str, browser: str, address: str, now: datetime, *, user: User | None = None
) -> bytes:
    """Return a new challenge, and drop the expired ones and the network's oldest where it asks for too many."""
    challenge, source = secrets.token_bytes(CHALLENGE_BYTES), normalize_caller_network(address)
    most = MAX_OPEN_CHALLENGES_ON_THIS_MACHINE if source == THIS_MACHINE else MAX_OPEN_CHALLENGES
    with transaction.atomic():
        PasskeyChallenge.objects.filter(expires_at__lte=now).delete()
        PasskeyChallenge.objects.create(
            digest=passkeys.hash_passkey_challenge(challenge),
            purpose=purpose,
            user_id=user.pk if user else None,
            browser=browser,
            source=source,
            expires_at=now + CHALLENGE_GOOD_FOR,
        )
        open_ones = PasskeyChallenge.objects.filter(source=source).order_by("-expires_at", "digest")
        too_many = list(open_ones.values_list("digest", flat=True)[most : most + 100])
        if too_many:
            PasskeyChallenge.objects.filter(digest__in=too_many).delete()
    return challenge


def consume_passkey_challenge(
    purpose: str, answer: PasskeyAnswer, browser: str, now: datetime, *, user: User | None = None
) -> None:
    """Use up the challenge that an answer is for.

    Raises PasskeyRefused where there is none (any more), or where it was for another purpose, person or browser.
    """
    digest = passkeys.hash_passkey_challenge(answer.challenge)
    with transaction.atomic():
        row = PasskeyChallenge.objects.filter(digest=digest).first()
        deleted_count, _ = PasskeyChallenge.objects.filter(digest=digest).delete()
    if row is None or deleted_count != 1:
        raise PasskeyRefused("the challenge is unknown, used or expired", EXPIRED)
    if row.expires_at <= now:
        raise PasskeyRefused("the challenge has expired", EXPIRED)
    if row.purpose != purpose:
        raise PasskeyRefused(f"the challenge was for another purpose: {row.purpose}")
    if row.user_id != (user.pk if user else None):
        raise PasskeyRefused("the challenge was for somebody else")
    if not secrets.compare_digest(row.browser, browser):
        raise PasskeyRefused("the challenge was for another browser")


def verify_passkey_and_advance_counter(answer: PasskeyAnswer, row: Passkey, now: datetime) -> None:
    """Verify an answer and advance the passkey's counter. Raises PasskeyRefused."""
    new_count = passkeys.verify_passkey_and_get_counter(answer, row)
    unchanged = Passkey.objects.filter(pk=row.pk, user_id=row.user_id, sign_count=row.sign_count)
    if not unchanged.update(sign_count=new_count, last_used_at=now):
        raise PasskeyRefused("the passkey was used or removed meanwhile")


def find_passkey(answer: PasskeyAnswer) -> Passkey | None:
    """Return the passkey that an answer names."""
    return Passkey.objects.filter(credential_id=answer.credential_id).first()


def select_passkey_attempt_limit(attempt: SignInAttempt, user: User | None) -> tuple[str, AttemptLimit]:
    """Return what refusals are counted by, and their limit: by browser where its person has signed in before."""
    if user and (device := replace(attempt, username=user.username).decode_device_token()):
        return device, REFUSED_ON_DEVICE
    source = normalize_caller_network(attempt.address)
    return source, REFUSED_ON_THIS_MACHINE if source == THIS_MACHINE else REFUSED


@contextmanager
def rate_limit_passkey_refusals_in_block(
    user: User | None, attempt: SignInAttempt, now: datetime
) -> Iterator[None]:
    """Raise TooManyRequests after too many refusals; log, count and audit the one that the block raises.

    Args:
        user: Whose passkey it says to be.
        attempt: Where it comes from.
        now: The time.
    """
    source, limit = select_passkey_attempt_limit(attempt, user)
    limit.require_below_limit(source, now)
    try:
        yield
    except SignalboxError as refusal:
        problem = str(getattr(refusal, "problem", "") or refusal.detail)[:500]
        log.warning("passkey from %s refused: %s", source, problem)
        limit.record_refusal_for_limit(
            source,
            actor=system_actor("sign-in"),
            target=user.username if user else None,
            now=now,
            metadata={"problem": problem},
        )
        raise


def find_user_of_passkey_answer(text: str) -> User | None:
    """Return whose passkey an answer says to be, which proves nothing yet."""
    try:
        row = find_passkey(passkeys.parse_passkey_answer(text))
    except PasskeyRefused:
        return None
    return User.objects.filter(pk=row.user_id).first() if row else None


def require_passkeys_possible() -> None:
    if problem := passkeys.passkey_configuration_problem_or_empty():
        raise Conflict(problem)


def require_passkey_sign_in_allowed(user: User) -> None:
    """Raise Forbidden where this person's passkeys only confirm: their role comes with each sign-in elsewhere."""
    if not user.is_active:
        raise Forbidden("This account is switched off. Ask an administrator.")
    if not has_password_sign_in(user):
        name = settings.OIDC_NAME or "single sign-on"
        raise Forbidden(
            f"You sign in with {name}. Your passkey only confirms afterwards that it is you, so that your groups "
            "there set your role here each time."
        )


def require_passkey_quota(count: int) -> None:
    if count >= MAX_PASSKEYS:
        raise Conflict(f"You have {MAX_PASSKEYS} passkeys. Remove one first.")


def normalize_passkey_name(name: str, existing: int) -> str:
    """Return the name to store: the authenticator has the passkey already, so no name is a reason to refuse it."""
    return " ".join(name.split())[:MAX_NAME_CHARACTERS] or f"Passkey {existing + 1}"


def get_or_derive_user_handle(user: User, existing: list[Passkey]) -> str:
    """Return the handle by which authenticators know the account: one for all its passkeys, revealing nothing."""
    if existing:
        return existing[0].user_handle
    return derive_passkey_user_handle("signalbox.passkey-user", user.pk)


def derive_passkey_user_handle(purpose: str, row_id: int) -> str:
    digest = salted_hmac(purpose, str(row_id), algorithm="sha256").digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def record_passkey_event(
    event_type: str, row: Passkey, user: User, *, actor: Actor, reason: str, now: datetime
) -> None:
    audit.record_audit_entry(
        event_type,
        actor=actor,
        target=user.username,
        result="success",
        reason=reason,
        metadata={"by": "passkey", "name": row.name, "host": row.rp_id},
        now=now,
    )
