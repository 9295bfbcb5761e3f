"""What is found: events of all sessions by pieces of what is said in them, newest first.

The index is actions.search's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from coordinator.lib import instants
from coordinator.models import Event, EventContext, Session
from coordinator.search.index import Limits, Walk, texts_of, walk
from coordinator.search.text import Term, label, plain, readable, spans_of, terms_of

PAGE = 30
SNIPPET_CHARACTERS = 240
MOST_IN_SESSION = 2_000
MOST_SESSIONS = 500  # of one agent, whose labels are asked for; of more, an event is likely to be near
_BLANKS = re.compile(r"\s+")
_LARGE = ("tool_input", "tool_output", "content", "reason")


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What somebody looks for: terms (see search.text.terms_of) and where."""

    text: str
    session_id: str = ""
    kind: str = ""
    tool: str = ""
    agent: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def terms(self) -> list[Term]:
        return terms_of(self.text)

    @property
    def labels(self) -> list[Term]:
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


def find(question: SearchQuery, *, before: int | None = None, limit: int = PAGE) -> Hits:
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
    """Return the newest events of one session in which the terms are; None where none was asked for."""
    question = SearchQuery(text, session_id=session_id)
    return _walk(question, None, limit) if question.terms else None


def _walk(question: SearchQuery, before: int | None, limit: int) -> Walk:
    groups: list[list[Term]] = [[term] for term in question.labels]
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
    return walk(groups, question.terms, Limits(before, since, until, agent), limit)


def _instant_near(event_id: int | None) -> datetime | None:
    """Return when the first event from this id on happened."""
    if event_id is None:
        return None
    nearest = (
        EventContext.objects.filter(pk__gte=event_id).order_by("pk").values_list("instant_us", flat=True)
    )
    at_us = nearest.first()
    return None if at_us is None else instants.from_us(at_us)


def _hit(event: Event, texts: Sequence[str], terms: Sequence[Term]) -> Hit:
    context = getattr(event, "context", None)
    at = instants.from_us(context.instant_us) if context else instants.parse(event.timestamp)
    return Hit(event, at, snippet([readable(text) for text in texts], terms))


def snippet(texts: Sequence[str], terms: Sequence[Term]) -> list[Piece]:
    """Return the passage, of all the texts, in which most of the terms are, cut into pieces."""
    pattern = re.compile("|".join(term.pattern for term in terms))
    best, most = (texts[0] if texts else ""), -1
    for text in texts:
        found = {match[0] for match in pattern.finditer(plain(text))}
        if len(found) > most:
            best, most = text, len(found)
    spans = list(_spans(best, pattern))
    start = max(0, spans[0][0] - SNIPPET_CHARACTERS // 3) if spans else 0
    end = start + SNIPPET_CHARACTERS
    pieces = [Piece("…", False)] if start else []
    pieces += _pieces(best, start, end, spans)
    return [*pieces, Piece("…", False)] if end < len(best) else pieces


def _spans(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield where in a text a pattern for plain texts is found."""
    plainly = plain(text)
    if len(plainly) == len(text):
        yield from (match.span() for match in pattern.finditer(plainly))
        return
    # Its plain form is longer or shorter: say for each of its characters which one of the text it comes from.
    letters = [plain(character) for character in text]
    places = [place for place, letter in enumerate(letters) for _ in letter]
    for match in pattern.finditer("".join(letters)):
        yield places[match.start()], places[match.end() - 1] + 1


def _pieces(text: str, at: int, end: int, spans: Iterable[tuple[int, int]]) -> list[Piece]:
    """Return a passage in pieces, each stretch of white space as one blank."""
    pieces = []
    for first, last in spans:
        if first >= end:
            break
        pieces += [Piece(text[at:first], False), Piece(text[first : min(last, end)], True)]
        at = last
    pieces.append(Piece(text[at:end], False))
    tidy = [Piece(_BLANKS.sub(" ", piece.text), piece.found) for piece in pieces]
    return [piece for piece in tidy if piece.text]
