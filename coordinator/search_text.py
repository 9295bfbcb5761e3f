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
from typing import Any

# The beginning of each value is indexed: enough for what people look for, and a bound on what a huge output costs.
INDEX_CHARACTERS = 12_000
_WORD = re.compile(r"[^\W_]+")
_ASKED = re.compile(r'"([^"]*)"|(\S+)')
MOST_TERMS = 12


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
    """Return one word that stands for a fact (`session`, `kind`, `tool`) and that no text contains."""
    return f"sbx{kind}{hashlib.sha256(value.encode()).hexdigest()[:16]}"


def document(session_id: str, event_type: str, tool_name: str | None, values: Iterable[str | None]) -> str:
    """Return what is indexed of an event: its words, then the words that stand for its facts."""
    words = [word[:100] for value in values if value for word in words_of(readable(value)[:INDEX_CHARACTERS])]
    facts = [label("session", session_id), label("kind", event_type)]
    if tool_name:
        words += words_of(tool_name)
        facts.append(label("tool", tool_name))
    return " ".join([*words, *facts])


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
