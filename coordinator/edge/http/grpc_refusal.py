"""The answer to programs that send telemetry by gRPC: it is not supported, and which setting to change.

gRPC needs HTTP/2, which no part of Signalbox supports. Its clients begin with the HTTP/2 preface without asking, and
show people the status of the answer. So the status is sent, in the few frames that need no knowledge of the request.
"""

from __future__ import annotations

NO_GRPC = (
    "Signalbox does not serve gRPC. Send telemetry by HTTP: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
    " (or http/json), or the same in your agent's own settings."
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MOST_HEADER_BYTES = 64 * 1024  # bytes in which the headers of a first request must have come
HEAD = 9
SETTINGS, HEADERS, GOAWAY = 4, 1, 7
END_OF_ALL = 0x5  # END_STREAM and END_HEADERS
ACK = 1
UNIMPLEMENTED = b"12"
STATUS_200, CONTENT_TYPE = b"\x88", b"\x0f\x10"  # as HPACK's static table has them


def build_http2_settings_frames() -> bytes:
    """Return the first frames of an HTTP/2 server: empty settings, and the acknowledgement of the client's."""
    return build_http2_frame(SETTINGS, 0, 0, b"") + build_http2_frame(SETTINGS, ACK, 0, b"")


def grpc_refusal_if_headers_arrived(received: bytes) -> bytes | None:
    """Return the answer to the first request in what followed the preface; None while its headers have not come.

    Where they do not come at all (MOST_HEADER_BYTES), that the connection ends, and why.
    """
    at = 0
    while at + HEAD <= len(received):
        size, kind = int.from_bytes(received[at : at + 3]), received[at + 3]
        stream = int.from_bytes(received[at + 5 : at + HEAD]) & 0x7FFF_FFFF
        if kind == HEADERS and stream:
            return build_http2_frame(
                HEADERS, END_OF_ALL, stream, encode_grpc_refusal_headers()
            ) + build_goaway_frame(stream)
        at += HEAD + size
    return build_goaway_frame(0) if len(received) > MOST_HEADER_BYTES or at > MOST_HEADER_BYTES else None


def encode_grpc_refusal_headers() -> bytes:
    return (
        STATUS_200
        + CONTENT_TYPE
        + encode_hpack_text(b"application/grpc")
        + b"\x00"
        + encode_hpack_text(b"grpc-status")
        + encode_hpack_text(UNIMPLEMENTED)
        + b"\x00"
        + encode_hpack_text(b"grpc-message")
        + encode_hpack_text(NO_GRPC.encode())
    )


def build_goaway_frame(stream: int) -> bytes:
    return build_http2_frame(GOAWAY, 0, 0, stream.to_bytes(4) + bytes(4) + NO_GRPC.encode())


def build_http2_frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + body


def encode_hpack_text(text: bytes) -> bytes:
    """Return a text as HPACK has it, without Huffman's code."""
    short = 127  # what the length's first seven bits can say
    if len(text) < short:
        return bytes([len(text)]) + text
    rest, size = len(text) - short, bytearray([short])
    while rest > 127:
        size.append(rest & 127 | 128)
        rest >>= 7
    size.append(rest)
    return bytes(size) + text
