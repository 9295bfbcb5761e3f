"""What lists say of sessions beside their own columns, for a page of sessions at once and never row by row."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Count, OuterRef, QuerySet, Subquery, Sum
from django.db.models.functions import Substr

from coordinator import instants, usage
from coordinator.models import EventContext, PermissionContext, Run
from coordinator.usage import Usage

ABOUT_CHARACTERS = 240
MESSAGE_HEAD = 4_000
BEGINNING = 20  # messages among which a person's first words are looked for
LIVE = ("pending", "running", "stopping")


@dataclass(slots=True)
class SessionFacts:
    """One session's numbers and what it is about: its first message from a person, else its first run's prompt."""

    about: str = ""
    events: int = 0
    errors: int = 0
    children: int = 0
    waiting: int = 0
    usage: Usage | None = None
    last: datetime | None = field(default=None)


def with_last_instant(sessions: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
    """Add `last_us`: the instant of each session's latest event, read from the end of its timeline's index."""
    latest = EventContext.objects.filter(session_id=OuterRef("pk")).order_by("-instant_us", "-event_id")
    dated: QuerySet[Any, Any] = sessions.annotate(last_us=Subquery(latest.values("instant_us")[:1]))
    return dated


def facts_of(session_ids: Iterable[str]) -> dict[str, SessionFacts]:
    """Return the facts of these sessions by id. The same few queries however many sessions there are."""
    ids = list(session_ids)
    facts = {session_id: SessionFacts() for session_id in ids}
    for session_id, events, errors, children, last_us in _rows(NUMBERS, ids):
        fact = facts[session_id]
        fact.events, fact.errors, fact.children, fact.last = events, errors, children, _moment(last_us)
    asked = PermissionContext.objects.filter(session_id__in=ids, request__status="pending").order_by()
    for session_id, waiting in asked.values_list("session_id").annotate(number=Count("*")):
        facts[session_id].waiting = waiting
    for session_id, spent in usage.of_sessions(ids).items():
        facts[session_id].usage = spent
    for session_id, text in abouts_of(ids).items():
        facts[session_id].about = text
    return facts


def masked_in(session_id: str) -> int:
    """Return how many secrets were masked in the session's events; an index of those events alone says it."""
    hit = EventContext.objects.filter(session_id=session_id, masked__gt=0)
    return int(hit.aggregate(total=Sum("masked"))["total"] or 0)


def _moment(at_us: int | None) -> datetime | None:
    try:
        return None if at_us is None else instants.from_us(at_us)
    except OverflowError:
        return None


def abouts_of(ids: list[str]) -> dict[str, str]:
    """Return what each session is about, on one line: a person's own words, else the first run's prompt."""
    abouts = {}
    runs = Run.objects.filter(session_id__in=ids).order_by("-created_at", "-run_id")
    for session_id, prompt in runs.annotate(head=Substr("prompt", 1, ABOUT_CHARACTERS)).values_list(
        "session_id", "head"
    ):
        abouts[session_id] = " ".join((prompt or "").split())
    for session_id, message in _rows(FIRST_WORDS, ids):
        if text := _first_text(message):
            abouts[session_id] = text
    return abouts


# By hand, because the ORM's way to say so makes PostgreSQL walk the whole table. Naming all columns of the index
# sbx_events_kinds in the order lets both engines read it from its beginning, whatever they guess of the rows.
FIRST_WORDS = f"""
SELECT s.session_id, (
    SELECT m.head FROM (
        SELECT e.id, e.role, substr(e.content, 1, {MESSAGE_HEAD}) AS head FROM events e
        WHERE e.session_id = s.session_id AND e.event_type = 'message' AND e.tool_name IS NULL
        ORDER BY e.tool_name, e.id LIMIT {BEGINNING}
    ) m WHERE m.role = 'user' ORDER BY m.id LIMIT 1
) FROM sessions s WHERE s.session_id IN (%(ids)s)
"""  # noqa: S608 # constants


# Each session by itself: of many at once PostgreSQL may think that they are most of the table, and read all of it.
NUMBERS = """
SELECT s.session_id,
    (SELECT count(*) FROM events e WHERE e.session_id = s.session_id),
    (SELECT count(*) FROM events e WHERE e.session_id = s.session_id AND e.error IS NOT NULL),
    (SELECT count(*) FROM sessions c WHERE c.parent_session_id = s.session_id),
    (SELECT c.instant_us FROM event_context c WHERE c.session_id = s.session_id
        ORDER BY c.instant_us DESC, c.event_id DESC LIMIT 1)
FROM sessions s WHERE s.session_id IN (%(ids)s)
"""


def _rows(statement: str, ids: list[str]) -> list[tuple[Any, ...]]:
    """Return the rows of one of the statements above for these sessions."""
    if not ids:
        return []
    with connection.cursor() as cursor:
        cursor.execute(statement % {"ids": ", ".join(["%s"] * len(ids))}, ids)
        return list(cursor.fetchall())


def _first_text(stored: str | None) -> str:
    """Return the first text in a message's stored blocks on one line; the blocks may have been cut."""
    try:
        blocks = json.loads(stored or "null")
    except ValueError:
        _, _, rest = (stored or "").partition('"text":')
        found = rest[rest.find('"', 1 if rest.startswith(" ") else 0) :][:ABOUT_CHARACTERS]
        blocks = found.strip('"').replace("\\n", " ")
    texts = [blocks] if isinstance(blocks, str) else []
    if isinstance(blocks, list):
        texts = [
            block["text"]
            for block in blocks
            if isinstance(block, dict) and isinstance(block.get("text"), str)
        ]
    return " ".join(" ".join(texts).split())[:ABOUT_CHARACTERS]
