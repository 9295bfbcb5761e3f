"""What both sides of a sandbox say: a frame is a JSON object (`facts`) and bytes (`body`), each with its length."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

Frame = tuple[dict[str, Any], bytes]
_LENGTHS = struct.Struct(">II")
MOST_FACTS = 1_000_000


class BrokenFrame(Exception):
    """The other side closed within a frame, or sent what is no frame."""


def pack_frame(facts: dict[str, Any], body: bytes = b"") -> bytes:
    """Return a frame: two lengths (32 bits each), the facts as JSON, the body."""
    head = json.dumps(facts).encode()
    return _LENGTHS.pack(len(head), len(body)) + head + body


def read_frame(receive: Callable[[int], bytes], *, most: int) -> Frame | None:
    """Read a frame with `receive(up_to)`, or return None where the other side has closed.

    `most` is the longest body, in bytes. Raises BrokenFrame.
    """
    head = read_exact_bytes_or_empty(receive, _LENGTHS.size)
    if not head:
        return None
    of_facts, of_body = _LENGTHS.unpack(head)
    if of_facts > MOST_FACTS or of_body > most:
        raise BrokenFrame("too long")
    facts, body = read_exact_bytes_or_empty(receive, of_facts), read_exact_bytes_or_empty(receive, of_body)
    try:
        decoded = json.loads(facts)
    except ValueError:
        raise BrokenFrame("not JSON") from None
    if len(body) != of_body or not isinstance(decoded, dict):
        raise BrokenFrame("cut short")
    return decoded, body


def read_exact_bytes_or_empty(receive: Callable[[int], bytes], count: int) -> bytes:
    """Return `count` bytes; none where the other side has closed before the first. Raises BrokenFrame."""
    pieces = bytearray()
    while len(pieces) < count:
        piece = receive(min(count - len(pieces), 1 << 20))
        if not piece:
            if pieces:
                raise BrokenFrame("cut short")
            break
        pieces += piece
    return bytes(pieces)
