"""What is found: events of all sessions by the words in them, newest first. The index is actions.search's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from coordinator import instants
from coordinator.models import Event
from coordinator.search_text import Term, label, readable, terms_of

PAGE = 30
SNIPPET_CHARACTERS = 240
MOST_IN_SESSION = 2_000
READ_UP_TO = 12_000  # as much of a value as is indexed


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody looks for: words (see search_text.terms_of) and where."""

    text: str
    session_id: str = ""
    kind: str = ""
    tool: str = ""
    agent: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def terms(self) -> list[Term]:
        """The words to be found."""
        return terms_of(self.text)

    @property
    def labels(self) -> list[Term]:
        """The words that stand for where to look."""
        wanted = [("session", self.session_id), ("kind", self.kind), ("tool", self.tool)]
        return [Term((label(kind, value),)) for kind, value in wanted if value]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a snippet; `found` is what was looked for."""

    text: str
    found: bool


@dataclass(frozen=True, slots=True)
class Hit:
    """An event that was found, with the passage that shows why."""

    event: Event
    at: datetime | None
    snippet: list[Piece]


@dataclass(frozen=True, slots=True)
class Hits:
    """A page of hits, newest first, and where the next page begins (`before`), if there is one."""

    hits: list[Hit]
    before: int | None


def find(question: Question, *, before: int | None = None, limit: int = PAGE) -> Hits:
    """Return what answers the question, newest events first; nothing where no word was asked for."""
    if not question.terms:
        return Hits([], None)
    ids = _ids(question, before=before, limit=limit + 1)
    events = {
        event.pk: event
        for event in Event.objects.filter(pk__in=ids[:limit]).select_related("session", "context")
    }
    hits = [_hit(events[pk], question.terms) for pk in ids[:limit] if pk in events]
    return Hits(hits, before=ids[limit - 1] if len(ids) > limit else None)


def event_ids(session_id: str, text: str, limit: int = MOST_IN_SESSION) -> tuple[int, ...] | None:
    """Return the newest events of one session in which the words are; None where no word was asked for."""
    question = Question(text, session_id=session_id)
    return tuple(_ids(question, before=None, limit=limit)) if question.terms else None


def _ids(question: Question, *, before: int | None, limit: int) -> list[int]:
    terms = [*question.labels, *question.terms]
    on_sqlite = connection.vendor == "sqlite"
    index = "sbx_search" if on_sqlite else "sbx_search i"
    key = "sbx_search.rowid" if on_sqlite else "i.event_id"
    matches = "sbx_search MATCH %s" if on_sqlite else "i.words @@ to_tsquery('simple', %s)"
    conditions = [matches]
    parameters: list[str | int] = [(fts5_query if on_sqlite else tsquery)(terms)]
    if before is not None:
        conditions.append(f"{key} < %s")
        parameters.append(before)
    join = f" JOIN events e ON e.id = {key}"
    if question.agent:
        join += " JOIN sessions s ON s.session_id = e.session_id"
        conditions.append("s.agent_name = %s")
        parameters.append(question.agent)
    if question.since or question.until:
        join += " JOIN event_context c ON c.event_id = e.id"
        for moment, sign in ((question.since, ">="), (question.until, "<")):
            if moment is not None:
                conditions.append(f"c.instant_us {sign} %s")
                parameters.append(instants.to_us(moment))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {key} FROM {index}{join} WHERE {' AND '.join(conditions)} ORDER BY {key} DESC LIMIT %s",  # noqa: S608 # constants
            [*parameters, limit],
        )
        return [row[0] for row in cursor.fetchall()]


def fts5_query(terms: Sequence[Term]) -> str:
    """Return terms in FTS5's language. Words are letters and digits, so nothing in them needs quoting."""
    return " AND ".join(f'"{" ".join(term.words)}"{"*" if term.prefix else ""}' for term in terms)


def tsquery(terms: Sequence[Term]) -> str:
    """Return terms in PostgreSQL's language."""
    return " & ".join(f"({' <-> '.join(term.words)}{':*' if term.prefix else ''})" for term in terms)


# --- snippets -----------------------------------------------------------------------------------------------


def _hit(event: Event, terms: Sequence[Term]) -> Hit:
    context = getattr(event, "context", None)
    at = instants.from_us(context.instant_us) if context else instants.parse(event.timestamp)
    names = ["content__text", "tool_output__text", "error", "reason", "tool_name"]
    if event.event_type != "post_tool":  # its input is its beginning's, and indexed there
        names.insert(0, "tool_input__text")
    values = Event.objects.filter(pk=event.pk).values_list(*names)[0]
    texts = [readable(value[:READ_UP_TO]) for value in values if value]
    return Hit(event, at, snippet(texts, terms))


def snippet(texts: Sequence[str], terms: Sequence[Term]) -> list[Piece]:
    """Return the passage, of all the texts, in which most of the terms are, cut into pieces."""
    pattern = _pattern(terms)
    best, most = (texts[0] if texts else ""), -1
    for text in texts:
        found = {match[0].lower() for match in pattern.finditer(text)}
        if len(found) > most:
            best, most = text, len(found)
    first = pattern.search(best)
    start = max(0, first.start() - SNIPPET_CHARACTERS // 3) if first else 0
    passage = " ".join(best[start : start + SNIPPET_CHARACTERS].split())
    pieces = [Piece("…", False)] if start else []
    pieces += _pieces(passage, pattern)
    return [*pieces, Piece("…", False)] if start + SNIPPET_CHARACTERS < len(best) else pieces


def _pattern(terms: Sequence[Term]) -> re.Pattern[str]:
    """Return what finds the terms in a text as it stands: their words with anything but letters between."""
    ends = {True: r"[^\W_]*", False: ""}
    found = [r"[\W_]+".join(map(re.escape, term.words)) + ends[term.prefix] for term in terms]
    return re.compile(rf"(?<![^\W_])(?:{'|'.join(found)})(?![^\W_])", re.IGNORECASE)


def _pieces(text: str, pattern: re.Pattern[str]) -> list[Piece]:
    pieces, at = [], 0
    for match in pattern.finditer(text):
        pieces += [Piece(text[at : match.start()], False), Piece(match[0], True)]
        at = match.end()
    return [piece for piece in [*pieces, Piece(text[at:], False)] if piece.text]
