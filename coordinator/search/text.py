"""What is indexed of an event, and how questions are read: one reading of words for both engines.

The engines' own ideas of words differ, and PostgreSQL takes `src/app.py` for one of them. So texts are cut into
plain words here (letters and digits, lower case, without accents), for the index and for questions alike, and
`app.py` is found as the two words it is made of, side by side.

What is typed is a piece of what is there: `checkpoint` is found in `TestCheckpointStore`. In quotes it is exact.
"""

from __future__ import annotations

import functools
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from coordinator.engine.values import cast_to_text_sql
from coordinator.models import UnreadableText
from coordinator.models.fields import decode_stored_json

# The beginning of each value is indexed: enough for what people look for, and a bound on what a huge output costs.
INDEX_CHARACTERS = 12_000
# What is indexed of an event, as SQL. A call's end repeats its input, which would only be found twice.
TEXTS = (
    f"CASE WHEN event_type <> 'post_tool' THEN substr({cast_to_text_sql('tool_input')}, 1, {INDEX_CHARACTERS}) END, "
    + ", ".join(
        f"substr({cast_to_text_sql(name)}, 1, {INDEX_CHARACTERS})"
        for name in ("tool_output", "content", "error", "reason")
    )
    + f", {cast_to_text_sql('tool_name')}"
)
_WORD = re.compile(r"[^\W_]+")
_ASKED = re.compile(r'"([^"]*)"|(\S+)')
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " "}
MOST_TERMS = 12
MOST_LETTERS = 100  # of a word that are indexed
LONGEST_REMEMBERED = 200  # characters of a session's id, or a tool's name, whose word is remembered
PIECE = 3  # letters of the shortest piece of a word that is found within it
# Events of neighbouring ids share a block, so that an index can be asked for a stretch of them.
BLOCK = 16_384


@dataclass(frozen=True, slots=True)
class SearchTerm:
    """Words that must stand side by side; the first may begin earlier (`opens`), the last may go on (`prefix`).

    `exact` is what was put in quotes, as `normalize_search_text` gives it: it must stand so, sign by sign. It
    may have no words.
    """

    words: tuple[str, ...]
    prefix: bool = False
    opens: bool = False
    exact: str = ""

    @property
    def term_pattern(self) -> str:
        """What finds the term in a text that `normalize_search_text` made: the words with anything but letters
        between.
        """
        escaped_words = [re.escape(word) for word in (self.exact.split() or self.words)]
        begins = not self.opens and escaped_words[0][0].isalnum()
        ends = not self.prefix and escaped_words[-1][-1].isalnum()
        between = r"\s+" if self.exact else r"[\W_]+"
        return f"{_NO_LETTER_BEFORE if begins else ''}{between.join(escaped_words)}{_NO_LETTER_AFTER if ends else ''}"


_NO_LETTER_BEFORE, _NO_LETTER_AFTER = r"(?<![^\W_])", r"(?![^\W_])"


def split_search_words(text: str) -> list[str]:
    """Return a text's words as the index knows them."""
    return _WORD.findall(normalize_search_text(text))


def normalize_search_text(text: str) -> str:
    """Return a text in lower case and without accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character)).lower()


def parse_search_terms(question: str) -> list[SearchTerm]:
    """Read a question: pieces of words, `beginn*`, and "exactly this". All of them must be found."""
    terms = [
        parse_exact_phrase(phrase) if phrase.strip() else parse_word_piece(word)
        for phrase, word in _ASKED.findall(question)
    ]
    return [term for term in terms if term][:MOST_TERMS]


def parse_exact_phrase(phrase: str) -> SearchTerm | None:
    phrase_words, exact = (
        truncate_words(split_search_words(phrase)),
        " ".join(normalize_search_text(phrase).split()),
    )
    if not exact:
        return None
    return SearchTerm(phrase_words, exact="" if (exact,) == phrase_words else exact)


def parse_word_piece(typed: str) -> SearchTerm | None:
    """Return the term for what was typed between blanks; fewer than PIECE letters are whole words."""
    piece_words = truncate_words(split_search_words(typed))
    if not piece_words:
        return None
    if typed.endswith("*"):
        return SearchTerm(piece_words, prefix=True)
    # A sign at either end is an end: `.env` begins with env, and in `render(` nothing comes after render.
    is_piece = sum(map(len, piece_words)) >= PIECE
    return SearchTerm(
        piece_words, prefix=is_piece and typed[-1].isalnum(), opens=is_piece and typed[0].isalnum()
    )


def truncate_words(words: list[str]) -> tuple[str, ...]:
    return tuple(word[:MOST_LETTERS] for word in words)


def fact_label(kind: str, value: str) -> str:
    """Return one word that stands for a fact (`session`, `kind`, `tool`, `day` …) and that no text contains."""
    return (
        _remembered_label(kind, value)
        if len(value) <= LONGEST_REMEMBERED
        else compute_fact_label(kind, value)
    )


def compute_fact_label(kind: str, value: str) -> str:
    return f"sbx{kind}{hashlib.sha256(value.encode()).hexdigest()[:16]}"


# A session has many events, and there are few kinds and tools.
_remembered_label = functools.lru_cache(maxsize=2_000)(compute_fact_label)


@dataclass(frozen=True, slots=True)
class EventFacts:
    """What is indexed of an event beside its texts."""

    event_id: int
    session_id: str
    event_type: str
    tool_name: str | None
    at: datetime | None

    def event_fact_words(self) -> list[str]:
        """Return the words that stand for these facts."""
        fact_words = [fact_label("session", self.session_id), fact_label("kind", self.event_type)]
        fact_words += id_block_words(self.event_id, self.event_id + 1)
        if self.tool_name:
            fact_words.append(fact_label("tool", self.tool_name))
        if self.at:
            fact_words += date_span_words(self.at.date())
        return fact_words


@functools.lru_cache(maxsize=100)
def date_span_words(day: date) -> tuple[str, str, str]:
    """Return the words that stand for a day, its month and its year."""
    return time_span_word(f"{day:%Y}"), time_span_word(f"{day:%Y%m}"), time_span_word(f"{day:%Y%m%d}")


def index_words_of_texts(texts: Iterable[str | None]) -> list[str]:
    """Return the words of an event's texts (TEXTS), as they stand."""
    return [
        word[:MOST_LETTERS]
        for text in texts
        if text
        for word in split_search_words(extract_readable_text(text)[:INDEX_CHARACTERS])
    ]


def id_block_words(low: int, high: int) -> list[str]:
    """Return the words that stand for the blocks of the ids from `low` until before `high`."""
    return [f"sbxblock{number}" for number in range(low // BLOCK, -(-high // BLOCK))]


def time_span_word(digits: str) -> str:
    """Return the word that stands for a year, a month or a day (UTC): `2026`, `202602`, `20260223`."""
    return f"sbxtime{digits}"


FIRST_YEAR, LAST_YEAR = 1970, 2100


def cover_period_with_spans(since: datetime | None, until: datetime | None) -> tuple[str, ...]:
    """Return the fewest words whose spans cover what lies between two instants; the days at the edges whole."""
    first = max(since.date() if since else date(FIRST_YEAR, 1, 1), date(FIRST_YEAR, 1, 1))
    last = min(until.date() if until else date(LAST_YEAR, 12, 31), date(LAST_YEAR, 12, 31))
    span_words = []
    while first <= last:
        year_end = date(first.year, 12, 31)
        month_end = (first.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
        if (first.month, first.day) == (1, 1) and year_end <= last:
            span_words.append(time_span_word(f"{first:%Y}"))
            first = year_end + timedelta(days=1)
        elif first.day == 1 and month_end <= last:
            span_words.append(time_span_word(f"{first:%Y%m}"))
            first = month_end + timedelta(days=1)
        else:
            span_words.append(time_span_word(f"{first:%Y%m%d}"))
            first += timedelta(days=1)
    return tuple(span_words)


def extract_readable_text(stored: str) -> str:
    """Return the texts in a stored JSON value, as a person reads them; what is no JSON, as it stands."""
    value = decode_stored_json(stored)
    if isinstance(value, UnreadableText):
        was_cut = len(stored) >= INDEX_CHARACTERS and stored[:1] in ("{", "[", '"')
        return unescape_cut_json(stored) if was_cut else stored
    return "\n".join(iterate_json_texts(value))


def unescape_cut_json(stored: str) -> str:
    """Return JSON that was cut without its escapes: nothing else hides what it says."""
    return _ESCAPED.sub(decode_json_escape, stored)


def decode_json_escape(match: re.Match[str]) -> str:
    """Return what JSON means by an escape."""
    code, sign = match.groups()
    if code is None:
        return _ESCAPES.get(sign, sign)
    character = chr(int(code, 16))
    return " " if character == "\0" or "\ud800" <= character <= "\udfff" else character


def iterate_json_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == "type":  # every block of content has one; nobody looks for the word "text" to find them
                continue
            if not (key in {"data", "blob", "signature"} and isinstance(inner, str) and len(inner) > 200):
                yield from iterate_json_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_json_texts(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
