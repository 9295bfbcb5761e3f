"""JSON-RPC messages on stdin and stdout, a line each: read strictly, written whole."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from coordinator.client import mcp_methods

INVALID_REQUEST, METHOD_NOT_FOUND, DENIED = -32600, -32601, -32012
LINE_ENDS = "\x85\u2028\u2029"  # that JSON has in texts as they are, and some readers of lines stop at
# Names that servers may read in any case, at the message's own level and in its params (gateway.messages has the same).
KNOWN = (
    ("jsonrpc", "id", "method", "params", "result", "error"),
    ("name", "arguments", "_meta", "uri", "taskId", "requestId", "requestState", "inputResponses"),
)
_writes = threading.Lock()


class AmbiguousMessage(Exception):
    """A line that is no message, or could be read in two ways; `number` is its id, where it could be read."""

    def __init__(self, text: str, number: Any = None) -> None:
        super().__init__(text)
        self.number = number


def escape_line_separators(line: bytes) -> bytes:
    """Return a message with escapes for the signs in its texts that some servers take for the end of a line."""
    for sign in LINE_ENDS:
        line = line.replace(sign.encode(), rf"\u{ord(sign):04x}".encode())
    return line


def parse_mcp_line(line: bytes) -> dict[str, Any]:
    """Return one message.

    Raises AmbiguousMessage: what is judged here is passed on as the bytes that came, so nobody may read them
    differently.
    """
    try:
        value = json.loads(line.decode(), object_pairs_hook=build_dict_of_unique_keys)
    except (ValueError, RecursionError):
        raise AmbiguousMessage("The message cannot be read.") from None
    if not isinstance(value, dict):
        raise AmbiguousMessage("Send one JSON-RPC message on each line, as an object.")
    number = value.get("id")
    if b"\r" in line.rstrip(b"\r\n"):  # many servers take what follows it for a message of its own
        raise AmbiguousMessage("The message has a line break in it.", number)
    for level, known_names in zip((value, value.get("params")), KNOWN, strict=True):
        require_exact_key_case(level, known_names, number)
    is_notification = "id" not in value and str(value.get("method", "")).startswith("notifications/")
    if number is None and not is_notification:
        raise AmbiguousMessage("A request needs an id that is a text or a number.")
    if (odd := mcp_methods.find_tool_call_id_problem(value)) is not None:
        raise AmbiguousMessage(odd, number)
    return value


def drop_unknown_message_members(line: bytes, message: dict[str, Any]) -> bytes:
    """Return a message without the members that its method does not have; the others as the text that came."""
    known_members = mcp_methods.restrict_message_members(message)
    return (
        line if known_members is message else rebuild_message_text(line, message, known_members, ()).encode()
    )


def rebuild_message_text(
    line: bytes, before: dict[str, Any], after: dict[str, Any], path: tuple[str, ...]
) -> str:
    parts = []
    for name, value in after.items():
        inner = (*path, name)
        if value is before[name]:
            text = extract_raw_json(line, *inner) or "null"
        elif isinstance(value, dict):
            text = rebuild_message_text(line, before[name], value, inner)
        else:
            text = json.dumps(value)
        parts.append(f"{json.dumps(name)}:{text}")
    return f"{{{','.join(parts)}}}"


def parse_unambiguous_server_message(line: bytes) -> Any:
    """Return what a server says. Raises ValueError for what is no JSON, or could be read in two ways."""
    try:
        return json.loads(line, object_pairs_hook=build_dict_of_unique_keys)
    except RecursionError:
        raise ValueError("nested too deep") from None


def normalize_request_id(number: Any) -> str:
    """Return a text that is the same for ids that are the same number or text."""
    if isinstance(number, float) and number.is_integer():
        number = int(number)
    return json.dumps(number)


def require_exact_key_case(level: Any, known_keys: tuple[str, ...], number: Any) -> None:
    if not isinstance(level, dict):
        return
    folded = {name.casefold(): name for name in level}
    if len(folded) != len(level):
        raise AmbiguousMessage("Two keys of the message differ only in case.", number)
    for name in known_keys:
        if folded.get(name.casefold(), name) != name:
            raise AmbiguousMessage(f"A key of the message must be spelled {name}.", number)


def build_dict_of_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key occurs twice")
    return members


def extract_raw_json(line: bytes, *path: str) -> str | None:
    """Return the value at a path of keys in a message, as the text that came; None where there is none."""
    text, at = line.decode(), 0
    for name in path:
        member_value = locate_json_member_value(text, at, name)
        if member_value is None:
            return None
        at, end = member_value
    return text[at:end]


def locate_json_member_value(text: str, at: int, name: str) -> tuple[int, int] | None:
    """Return where the value of a key of the object at `at` begins and ends."""
    at = skip_json_blanks(text, at)
    if text[at : at + 1] != "{":
        return None
    at = skip_json_blanks(text, at + 1)
    while text[at : at + 1] == '"':
        key, at = _scanned(text, at + 1)
        begin = skip_json_blanks(text, skip_json_blanks(text, at) + 1)  # past the colon
        _, end = _DECODER.raw_decode(text, begin)
        if key == name:
            return begin, end
        at = skip_json_blanks(text, end)
        at = skip_json_blanks(text, at + 1) if text[at : at + 1] == "," else at
    return None


def skip_json_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


_DECODER = json.JSONDecoder()
_scanned = json.decoder.scanstring  # type: ignore[attr-defined] # documented by use alone


def write_stdout_line(line: bytes) -> None:
    """Write one line to stdout."""
    with _writes:
        sys.stdout.buffer.write(line.rstrip(b"\r\n") + b"\n")
        sys.stdout.buffer.flush()


def send_jsonrpc_message(message: dict[str, Any]) -> None:
    """Write one message of our own."""
    write_stdout_line(json.dumps({"jsonrpc": "2.0", **message}).encode())


def send_jsonrpc_error(number: Any, code: int, text: str) -> None:
    """Answer a request with an error."""
    send_jsonrpc_message({"id": number, "error": {"code": code, "message": text}})


def send_refused_tool_result(number: Any, text: str) -> None:
    """Answer a call so that the model reads why it did not run."""
    send_jsonrpc_message(
        {"id": number, "result": {"content": [{"type": "text", "text": text}], "isError": True}}
    )
