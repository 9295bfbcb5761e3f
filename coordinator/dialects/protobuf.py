"""Reads OTLP's protobuf into the same shape as its JSON, so that there is one path behind both.

Only what OTLP's requests use: nested messages, numbers, texts, bytes. Fields that are not named here are skipped, as
protobuf wants it.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from coordinator.errors import BadRequest

DEEPEST = 40


class _Field(NamedTuple):
    name: str
    read: str | Callable[[bytes], Any]
    many: bool = False


Message = dict[int, _Field]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


MESSAGES: dict[str, Message] = {
    "logs": {1: _Field("resourceLogs", "resource_logs", True)},
    "resource_logs": {1: _Field("resource", "resource"), 2: _Field("scopeLogs", "scope_logs", True)},
    "scope_logs": {2: _Field("logRecords", "log_record", True)},
    "log_record": {
        1: _Field("timeUnixNano", "fixed"),
        3: _Field("severityText", _text),
        5: _Field("body", "value"),
        6: _Field("attributes", "pair", True),
        9: _Field("traceId", bytes.hex),
        10: _Field("spanId", bytes.hex),
        11: _Field("observedTimeUnixNano", "fixed"),
        12: _Field("eventName", _text),
    },
    "traces": {1: _Field("resourceSpans", "resource_spans", True)},
    "resource_spans": {1: _Field("resource", "resource"), 2: _Field("scopeSpans", "scope_spans", True)},
    "scope_spans": {2: _Field("spans", "span", True)},
    "span": {
        1: _Field("traceId", bytes.hex),
        2: _Field("spanId", bytes.hex),
        4: _Field("parentSpanId", bytes.hex),
        5: _Field("name", _text),
        7: _Field("startTimeUnixNano", "fixed"),
        8: _Field("endTimeUnixNano", "fixed"),
        9: _Field("attributes", "pair", True),
        15: _Field("status", "status"),
    },
    "status": {2: _Field("message", _text), 3: _Field("code", "number")},
    "metrics": {1: _Field("resourceMetrics", "resource_metrics", True)},
    "resource_metrics": {1: _Field("resource", "resource")},
    "resource": {1: _Field("attributes", "pair", True)},
    "pair": {1: _Field("key", _text), 2: _Field("value", "value")},
    "value": {
        1: _Field("stringValue", _text),
        2: _Field("boolValue", "flag"),
        3: _Field("intValue", "signed"),
        4: _Field("doubleValue", "double"),
        5: _Field("arrayValue", "array"),
        6: _Field("kvlistValue", "pairs"),
        7: _Field("bytesValue", _base64),
    },
    "array": {1: _Field("values", "value", True)},
    "pairs": {1: _Field("values", "pair", True)},
}


def decode(kind: str, raw: bytes) -> dict[str, Any]:
    """Return the request (`logs`, `traces` or `metrics`) as its JSON would be. Raises BadRequest."""
    try:
        return _message(MESSAGES[kind], raw, 0)
    except (IndexError, struct.error, ValueError):
        raise BadRequest("The body is not the protobuf message that this address takes.") from None


def _message(fields: Message, raw: bytes, depth: int) -> dict[str, Any]:
    if depth > DEEPEST:
        raise ValueError
    found: dict[str, Any] = {}
    for number, value in _wire(raw):
        field = fields.get(number)
        if field is None:
            continue
        read = _value(field.read, value, depth)
        if field.many:
            found.setdefault(field.name, []).append(read)
        else:
            found[field.name] = read
    return found


def _value(read: str | Callable[[bytes], Any], value: int | bytes, depth: int) -> Any:
    if isinstance(read, str) and read in MESSAGES:
        return _message(MESSAGES[read], _bytes(value), depth + 1)
    if not isinstance(read, str):
        return read(_bytes(value))
    if read == "double":
        return struct.unpack("<d", _bytes(value))[0]
    if read == "fixed":
        return int.from_bytes(_bytes(value), "little")
    if not isinstance(value, int):
        raise ValueError
    if read == "signed":
        return value - 2**64 if value >= 2**63 else value
    return bool(value) if read == "flag" else value


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError
    return value


def _wire(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield each field's number and value: an int for a varint, bytes for everything else."""
    at, end = 0, len(raw)
    while at < end:
        tag, at = _varint(raw, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            value, at = _varint(raw, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(raw, at)
        else:
            size = {1: 8, 5: 4}.get(kind, -1)
        if size < 0 or at + size > end or number == 0:
            raise ValueError
        yield number, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise ValueError
