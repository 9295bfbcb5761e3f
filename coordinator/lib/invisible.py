"""Characters that an eye misses: control and format characters, odd spaces, and letters that look like nothing."""

from __future__ import annotations

import re
import unicodedata

# Control, format (bidi, zero width), surrogate, private, unassigned and separating characters.
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
# Default_Ignorable_Code_Point, which Python does not know: DerivedCoreProperties.txt of Unicode 16, the same since 9.
_RANGES = (
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF),
    (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
_IGNORABLE = frozenset(code for first, last in _RANGES for code in range(first, last + 1))
# Assigned and not ignorable, and yet fonts draw nothing, by the code charts: Braille pattern blank, Khitan small
# script filler, musical null notehead, Egyptian full and half blank.
_BLANK = frozenset({0x2800, 0x16FE4, 0x1D159, 0x13441, 0x13442})
# Variation selector and joiner, which occur within emoji.
_EMOJI_PARTS = frozenset("\ufe0f\u200d")
# What is worth a look: most texts have nothing of it.
UNUSUAL = re.compile(r"[^\n\t\x20-\x7e]")


def is_invisible_character(char: str) -> bool:
    """Say whether a reader could miss the character; the ordinary space and line breaks are not asked about."""
    code = ord(char)
    return unicodedata.category(char) in _CATEGORIES or char.isspace() or code in _BLANK or code in _IGNORABLE


def has_invisible_character(text: str) -> bool:
    """Say whether a text has any character that a reader could miss."""
    return any(map(is_invisible_character, set(UNUSUAL.findall(text))))


def reveal_invisible_characters(text: str) -> str:
    """Return a name or title in which characters that could deceive a reader are shown as codes: `[U+202E]`.

    Odd spaces stay, and so does what joins the parts of one emoji.
    """
    return UNUSUAL.sub(lambda match: reveal_character_if_invisible(text, match.start()), text)


def reveal_character_if_invisible(text: str, index: int) -> str:
    char = text[index]
    if not is_invisible_character(char) or unicodedata.category(char) == "Zs":
        return char
    before = text[index - 1] if index else ""
    if (
        char in _EMOJI_PARTS
        and before
        and (unicodedata.category(before) in {"So", "Sk"} or before in _EMOJI_PARTS)
    ):
        return char
    return f"[U+{ord(char):04X}]"
