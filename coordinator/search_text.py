"""What is indexed of an event, and how questions are read: one reading of words for both engines.

The engines' own ideas of words differ, and PostgreSQL takes `src/app.py` for one of them. So texts are cut into
plain words here (letters and digits, lower case, without accents), for the index and for questions alike, and
`app.py` is found as the two words it is made of, side by side.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

# The beginning of each value is indexed: enough for what people look for, and a bound on what a huge output costs.
INDEX_CHARACTERS = 12_000
# What is indexed of an event, as SQL. A call's end repeats its input, which would only be found twice.
TEXTS = (
    f"CASE WHEN event_type <> 'post_tool' THEN substr(tool_input, 1, {INDEX_CHARACTERS}) END, "
    + ", ".join(
        f"substr({name}, 1, {INDEX_CHARACTERS})" for name in ("tool_output", "content", "error", "reason")
    )
    + ", tool_name"
)
_WORD = re.compile(r"[^\W_]+")
_ASKED = re.compile(r'"([^"]*)"|(\S+)')
MOST_TERMS = 12
# Events of neighbouring ids share a block, so that an index can be asked for a stretch of them.
BLOCK = 16_384


@dataclass(frozen=True, slots=True)
class Term:
    """Words that must stand side by side; the last one may go on (`prefix`)."""

    words: tuple[str, ...]
    prefix: bool = False


def words_of(text: str) -> list[str]:
    """Return a text's words as the index knows them."""
    return _WORD.findall(_plain(text))


def _plain(text: str) -> str:
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character)).lower()


def terms_of(question: str) -> list[Term]:
    """Read a question: words, "several words" side by side, and `beginn*`. All of them must be found."""
    terms = []
    for phrase, word in _ASKED.findall(question):
        words = words_of(phrase or word)
        if words:
            terms.append(Term(tuple(words), prefix=word.endswith("*")))
    return terms[:MOST_TERMS]


def label(kind: str, value: str) -> str:
    """Return one word that stands for a fact (`session`, `kind`, `tool`, `day` …) and that no text contains."""
    return f"sbx{kind}{hashlib.sha256(value.encode()).hexdigest()[:16]}"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is indexed of an event beside its texts."""

    event_id: int
    session_id: str
    event_type: str
    tool_name: str | None
    at: datetime | None

    def words(self) -> list[str]:
        """Return the words that stand for these facts."""
        words = [label("session", self.session_id), label("kind", self.event_type)]
        words += blocks(self.event_id, self.event_id + 1)
        if self.tool_name:
            words.append(label("tool", self.tool_name))
        if self.at:
            words += [span(f"{self.at:%Y}"), span(f"{self.at:%Y%m}"), span(f"{self.at:%Y%m%d}")]
        return words


def words_said(texts: Iterable[str | None]) -> list[str]:
    """Return the words of an event's texts (TEXTS), as they stand."""
    return [word[:100] for text in texts if text for word in words_of(readable(text)[:INDEX_CHARACTERS])]


def blocks(low: int, high: int) -> list[str]:
    """Return the words that stand for the blocks of the ids from `low` until before `high`."""
    return [f"sbxblock{number}" for number in range(low // BLOCK, -(-high // BLOCK))]


def span(digits: str) -> str:
    """Return the word that stands for a year, a month or a day (UTC): `2026`, `202602`, `20260223`."""
    return f"sbxtime{digits}"


FIRST_YEAR, LAST_YEAR = 1970, 2100


def spans_of(since: datetime | None, until: datetime | None) -> tuple[str, ...]:
    """Return the fewest words whose spans cover what lies between two instants; the days at the edges whole."""
    first = max(since.date() if since else date(FIRST_YEAR, 1, 1), date(FIRST_YEAR, 1, 1))
    last = min(until.date() if until else date(LAST_YEAR, 12, 31), date(LAST_YEAR, 12, 31))
    words = []
    while first <= last:
        year_end = date(first.year, 12, 31)
        month_end = (first.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
        if (first.month, first.day) == (1, 1) and year_end <= last:
            words.append(span(f"{first:%Y}"))
            first = year_end + timedelta(days=1)
        elif first.day == 1 and month_end <= last:
            words.append(span(f"{first:%Y%m}"))
            first = month_end + timedelta(days=1)
        else:
            words.append(span(f"{first:%Y%m%d}"))
            first += timedelta(days=1)
    return tuple(words)


def readable(stored: str) -> str:
    """Return the texts in a stored JSON value, as a person reads them; what was cut, or is no JSON, as it stands."""
    try:
        value = json.loads(stored)
    except (ValueError, RecursionError):
        return stored
    return "\n".join(_texts(value))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == "type":  # every block of content has one; nobody looks for the word "text" to find them
                continue
            if not (key in {"data", "blob", "signature"} and isinstance(inner, str) and len(inner) > 200):
                yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
