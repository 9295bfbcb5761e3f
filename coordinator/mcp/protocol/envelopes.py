"""The envelope of JSON-RPC messages: ids and progress tokens are changed in it, and everything else stays as it came.

A server that several callers share knows one client. So each request gets an id of ours on its way in, and its own
again on the way out; a progress token does too, where two callers chose the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

Raw = msgspec.Raw
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_PROGRESS = "notifications/progress"
LINE_ENDS = "\x85\u2028\u2029"  # that JSON has in texts as they are, and some readers of lines stop at


class InvalidEnvelope(Exception):
    """A line or body that is no JSON-RPC message."""


@dataclass(slots=True)
class Envelope:
    """One message: its fields, each as the bytes that came."""

    fields: dict[str, Raw]

    @property
    def method(self) -> str | None:
        return self.get_string_member("method")

    @property
    def id(self) -> bytes | None:
        """The id as it came; None for a notification."""
        id_field = self.fields.get("id")
        return None if id_field is None or bytes(id_field) == b"null" else bytes(id_field)

    @property
    def is_request(self) -> bool:
        return "method" in self.fields and self.id is not None

    @property
    def is_response(self) -> bool:
        return "method" not in self.fields

    @property
    def progress_token(self) -> bytes | None:
        """The token in a request's `_meta`, or in a progress notification, as it came."""
        params = decode_json_members_or_empty(self.fields.get("params"))
        holder = params if self.method == _PROGRESS else decode_json_members_or_empty(params.get("_meta"))
        progress_token = holder.get("progressToken")
        return bytes(progress_token) if progress_token is not None else None

    def copy_with_message_id(self, number: bytes) -> Envelope:
        return Envelope({**self.fields, "id": Raw(number)})

    def copy_with_progress_token(self, token: bytes) -> Envelope:
        """Return the message with another token where it has one."""
        params = decode_json_members_or_empty(self.fields.get("params"))
        if self.method == _PROGRESS:
            params["progressToken"] = Raw(token)
        else:
            params["_meta"] = Raw(
                encode_raw_json_members(
                    {**decode_json_members_or_empty(params.get("_meta")), "progressToken": Raw(token)}
                )
            )
        return Envelope({**self.fields, "params": Raw(encode_raw_json_members(params))})

    def get_message_param(self, name: str) -> bytes | None:
        """Return one of the params as it came."""
        param_value = decode_json_members_or_empty(self.fields.get("params")).get(name)
        return bytes(param_value) if param_value is not None else None

    def copy_with_message_param(self, name: str, value: bytes) -> Envelope:
        params = {**decode_json_members_or_empty(self.fields.get("params")), name: Raw(value)}
        return Envelope({**self.fields, "params": Raw(encode_raw_json_members(params))})

    def encode_as_jsonrpc_line(self) -> bytes:
        """Return the message on one line, whatever its server takes for a line's end.

        JSON's own line breaks are between its parts. The others are in texts, where their escapes mean the same:
        Node's readline ends a line at U+2028, Python's splitlines at U+0085, and what follows would be a message.
        """
        line = encode_raw_json_members(self.fields).replace(b"\n", b" ").replace(b"\r", b" ")
        for sign in LINE_ENDS:
            line = line.replace(sign.encode(), rf"\u{ord(sign):04x}".encode())
        return line

    def get_string_member(self, name: str) -> str | None:
        text_field = self.fields.get(name)
        if text_field is None:
            return None
        try:
            return msgspec.json.decode(text_field, type=str)
        except msgspec.MsgspecError:
            return None


def parse_envelope(raw: bytes) -> Envelope:
    """Read one message. Raises InvalidEnvelope."""
    try:
        return Envelope(_fields(raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise InvalidEnvelope from None


def build_request_line(number: bytes, method: str, params: bytes | None) -> bytes:
    """Return a request of our own, on one line."""
    fields = {"jsonrpc": Raw(b'"2.0"'), "id": Raw(number), "method": Raw(msgspec.json.encode(method))}
    return Envelope(fields | ({"params": Raw(params)} if params is not None else {})).encode_as_jsonrpc_line()


def build_notification_line(method: str, params: dict[str, Any] | None = None) -> bytes:
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    return msgspec.json.encode(body | ({"params": params} if params is not None else {}))


def build_error_line(number: bytes, code: int, text: str, data: dict[str, Any] | None = None) -> bytes:
    """Return the answer to a request that fails."""
    error_fields = {"code": code, "message": text} | ({"data": data} if data else {})
    return b'{"jsonrpc":"2.0","id":' + number + b',"error":' + msgspec.json.encode(error_fields) + b"}"


def build_result_line(number: bytes, raw: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":' + number + b',"result":' + raw + b"}"


def decode_json_members_or_empty(raw: Raw | None) -> dict[str, Raw]:
    if raw is None:
        return {}
    try:
        return _fields(raw)
    except (msgspec.MsgspecError, RecursionError):
        return {}


def encode_raw_json_members(fields: dict[str, Raw]) -> bytes:
    parts = (msgspec.json.encode(name) + b":" + bytes(value) for name, value in fields.items())
    return b"{" + b",".join(parts) + b"}"
