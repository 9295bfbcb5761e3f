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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from coordinator.engine import full_text
from coordinator.engine.values import cast_to_text_sql
from coordinator.models import UnreadableText
from coordinator.models.fields import decode_stored_json

INDEX_CHARACTERS = (
    200_000  # readable characters of an event that are indexed: ten times what most agents show
)
STORED_CHARACTERS = (
    1_000_000  # of each stored value that are read for the index: escapes and skipped values need room
)
DEEP_CHARACTERS = 20_000_000  # of each stored value that a deeper search reads
SPAN_MICROSECONDS = 600_000_000  # ten minutes: what of an event's time is one word
SPANS_OF_DAY = 86_400_000_000 // SPAN_MICROSECONDS
_FIRST_DAY = date(1970, 1, 1)
LAST_SPAN = (date(9999, 1, 1) - _FIRST_DAY).days * SPANS_OF_DAY  # and everything later


def build_indexed_text_sql(most: int) -> str:
    """Return what is indexed of an event, as SQL, up to `most` characters of each value.

    A call's end repeats its input, which would only be found twice.
    """
    values = ", ".join(
        f"substr({cast_to_text_sql(name)}, 1, {most})"
        for name in ("tool_output", "content", "error", "reason")
    )
    return (
        f"CASE WHEN event_type <> 'post_tool' THEN substr({cast_to_text_sql('tool_input')}, 1, {most}) END, "
        f"{values}, {cast_to_text_sql('tool_name')}"
    )


TEXTS = build_indexed_text_sql(STORED_CHARACTERS)
_WORD = re.compile(r"[^\W_]+")
# Of ASCII: letters in lower case, digits, and a blank for anything else. Most texts are, and this takes a third.
_ASCII_WORDS = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}
_QUESTION_PARTS = re.compile(r'"([^"]*)"|(\S+)')
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " "}
MOST_TERMS = 12
MOST_LETTERS = 100  # of a word that are indexed
LONGEST_REMEMBERED = 200  # characters of a session's id, or a tool's name, whose word is remembered
PIECE = 3  # letters of the shortest piece of a word that is found within it
BEYOND_WORD = "sbxbeyond"  # an event with more text than is indexed
# Of PostgreSQL's 1,048,575 bytes for the words of an event; what stands beside each word is counted generously.
MOST_WORD_BYTES = 900_000
_INDEX_BYTES_PER_WORD = 12
# Pictures, signatures and other encoded bytes are no words: nobody types a piece of them, and few are alike.
_ENCODED = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{200,}={0,2}")
_NEVER_SHOWN = {"signature", "data", "blob", "encrypted_content", "thoughtSignature"}
_LONGEST_SHOWN = 100  # characters without a blank of a value of such a name that may be read after all
_CUT_HIDDEN = re.compile(
    r'"(?:originalFile"\s*:\s*"|(?:signature|data|blob|encrypted_content|thoughtSignature)"\s*:\s*"'
    r'(?=[^"\\\s]{100}))(?:[^"\\]|\\.)*+(?:"|\\?\Z)',
    re.DOTALL,
)


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
    def search_term_regex_text(self) -> str:
        """What finds the term in a text that `normalize_search_text` made: the words with anything but letters
        between.
        """
        escaped_words = [re.escape(word) for word in (self.exact.split() or self.words)]
        begins = not self.opens and escaped_words[0][0].isalnum()
        ends = not self.prefix and escaped_words[-1][-1].isalnum()
        between = r"\s+" if self.exact else r"[\W_]+"
        return f"{_NO_LETTER_BEFORE if begins else ''}{between.join(escaped_words)}{_NO_LETTER_AFTER if ends else ''}"


_NO_LETTER_BEFORE, _NO_LETTER_AFTER = r"(?<![^\W_])", r"(?![^\W_])"


def split_into_index_words(text: str) -> list[str]:
    """Return a text's words as the index knows them."""
    if text.isascii():
        return text.translate(_ASCII_WORDS).split()
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
        exact_phrase_term_or_none(phrase) if phrase.strip() else parse_partial_word_term(word)
        for phrase, word in _QUESTION_PARTS.findall(question)
    ]
    return [term for term in terms if term][:MOST_TERMS]


def exact_phrase_term_or_none(phrase: str) -> SearchTerm | None:
    phrase_words, exact = (
        truncate_letters_of_lexemes(split_into_index_words(phrase)),
        " ".join(normalize_search_text(phrase).split()),
    )
    if not exact:
        return None
    return SearchTerm(phrase_words, exact="" if (exact,) == phrase_words else exact)


def parse_partial_word_term(typed: str) -> SearchTerm | None:
    """Return the term for what was typed between blanks; fewer than PIECE letters are whole words."""
    piece_words = truncate_letters_of_lexemes(split_into_index_words(typed))
    if not piece_words:
        return None
    if typed.endswith("*"):
        return SearchTerm(piece_words, prefix=True)
    # A sign at either end is an end: `.env` begins with env, and in `render(` nothing comes after render.
    is_piece = sum(map(len, piece_words)) >= PIECE
    return SearchTerm(
        piece_words, prefix=is_piece and typed[-1].isalnum(), opens=is_piece and typed[0].isalnum()
    )


def truncate_letters_of_lexemes(words: list[str]) -> tuple[str, ...]:
    return tuple(word[:MOST_LETTERS] for word in words)


def index_word_for_fact(kind: str, value: str) -> str:
    """Return one word that stands for a fact (`session`, `kind`, `tool`, `day` …) and that no text contains."""
    return (
        _remembered_label(kind, value)
        if len(value) <= LONGEST_REMEMBERED
        else compute_index_word_for_fact(kind, value)
    )


def compute_index_word_for_fact(kind: str, value: str) -> str:
    return f"sbx{kind}{hashlib.sha256(value.encode()).hexdigest()[:16]}"


# A session has many events, and there are few kinds and tools.
_remembered_label = functools.lru_cache(maxsize=2_000)(compute_index_word_for_fact)


@dataclass(frozen=True, slots=True)
class EventFacts:
    """What is indexed of an event beside its texts."""

    event_id: int
    session_id: str
    event_type: str
    tool_name: str | None
    at_us: int | None  # as event_context has it, by which results are ordered

    @property
    def event_time_span_number(self) -> int:
        return time_span_number_of_instant(self.at_us)

    def index_lexemes_for_event_facts(self) -> list[str]:
        """Return the words that stand for these facts."""
        fact_words = [
            index_word_for_fact("session", self.session_id),
            index_word_for_fact("kind", self.event_type),
        ]
        fact_words.append(index_word_for_ten_minutes(self.event_time_span_number))
        if self.tool_name:
            fact_words.append(index_word_for_fact("tool", self.tool_name))
        if 0 < self.event_time_span_number < LAST_SPAN:
            fact_words += index_lexemes_for_date(
                _FIRST_DAY + timedelta(days=self.event_time_span_number // SPANS_OF_DAY)
            )
        return fact_words


@functools.lru_cache(maxsize=100)
def index_lexemes_for_date(day: date) -> tuple[str, str, str]:
    """Return the words that stand for a day, its month and its year."""
    return (
        index_word_for_date_digits(f"{day:%Y}"),
        index_word_for_date_digits(f"{day:%Y%m}"),
        index_word_for_date_digits(f"{day:%Y%m%d}"),
    )


@dataclass(frozen=True, slots=True)
class IndexableWords:
    """The words of an event's texts, and whether there is more text than these."""

    words: list[str]
    is_beyond: bool


def extract_indexable_word_sequence(texts: Iterable[str | None]) -> IndexableWords:
    """Return the words of an event's texts (TEXTS), as they stand, within the budget of an event."""
    readable, is_beyond = extract_event_text(texts, STORED_CHARACTERS, INDEX_CHARACTERS)
    words = split_into_index_words(readable)
    if max(map(len, words), default=0) > MOST_LETTERS:
        words = [word[:MOST_LETTERS] for word in words]
    fitting = count_lexemes_fitting_in_index(words)
    is_beyond = is_beyond or fitting < len(words) or fitting > full_text.max_event_terms_for_phrases()
    return IndexableWords(words[:fitting], is_beyond)


def count_lexemes_fitting_in_index(words: Sequence[str]) -> int:
    """Return how many of the words every engine's index can hold for one event."""
    if 4 * sum(map(len, words)) + _INDEX_BYTES_PER_WORD * len(words) < MOST_WORD_BYTES:
        return len(words)
    left, seen_words = MOST_WORD_BYTES, set[str]()
    for number, word in enumerate(words):
        left -= 2 if word in seen_words else len(word.encode()) + _INDEX_BYTES_PER_WORD
        if left < 0:
            return number
        seen_words.add(word)
    return len(words)


def extract_event_text(texts: Iterable[str | None], stored_limit: int, limit: int | None) -> tuple[str, bool]:
    """Return an event's texts as a person reads them, at most `limit` characters, and whether there is more."""
    readable = []
    left, is_beyond = limit, False
    for text in texts:
        if not text:
            continue
        piece = extract_readable_text(text)
        is_beyond = is_beyond or len(text) >= stored_limit
        if left is not None:
            if len(piece) > left:
                piece, is_beyond = piece[:left], True
            left -= len(piece)
        readable.append(piece)
    return "\n".join(readable), is_beyond


def time_span_number_of_instant(at_us: int | None) -> int:
    """Return which ten minutes since 1970 an instant is in: 0 for what is before and for none, LAST_SPAN at most."""
    return min(max(0, at_us or 0) // SPAN_MICROSECONDS, LAST_SPAN)


def index_word_for_ten_minutes(span: int) -> str:
    """Return the word that stands for ten minutes, by their number since 1970."""
    return f"sbxspan{span}"


def index_lexemes_covering_time_spans(low: int, high: int) -> list[str]:
    """Return words that together stand for the spans from `low` until before `high`: days, months, years inside."""
    if low == 0:  # its events have no day
        return [index_word_for_ten_minutes(0), *index_lexemes_covering_time_spans(1, high)]
    first_day, end_day = -(-low // SPANS_OF_DAY), high // SPANS_OF_DAY
    if first_day >= end_day:
        return [index_word_for_ten_minutes(span) for span in range(low, high)]
    days = index_lexemes_covering_days(
        _FIRST_DAY + timedelta(days=first_day), _FIRST_DAY + timedelta(days=end_day - 1)
    )
    edges = [*range(low, first_day * SPANS_OF_DAY), *range(end_day * SPANS_OF_DAY, high)]
    return [*days, *(index_word_for_ten_minutes(span) for span in edges)]


def index_word_for_date_digits(digits: str) -> str:
    """Return the word that stands for a year, a month or a day (UTC): `2026`, `202602`, `20260223`."""
    return f"sbxtime{digits}"


def index_lexemes_covering_days(first: date, last: date) -> tuple[str, ...]:
    """Return the fewest words whose spans are the days from the first to the last."""
    span_words = []
    while first <= last:
        year_end = date(first.year, 12, 31)
        month_end = (first.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
        if (first.month, first.day) == (1, 1) and year_end <= last:
            span_words.append(index_word_for_date_digits(f"{first:%Y}"))
            first = year_end + timedelta(days=1)
        elif first.day == 1 and month_end <= last:
            span_words.append(index_word_for_date_digits(f"{first:%Y%m}"))
            first = month_end + timedelta(days=1)
        else:
            span_words.append(index_word_for_date_digits(f"{first:%Y%m%d}"))
            first += timedelta(days=1)
    return tuple(span_words)


def extract_readable_text(stored: str) -> str:
    """Return the texts in a stored JSON value, as a person reads them; what is no JSON, as it stands.

    Encoded bytes become a sign of omission, and of an edit's result the file before it is left out: its diff is shown.
    """
    value = decode_stored_json(stored)
    if not isinstance(value, UnreadableText):
        text = "\n".join(iterate_json_texts(value))
    elif stored[:1] == '"' or stored[:2] in ('{"', "[{", '["'):
        text = unescape_cut_json(_CUT_HIDDEN.sub('""', stored))
    else:
        text = stored
    return _ENCODED.sub("…", text) if len(text) > _LONGEST_SHOWN else text


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


def is_probably_encoded_bytes(value: str) -> bool:
    """Say whether a value seems to be encoded bytes: long, and without a blank where a text would have some."""
    return len(value) > _LONGEST_SHOWN and not any(map(str.isspace, value[:_LONGEST_SHOWN]))


def iterate_json_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == "type":  # every block of content has one; nobody looks for the word "text" to find them
                continue
            if key in _NEVER_SHOWN and isinstance(inner, str) and is_probably_encoded_bytes(inner):
                continue
            if key != "originalFile" or "structuredPatch" not in value:
                yield from iterate_json_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from iterate_json_texts(inner)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)
