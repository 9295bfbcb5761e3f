"""Walks the search index from the newest event back, for as long as a reader waits, whatever the words are.

Newest is what happened last, not what was stored last: an import stores what is years old. Each indexed event has a
word for the ten minutes in which it happened, and `sbx_search_spans` says how many events each ten minutes have. So
the index is asked for one stretch of time after the other, each of as many events as can be looked at in the time.

What is common is found within the newest events, and what is rare takes either engine no time. Between them lies
what is common but old, or common words that never meet: there the walk may end before the index does, and says
how far it came. Neither engine is asked for everything at once: both would read and sort every row that matches.

A piece of a word stands for the words it is a piece of. Where those are many, candidates are checked by their texts
first (most have one of the words, or hardly any is left), and only then are all the words put into the question.

Threes of letters of the words, not of the texts, are indexed. Measured with 40,000 events of Python code, 1.2 KB
each: the index of words takes 430 bytes an event and 60 µs; the words by themselves with their threes 255 bytes and
30 µs more (190,000 words, a quarter of them parts of random ids). FTS5's trigrams of the texts would take 2,960 bytes
and 450 µs (`detail=none`: 605 and 340, but a question then reads the texts of what merely has all the threes: 157 ms
for `def test_` among those few), and pg_trgm's, with the texts beside them, 1,650 bytes and four times what words
take to write. Parts of camelCase beside the words (110 bytes more) would not find `pointSto`. On PostgreSQL an array
of threes is as small and as quick as pg_trgm over the words, and nobody has to create an extension for it.
"""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.db import connection

from coordinator.engine import full_text
from coordinator.search.progress import are_all_lexemes_split_in_index
from coordinator.search.text import (
    BEYOND_WORD,
    DEEP_CHARACTERS,
    INDEX_CHARACTERS,
    LAST_SPAN,
    PIECE,
    SPAN_MICROSECONDS,
    STORED_CHARACTERS,
    SearchTerm,
    build_indexed_text_sql,
    extract_event_text,
    index_lexemes_covering_time_spans,
    normalize_search_text,
    time_span_number_of_instant,
)

WALK_SECONDS = 0.1  # seconds after which no further stretch is begun
TOO_LATE = 0.05  # seconds beyond that by which a stretch may end, as far as the one before tells
FEW_WORDS = 100  # words of one piece that are put into the question at once
CHECKED_FIRST = 300  # candidates whose texts are checked before a question of many words is put
CHECKED_AT_ONCE = 100
READ_AT_ONCE = 10  # candidates whose texts are in memory at once
DEEP_SECONDS = 2.0  # seconds after which a deeper search reads no further text
MOST_BEYOND = 1_000  # events with more text than is indexed that are counted
SPANS_AT_ONCE = 2_000

Group = Sequence[SearchTerm]  # one of these must be found


class SearchPosition(NamedTuple):
    """Where a search has come to: everything that happened later was looked at, and of this instant higher ids."""

    at_us: int
    event_id: int

    def __str__(self) -> str:
        return f"{self.at_us}-{self.event_id}"


_PLACE = re.compile(r"(-?[0-9]{1,18})-([0-9]{1,18})")


def parse_search_position_or_none(text: str) -> SearchPosition | None:
    """Return the place that a query string names; None for none."""
    match = _PLACE.fullmatch(text)
    return SearchPosition(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Beside words: what is before a place, instants (µs) from `since` until before `until`, and an agent's names."""

    before: SearchPosition | None = None
    since: int | None = None
    until: int | None = None
    agent_names: tuple[str, ...] = ()
    within: tuple[int, int] | None = (
        None  # instants (µs) between which everything happened that has an instant
    )


@dataclass(frozen=True, slots=True)
class IndexWalkResult:
    """Ids, newest first. `reached` is the place down to which was looked; None if that is everything."""

    ids: list[int]
    reached: SearchPosition | None = None


@dataclass(frozen=True, slots=True)
class IndexedTimeRange:
    """The spans from `low` until before `high`, with how many indexed events they have."""

    low: int
    high: int
    events: int

    @property
    def start_position(self) -> SearchPosition:
        return SearchPosition(self.low * SPAN_MICROSECONDS, 0)


@dataclass(frozen=True, slots=True)
class TermPlan:
    """How the index is asked for a term: the groups `first`, and, once candidates were checked by text, `later`.

    With all of them asked an event has the term, unless its text has to be checked even then (`by_text`).
    """

    term: SearchTerm
    first: Sequence[Group] = ()
    later: Sequence[Group] = ()
    by_text: bool = False


def walk_newest_matching_events(
    labels: Sequence[Group], terms: Sequence[SearchTerm], limits: SearchLimits, limit: int
) -> IndexWalkResult:
    """Return the newest events, at most `limit`, that have one of each group of labels, and every term."""
    walker = IndexWalker(limits, time.monotonic() + WALK_SECONDS)
    top = limits.before
    plans = []
    for term in terms:
        plan = plan_index_query_for_term(term)
        if plan is None:
            return IndexWalkResult([])
        plans.append(plan)
    first = [*labels, *(group for plan in plans for group in plan.first)]
    later = [group for plan in plans for group in plan.later]
    unsure = [plan.term for plan in plans if plan.later or plan.by_text]
    if not unsure:
        return walker.find_events_matching_index_groups(first, top, limit)
    checked = walker.find_events_with_checked_text(
        first, unsure, top, limit, CHECKED_FIRST if later else None
    )
    if checked.reached is None or len(checked.ids) == limit or not later or walker.is_time_over:
        return checked
    by_text = [plan.term for plan in plans if plan.by_text]
    rest = walker.find_events_with_checked_text(
        [*first, *later], by_text, checked.reached, limit - len(checked.ids), None
    )
    return IndexWalkResult(checked.ids + rest.ids, rest.reached)


def walk_events_beyond_index(
    labels: Sequence[Group], terms: Sequence[SearchTerm], limits: SearchLimits, limit: int
) -> IndexWalkResult:
    """Return the newest events with more text than is indexed whose whole texts have every term."""
    walker = IndexWalker(limits, time.monotonic() + DEEP_SECONDS, is_deep=True)
    return walker.find_events_with_checked_text(
        [*labels, [SearchTerm((BEYOND_WORD,))]], terms, limits.before, limit, None
    )


def count_events_longer_than_index(labels: Sequence[Group], limits: SearchLimits) -> int:
    """Return how many events have more text than is indexed, as far as they are found at once; MOST_BEYOND at most."""
    walker = IndexWalker(limits, time.monotonic() + WALK_SECONDS)
    return len(
        walker.find_events_matching_index_groups(
            [*labels, [SearchTerm((BEYOND_WORD,))]], limits.before, MOST_BEYOND
        ).ids
    )


def plan_index_query_for_term(term: SearchTerm) -> TermPlan | None:
    """Return how the index is asked for a term; None where no event can have it."""
    term_words = term.words
    if not term_words:
        return TermPlan(term, by_text=True)
    if not term.opens and not term.prefix:
        return TermPlan(term, [[term]], by_text=bool(term.exact))
    if len(term_words) == 1:
        return plan_index_query_for_edge_lexemes(
            term,
            [
                find_indexed_lexemes_containing(term_words[0])
                if term.opens
                else find_indexed_lexemes_with_prefix(term_words[0])
            ],
        )
    starts: Sequence[str] | None = [term_words[0]]
    if term.opens:  # words that end so: of fewer letters than PIECE the index cannot say which
        starts = (
            find_indexed_lexemes_containing(term_words[0], at_end=True)
            if len(term_words[0]) >= PIECE
            else None
        )
    return plan_index_query_for_edge_lexemes(
        term, [starts, find_indexed_lexemes_with_prefix(term_words[-1]) if term.prefix else [term_words[-1]]]
    )


def plan_index_query_for_edge_lexemes(
    term: SearchTerm, parts: Sequence[Sequence[str] | None]
) -> TermPlan | None:
    """Return the plan for a term whose first and last word, or whose only one, are among `parts` (None: unknown)."""
    known_parts = [part for part in parts if part is not None]
    if not all(known_parts):
        return None
    most = full_text.max_words_per_prefix()
    if len(known_parts) == len(parts) and math.prod(map(len, known_parts)) <= most:
        ends = itertools.product(*known_parts)
        group = [SearchTerm((first, *term.words[1:-1], *last)) for first, *last in ends]
        return (
            TermPlan(term, [group])
            if len(group) <= FEW_WORDS
            else TermPlan(term, list_groups_for_complete_lexemes(term), [group])
        )
    few = [
        [SearchTerm((word,)) for word in part_words]
        for part_words in known_parts
        if 1 < len(part_words) <= min(FEW_WORDS, most)
    ]
    many = [
        [SearchTerm((word,)) for word in part_words]
        for part_words in known_parts
        if FEW_WORDS < len(part_words) <= most
    ]
    return TermPlan(term, [*list_groups_for_complete_lexemes(term), *few], many, by_text=True)


def list_groups_for_complete_lexemes(term: SearchTerm) -> list[Group]:
    """Return what is asked for those words of a term that are whole."""
    edge_words = term.words[int(term.opens) : len(term.words) - int(term.prefix)]
    return [[SearchTerm(edge_words)]] if edge_words else []


def find_indexed_lexemes_containing(piece: str, *, at_end: bool = False) -> list[str]:
    """Return the indexed words that have a piece, one more than may be asked at most.

    While not all words are cut into pieces, those that begin with it are found all the same.
    """
    most = full_text.max_words_per_prefix() + 1
    words_containing = full_text.list_words_containing(piece, most, at_end=at_end)
    if are_all_lexemes_split_in_index():
        return words_containing
    matching_words = [piece] if at_end else full_text.list_words_with_prefix(piece, most)
    return list(dict.fromkeys([*matching_words, *words_containing]))[:most]


def find_indexed_lexemes_with_prefix(piece: str) -> list[str]:
    """Return the indexed words that begin so, one more than may be asked at most."""
    return full_text.list_words_with_prefix(piece, full_text.max_words_per_prefix() + 1)


@dataclass(frozen=True, slots=True)
class IndexWalker:
    """Walks within `limits`, until time.monotonic() has come to `until`; `is_deep` reads texts beyond the index."""

    limits: SearchLimits
    until: float
    is_deep: bool = False

    @property
    def is_time_over(self) -> bool:
        return time.monotonic() >= self.until

    def find_events_matching_index_groups(
        self, groups: Sequence[Group], top: SearchPosition | None, limit: int
    ) -> IndexWalkResult:
        """Walk through what has the groups, from below `top`."""
        ids: list[int] = []
        stretches = StretchPlanner(self.limits, top)
        sizes = full_text.iterate_search_batch_sizes()
        stretch = stretches.plan_next_time_stretch(next(sizes))
        while stretch is not None:
            started_at = time.monotonic()
            rows = query_index_in_time_stretch(groups, self.limits, stretch, top, limit - len(ids))
            ids += [pk for _, pk in rows]
            if len(ids) == limit:
                return IndexWalkResult(ids, SearchPosition(*rows[-1]))
            most = self.max_events_for_next_stretch((time.monotonic() - started_at) / max(1, stretch.events))
            following = (
                stretches.plan_next_time_stretch(min(next(sizes), most))
                if most
                else stretches.plan_next_time_stretch(1)
            )
            if following is not None and not most:
                return IndexWalkResult(ids, stretch.start_position)
            stretch = following
        return IndexWalkResult(ids)

    def max_events_for_next_stretch(self, seconds_an_event: float) -> int:
        """Return how many events the next stretch may have at the last one's pace; 0 where it is too late for any."""
        left = self.until - time.monotonic()
        if left <= 0:
            return 0
        return max(1, int((left + TOO_LATE) / max(seconds_an_event, 1e-9)))

    def find_events_with_checked_text(
        self,
        groups: Sequence[Group],
        terms: Sequence[SearchTerm],
        top: SearchPosition | None,
        limit: int,
        most: int | None,
    ) -> IndexWalkResult:
        """Walk through what has the groups, look at the texts of `most` of it, and keep what has the terms."""
        if not terms:
            return self.find_events_matching_index_groups(groups, top, limit)
        patterns = [re.compile(term.search_term_regex_text) for term in terms]
        ids: list[int] = []
        looked = 0
        while most is None or looked < most:
            candidates = self.find_events_matching_index_groups(groups, top, CHECKED_AT_ONCE)
            for start in range(0, len(candidates.ids), self.text_check_batch_size):
                some = candidates.ids[start : start + self.text_check_batch_size]
                ids += filter_event_ids_by_stored_text(some, patterns, is_deep=self.is_deep)
                if len(ids) >= limit:
                    ids = ids[:limit]
                    return IndexWalkResult(ids, load_search_position_of_event(ids[-1]))
                if self.is_time_over and some[-1] != candidates.ids[-1]:
                    return IndexWalkResult(ids, load_search_position_of_event(some[-1]))
            if candidates.reached is None:
                return IndexWalkResult(ids)
            looked, top = looked + len(candidates.ids), candidates.reached
            if self.is_time_over:
                break
        return IndexWalkResult(ids, top)

    @property
    def text_check_batch_size(self) -> int:
        return 1 if self.is_deep else READ_AT_ONCE


class StretchPlanner:
    """Gives stretches of time, newest first, that have as many events as they should have, or a span more."""

    def __init__(self, limits: SearchLimits, top: SearchPosition | None) -> None:
        # Before the first event of an instant is what happened earlier: maybe nothing of the instant's own span.
        tops = [] if top is None else [time_span_number_of_instant(top.at_us - (top.event_id == 0)) + 1]
        tops += [] if limits.until is None else [time_span_number_of_instant(limits.until) + 1]
        tops += [] if limits.within is None else [time_span_number_of_instant(limits.within[1]) + 1]
        lowest = max(
            time_span_number_of_instant(limits.since),
            0 if limits.within is None else time_span_number_of_instant(limits.within[0]),
        )
        self.spans = iterate_time_spans_with_event_counts(
            min(tops, default=None), lowest, with_timeless=limits.since is limits.until is None
        )
        self.ahead = next(self.spans, None)

    def plan_next_time_stretch(self, events: int) -> IndexedTimeRange | None:
        """Return the next stretch; None where there is no further event."""
        if self.ahead is None:
            return None
        high, total = self.ahead[0] + 1, 0
        low = high
        while self.ahead is not None and (low == high or total + self.ahead[1] <= events):
            low, total = self.ahead[0], total + self.ahead[1]
            self.ahead = next(self.spans, None)
        return IndexedTimeRange(low, high, total)


def iterate_time_spans_with_event_counts(
    below: int | None, lowest: int, *, with_timeless: bool
) -> Iterator[tuple[int, int]]:
    """Yield the spans below a number that have events, and how many, the newest first; last what has no time."""
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT span, events FROM sbx_search_spans WHERE (span >= %s OR (span = 0 AND %s)) AND span < %s"
                " ORDER BY span DESC LIMIT %s",
                [lowest, with_timeless, LAST_SPAN + 1 if below is None else below, SPANS_AT_ONCE],
            )
            rows = cursor.fetchall()
        yield from rows
        if len(rows) < SPANS_AT_ONCE:
            return
        below = rows[-1][0]


def query_index_in_time_stretch(
    groups: Sequence[Group],
    limits: SearchLimits,
    stretch: IndexedTimeRange,
    top: SearchPosition | None,
    limit: int,
) -> list[tuple[int, int]]:
    """Return the newest events of one stretch that match, each with its instant."""
    spans = [SearchTerm((word,)) for word in index_lexemes_covering_time_spans(stretch.low, stretch.high)]
    match_query = full_text.event_match_query([*groups, spans])
    key, at = match_query.key, "coalesce(c.instant_us, 0)"
    conditions, parameters = [match_query.condition], list[str | int]([match_query.question])
    if top is not None:
        conditions.append(f"({at} < %s OR ({at} = %s AND {key} < %s))")
        parameters += [top.at_us, top.at_us, top.event_id]
    for at_us, sign in ((limits.since, ">="), (limits.until, "<")):
        if at_us is not None:
            conditions.append(f"c.instant_us {sign} %s")
            parameters.append(at_us)
    # Words of deleted events are left out by a join alone.
    joins = f" JOIN events e ON e.id = {key} LEFT JOIN event_context c ON c.event_id = {key}"
    if limits.agent_names:
        joins += " JOIN sessions s ON s.session_id = e.session_id"
        conditions.append(f"s.agent_name IN ({', '.join(['%s'] * len(limits.agent_names))})")
        parameters += limits.agent_names
    with full_text.disable_table_scans_during_block(), connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {at}, {key} FROM {match_query.table}{joins} WHERE {' AND '.join(conditions)}"  # constants  # noqa: S608
            f" ORDER BY 1 DESC, 2 DESC LIMIT %s",
            [*parameters, limit],
        )
        rows: list[tuple[int, int]] = cursor.fetchall()
    return rows


def load_search_position_of_event(event_id: int) -> SearchPosition:
    """Return an event's place in the order of results."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT instant_us FROM event_context WHERE event_id = %s", [event_id])
        row = cursor.fetchone()
    return SearchPosition(row[0] if row else 0, event_id)


def filter_event_ids_by_stored_text(
    ids: Sequence[int], patterns: Sequence[re.Pattern[str]], *, is_deep: bool = False
) -> list[int]:
    """Return those of the events whose texts have every one of the patterns."""
    limit = None if is_deep else INDEX_CHARACTERS
    stored = DEEP_CHARACTERS if is_deep else STORED_CHARACTERS
    texts_by_event = {
        pk: normalize_search_text(extract_event_text(texts, stored, limit)[0])
        for pk, texts in load_event_texts_by_id(ids, stored).items()
    }
    return [
        pk
        for pk in ids
        if pk in texts_by_event and all(pattern.search(texts_by_event[pk]) for pattern in patterns)
    ]


def load_event_texts_by_id(ids: Sequence[int], stored_limit: int = STORED_CHARACTERS) -> dict[int, list[str]]:
    """Return the texts of events, as stored, so many characters of each."""
    if not ids:
        return {}
    marks = ", ".join(["%s"] * len(ids))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id, {build_indexed_text_sql(stored_limit)} FROM events WHERE id IN ({marks})",  # constants  # noqa: S608
            list(ids),
        )
        return {row[0]: [text for text in row[1:] if text] for row in cursor.fetchall()}
