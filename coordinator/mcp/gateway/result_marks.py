"""Marks for what may be instructions hidden in a server's results or definitions. Pure.

A mark is a hint: ordinary texts get some, and an attacker can avoid them. It decides nothing unless a rule asks for it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import re2

INVISIBLE = "invisible characters"
INSTRUCTIONS = "instructions to the model"
MAX_CONTAINERS = 1_000_000  # of a value, that are searched
# Letters of the tag block, with which a text can be written that nobody sees (but for flags of regions, which begin
# with a black flag); directions; three or more zero-width characters or variation selectors in a row.
_INVISIBLE = re.compile(
    "(?<!\U0001f3f4)(?<![\U000e0020-\U000e007f])[\U000e0000-\U000e007f]|[\u202a-\u202e\u2066-\u2069]"
    "|[\u200b-\u200d\u2060-\u2064\ufeff\u00ad]{3}|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3}"
)
_ZERO_WIDTH = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]+")
_INSTRUCTIONS = re2.compile(
    r"(?i)\b(?:ignore|disregard|forget|override)\b[^.\n]{0,40}\b(?:previous|prior|above|earlier|preceding|all|your)\b"
    r"[^.\n]{0,30}\b(?:instructions?|prompts?|rules|guidelines|directions)\b"
    r"|\b(?:do not|don.?t|never|without)\s+(?:tell|mention|inform|reveal|notify|alert|show)\w*\b[^.\n]{0,30}\buser\b"
    r"|<\s*/?\s*(?:important|system|system-reminder|instructions?)\s*>"
    r"|\bnew (?:system )?instructions?\s*:"
    r"|\bbefore (?:using|calling) (?:this|any other) tool\b[^.\n]{0,60}\b(?:read|send|call|include|pass)\b"
)
# What an ASCII text holds where either can stand in it.
_HINT = re2.compile(r"(?i)\\u|ignore|disregard|forget|override|user|important|system|instruction|before")
_decode = msgspec.json.Decoder().decode


def find_text_marks(text: str) -> list[str]:
    """Return the marks of a text."""
    marks = []
    if not text.isascii():
        if _INVISIBLE.search(text) is not None:
            marks.append(INVISIBLE)
        text = _ZERO_WIDTH.sub("", text)
    if _INSTRUCTIONS.search(text.encode("utf-8", "replace").decode()) is not None:
        marks.append(INSTRUCTIONS)
    return marks


def find_value_marks(value: Any) -> list[str]:
    """Return the marks of all texts of a JSON value, but for the bytes of pictures and sounds."""
    texts: list[str] = []
    waiting, count = [value], 0
    while waiting and count < MAX_CONTAINERS:
        holder = waiting.pop()
        count += 1
        if isinstance(holder, str):
            texts.append(holder)
        elif isinstance(holder, list):
            waiting += holder
        elif isinstance(holder, dict):
            waiting += [item for name, item in holder.items() if name not in {"data", "blob"}]
            texts += holder
    return find_text_marks("\n".join(reversed(texts)))


def find_response_marks(response: bytes) -> list[str]:
    """Return the marks of a server's response."""
    if response.isascii() and _HINT.search(response.decode()) is None:
        return []
    try:
        value = _decode(response)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return []
    if not isinstance(value, dict):
        return []
    return find_value_marks([value.get("result"), value.get("error")])
