"""People's changes in lists of sessions: tags and archive for everybody; pins, columns, saved views for themselves.

None of it changes what a session's agent does, and nothing is deleted. Pins, tags and the archive are audited; the
columns that somebody views, and the names of their saved filters, are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction

from coordinator.actions.audit import audit
from coordinator.engine import locks
from coordinator.errors import BadRequest, Forbidden, NotFound
from coordinator.identity.actors import person_actor
from coordinator.identity.roles import APPROVER, has_role
from coordinator.models import (
    ArchivedSession,
    SavedSessionView,
    SessionListChoice,
    SessionPin,
    SessionTag,
)

MAX_SESSIONS = 200  # that are changed with one press; each has its audit row
MAX_ARCHIVED_CHILDREN = 2_000
MAX_TAG_LENGTH = 40
MAX_TAGS = 20  # of one session
MAX_PINS = 50  # of one person: pinned sessions come before all others
MAX_VIEWS = 50  # of one person
MAX_VIEW_NAME_LENGTH = 60
MAX_QUERY_LENGTH = 2_000

_DESCENDANTS = f"""
WITH RECURSIVE tree (id) AS (
    SELECT session_id FROM sessions WHERE session_id = %s
    UNION
    SELECT c.session_id FROM sessions c JOIN tree ON c.parent_session_id = tree.id
)
SELECT id FROM tree LIMIT {MAX_ARCHIVED_CHILDREN}
"""  # a constant  # noqa: S608


def parse_session_tags(text: str) -> list[str]:
    """Return the tags that a text names, separated by commas, each once. Raises BadRequest."""
    tags = list(dict.fromkeys(" ".join(part.split()).lower() for part in text.split(",")))
    tags = [tag for tag in tags if tag]
    for tag in tags:
        if len(tag) > MAX_TAG_LENGTH:
            raise BadRequest(
                f"A tag may have at most {MAX_TAG_LENGTH} characters: “{tag[:MAX_TAG_LENGTH]}…”."
            )
    return tags


def add_session_tags(session_ids: Sequence[str], tags: Sequence[str], *, user: User, now: datetime) -> int:
    """Give each of these sessions these tags; return how many sessions had not all of them.

    Raises Forbidden, BadRequest, and NotFound where none of the sessions exists.
    """
    with transaction.atomic():
        changed = 0
        for session_id in authorize_and_lock_session_ids(session_ids, user, needs_approver=True):
            before = load_session_tags(session_id)
            new = [tag for tag in tags if tag not in before]
            if len(before) + len(new) > MAX_TAGS:
                raise BadRequest(f"A session may have at most {MAX_TAGS} tags. Nothing was changed.")
            SessionTag.objects.bulk_create(
                SessionTag(session_id=session_id, tag=tag, tagged_by=user.get_username(), tagged_at=now)
                for tag in new
            )
            if new:
                record_tag_change(session_id, before, user, now)
                changed += 1
    return changed


def remove_session_tags(session_ids: Sequence[str], tags: Sequence[str], *, user: User, now: datetime) -> int:
    """Take these tags from each of these sessions; return how many sessions had one. Raises as add_session_tags."""
    with transaction.atomic():
        changed = 0
        for session_id in authorize_and_lock_session_ids(session_ids, user, needs_approver=True):
            before = load_session_tags(session_id)
            if SessionTag.objects.filter(session_id=session_id, tag__in=tags).delete()[0]:
                record_tag_change(session_id, before, user, now)
                changed += 1
    return changed


def replace_session_tags(session_id: str, tags: Sequence[str], *, user: User, now: datetime) -> None:
    """Let a session have exactly these tags. Raises as add_session_tags."""
    with transaction.atomic():
        authorize_and_lock_session_ids([session_id], user, needs_approver=True)
        superfluous = [tag for tag in load_session_tags(session_id) if tag not in tags]
        remove_session_tags([session_id], superfluous, user=user, now=now)
        add_session_tags([session_id], tags, user=user, now=now)


def load_session_tags(session_id: str) -> list[str]:
    return list(
        SessionTag.objects.filter(session_id=session_id).order_by("tag").values_list("tag", flat=True)
    )


def record_tag_change(session_id: str, before: list[str], user: User, now: datetime) -> None:
    after = load_session_tags(session_id)
    record_session_list_change("SESSION_TAGGED", session_id, user, now, {"before": before, "after": after})


def pin_sessions(session_ids: Sequence[str], *, user: User, now: datetime) -> int:
    """Keep sessions at the top of this person's list; return how many were not. Raises as add_session_tags."""
    with transaction.atomic():
        chosen = authorize_and_lock_session_ids(session_ids, user)
        pinned = set(
            SessionPin.objects.select_for_update()
            .filter(user_id=user.pk)
            .values_list("session_id", flat=True)
        )
        new = [session_id for session_id in chosen if session_id not in pinned]
        if len(pinned) + len(new) > MAX_PINS:
            raise BadRequest(f"You can pin at most {MAX_PINS} sessions. Unpin some first.")
        SessionPin.objects.bulk_create(
            [SessionPin(session_id=session_id, user_id=user.pk, pinned_at=now) for session_id in new],
            ignore_conflicts=True,
        )
        for session_id in new:
            record_session_list_change("SESSION_PINNED", session_id, user, now)
    return len(new)


def unpin_sessions(session_ids: Sequence[str], *, user: User, now: datetime) -> int:
    """Take sessions from the top of this person's list; return how many were there. Raises as add_session_tags."""
    with transaction.atomic():
        changed = 0
        for session_id in authorize_and_lock_session_ids(session_ids, user):
            if SessionPin.objects.filter(user_id=user.pk, session_id=session_id).delete()[0]:
                record_session_list_change("SESSION_UNPINNED", session_id, user, now)
                changed += 1
    return changed


def archive_sessions(session_ids: Sequence[str], *, user: User, now: datetime) -> int:
    """Leave sessions, with those that they started, out of lists; return how many of the chosen were not yet.

    Raises as add_session_tags.
    """
    with transaction.atomic():
        changed = 0
        for session_id in authorize_and_lock_session_ids(session_ids, user, needs_approver=True):
            tree_ids = find_session_and_descendant_ids(session_id)
            archived_ids = set(ArchivedSession.objects.filter(pk__in=tree_ids).values_list("pk", flat=True))
            ArchivedSession.objects.bulk_create(
                [
                    ArchivedSession(session_id=tree_id, archived_by=user.get_username(), archived_at=now)
                    for tree_id in tree_ids
                    if tree_id not in archived_ids
                ],
                ignore_conflicts=True,
            )
            if session_id not in archived_ids:
                children = len(tree_ids) - 1
                record_session_list_change("SESSION_ARCHIVED", session_id, user, now, {"children": children})
                changed += 1
    return changed


def unarchive_sessions(session_ids: Sequence[str], *, user: User, now: datetime) -> int:
    """Bring sessions, with those that they started, back into lists; return how many of the chosen were archived.

    Raises as add_session_tags.
    """
    with transaction.atomic():
        changed = 0
        for session_id in authorize_and_lock_session_ids(session_ids, user, needs_approver=True):
            tree_ids = find_session_and_descendant_ids(session_id)
            was_archived = ArchivedSession.objects.filter(pk=session_id).exists()
            ArchivedSession.objects.filter(pk__in=tree_ids).delete()
            if was_archived:
                record_session_list_change(
                    "SESSION_RESTORED", session_id, user, now, {"children": len(tree_ids) - 1}
                )
                changed += 1
    return changed


def find_session_and_descendant_ids(session_id: str) -> list[str]:
    """Return a session and all that it started, directly or not."""
    with connection.cursor() as cursor:
        cursor.execute(_DESCENDANTS, [session_id])
        return [row[0] for row in cursor.fetchall()]


def authorize_and_lock_session_ids(
    session_ids: Sequence[str], user: User, *, needs_approver: bool = False
) -> list[str]:
    """Return those of the sessions that exist, held against deletion. Raises Forbidden, BadRequest and NotFound."""
    if needs_approver and not has_role(user, APPROVER):
        raise Forbidden("You need the role approver to tag or archive sessions.")
    if not session_ids:
        raise BadRequest("Choose at least one session.")
    if len(session_ids) > MAX_SESSIONS:
        raise BadRequest(f"Choose at most {MAX_SESSIONS} sessions at once.")
    existing_ids = locks.lock_existing_sessions(sorted(set(session_ids)))
    if not existing_ids:
        raise NotFound("Session not found")
    return sorted(existing_ids)


def record_session_list_change(
    event_type: str, session_id: str, user: User, now: datetime, metadata: dict[str, Any] | None = None
) -> None:
    audit.record_audit_entry(
        event_type,
        actor=person_actor(user),
        target=session_id,
        result="success",
        metadata=metadata,
        now=now,
    )


# --- a person's own list ------------------------------------------------------------------------------------------


def save_session_list_columns(columns: Sequence[str], *, user: User) -> None:
    """Have this person's list of sessions show these columns."""
    SessionListChoice.objects.update_or_create(pk=user.pk, defaults={"columns": list(columns)})


def save_session_view(name: str, query: str, *, user: User) -> SavedSessionView:
    """Keep filters under a name, in place of those that had it. Raises BadRequest."""
    name = " ".join(name.split())
    if not name or len(name) > MAX_VIEW_NAME_LENGTH:
        raise BadRequest(f"Give the view a name of at most {MAX_VIEW_NAME_LENGTH} characters.")
    if len(query) > MAX_QUERY_LENGTH:
        raise BadRequest("These filters are too long to be saved.")
    with transaction.atomic():
        other_views = SavedSessionView.objects.filter(user_id=user.pk).exclude(name=name)
        if other_views.count() >= MAX_VIEWS:
            raise BadRequest(f"You can save at most {MAX_VIEWS} views. Delete one first.")
        view, _ = SavedSessionView.objects.update_or_create(
            user_id=user.pk, name=name, defaults={"query": query}
        )
    return view


def delete_saved_session_view(view_id: int, *, user: User) -> str:
    """Delete one of this person's views; return its name. Raises NotFound."""
    with transaction.atomic():
        view = SavedSessionView.objects.filter(pk=view_id, user_id=user.pk).first()
        if view is None:
            raise NotFound("You have no such view. It may be deleted already.")
        view.delete()
    return view.name
