"""Walks the search index from the newest event back, for as long as a reader waits, whatever the words are.

What is common is found within the newest events, and what is rare takes either engine no time. Between them lies
what is common but old, or common words that never meet: there the walk may end before the index does, and says
how far it came. Neither engine is asked for everything at once: SQLite would walk every place of every word, and
PostgreSQL would read every row that matches before it sorts them.

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
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection

from coordinator.engine import full_text
from coordinator.search.progress import all_words_are_cut
from coordinator.search.text import (
    BLOCK,
    INDEX_CHARACTERS,
    PIECE,
    TEXTS,
    SearchTerm,
    extract_readable_text,
    id_block_words,
    normalize_search_text,
)

WALK_SECONDS = 0.1  # seconds after which no further stretch is begun
TOO_LATE = 0.05  # seconds beyond that by which a stretch may end, as far as the one before tells
FEW_WORDS = 100  # words of one piece that are put into the question at once
CHECKED_FIRST = 300  # candidates whose texts are checked before a question of many words is put
CHECKED_AT_ONCE = 100

Group = Sequence[SearchTerm]  # one of these must be found
EVERYTHING = full_text.MatchQuery("events e", "e.id", "", "")


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Beside words: ids below `before` only, instants (µs) from `since` until before `until`, and an agent's names."""

    before: int | None = None
    since: int | None = None
    until: int | None = None
    agent_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexWalkResult:
    """Ids, newest first. `reached` is the id down to which was looked; None if that is everything."""

    ids: list[int]
    reached: int | None = None


@dataclass(frozen=True, slots=True)
class TermPlan:
    """How the index is asked for a term: the groups `first`, and, once candidates were checked by text, `later`.

    With all of them asked an event has the term, unless its text has to be checked even then (`by_text`).
    """

    term: SearchTerm
    first: Sequence[Group] = ()
    later: Sequence[Group] = ()
    by_text: bool = False


def find_newest_matches(
    labels: Sequence[Group], terms: Sequence[SearchTerm], limits: SearchLimits, limit: int
) -> IndexWalkResult:
    """Return the newest events, at most `limit`, that have one of each group of labels, and every term."""
    walker = IndexWalker(limits, time.monotonic() + WALK_SECONDS)
    top = newest_event_id() + 1 if limits.before is None else min(limits.before, newest_event_id() + 1)
    plans = []
    for term in terms:
        plan = plan_term_search(term)
        if plan is None:
            return IndexWalkResult([])
        plans.append(plan)
    first = [*labels, *(group for plan in plans for group in plan.first)]
    later = [group for plan in plans for group in plan.later]
    unsure = [plan.term for plan in plans if plan.later or plan.by_text]
    if not unsure:
        return walker.walk_matching_groups(first, top, limit)
    checked = walker.walk_and_check_texts(first, unsure, top, limit, CHECKED_FIRST if later else None)
    if checked.reached is None or len(checked.ids) == limit or not later or walker.is_time_over:
        return checked
    by_text = [plan.term for plan in plans if plan.by_text]
    rest = walker.walk_and_check_texts(
        [*first, *later], by_text, checked.reached, limit - len(checked.ids), None
    )
    return IndexWalkResult(checked.ids + rest.ids, rest.reached)


def plan_term_search(term: SearchTerm) -> TermPlan | None:
    """Return how the index is asked for a term; None where no event can have it."""
    term_words = term.words
    if not term_words:
        return TermPlan(term, by_text=True)
    if not term.opens and not term.prefix:
        return TermPlan(term, [[term]], by_text=bool(term.exact))
    if len(term_words) == 1:
        return plan_edge_words(
            term,
            [find_words_with_piece(term_words[0]) if term.opens else find_words_with_prefix(term_words[0])],
        )
    starts: Sequence[str] | None = [term_words[0]]
    if term.opens:  # words that end so: of fewer letters than PIECE the index cannot say which
        starts = find_words_with_piece(term_words[0], at_end=True) if len(term_words[0]) >= PIECE else None
    return plan_edge_words(
        term, [starts, find_words_with_prefix(term_words[-1]) if term.prefix else [term_words[-1]]]
    )


def plan_edge_words(term: SearchTerm, parts: Sequence[Sequence[str] | None]) -> TermPlan | None:
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
            else TermPlan(term, whole_word_groups(term), [group])
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
    return TermPlan(term, [*whole_word_groups(term), *few], many, by_text=True)


def whole_word_groups(term: SearchTerm) -> list[Group]:
    """Return what is asked for those words of a term that are whole."""
    edge_words = term.words[int(term.opens) : len(term.words) - int(term.prefix)]
    return [[SearchTerm(edge_words)]] if edge_words else []


def find_words_with_piece(piece: str, *, at_end: bool = False) -> list[str]:
    """Return the indexed words that have a piece, one more than may be asked at most.

    While not all words are cut into pieces, those that begin with it are found all the same.
    """
    most = full_text.max_words_per_prefix() + 1
    words_containing = full_text.list_words_containing(piece, most, at_end=at_end)
    if all_words_are_cut():
        return words_containing
    matching_words = [piece] if at_end else full_text.list_words_with_prefix(piece, most)
    return list(dict.fromkeys([*matching_words, *words_containing]))[:most]


def find_words_with_prefix(piece: str) -> list[str]:
    """Return the indexed words that begin so, one more than may be asked at most."""
    return full_text.list_words_with_prefix(piece, full_text.max_words_per_prefix() + 1)


@dataclass(frozen=True, slots=True)
class IndexWalker:
    """Walks within `limits`, until time.monotonic() has come to `until`."""

    limits: SearchLimits
    until: float

    @property
    def is_time_over(self) -> bool:
        return time.monotonic() >= self.until

    def walk_matching_groups(self, groups: Sequence[Group], top: int, limit: int) -> IndexWalkResult:
        """Walk through what has the groups, from below `top`."""
        ids: list[int] = []
        stretches = list(full_text.iterate_search_ranges(top, BLOCK))
        for (low, high), ahead in zip(stretches, [*stretches[1:], None], strict=True):
            started_at = time.monotonic()
            ids += query_index_stretch(groups, self.limits, low, high, limit - len(ids))
            if len(ids) == limit:
                return IndexWalkResult(ids, ids[-1])
            if ahead is not None and self.would_exceed_time(
                (time.monotonic() - started_at) / (high - low), ahead
            ):
                return IndexWalkResult(ids, low)
        return IndexWalkResult(ids)

    def would_exceed_time(self, seconds_an_id: float, ahead: tuple[int, int]) -> bool:
        """Say whether to end before the stretch `ahead`: it is late, or would be by far at the last one's pace."""
        low, high = ahead
        now = time.monotonic()
        return now >= self.until or now + seconds_an_id * (high - low) > self.until + TOO_LATE

    def walk_and_check_texts(
        self, groups: Sequence[Group], terms: Sequence[SearchTerm], top: int, limit: int, most: int | None
    ) -> IndexWalkResult:
        """Walk through what has the groups, look at the texts of `most` of it, and keep what has the terms."""
        if not terms:
            return self.walk_matching_groups(groups, top, limit)
        patterns = [re.compile(term.term_pattern) for term in terms]
        ids: list[int] = []
        looked, high = 0, top
        while most is None or looked < most:
            matching_ids = self.walk_matching_groups(groups, high, CHECKED_AT_ONCE)
            ids += filter_events_by_patterns(matching_ids.ids, patterns)[: limit - len(ids)]
            if len(ids) == limit:
                return IndexWalkResult(ids, ids[-1])
            if matching_ids.reached is None:
                return IndexWalkResult(ids)
            looked, high = looked + len(matching_ids.ids), matching_ids.reached
            if self.is_time_over:
                break
        return IndexWalkResult(ids, high)


def newest_event_id() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(id) FROM events")
        return cursor.fetchone()[0] or 0


def query_index_stretch(
    groups: Sequence[Group], limits: SearchLimits, low: int, high: int, limit: int
) -> list[int]:
    """Return the newest events of one stretch that match."""
    by_block = bool(groups) and full_text.is_searched_by_block(low, high)
    if by_block:
        groups = [[SearchTerm((word,)) for word in id_block_words(low, high)], *groups]
    match_query = full_text.event_match_query(groups) if groups else EVERYTHING
    key = match_query.key
    # An expression, so that PostgreSQL does not read the stretch by the primary key instead of asking its index.
    place = f"{key} + 0" if by_block else key
    conditions, parameters = [f"{place} >= %s", f"{place} < %s"], list[str | int]([low, high])
    if match_query.condition:
        conditions.append(match_query.condition)
        parameters.append(match_query.question)
    joins, limited, of_limits = build_limit_conditions(limits, key, with_events=bool(groups))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {key} FROM {match_query.table}{joins} WHERE {' AND '.join([*conditions, *limited])}"  # constants  # noqa: S608
            f" ORDER BY {place} DESC LIMIT %s",
            [*parameters, *of_limits, limit],
        )
        return [row[0] for row in cursor.fetchall()]


def build_limit_conditions(
    limits: SearchLimits, key: str, *, with_events: bool
) -> tuple[str, list[str], list[str | int]]:
    """Return joins, conditions and their parameters. Words of deleted events are left out by a join alone."""
    joins = f" JOIN events e ON e.id = {key}" if with_events else ""
    conditions: list[str] = []
    parameters: list[str | int] = []
    for at_us, sign in ((limits.since, ">="), (limits.until, "<")):
        if at_us is not None:
            conditions.append(f"c.instant_us {sign} %s")
            parameters.append(at_us)
    if conditions:
        joins += f" JOIN event_context c ON c.event_id = {key}"
    if limits.agent_names:
        joins += " JOIN sessions s ON s.session_id = e.session_id"
        conditions.append(f"s.agent_name IN ({', '.join(['%s'] * len(limits.agent_names))})")
        parameters += limits.agent_names
    return joins, conditions, parameters


def filter_events_by_patterns(ids: Sequence[int], patterns: Sequence[re.Pattern[str]]) -> list[int]:
    """Return those of the events whose texts have every one of the patterns."""
    texts_by_event = {
        pk: "\n".join(normalize_search_text(extract_readable_text(text)[:INDEX_CHARACTERS]) for text in texts)
        for pk, texts in load_indexed_event_texts(ids).items()
    }
    return [
        pk
        for pk in ids
        if pk in texts_by_event and all(pattern.search(texts_by_event[pk]) for pattern in patterns)
    ]


def load_indexed_event_texts(ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the texts of events, as stored and as far as they are indexed."""
    if not ids:
        return {}
    places = ", ".join(["%s"] * len(ids))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, {TEXTS} FROM events WHERE id IN ({places})", list(ids))  # constants  # noqa: S608
        return {row[0]: [text for text in row[1:] if text] for row in cursor.fetchall()}
