"""Serving attached files, to people and machines alike: never as part of our pages, in pieces where asked for."""

from __future__ import annotations

import re
from typing import BinaryIO

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header

from coordinator.chat import attachments
from coordinator.models import ChatAttachment

# Whatever a file holds, a browser that opens it runs nothing and loads nothing, and it is of no origin of ours.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_WELL_FORMED = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


def attachment_response(
    request: HttpRequest, row: ChatAttachment, *, inline: bool = False
) -> HttpResponseBase:
    """Answer with an attachment: all of it, or the one range that is asked for.

    It is a download; with `inline`, what its bytes prove to be an image or a sound is shown instead.
    Raises NotFound where its bytes are gone.
    """
    etag = f'"{row.pk}"'
    file = attachments.opened(row)
    head = file.read(attachments.HEAD)
    size = file.seek(0, 2)
    span = _span(request, size, etag)
    if request.headers.get("If-None-Match") == etag:
        file.close()
        response: HttpResponseBase = HttpResponse(status=304)
    elif span is None:
        file.close()
        response = HttpResponse(status=416)
        response.headers["Content-Range"] = f"bytes */{size}"
    else:
        response = _body(request, row, file, span, size)
    shown = inline and attachments.sniffed(head) is not None
    _describe(response, row, head, etag, shown=shown)
    return response


def _body(
    request: HttpRequest, row: ChatAttachment, file: BinaryIO, span: tuple[int, int], size: int
) -> HttpResponseBase:
    start, length = span
    if request.method == "HEAD" or row.storage_type == ChatAttachment.StorageType.INLINE:
        data = b"" if request.method == "HEAD" else b"".join(attachments.chunks(file, start, length))
        response: HttpResponseBase = HttpResponse(data)
        file.close()
    else:
        response = StreamingHttpResponse(attachments.chunks(file, start, length))
    if (start, length) != (0, size):
        response.status_code = 206
        response.headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
    response.headers["Content-Length"] = str(length)
    return response


def _span(request: HttpRequest, size: int, etag: str) -> tuple[int, int] | None:
    """Return where the answer starts and how long it is, or None for a range beyond the file.

    What is no range we know (several at once, other units) is answered in full, as the protocol wants it.
    """
    whole = (0, size)
    match = _RANGE.fullmatch(request.headers.get("Range", "").strip())
    if match is None or match.groups() == ("", "") or request.headers.get("If-Range", etag) != etag:
        return whole
    first, last = match.groups()
    if first == "":
        length = min(int(last), size)
        return (size - length, length) if length else None
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    if start >= size:
        return None
    return (start, end - start + 1) if end >= start else whole


def _describe(
    response: HttpResponseBase, row: ChatAttachment, head: bytes, etag: str, *, shown: bool
) -> None:
    headers = response.headers
    headers["Content-Type"] = _content_type(row, head)
    disposition = content_disposition_header(not shown, attachments.safe_name(row.filename))
    headers["Content-Disposition"] = disposition or "attachment"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Content-Security-Policy"] = POLICY
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers["Accept-Ranges"] = "bytes"
    headers["ETag"] = etag


def _content_type(row: ChatAttachment, head: bytes) -> str:
    """Return the stored type; one that would be shown must be proven by the bytes, whoever wrote the row."""
    proven = attachments.sniffed(head)
    if proven:
        return proven
    stored = row.mime_type
    if attachments.is_shown(stored) or not _WELL_FORMED.fullmatch(stored):
        return attachments.UNKNOWN
    return stored
