"""Decoding of OTLP's protobuf into the form of its JSON, so that one path serves both, and its memory estimate.

Two bytes make a message of some hundred, so messages are counted on the wire before anything is made of them.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from coordinator.errors import BadRequest

REQUESTS: dict[str, type[Message]] = {
    "logs": ExportLogsServiceRequest,
    "traces": ExportTraceServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
MESSAGE = 500  # bytes that a message takes, as protobuf's object and then as ours; measured, rounded up
IDS = frozenset({"traceId", "spanId", "parentSpanId"})  # OTLP's JSON has these in hex, other bytes in base64
UNREADABLE = "The body is not the protobuf message that this address expects."
_SIZES = {1: 8, 5: 4}  # of the wire types with a fixed length


def decode_otlp_protobuf_as_json(kind: str, raw: bytes) -> dict[str, Any]:
    """Return the request (`logs`, `traces` or `metrics`) as its JSON would be. Raises BadRequest."""
    try:
        return protobuf_message_as_json(REQUESTS[kind].FromString(raw))
    except (DecodeError, RecursionError):
        raise BadRequest(UNREADABLE) from None


def estimate_decoded_bytes(kind: str, raw: bytes, most: int) -> int:
    """Return about how many bytes the request takes once decoded; exactly counted only where that passes `most`.

    Raises BadRequest for what is no protobuf.
    """
    descriptor: Any = REQUESTS[kind].DESCRIPTOR
    most_messages = max(0, most - 3 * len(raw)) // MESSAGE
    # Each message has one; texts hold such bytes, too.
    messages = sum(raw.count(tag) for tag in nested_message_tag_bytes(descriptor))
    if messages > most_messages:
        messages = 0
        try:
            for messages, _ in enumerate(iterate_nested_message_occurrences(raw, descriptor), 1):
                if messages > most_messages:
                    break
        except (IndexError, ValueError):
            raise BadRequest(UNREADABLE) from None
    return 3 * len(raw) + MESSAGE * messages


def protobuf_message_as_json(message: Message) -> dict[str, Any]:
    return {
        field.json_name: [protobuf_value_as_json(field.json_name, inner_value) for inner_value in value]
        if field.is_repeated
        else protobuf_value_as_json(field.json_name, value)
        for field, value in message.ListFields()
    }


def protobuf_value_as_json(name: str, value: Any) -> Any:
    if isinstance(value, Message):
        return protobuf_message_as_json(value)
    if isinstance(value, bytes):
        return value.hex() if name in IDS else base64.b64encode(value).decode()
    return value


@cache
def submessage_types_by_field_number(descriptor: Descriptor) -> dict[int, Descriptor]:
    """Return the fields that hold messages, by number."""
    return {field.number: field.message_type for field in descriptor.fields if field.message_type}


@cache
def nested_message_tag_bytes(descriptor: Descriptor) -> frozenset[bytes]:
    """Return the bytes that a message inside such a request can begin with on the wire."""
    seen_descriptors, pending_descriptors = {descriptor.full_name: descriptor}, [descriptor]
    while pending_descriptors:
        for field in submessage_types_by_field_number(pending_descriptors.pop()).values():
            if field.full_name not in seen_descriptors:
                seen_descriptors[field.full_name] = field
                pending_descriptors.append(field)
    numbers = {
        number for field in seen_descriptors.values() for number in submessage_types_by_field_number(field)
    }
    return frozenset(bytes([number << 3 | 2]) for number in numbers if number < 16)


def iterate_nested_message_occurrences(raw: bytes, descriptor: Descriptor) -> Iterator[None]:
    """Yield once for each message inside the request. Raises IndexError or ValueError for what is no protobuf."""
    pending_messages = [(0, len(raw), descriptor)]
    while pending_messages:
        at, end, of = pending_messages.pop()
        inner = submessage_types_by_field_number(of)
        while at < end:
            tag, at = decode_varint_and_next_offset(raw, at)
            kind = tag & 7
            if kind == 0:
                _, at = decode_varint_and_next_offset(raw, at)
                continue
            size, at = decode_varint_and_next_offset(raw, at) if kind == 2 else (_SIZES.get(kind, -1), at)
            if size < 0 or at + size > end:
                raise ValueError("a field that ends behind its message")
            if kind == 2 and tag >> 3 in inner:
                pending_messages.append((at, at + size, inner[tag >> 3]))
                yield
            at += size


def decode_varint_and_next_offset(raw: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number without an end")
