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

from coordinator.engine.values import text_of
from coordinator.models import UnreadableText
from coordinator.models.fields import decoded

# The beginning of each value is indexed: enough for what people look for, and a bound on what a huge output costs.
INDEX_CHARACTERS = 12_000
# What is indexed of an event, as SQL. A call's end repeats its input, which would only be found twice.
TEXTS = (
    f"CASE WHEN event_type <> 'post_tool' THEN substr({text_of('tool_input')}, 1, {INDEX_CHARACTERS}) END, "
    + ", ".join(
        f"substr({text_of(name)}, 1, {INDEX_CHARACTERS})"
        for name in ("tool_output", "content", "error", "reason")
    )
    + f", {text_of('tool_name')}"
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
class Term:
    """Words that must stand side by side; the first may begin earlier (`opens`), the last may go on (`prefix`).

    `exact` is what was put in quotes, as `plain` gives it: it must stand so, sign by sign. It may have no words.
    """

    words: tuple[str, ...]
    prefix: bool = False
    opens: bool = False
    exact: str = ""

    @property
    def pattern(self) -> str:
        """What finds the term in a text that `plain` made: the words with anything but letters between."""
        found = [re.escape(word) for word in (self.exact.split() or self.words)]
        begins = not self.opens and found[0][0].isalnum()
        ends = not self.prefix and found[-1][-1].isalnum()
        between = r"\s+" if self.exact else r"[\W_]+"
        return f"{_NO_LETTER_BEFORE if begins else ''}{between.join(found)}{_NO_LETTER_AFTER if ends else ''}"


_NO_LETTER_BEFORE, _NO_LETTER_AFTER = r"(?<![^\W_])", r"(?![^\W_])"


def words_of(text: str) -> list[str]:
    """Return a text's words as the index knows them."""
    return _WORD.findall(plain(text))


def plain(text: str) -> str:
    """Return a text in lower case and without accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text)
    return "".join(character for character in decomposed if not unicodedata.combining(character)).lower()


def terms_of(question: str) -> list[Term]:
    """Read a question: pieces of words, `beginn*`, and "exactly this". All of them must be found."""
    terms = [
        _exactly(phrase) if phrase.strip() else _piece(word) for phrase, word in _ASKED.findall(question)
    ]
    return [term for term in terms if term][:MOST_TERMS]


def _exactly(phrase: str) -> Term | None:
    words, exact = _cut(words_of(phrase)), " ".join(plain(phrase).split())
    if not exact:
        return None
    return Term(words, exact="" if (exact,) == words else exact)


def _piece(typed: str) -> Term | None:
    """Return the term for what was typed between blanks; fewer than PIECE letters are whole words."""
    words = _cut(words_of(typed))
    if not words:
        return None
    if typed.endswith("*"):
        return Term(words, prefix=True)
    # A sign at either end is an end: `.env` begins with env, and in `render(` nothing comes after render.
    is_piece = sum(map(len, words)) >= PIECE
    return Term(words, prefix=is_piece and typed[-1].isalnum(), opens=is_piece and typed[0].isalnum())


def _cut(words: list[str]) -> tuple[str, ...]:
    return tuple(word[:MOST_LETTERS] for word in words)


def label(kind: str, value: str) -> str:
    """Return one word that stands for a fact (`session`, `kind`, `tool`, `day` …) and that no text contains."""
    return _remembered_label(kind, value) if len(value) <= LONGEST_REMEMBERED else _label(kind, value)


def _label(kind: str, value: str) -> str:
    return f"sbx{kind}{hashlib.sha256(value.encode()).hexdigest()[:16]}"


# A session has many events, and there are few kinds and tools.
_remembered_label = functools.lru_cache(maxsize=2_000)(_label)


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
            words += _spans_with(self.at.date())
        return words


@functools.lru_cache(maxsize=100)
def _spans_with(day: date) -> tuple[str, str, str]:
    """Return the words that stand for a day, its month and its year."""
    return span(f"{day:%Y}"), span(f"{day:%Y%m}"), span(f"{day:%Y%m%d}")


def words_of_texts(texts: Iterable[str | None]) -> list[str]:
    """Return the words of an event's texts (TEXTS), as they stand."""
    return [
        word[:MOST_LETTERS] for text in texts if text for word in words_of(readable(text)[:INDEX_CHARACTERS])
    ]


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
    """Return the texts in a stored JSON value, as a person reads them; what is no JSON, as it stands."""
    value = decoded(stored)
    if isinstance(value, UnreadableText):
        was_cut = len(stored) >= INDEX_CHARACTERS and stored[:1] in ("{", "[", '"')
        return unescaped(stored) if was_cut else stored
    return "\n".join(_texts(value))


def unescaped(stored: str) -> str:
    """Return JSON that was cut without its escapes: nothing else hides what it says."""
    return _ESCAPED.sub(_meant, stored)


def _meant(match: re.Match[str]) -> str:
    """Return what JSON means by an escape."""
    code, sign = match.groups()
    if code is None:
        return _ESCAPES.get(sign, sign)
    character = chr(int(code, 16))
    return " " if character == "\0" or "\ud800" <= character <= "\udfff" else character


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
