"""Sessions' titles: a person's title is permanent, the agent's own precedes one made of the first prompt.

Ingest does not set titles. Housekeeping follows the feed and gives one to each session with a new message, and goes
through all sessions once, so that older sessions have one too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import connection, transaction

from coordinator.actions.audit import audit
from coordinator.actions.runs import lock_session
from coordinator.engine import locks
from coordinator.errors import UnprocessableRequest
from coordinator.feed import reader as feed
from coordinator.identity.actors import Actor
from coordinator.lib import instants
from coordinator.models import Event, SessionTitle
from coordinator.secrets.masking import mask_secrets_in_value, shorten_mask_digests
from coordinator.sessions import titles
from coordinator.sessions.title_words import READ_UP_TO, shorten_title_line
from coordinator.sessions.titles import TitleGuess

MOST_TYPED = 200  # characters of a person's title
GENTLE_FOR = 0.2  # seconds; other work waits for a tick of housekeeping
WINDOW = 20_000  # changes that are looked through at a time
STEP = 200  # sessions that are looked at, and written, at a time
TITLE_FIELD = "session_title"  # the field of Claude Code's SessionStart that has its own title


def save_person_title(session_id: str, typed: str, *, actor: Actor, now: datetime) -> str:
    """Give a session the title that a person typed, or with nothing typed its own again; return what it is called.

    Raises NotFound, and UnprocessableRequest for a title that is too long.
    """
    title = shorten_title_line(shorten_mask_digests(mask_secrets_in_value(typed)), longest=MOST_TYPED + 1)
    if len(title) > MOST_TYPED:
        raise UnprocessableRequest(f"A title may have at most {MOST_TYPED} characters.")
    with transaction.atomic():
        lock_session(session_id)
        before = SessionTitle.objects.filter(pk=session_id).first()
        if title:
            upsert_session_titles(
                {session_id: title}, SessionTitle.Source.PERSON, now, settled=True, by=actor.name
            )
        elif before is not None:
            SessionTitle.objects.filter(pk=session_id).delete()
            write_reported_titles(find_titles_in_start_events([session_id]), now)
            write_guessed_titles(titles.guess_session_titles([session_id]), now)
        audit.record_audit_entry(
            "SESSION_RENAMED",
            actor=actor,
            target=session_id,
            result="success",
            metadata={"before": before.title if before else None, "after": title or None},
            now=now,
        )
    return titles.load_session_title(session_id)


def save_titles_from_agents(by_agents: Mapping[str, str], now: datetime) -> None:
    """Save the titles that agents gave their own sessions, by session; a person's own has precedence."""
    with transaction.atomic():
        locked_ids = locks.lock_existing_sessions(sorted(by_agents))
        write_reported_titles(
            clean_reported_titles(
                {session_id: text for session_id, text in by_agents.items() if session_id in locked_ids}
            ),
            now,
        )


def update_session_titles(now: datetime) -> None:
    """Give titles to sessions in which something has happened, then to some of those that were here before."""
    started_at = time.monotonic()
    progress = load_title_job_progress()
    if progress is None or not feed.can_replay_changes(progress[0]):
        progress = (feed.find_newest_change_id(), "")
        save_title_job_progress(*progress)
    followed, swept = progress
    newest = feed.find_newest_change_id()
    while followed < newest and time.monotonic() - started_at < GENTLE_FOR:
        upto = min(followed + WINDOW, newest)
        changed = find_session_ids_changed_between(followed, upto)
        for start in range(0, len(changed), STEP):
            assign_session_titles(changed[start : start + STEP], now)
        followed = upto
        save_title_job_progress(followed, swept)
    while swept is not None and time.monotonic() - started_at < GENTLE_FOR:
        older = find_session_ids_after(swept)
        assign_session_titles(older, now)
        swept = older[-1] if len(older) == STEP else None
        save_title_job_progress(followed, swept)


def assign_session_titles(session_ids: list[str], now: datetime) -> None:
    """Give these sessions the titles that their agents reported, or that their first words make."""
    stored_sources = dict(SessionTitle.objects.filter(pk__in=session_ids).values_list("pk", "source"))
    settled = set(SessionTitle.objects.filter(pk__in=session_ids, settled=True).values_list("pk", flat=True))
    agents = find_titles_in_start_events(
        [
            session_id
            for session_id in session_ids
            if stored_sources.get(session_id) != SessionTitle.Source.PERSON
        ]
    )
    guessed = titles.guess_session_titles(
        [session_id for session_id in session_ids if session_id not in settled and session_id not in agents]
    )
    if not agents and not guessed:  # nearly always: reading takes no lock
        return
    with transaction.atomic():
        locked_ids = locks.lock_existing_sessions(sorted({*agents, *guessed}))
        write_reported_titles({one: text for one, text in agents.items() if one in locked_ids}, now)
        write_guessed_titles({one: guess for one, guess in guessed.items() if one in locked_ids}, now)


def find_titles_in_start_events(session_ids: list[str]) -> dict[str, str]:
    """Return the titles that agents reported with their sessions' latest start."""
    starts = Event.objects.filter(session_id__in=session_ids, event_type="session_start")
    title_events = starts.filter(context__extra__text__contains=f'"{TITLE_FIELD}"').order_by("id")
    return clean_reported_titles(
        {
            session_id: extra[TITLE_FIELD]
            for session_id, extra in title_events.values_list("session_id", "context__extra")
            if isinstance(extra, dict) and isinstance(extra.get(TITLE_FIELD), str)
        }
    )


def clean_reported_titles(reported_titles: Mapping[str, str]) -> dict[str, str]:
    """Return titles as they are kept: on one line, masked, of bounded length; none that are empty."""
    titles = {
        session_id: shorten_title_line(shorten_mask_digests(mask_secrets_in_value(text[:READ_UP_TO])))
        for session_id, text in reported_titles.items()
    }
    return {one: title for one, title in titles.items() if title}


def write_reported_titles(titles: Mapping[str, str], now: datetime) -> None:
    upsert_session_titles(titles, SessionTitle.Source.AGENT, now, settled=True)


def write_guessed_titles(guessed: Mapping[str, TitleGuess], now: datetime) -> None:
    for settled in (True, False):
        some = {session_id: guess.title for session_id, guess in guessed.items() if guess.settled is settled}
        upsert_session_titles(some, SessionTitle.Source.PROMPT, now, settled=settled)


# Which titles a new one may take the place of.
_GIVES_WAY = {
    SessionTitle.Source.PERSON: "1 = 1",
    SessionTitle.Source.AGENT: "session_titles.source <> 'person'",
    SessionTitle.Source.PROMPT: "session_titles.source = 'prompt' AND NOT session_titles.settled",
}

_UPSERT = """
INSERT INTO session_titles (session_id, title, source, settled, set_by, set_at) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (session_id) DO UPDATE SET title = excluded.title, source = excluded.source,
    settled = excluded.settled, set_by = excluded.set_by, set_at = excluded.set_at
WHERE {gives_way} AND (session_titles.title <> excluded.title OR session_titles.source <> excluded.source
    OR session_titles.settled <> excluded.settled)
"""


def upsert_session_titles(
    new: Mapping[str, str],
    source: SessionTitle.Source,
    now: datetime,
    *,
    settled: bool,
    by: str | None = None,
) -> None:
    """Write titles where no title with precedence exists; an existing title is not reported as new."""
    statement = _UPSERT.format(gives_way=_GIVES_WAY[source])
    rows = [
        (session_id, title, source.value, settled, by, instants.format_canonical_instant(now))
        for session_id, title in sorted(new.items())
    ]
    with connection.cursor() as cursor:
        for row in rows:
            cursor.execute(statement, row)


# --- how far housekeeping has come ------------------------------------------------------------------------


def load_title_job_progress() -> tuple[int, str | None] | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT followed, swept FROM sbx_title_progress WHERE id = 1")
        progress_row: tuple[int, str | None] | None = cursor.fetchone()
        return progress_row


def save_title_job_progress(followed: int, swept: str | None) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO sbx_title_progress (id, followed, swept) VALUES (1, %s, %s)"
            " ON CONFLICT (id) DO UPDATE SET followed = excluded.followed, swept = excluded.swept",
            [followed, swept],
        )


def find_session_ids_changed_between(after: int, upto: int) -> list[str]:
    """Return the sessions that got events or runs with the changes after one and up to another."""
    return query_session_ids(
        "SELECT DISTINCT parent FROM changes WHERE id > %s AND id <= %s AND op = 'insert'"
        " AND topic IN ('events', 'runs') AND parent IS NOT NULL ORDER BY parent",
        [after, upto],
    )


def find_session_ids_after(swept: str) -> list[str]:
    return query_session_ids(
        "SELECT session_id FROM sessions WHERE session_id > %s ORDER BY session_id LIMIT %s", [swept, STEP]
    )


def query_session_ids(statement: str, parameters: list[Any]) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return [str(row[0]) for row in cursor.fetchall()]
