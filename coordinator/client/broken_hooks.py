"""Reading of a hook's body that is no valid JSON: agents have cut them, or left backslashes as they were.

The server and the command that reports to it read such a body alike.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False  # `typing` takes longer to load than the rest of this module
if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST = 500  # bytes of a text that is taken


def convert_to_utf8_without_bom(body: bytes) -> bytes:
    """Return the body as UTF-8 without a byte order mark; some Windows shells put one before what they pipe."""
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace").encode("utf-8", "surrogatepass")
    while body.startswith(b"\xef\xbb\xbf"):
        body = body[3:]
    return body


def extract_unambiguous_fields(body: bytes, names: Iterable[str]) -> dict[str, str]:
    """Return those of these fields whose text is certain: wherever the name occurs, the same plain text follows it.

    A field of a call's input may have the name of one of the hook's own. Where the two differ, neither is taken, nor
    is the tool's name where it may be within the input.
    """
    fields = {}
    outermost = b"{".join(body.split(b"{", 2)[:2])
    for name in names:
        quoted = b'"' + re.escape(name.encode()) + b'"'
        count = len(re.findall(quoted, body))
        texts = re.findall(quoted + rb'\s*:\s*"([^"\\\x00-\x1f]{1,%d})"' % LONGEST, body)
        if name == "tool_name" and quoted not in outermost:
            continue
        if count and len(texts) == count and len(set(texts)) == 1:
            fields[name] = texts[0].decode("utf-8", "replace")
    return fields
