"""Django's sessions in the database, but under a hash of their keys: who reads the table gets no cookie from it.

SESSION_ENGINE names this module; Django looks for `SessionStore` in it. While passwords are off, a session that one
vouches for counts as ended: for pages, streams and all else that reads it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends import db
from django.contrib.sessions.backends.base import UpdateError
from django.contrib.sessions.base_session import AbstractBaseSession
from django.contrib.sessions.models import Session
from django.db import OperationalError, transaction
from django.utils import timezone

# In a session that the provider of single sign-on vouches for: the ID token, by which it knows at sign-out whose
# sign-in ends; "" where that is too long
BY_PROVIDER = "signed_in_at_provider"


def hash_session_key(session_key: str) -> str:
    """Return what the table holds for the key in a cookie: 40 hex digits, as long as its column allows."""
    return hashlib.blake2b(
        session_key.encode("utf-8", "surrogatepass"), digest_size=20, person=b"sbx.session"
    ).hexdigest()


def list_session_ids_of_person(user_id: int) -> list[str]:
    """Return the primary keys of the sessions that a person is signed in with.

    Reads every session that has not expired: only what a session holds says whose it is.
    """
    return [key for key, person_id, _ in iterate_session_keys_and_persons() if person_id == str(user_id)]


def count_sessions_by_person() -> Counter[str]:
    """Return how many sessions each person is signed in with, by the person's id as text.

    Sessions that a new password has ended do not count, though their rows stay until they expire.
    """
    session_rows = list(iterate_session_keys_and_persons())
    users = User.objects.in_bulk({int(person_id) for _, person_id, _ in session_rows})
    hashes = {str(pk): user.get_session_auth_hash() for pk, user in users.items()}
    return Counter(person_id for _, person_id, signed in session_rows if signed == hashes.get(person_id))


def iterate_session_keys_and_persons() -> Iterator[tuple[str, str, str]]:
    """Yield each session's primary key, the person's id, and the hash of the password that it began with."""
    store = SessionStore()
    rows = Session.objects.filter(expire_date__gt=timezone.now()).values_list("session_key", "session_data")
    for key, data in rows.iterator():
        session = store.decode(data)
        if person_id := session.get(SESSION_KEY):
            yield str(key), str(person_id), str(session.get(HASH_SESSION_KEY, ""))


class SessionStore(db.SessionStore):
    """Django's own store; `session_key` is what the cookie holds, the row's primary key is `hash_session_key` it."""

    def exists(self, session_key: str) -> bool:
        """Say whether there is such a session."""
        return Session.objects.filter(session_key=hash_session_key(session_key)).exists()

    def create_model_instance(self, data: dict[str, Any]) -> AbstractBaseSession:
        row = super().create_model_instance(data)
        row.session_key = hash_session_key(row.session_key)
        return row

    def save(self, must_create: bool = False) -> None:
        """Save the session. Raises OperationalError where the database is busy: it is no session that has gone."""
        try:
            super().save(must_create)
        except UpdateError as problem:
            if isinstance(problem.__context__, OperationalError):
                raise problem.__context__ from None
            raise

    @contextmanager
    def lock_and_save_during_block(self) -> Iterator[None]:
        """Work on what the table holds now, while nobody else does, and save it at the end of the block."""
        with transaction.atomic():
            Session.objects.select_for_update().filter(pk=hash_session_key(self.session_key or "")).first()
            is_there = self.try_reload_session_data()
            yield
            if is_there:
                self.save()
        self.modified = False

    def try_reload_session_data(self) -> bool:
        """Forget what was read at first, which others may have changed; say whether the session is still there."""
        key, row = self.session_key, self._get_session_from_db()
        # Without the key, Django would take the cookie from the browser, which may be of a session that followed.
        self._session_key = key
        self._session_cache = self.decode(row.session_data) if row else {}
        return row is not None

    def delete(self, session_key: str | None = None) -> None:
        """Delete a session, this one unless told otherwise."""
        if key := session_key or self.session_key:
            Session.objects.filter(session_key=hash_session_key(key)).delete()

    def _get_session_from_db(self) -> Session | None:
        rows = Session.objects.filter(expire_date__gt=timezone.now())
        row = rows.filter(session_key=hash_session_key(self.session_key or "")).first()
        if row is None or self.is_forbidden_password_session(row):
            self._session_key = None
            return None
        return row

    def is_forbidden_password_session(self, row: Session) -> bool:
        """Say whether a password vouches for somebody in this session, while passwords are off."""
        if settings.PASSWORD_SIGN_IN:
            return False
        data = self.decode(row.session_data)
        return SESSION_KEY in data and BY_PROVIDER not in data
