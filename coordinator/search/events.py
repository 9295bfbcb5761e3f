"""What is found: events of all sessions by pieces of what is said in them, newest first.

The index is actions.search's.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from coordinator.lib import instants
from coordinator.models import Event, EventContext, Session
from coordinator.models.agent_names import list_names_of_same_agent
from coordinator.search.index import (
    IndexWalkResult,
    SearchLimits,
    SearchPosition,
    count_events_longer_than_index,
    load_event_texts_by_id,
    load_search_position_of_event,
    walk_events_beyond_index,
    walk_newest_matching_events,
)
from coordinator.search.text import (
    DEEP_CHARACTERS,
    STORED_CHARACTERS,
    SearchTerm,
    extract_readable_text,
    index_word_for_fact,
    normalize_search_text,
    parse_search_terms,
)

PAGE = 30
SNIPPET_CHARACTERS = 240
MOST_IN_SESSION = 2_000
MOST_SESSIONS = 500  # of one agent, whose labels are asked for; of more, an event is likely to be near
NEAR_MATCH = 2_000  # characters before and after a match among which its snippet is
_BLANKS = re.compile(r"\s+")
_LINE_ENDS = re.compile(r"(?:[^\S\n]*\n)+")
MOST_COUNTED = 100  # results of one session that are counted on a page of all sessions' results
COUNT_SECONDS = 0.3  # for counting on one page
_LARGE = ("tool_input", "tool_output", "content", "reason")


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What somebody looks for: terms (see search.text.parse_search_terms) and where."""

    text: str
    session_id: str = ""
    is_deep: bool = False  # in what the index does not hold of long texts, by reading them
    kind: str = ""
    tool: str = ""
    agent: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def search_terms(self) -> list[SearchTerm]:
        return parse_search_terms(self.text)

    @property
    def index_terms_for_session_kind_and_tool(self) -> list[SearchTerm]:
        wanted_labels = [("session", self.session_id), ("kind", self.kind), ("tool", self.tool)]
        return [SearchTerm((index_word_for_fact(kind, value),)) for kind, value in wanted_labels if value]


@dataclass(frozen=True, slots=True)
class SnippetPiece:
    """A piece of a snippet; `found` is what was looked for."""

    text: str
    found: bool


@dataclass(frozen=True, slots=True)
class EventHit:
    """An event that was found, with the passage that shows why. That of a call is code: its lines stay lines."""

    event: Event
    at: datetime | None
    snippet: list[SnippetPiece]
    is_code: bool


@dataclass(frozen=True, slots=True)
class SessionHits:
    """What was found in one session among a page's hits. `count` is all there is: None where that was not counted."""

    session: Session
    hits: list[EventHit]
    count: int | None

    @property
    def count_label(self) -> str:
        """How much was found in the session, as people read it."""
        if self.count is not None and self.count > MOST_COUNTED:
            return f"{MOST_COUNTED}+ results"
        number = self.count or len(self.hits)
        more = "+" if self.count is None else ""
        return f"{number}{more} {'result' if number == 1 and not more else 'results'}"

    @property
    def has_more(self) -> bool:
        """Say whether the session may have results that are not among these."""
        return self.count is None or self.count > min(len(self.hits), MOST_COUNTED)


@dataclass(frozen=True, slots=True)
class EventHitPage:
    """A page of hits, newest first, and where the next page begins (`before`), if there is one.

    `looked_until` says how far back was looked where that took too long to look further.
    """

    hits: list[EventHit]
    before: SearchPosition | None
    looked_until: datetime | None = None


def search_events(
    question: SearchQuery, *, before: SearchPosition | None = None, limit: int = PAGE
) -> EventHitPage:
    """Return what answers the question, newest events first; nothing where no word was asked for."""
    if not question.search_terms:
        return EventHitPage([], None)
    walked = find_matching_events_in_index(question, before, limit + 1)
    ids = walked.ids[:limit]
    events = Event.objects.filter(pk__in=ids).select_related("session", "context").defer(*_LARGE).in_bulk()
    texts = load_event_texts_by_id(ids, DEEP_CHARACTERS if question.is_deep else STORED_CHARACTERS)
    hits = [
        build_event_hit(events[pk], texts[pk], question.search_terms)
        for pk in ids
        if pk in events and pk in texts
    ]
    if len(walked.ids) > limit:
        return EventHitPage(hits, before=load_search_position_of_event(ids[-1]))
    return EventHitPage(hits, before=walked.reached, looked_until=datetime_of_search_position(walked.reached))


def group_and_count_session_hits(
    question: SearchQuery, hits: Sequence[EventHit], *, is_all: bool
) -> list[SessionHits]:
    """Return a page's hits by session, in the order of each session's newest, with how much there is in each.

    `is_all` says that there are no hits beside these. Otherwise they are counted, for COUNT_SECONDS at most: what is
    left shows how much of it is on the page.
    """
    by_session: dict[str, list[EventHit]] = {}
    for hit in hits:
        by_session.setdefault(hit.event.session_id, []).append(hit)
    deadline = time.monotonic() + COUNT_SECONDS
    groups = []
    for session_id, some in by_session.items():
        count = len(some) if is_all else None
        if count is None and time.monotonic() < deadline:
            walked = find_matching_events_in_index(
                replace(question, session_id=session_id), None, MOST_COUNTED + 1
            )
            # A search that took too long says how far it came: its number is not all there is.
            count = len(walked.ids) if walked.reached is None or len(walked.ids) > MOST_COUNTED else None
        groups.append(SessionHits(some[0].event.session, some, count))
    return groups


def walk_session_index_or_none(
    session_id: str, text: str, limit: int = MOST_IN_SESSION
) -> IndexWalkResult | None:
    """Return the newest events of one session in which the terms are; None where none was asked for."""
    question = SearchQuery(text, session_id=session_id)
    return find_matching_events_in_index(question, None, limit) if question.search_terms else None


def count_searched_events_beyond_index(question: SearchQuery) -> int:
    """Return how many events, where the question looks, have more text than is indexed; MOST_BEYOND at most."""
    scope = load_search_scope_or_none(question, None)
    return 0 if scope is None else count_events_longer_than_index(*scope)


def find_matching_events_in_index(
    question: SearchQuery, before: SearchPosition | None, limit: int
) -> IndexWalkResult:
    scope = load_search_scope_or_none(question, before)
    if scope is None:
        return IndexWalkResult([])
    find = walk_events_beyond_index if question.is_deep else walk_newest_matching_events
    return find(scope[0], question.search_terms, scope[1], limit)


def load_search_scope_or_none(
    question: SearchQuery, before: SearchPosition | None
) -> tuple[list[list[SearchTerm]], SearchLimits] | None:
    """Return where the question looks, as labels and limits; None where no event can be."""
    groups: list[list[SearchTerm]] = [[term] for term in question.index_terms_for_session_kind_and_tool]
    agent_names = tuple(list_names_of_same_agent(question.agent)) if question.agent else ()
    if agent_names:
        of_agent = Session.objects.filter(agent_name__in=agent_names).values_list("pk", flat=True)
        sessions = [SearchTerm((index_word_for_fact("session", pk),)) for pk in of_agent[: MOST_SESSIONS + 1]]
        if not sessions:
            return None
        if len(sessions) <= MOST_SESSIONS:
            groups.append(sessions)
            agent_names = ()
    since, until = (
        None if at is None else instants.instant_to_microseconds(at)
        for at in (question.since, question.until)
    )
    within = load_session_first_and_last_instant(question.session_id) if question.session_id else None
    return groups, SearchLimits(before, since, until, agent_names, within)


def load_session_first_and_last_instant(session_id: str) -> tuple[int, int] | None:
    """Return the instants of a session's first and last event, so that nothing outside is walked through."""
    context = EventContext.objects.filter(session_id=session_id)
    times = context.order_by("instant_us").values_list("instant_us", flat=True)
    first = times.first()
    last = context.order_by("-instant_us").values_list("instant_us", flat=True).first()
    return None if first is None or last is None else (first, last)


def datetime_of_search_position(position: SearchPosition | None) -> datetime | None:
    """Return when what is at a place happened."""
    if position is None:
        return None
    try:
        return instants.instant_from_microseconds(position.at_us)
    except OverflowError:
        return None


def build_event_hit(event: Event, texts: Sequence[str], terms: Sequence[SearchTerm]) -> EventHit:
    context = getattr(event, "context", None)
    at = (
        instants.instant_from_microseconds(context.instant_us)
        if context
        else instants.parse_instant_or_none(event.timestamp)
    )
    readable = [extract_readable_text(text) for text in texts]
    is_code = event.tool_name is not None
    return EventHit(event, at, build_search_snippet(readable, terms, keeps_lines=is_code), is_code)


def build_search_snippet(
    texts: Sequence[str], terms: Sequence[SearchTerm], *, keeps_lines: bool = False
) -> list[SnippetPiece]:
    """Return the passage, of all the texts, in which most of the terms are, cut into pieces."""
    pattern = re.compile("|".join(term.search_term_regex_text for term in terms))
    best, most = (texts[0] if texts else ""), -1
    for text in texts:
        matched_words = {match[0] for match in pattern.finditer(normalize_search_text(text))}
        if len(matched_words) > most:
            best, most = text, len(matched_words)
    best, first_at = excerpt_and_offset_around_match(best, pattern)
    spans = list(iterate_normalized_pattern_spans(best, pattern))
    start = max(0, spans[0][0] - SNIPPET_CHARACTERS // 3) if spans else 0
    end = start + SNIPPET_CHARACTERS
    pieces = [SnippetPiece("…", False)] if start or first_at else []
    if keeps_lines and start:  # from the beginning of a line, where one is near
        start = max(best.rfind("\n", 0, spans[0][0]) + 1, start)
    pieces += split_snippet_pieces(best, start, end, spans, keeps_lines=keeps_lines)
    return [*pieces, SnippetPiece("…", False)] if end < len(best) else pieces


def excerpt_and_offset_around_match(text: str, pattern: re.Pattern[str]) -> tuple[str, int]:
    """Return as much of a long text as a snippet may show around the first match, and where that begins."""
    if len(text) <= 2 * NEAR_MATCH:
        return text, 0
    match = pattern.search(normalize_search_text(text))
    at = match.start() if match else 0
    if not text.isascii():  # its plain form is longer or shorter: count until as much of it was seen
        plain = 0
        for start in range(0, len(text), NEAR_MATCH):
            length = len(normalize_search_text(text[start : start + NEAR_MATCH]))
            if plain + length > at:
                at = start + min(at - plain, NEAR_MATCH)
                break
            plain += length
    begin = max(0, at - NEAR_MATCH)
    return text[begin : at + NEAR_MATCH], begin


def iterate_normalized_pattern_spans(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield where in a text a pattern for plain texts is found."""
    plainly = normalize_search_text(text)
    if len(plainly) == len(text):
        yield from (match.span() for match in pattern.finditer(plainly))
        return
    # Its plain form is longer or shorter: say for each of its characters which one of the text it comes from.
    letters = [normalize_search_text(character) for character in text]
    positions = [place for place, letter in enumerate(letters) for _ in letter]
    for match in pattern.finditer("".join(letters)):
        yield positions[match.start()], positions[match.end() - 1] + 1


def split_snippet_pieces(
    text: str, at: int, end: int, spans: Iterable[tuple[int, int]], *, keeps_lines: bool = False
) -> list[SnippetPiece]:
    """Return a passage in pieces, each stretch of white space as one blank, or each of empty lines as one break."""
    pieces = []
    for first, last in spans:
        if first >= end:
            break
        pieces += [SnippetPiece(text[at:first], False), SnippetPiece(text[first : min(last, end)], True)]
        at = last
    pieces.append(SnippetPiece(text[at:end], False))
    blanks, replacement = (_LINE_ENDS, "\n") if keeps_lines else (_BLANKS, " ")
    tidy = [SnippetPiece(blanks.sub(replacement, piece.text), piece.found) for piece in pieces]
    return [piece for piece in tidy if piece.text]
