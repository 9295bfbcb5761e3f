"""Thumbnails of large images, made once, in a sandbox, and stored with the attachments."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from coordinator.chat import attachments
from coordinator.errors import NotFound
from coordinator.models import ChatAttachment, StoredFile
from coordinator.sandbox import JobFailed, LimitsExceeded, Overloaded, ProcessLimits, Sandbox

SIDE = 960  # pixels of the longer side: sharp at the size pages show, on screens with two pixels a dot
# A file of some kilobytes can unpack to gigabytes of pixels; such an image is a file to download.
MOST_PIXELS = 60_000_000
MOST_BYTES = 60 * 1024 * 1024
TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})

_sandbox = Sandbox(
    "coordinator.chat.picture_jobs",
    ProcessLimits(cpu_seconds=5, wall_seconds=15, memory_bytes=768 * 1024 * 1024, fork_each=True),
    most_waiting=32,
)


def find_cached_or_require_makeable_thumbnail(row: ChatAttachment) -> Path | None:
    """Return the file of an image's thumbnail (WebP) if it was made before, else None.

    Decodes nothing. Raises NotFound where the bytes are no image or too large a one, or where making one failed,
    and Busy where they cannot be had now.
    """
    path = attachments.thumbnail_path(row.pk)
    if path.exists():
        return path
    if failed_thumbnail_marker_path(path).exists() or not can_make_thumbnail(row):
        raise NotFound(f"No thumbnail can be made of {row.pk}.")
    return None


def can_make_thumbnail(row: ChatAttachment) -> bool:
    stored_file = attachments.attachment_stored_file_or_none(row)
    if stored_file and stored_file.proven not in TYPES:
        return False
    if (
        stored_file and stored_file.place != StoredFile.Place.FOLDER
    ):  # how many pixels it has is seen when it is there
        return stored_file.size_bytes <= MOST_BYTES
    with attachments.open_attachment(row) as file, attachments.translate_read_errors_during_block(row):
        mime_type = attachments.sniff_mime_type(file.read(attachments.HEAD))
        file.seek(0)
        width, height = attachments.read_image_dimensions(file) or (0, 0)
    size = row.size_bytes or 0  # what another program stored may be no number
    is_small = isinstance(size, int) and size <= MOST_BYTES
    return mime_type in TYPES and 0 < width * height <= MOST_PIXELS and is_small


def require_or_make_thumbnail(row: ChatAttachment) -> Path:
    """Return the file of an image's thumbnail, made now if need be, which may take seconds.

    Raises NotFound for what is no image, is too large or takes too long; that is remembered, so that it is tried
    once. What could not be tried for lack of room is NotFound too, this time; Busy where the bytes cannot be had now.
    """
    path = find_cached_or_require_makeable_thumbnail(row)
    if path is None:
        path = attachments.thumbnail_path(row.pk)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_thumbnail_file(render_thumbnail_bytes_marking_failure(row, path), path)
    return path


def render_thumbnail_bytes_marking_failure(row: ChatAttachment, path: Path) -> bytes:
    nothing = NotFound(f"No thumbnail can be made of {row.pk}.")
    with attachments.open_attachment(row) as file, attachments.translate_read_errors_during_block(row):
        data = file.read(MOST_BYTES + 1)
    mime_type = attachments.sniff_mime_type(data[: attachments.HEAD])
    try:
        if mime_type not in TYPES or len(data) > MOST_BYTES:
            raise JobFailed("no image")
        answer = _sandbox.run_sandbox_job(
            "thumbnail", data, mime_type=mime_type, side=SIDE, most_pixels=MOST_PIXELS
        )
        if attachments.sniff_mime_type(answer.body) != "image/webp":
            raise JobFailed("no picture came back")
    except Overloaded:
        raise nothing from None
    except (LimitsExceeded, JobFailed):
        failed_thumbnail_marker_path(path).touch()
        raise nothing from None
    return answer.body


def write_thumbnail_file(data: bytes, path: Path) -> None:
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    os.replace(part, path)


def failed_thumbnail_marker_path(path: Path) -> Path:
    """Return the empty file that says that no picture can be made."""
    return path.with_suffix(".none")
