"""The nesting depth of a JSON text and its memory once decoded, counted from its bytes before that.

`[[],[],…]` of 12 MB becomes 0.9 GB of lists, and a thousand open brackets are more than Python's own recursion
bears. Counting bytes is far quicker than decoding; texts are left out only where the quick count says too much.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import Any

DEEPEST = 100  # levels of arrays and objects
# Bytes that a container and what a comma separates take as Python objects; measured, rounded up.
CONTAINER, ITEM = 200, 60
BEGINNING = 4 * 1024 * 1024  # bytes
MOST_WEIGHT = 64 * 1024 * 1024

_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_NO_BRACKET = bytes(set(range(256)) - set(b"[]{}"))
_STEP = [1 if byte in b"[{" else -1 for byte in range(256)]
# Escapes. The group is a surrogate without its other half, which no text in UTF-8 can hold, and which makes all the
# rest unreadable.
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]', re.DOTALL)


class JsonTooDeep(ValueError):
    """Nested deeper than the limit."""


class JsonTooHeavy(ValueError):
    """So many arrays, objects and values that they would take too much memory."""


def estimate_decoded_json_size(raw: bytes, most: int = MOST_WEIGHT) -> int:
    """Return about how many bytes `raw` takes once decoded; exactly counted only where that passes `most`."""
    rough = estimate_json_size_from_outline(raw, len(raw))
    if rough <= most:
        return rough
    beginning = estimate_json_size_from_outline(_TEXT.sub(b"", raw[:BEGINNING]), len(raw))
    if beginning > most or len(raw) <= BEGINNING:
        return beginning
    return estimate_json_size_from_outline(_TEXT.sub(b"", raw), len(raw))


def estimate_json_size_from_outline(outline: bytes, length: int) -> int:
    containers = outline.count(b"[") + outline.count(b"{")
    return 2 * length + CONTAINER * containers + ITEM * outline.count(b",")


def has_too_many_json_values(raw: bytes, most: int) -> bool:
    """Say whether `raw` separates more than so many values by commas. A pause after each text lets others run."""
    if raw.count(b",") <= most:
        return False
    count, at = 0, 0
    for text in _TEXT.finditer(raw):
        count += raw.count(b",", at, text.start())
        at = text.end()
        if count > most:
            return True
    return count + raw.count(b",", at) > most


def is_json_too_deep(raw: bytes, most: int = DEEPEST) -> bool:
    """Say whether arrays and objects in `raw` nest more than `most` levels."""
    if raw.count(b"[") + raw.count(b"{") <= most:
        return False
    brackets = _TEXT.sub(b"", raw).translate(None, _NO_BRACKET)
    return max(accumulate(map(_STEP.__getitem__, brackets)), default=0) > most


def require_json_bounds(raw: bytes, *, deepest: int = DEEPEST, most: int = MOST_WEIGHT) -> None:
    """Raise JsonTooDeep or JsonTooHeavy, with a sentence that says the limit."""
    if is_json_too_deep(raw, deepest):
        raise JsonTooDeep(f"Nested deeper than {deepest} levels")
    if estimate_decoded_json_size(raw, most) > most:
        raise JsonTooHeavy(f"So many values that they would take more than {most // 1_048_576} MiB of memory")


def load_bounded_json(text: bytes | str, *, most: int = MOST_WEIGHT) -> Any:
    """Decode JSON of any depth and size that `require_json_bounds` allows. Raises ValueError for everything else."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    require_json_bounds(raw, most=most)
    return json.loads(text if isinstance(text, str) else raw.decode())


def split_json_array(raw: bytes) -> list[bytes]:
    """Return the text of each item of a JSON array, however deep they nest. Raises ValueError for what is none."""
    text = raw.strip()
    items: list[bytes] = []
    depth, begins, ended = 0, 1, False
    for token in _TOKEN.finditer(text):
        kind = token[0]
        if ended:
            break
        if depth == 1 and kind in {b",", b"]"}:
            items.append(text[begins : token.start()].strip())
            begins = token.end()
        depth += 1 if kind in {b"[", b"{"} else -1 if kind in {b"]", b"}"} else 0
        ended = depth == 0
    if not (text.startswith(b"[") and ended and begins == len(text)):
        raise ValueError("This is not a complete JSON array.")
    return [] if items == [b""] else items


def replace_lone_surrogates(body: bytes) -> bytes:
    """Return JSON with U+FFFD in place of lone surrogates, for which decoders refuse the whole text.

    Programs that cut a text after so many UTF-16 units leave one where they cut an emoji in two.
    """
    if b"\\ud" not in body.lower():
        return body
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], body)
