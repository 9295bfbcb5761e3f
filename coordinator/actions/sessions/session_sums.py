"""The sums by which lists of sessions are sorted.

Ingest does not update them. Housekeeping follows the feed, as far as the index of files has followed it, and compares
the figures of each session in which something happened. In addition it goes through all sessions in rounds: prices, old
events that are counted later and deleted events change sums without a change of a session.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from django.db import connection, transaction

from coordinator.actions.search.progress import load_index_progress
from coordinator.actions.sessions.titles import WINDOW, find_session_ids_changed_between, query_session_ids
from coordinator.engine import locks
from coordinator.feed import reader as feed
from coordinator.lib import instants
from coordinator.models import Session, SessionChange, SessionFigures
from coordinator.policy.rules.tool_kinds import KINDS
from coordinator.sessions.list_facts import session_start_microseconds
from coordinator.usage import reading as usage
from coordinator.usage.reading import SESSION_OWNER

GENTLE_FOR = 0.2  # seconds; the next run goes on
STEP = 100  # sessions that are compared at a time; a run's round through all sessions is one step
COLUMNS = ("cost", "tokens", "began_us", "ended_us", "files_changed", "person")
WRITING_TOOLS = sorted(KINDS["write"].tools)

# Each session by itself: of many at once PostgreSQL may think that they are most of the table, and read all of it.
_ENDS = f"""
SELECT s.session_id, {SESSION_OWNER},
    (SELECT c.instant_us FROM event_context c WHERE c.session_id = s.session_id
        ORDER BY c.instant_us, c.event_id LIMIT 1),
    (SELECT c.instant_us FROM event_context c WHERE c.session_id = s.session_id
        ORDER BY c.instant_us DESC, c.event_id DESC LIMIT 1),
    (SELECT count(DISTINCT t.file_id) FROM events e JOIN sbx_file_touches t ON t.event_id = e.id
        LEFT JOIN event_context c ON c.event_id = e.id
        WHERE e.session_id = s.session_id AND e.event_type IN ('pre_tool', 'post_tool')
            AND e.tool_name IN ({{tools}}) AND e.error IS NULL
            AND (c.tool_use_id IS NULL OR EXISTS (
                SELECT 1 FROM event_context o JOIN events x ON x.id = o.event_id
                WHERE o.session_id = c.session_id AND o.tool_use_id = c.tool_use_id
                    AND x.event_type = 'post_tool' AND x.error IS NULL)))
FROM sessions s WHERE s.session_id IN ({{ids}})
"""  # constants  # noqa: S608


def update_due_session_figures(now: datetime) -> None:  # noqa: ARG001 - the shape of jobs
    """Compare the figures of sessions in which something happened, then those of the next sessions of the round."""
    started_at = time.monotonic()
    followed, swept = load_figures_progress()
    newest = min(feed.find_newest_change_id(), load_index_progress().followed)
    if not feed.can_replay_changes(followed):
        followed = newest
    while followed < newest and time.monotonic() - started_at < GENTLE_FOR:
        upto = min(followed + WINDOW, newest)
        changed = find_session_ids_changed_between(followed, upto)
        for start in range(0, len(changed), STEP):
            save_session_figures(changed[start : start + STEP])
        followed = upto
        save_figures_progress(followed, swept)
    next_ids = query_session_ids(
        "SELECT session_id FROM sessions WHERE session_id > %s ORDER BY session_id LIMIT %s", [swept, STEP]
    )
    save_session_figures(next_ids)
    save_figures_progress(followed, next_ids[-1] if len(next_ids) == STEP else "")


def save_session_figures(session_ids: Sequence[str]) -> None:
    """Write the figures of these sessions where they differ from what is stored."""
    stored = {figures.pk: figures for figures in SessionFigures.objects.filter(pk__in=session_ids)}
    changed = [
        figures
        for figures in compute_session_figures(session_ids)
        if (before := stored.get(figures.pk)) is None
        or any(getattr(before, name) != getattr(figures, name) for name in COLUMNS)
    ]
    if not changed:
        return
    with transaction.atomic():
        existing_ids = locks.lock_existing_sessions(sorted(figures.pk for figures in changed))
        SessionFigures.objects.bulk_create(
            [figures for figures in changed if figures.pk in existing_ids],
            update_conflicts=True,
            unique_fields=["session"],
            update_fields=COLUMNS,
        )


def compute_session_figures(session_ids: Sequence[str]) -> list[SessionFigures]:
    """Return the figures of these sessions as they are now, not saved.

    Changed files are those of the newest comparison of the work tree, where a runner made one, else those that calls of
    writing tools named. A call that failed changed nothing; of an agent without ids of calls all count.
    """
    if not session_ids:
        return []
    statement = _ENDS.format(
        ids=", ".join(["%s"] * len(session_ids)), tools=", ".join(["%s"] * len(WRITING_TOOLS))
    )
    with connection.cursor() as cursor:
        cursor.execute(statement, [*WRITING_TOOLS, *session_ids])
        rows = cursor.fetchall()
    spent = usage.load_usage_by_session(session_ids)
    comparisons = SessionChange.objects.filter(session_id__in=session_ids, run_id="", problem__isnull=True)
    compared = {
        session_id: len(files)
        for session_id, files in comparisons.values_list("session_id", "files")
        if isinstance(files, list)
    }
    sessions = Session.objects.in_bulk(session_ids)
    return [
        SessionFigures(
            session_id=session_id,
            cost=spent[session_id].cost if session_id in spent else None,
            tokens=spent[session_id].total_tokens if session_id in spent else None,
            began_us=began_as_lists_show_it(sessions[session_id], began_us),
            ended_us=ended_us,
            files_changed=compared.get(session_id, touched),
            person=person,
        )
        for session_id, person, began_us, ended_us, touched in rows
        if session_id in sessions
    ]


def began_as_lists_show_it(session: Session, first_us: int | None) -> int | None:
    """Return when a session began, by `session_start_microseconds`; its first event where that cannot be read."""
    if not isinstance(session.created_at, datetime):
        return first_us
    created = instants.instant_to_microseconds(session.created_at)
    return created if first_us is None else session_start_microseconds(session, first_us)


def load_figures_progress() -> tuple[int, str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT followed, swept FROM sbx_figures_progress WHERE id = 1")
        progress: tuple[int, str] | None = cursor.fetchone()
    return progress or (0, "")


def save_figures_progress(followed: int, swept: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sbx_figures_progress (id, followed, swept) VALUES (1, %s, %s)"
            " ON CONFLICT (id) DO UPDATE SET followed = excluded.followed, swept = excluded.swept"
            " WHERE sbx_figures_progress.followed <> excluded.followed OR sbx_figures_progress.swept <> excluded.swept",
            [followed, swept],
        )
