"""Letters and signs that look like others: a Cyrillic letter in `curl`, full-width letters, a hyphen of no option.

A word is marked where it mixes scripts that nobody mixes, or where all its letters look like Latin ones and nothing
else in the text is written in their script. Text in any one script is left alone.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Letters of other scripts that most fonts draw as Latin ones.
_LIKE_LATIN = frozenset(
    "\u0410\u0412\u0415\u0405\u0406\u0408\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425"  # Cyrillic
    "\u0430\u0435\u0455\u0456\u0458\u043a\u043e\u0440\u0441\u0443\u0445\u0501\u04bb\u04cf\u051b"  # Cyrillic
    "\u051d\u0475\u04af\u04ae\u050d"  # Cyrillic
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1"  # Greek
    "\u03b9\u03ba\u03bd\u03bf\u03c1\u03c4\u03c5\u03c7\u03f2\u03f3"  # Greek
    "\u054d\u054f\u0555\u0585\u057d\u0578\u0566"  # Armenian
    "\u13aa\u13ac\u13a2\u13bb\u13ab\u13c0\u13de\u13b7\u13e2\u13d2\u13da\u13b3\u13c3"  # Cherokee
)
# Signs that a reader takes for others: slashes, quotes, bars, dots, semicolons.
_LIKE_DASHES = "\u2010\u2011\u2012\u2013\u2212\ufe63\uff0d"
_LIKE_SIGNS = frozenset(
    "\u2044\u2215\u29f8\uff0f\uff3c\u2216\u01c0\u2223\uff5c\u2236\uff1a\uff1b\u037e\u201a\uff0c"
    "\u2024\uff0e\uff07\uff02\uff04\uff06\uff0a\uff1c\uff1e\uff1d\uff40\uff5e"
)
_SCRIPTS = (
    "LATIN",
    "CYRILLIC",
    "GREEK",
    "ARMENIAN",
    "CHEROKEE",
    "COPTIC",
    "LISU",
    "DESERET",
    "OSAGE",
    "WARANG",
)
_OPTION = re.compile(rf"(?:^|[\s'\"(])[{_LIKE_DASHES}](?=\w|[{_LIKE_DASHES}])")  # no dash of prose
_WORD = re.compile(r"[^\W\d_]+")


def find_lookalike_character_positions(text: str) -> list[int]:
    """Return the positions of characters in the text that a reader takes for others, in order."""
    if text.isascii():
        return []
    odd_words = [(match.start(), match[0]) for match in _WORD.finditer(text) if not match[0].isascii()]
    written = {
        character_script(char)
        for _, word in odd_words
        for char in word
        if char not in _LIKE_LATIN and not char.isascii()
    }
    positions = [
        place for start, word in odd_words for place in lookalike_positions_in_word(start, word, written)
    ]
    if not any(is_full_width_script_character(char) for _, word in odd_words for char in word):
        positions += [place for place, char in enumerate(text) if char in _LIKE_SIGNS and not char.isascii()]
        positions += [match.end() - 1 for match in _OPTION.finditer(text)]
    return sorted(positions)


def has_lookalike_characters(text: str) -> bool:
    """Say whether a text has any character that a reader takes for another."""
    return bool(find_lookalike_character_positions(text))


def unicode_character_name(char: str) -> str:
    """Return the character's name in Unicode, for a reader who cannot see what it is."""
    return unicodedata.name(char, f"U+{ord(char):04X}").lower()


def lookalike_positions_in_word(start: int, word: str, written: set[str]) -> list[int]:
    disguised = [start + place for place, char in enumerate(word) if is_disguised_ascii_character(char)]
    scripts = {character_script(char) for char in word} - {""}
    if len(scripts) > 1:
        rest = [place for place, char in enumerate(word) if character_script(char) not in {"LATIN", ""}]
        return [*disguised, *(start + place for place in rest)]
    (script,) = scripts or {""}
    if script not in {"", "LATIN"} and script not in written and all(char in _LIKE_LATIN for char in word):
        return [*disguised, *range(start, start + len(word))]
    return disguised


@lru_cache(maxsize=4096)
def character_script(char: str) -> str:
    name = unicodedata.name(char, "")
    return next((script for script in _SCRIPTS if name.startswith(f"{script} ")), "")


@lru_cache(maxsize=4096)
def is_disguised_ascii_character(char: str) -> bool:
    """Say whether a letter is one of ASCII in another form: full width, mathematical, circled.

    Raised and lowered ones (m², ªº) deceive nobody.
    """
    if char.isascii() or unicodedata.decomposition(char).startswith(("<super>", "<sub>")):
        return False
    plain = unicodedata.normalize("NFKC", char)
    return len(plain) == 1 and plain.isascii()


@lru_cache(maxsize=4096)
def is_full_width_script_character(char: str) -> bool:
    """Say whether a letter is of a script that is written with signs of full width."""
    return unicodedata.name(char, "").startswith(("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"))
