"""What is found: events of all sessions by the words in them, newest first. The index is actions.search's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from coordinator import instants
from coordinator.models import Event, EventContext, Session
from coordinator.search_index import Limits, Walk, texts_of, walk
from coordinator.search_text import Term, label, readable, spans_of, terms_of

PAGE = 30
SNIPPET_CHARACTERS = 240
MOST_IN_SESSION = 2_000
MOST_SESSIONS = 500  # of one agent, whose labels are asked for; of more, an event is likely to be near
_LARGE = ("tool_input", "tool_output", "content", "reason")


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
    """A page of hits, newest first, and where the next page begins (`before`), if there is one.

    `looked_until` says how far back was looked where that took too long to look further.
    """

    hits: list[Hit]
    before: int | None
    looked_until: datetime | None = None


def find(question: Question, *, before: int | None = None, limit: int = PAGE) -> Hits:
    """Return what answers the question, newest events first; nothing where no word was asked for."""
    if not question.terms:
        return Hits([], None)
    walked = _walk(question, before, limit + 1)
    ids = walked.ids[:limit]
    events = Event.objects.filter(pk__in=ids).select_related("session", "context").defer(*_LARGE).in_bulk()
    texts = texts_of(ids)
    hits = [_hit(events[pk], texts[pk], question.terms) for pk in ids if pk in events and pk in texts]
    if len(walked.ids) > limit:
        return Hits(hits, before=ids[-1])
    return Hits(hits, before=walked.reached, looked_until=_instant_near(walked.reached))


def in_session(session_id: str, text: str, limit: int = MOST_IN_SESSION) -> Walk | None:
    """Return the newest events of one session in which the words are; None where no word was asked for."""
    question = Question(text, session_id=session_id)
    return _walk(question, None, limit) if question.terms else None


def _walk(question: Question, before: int | None, limit: int) -> Walk:
    groups: list[list[Term]] = [[term] for term in (*question.labels, *question.terms)]
    agent = question.agent
    if agent:
        of_agent = Session.objects.filter(agent_name=agent).values_list("pk", flat=True)[: MOST_SESSIONS + 1]
        sessions = [Term((label("session", pk),)) for pk in of_agent]
        if not sessions:
            return Walk([])
        if len(sessions) <= MOST_SESSIONS:
            groups.append(sessions)
            agent = ""
    since, until = (None if at is None else instants.to_us(at) for at in (question.since, question.until))
    if question.since or question.until:
        groups.append([Term((word,)) for word in spans_of(question.since, question.until)])
    return walk(groups, Limits(before, since, until, agent), limit)


def _instant_near(event_id: int | None) -> datetime | None:
    """Return when the first event from this id on happened."""
    if event_id is None:
        return None
    nearest = (
        EventContext.objects.filter(pk__gte=event_id).order_by("pk").values_list("instant_us", flat=True)
    )
    at_us = nearest.first()
    return None if at_us is None else instants.from_us(at_us)


# --- snippets -----------------------------------------------------------------------------------------------


def _hit(event: Event, texts: Sequence[str], terms: Sequence[Term]) -> Hit:
    context = getattr(event, "context", None)
    at = instants.from_us(context.instant_us) if context else instants.parse(event.timestamp)
    return Hit(event, at, snippet([readable(text) for text in texts], terms))


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
