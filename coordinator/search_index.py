"""Walks the search index from the newest event back, for as long as a reader waits, whatever the words are.

What is common is found within the newest events, and what is rare takes either engine no time. Between them lies
what is common but old, or common words that never meet: there the walk may end before the index does, and says
how far it came. Neither engine is asked for everything at once: SQLite would walk every place of every word, and
PostgreSQL would read every row that matches before it sorts them.

`beginn*` stands for the words that begin so. Where those are many, candidates are checked by their texts first
(most have one of the words, or hardly any is left), and only then are all the words put into the question.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db import connection

from coordinator.search_text import BLOCK, TEXTS, Term, blocks, words_said

PATIENCE = 0.1  # seconds after which no further stretch is begun
FEW_WORDS = 100  # words of one beginning that are put into the question at once
MOST_WORDS = {"sqlite": 5_000, "postgresql": 500}  # words of one beginning that are put into it at all
CHECKED_FIRST = 300  # candidates whose texts are checked before a question of many words is put
CHECKED_AT_ONCE = 100
# Of these ids PostgreSQL reads every row: where most match, that is quicker than to look into its index.
NEWEST_ROWS = 2_000
STRETCHES = {"sqlite": (4, 64, 64), "postgresql": (1, 2, 8)}  # in blocks: the first ones, then the last again

Group = Sequence[Term]  # one of these must be found


@dataclass(frozen=True, slots=True)
class Limits:
    """Beside words: ids below `before` only, instants (µs) from `since` until before `until`, and an agent."""

    before: int | None = None
    since: int | None = None
    until: int | None = None
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Walk:
    """Ids, newest first. `reached` is the id down to which was looked; None if that is everything."""

    ids: list[int]
    reached: int | None = None


def walk(groups: Sequence[Group], limits: Limits, limit: int) -> Walk:
    """Return the newest events, at most `limit`, in which of each group one term is found."""
    walker = _Walker(limits, time.monotonic() + PATIENCE)
    top = _newest() + 1 if limits.before is None else min(limits.before, _newest() + 1)
    few: list[Group] = []
    many: list[tuple[Term, Group]] = []
    for group in groups:
        if not group[0].prefix:
            few.append(group)
        elif not (words := _beginning_with(group[0])):
            return Walk([])
        elif len(words) <= FEW_WORDS:
            few.append(words)
        else:
            many.append((group[0], words))
    if not many:
        return walker.ask(few, top, limit)
    may_ask = all(len(words) <= MOST_WORDS[connection.vendor] for _, words in many)
    checked = walker.check(few, [term for term, _ in many], top, limit, CHECKED_FIRST if may_ask else None)
    if checked.reached is None or len(checked.ids) == limit or not may_ask:
        return checked
    rest = walker.ask([*few, *(words for _, words in many)], checked.reached, limit - len(checked.ids))
    return Walk(checked.ids + rest.ids, rest.reached)


@dataclass(frozen=True, slots=True)
class _Walker:
    """Walks within `limits`, until time.monotonic() has come to `until`."""

    limits: Limits
    until: float

    @property
    def is_late(self) -> bool:
        """Whether no further stretch is to be begun."""
        return time.monotonic() >= self.until

    def ask(self, groups: Sequence[Group], top: int, limit: int) -> Walk:
        """Walk through what has the groups, from below `top`."""
        ids: list[int] = []
        for low, high in _stretches(top):
            ids += _ask(groups, self.limits, low, high, limit - len(ids))
            if len(ids) == limit:
                return Walk(ids, ids[-1])
            if low > 0 and self.is_late:
                return Walk(ids, low)
        return Walk(ids)

    def check(
        self, groups: Sequence[Group], beginnings: Sequence[Term], top: int, limit: int, most: int | None
    ) -> Walk:
        """Walk through what has the groups, look at `most` of it, and keep what also has the beginnings."""
        ids: list[int] = []
        looked, high = 0, top
        while most is None or looked < most:
            found = self.ask(groups, high, CHECKED_AT_ONCE)
            ids += _having(found.ids, beginnings)[: limit - len(ids)]
            if len(ids) == limit:
                return Walk(ids, ids[-1])
            if found.reached is None:
                return Walk(ids)
            looked, high = looked + len(found.ids), found.reached
            if self.is_late:
                break
        return Walk(ids, high)


def _newest() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(id) FROM events")
        return cursor.fetchone()[0] or 0


def _beginning_with(term: Term) -> list[Term]:
    """Return a term for each indexed word that begins with this one's last, one more than may be asked at most."""
    *head, last = term.words
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT word FROM sbx_search_terms WHERE word >= %s AND word < %s ORDER BY word LIMIT %s",
            [last, last + "\U0010ffff", MOST_WORDS[connection.vendor] + 1],
        )
        return [Term((*head, word)) for (word,) in cursor.fetchall()]


# --- asking -------------------------------------------------------------------------------------------------


def _stretches(top: int) -> Iterator[tuple[int, int]]:
    """Yield stretches of ids, from `low` until before `high`, from `top` down to 0."""
    high = top
    if connection.vendor == "postgresql":
        low = max(0, high - NEWEST_ROWS)
        yield low, high
        high = low
    sizes = iter(STRETCHES[connection.vendor])
    size = next(sizes)
    while high > 0:
        low = max(0, (-(-high // BLOCK) - size) * BLOCK)
        yield low, high
        high, size = low, next(sizes, size)


def _ask(groups: Sequence[Group], limits: Limits, low: int, high: int, limit: int) -> list[int]:
    """Return the newest events of one stretch that match."""
    if not groups:
        table, key = "events e", "e.id"
    elif connection.vendor == "sqlite":
        table, key = "sbx_search", "sbx_search.rowid"
    else:
        table, key = "sbx_search i", "i.event_id"
    conditions, parameters = [f"{key} >= %s", f"{key} < %s"], list[str | int]([low, high])
    order = key
    if groups and connection.vendor == "sqlite":
        conditions.append("sbx_search MATCH %s")
        parameters.append(fts5_query(groups))
    elif groups:
        conditions.append("i.words @@ to_tsquery('simple', %s)")
        if high - low > NEWEST_ROWS:
            # An expression, so that PostgreSQL does not walk down the primary key instead of asking its index.
            order = f"{key} + 0"
            groups = [[Term((word,)) for word in blocks(low, high)], *groups]
        parameters.append(tsquery(groups))
    joins, limited, of_limits = _limited(limits, key, with_events=bool(groups))
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {key} FROM {table}{joins} WHERE {' AND '.join([*conditions, *limited])}"  # noqa: S608 # constants
            f" ORDER BY {order} DESC LIMIT %s",
            [*parameters, *of_limits, limit],
        )
        return [row[0] for row in cursor.fetchall()]


def _limited(limits: Limits, key: str, *, with_events: bool) -> tuple[str, list[str], list[str | int]]:
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
    if limits.agent:
        joins += " JOIN sessions s ON s.session_id = e.session_id"
        conditions.append("s.agent_name = %s")
        parameters.append(limits.agent)
    return joins, conditions, parameters


def fts5_query(groups: Sequence[Group]) -> str:
    """Return groups of terms in FTS5's language. Words are letters and digits, so nothing needs quoting."""
    return " AND ".join(
        "(" + " OR ".join(f'"{" ".join(term.words)}"{"*" if term.prefix else ""}' for term in group) + ")"
        for group in groups
    )


def tsquery(groups: Sequence[Group]) -> str:
    """Return groups of terms in PostgreSQL's language."""
    return " & ".join(
        "(" + " | ".join(f"({' <-> '.join(term.words)}{':*' if term.prefix else ''})" for term in group) + ")"
        for group in groups
    )


# --- checking -----------------------------------------------------------------------------------------------


def _having(ids: Sequence[int], beginnings: Sequence[Term]) -> list[int]:
    """Return those of the events whose texts have every one of the beginnings."""
    said = texts_of(ids)
    words = {pk: words_said(texts) for pk, texts in said.items()}
    return [pk for pk in ids if pk in words and all(_has(words[pk], term) for term in beginnings)]


def _has(words: list[str], term: Term) -> bool:
    *head, last = term.words
    return any(
        word.startswith(last) and words[at - len(head) : at] == head
        for at, word in enumerate(words)
        if at >= len(head)
    )


def texts_of(ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the texts of events, as stored and as far as they are indexed."""
    if not ids:
        return {}
    places = ", ".join(["%s"] * len(ids))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, {TEXTS} FROM events WHERE id IN ({places})", list(ids))  # noqa: S608 # constants
        return {row[0]: [text for text in row[1:] if text] for row in cursor.fetchall()}
