"""Downloads of attached files for people and machines: never as part of our pages, with range requests."""

from __future__ import annotations

import re

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.http import content_disposition_header

from coordinator.chat import attachments
from coordinator.models import ChatAttachment

# Whatever a file holds, a browser that opens it runs nothing and loads nothing, and it is of no origin of ours.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_WELL_FORMED = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+")


def attachment_response(
    request: HttpRequest, row: ChatAttachment, *, inline: bool = False
) -> HttpResponseBase:
    """Answer with an attachment: all of it, or the one range that is asked for.

    It is a download; with `inline`, what its bytes prove to be an image or a sound is shown instead.
    Raises NotFound where its bytes are gone, Busy where they cannot be had now, Spoilt where they are others.
    """
    etag = f'"{row.pk}"'
    facts = attachments.load_attachment_size_and_type(row)
    span = satisfiable_byte_range_or_none(request, facts.size, etag)
    if request.headers.get("If-None-Match") == etag:
        response: HttpResponseBase = HttpResponse(status=304)
    elif span is None:
        response = HttpResponse(status=416)
        response.headers["Content-Range"] = f"bytes */{facts.size}"
    else:
        response = build_attachment_content_response(request, row, span, facts.size)
    set_attachment_headers(response, row, facts.proven, etag, is_inline=inline and facts.proven is not None)
    return response


def build_attachment_content_response(
    request: HttpRequest, row: ChatAttachment, span: tuple[int, int], size: int
) -> HttpResponseBase:
    start, length = span
    if request.method == "HEAD":
        response: HttpResponseBase = HttpResponse()
    elif row.storage_type == ChatAttachment.StorageType.INLINE:
        response = HttpResponse(
            b"".join(
                attachments.iterate_attachment_chunks(row, attachments.open_attachment(row), start, length)
            )
        )
    else:
        response = StreamingHttpResponse(
            attachments.iterate_attachment_chunks(
                row, attachments.open_attachment_at_offset(row, start), start, length
            )
        )
    if (start, length) != (0, size):
        response.status_code = 206
        response.headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size}"
    response.headers["Content-Length"] = str(length)
    return response


def satisfiable_byte_range_or_none(request: HttpRequest, size: int, etag: str) -> tuple[int, int] | None:
    """Return where the answer starts and how long it is, or None for a range beyond the file.

    What is no range we know (several at once, other units) is answered in full, as the protocol wants it.
    """
    full_range = (0, size)
    match = _RANGE.fullmatch(request.headers.get("Range", "").strip())
    if match is None or match.groups() == ("", "") or request.headers.get("If-Range", etag) != etag:
        return full_range
    first, last = match.groups()
    if first == "":
        length = min(int(last), size)
        return (size - length, length) if length else None
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    if start >= size:
        return None
    return (start, end - start + 1) if end >= start else full_range


def set_attachment_headers(
    response: HttpResponseBase, row: ChatAttachment, proven: str | None, etag: str, *, is_inline: bool
) -> None:
    headers = response.headers
    headers["Content-Type"] = safe_content_type(row, proven)
    disposition = content_disposition_header(not is_inline, attachments.sanitize_file_name(row.filename))
    headers["Content-Disposition"] = disposition or "attachment"
    headers["X-Content-Type-Options"] = "nosniff"
    headers["Content-Security-Policy"] = POLICY
    headers["Cross-Origin-Resource-Policy"] = "same-origin"
    headers["Accept-Ranges"] = "bytes"
    headers["ETag"] = etag


def safe_content_type(row: ChatAttachment, proven: str | None) -> str:
    """Return the stored type; one that would be shown must be proven by the bytes, not by the row alone."""
    if proven:
        return proven
    stored = row.mime_type
    if attachments.is_inline_media_type(stored) or not _WELL_FORMED.fullmatch(stored):
        return attachments.UNKNOWN
    return stored
