"""Facts about attached files that do not depend on their sender: the type by its bytes, the store.

Only types that are recognized by their first bytes are ever shown in a page. Everything else, SVG and HTML above all,
is a file to download, whatever its sender called it.
"""

from __future__ import annotations

import hashlib
import io
import logging
import mimetypes
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from django.conf import settings

from coordinator.chat import stores
from coordinator.chat import verified_reading as checked
from coordinator.chat.picture_sizes import read_image_size
from coordinator.errors import NotFound, ServiceBusy, StoredDataCorrupt
from coordinator.models import ChatAttachment, StoredFile
from coordinator.models.chat import FilePlace

INLINE_UP_TO = 64 * 1024
CHUNK = 256 * 1024
HEAD = 64  # bytes that identify a type
UNKNOWN = "application/octet-stream"

log = logging.getLogger(__name__)

_EXTENSIONS = {
    "image/png": "png",
    "image/jpeg": "jpg",
    "image/jpg": "jpg",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/svg+xml": "svg",
}
# (offset, bytes, type); RIFF and ftyp say more at a second place.
_SIGNS: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_FTYP = {b"avif": "image/avif", b"M4A ": "audio/mp4"}
_WELL_FORMED = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9][a-z0-9!#$&^_.+-]{0,126}")


def sniff_mime_type(head: bytes) -> str | None:
    """Return the type that a file's first bytes prove, of those that pages show, or None."""
    for sign, mime_type in _SIGNS:
        if head.startswith(sign):
            return mime_type
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    return _FTYP.get(head[8:12]) if head[4:8] == b"ftyp" else None


def is_inline_media_type(mime_type: str) -> bool:
    """Return whether pages show files of this type themselves: raster images and sound."""
    kind = mime_type.partition("/")[0]
    return kind in {"image", "audio"} and mime_type != "image/svg+xml"


def determine_mime_type(head: bytes, declared: str, filename: str) -> str:
    """Return a file's type: what its bytes prove, else what was declared unless that must have been proven."""
    proven = sniff_mime_type(head)
    if proven:
        return proven
    claimed = declared.partition(";")[0].strip().lower()
    if not _WELL_FORMED.fullmatch(claimed) or claimed == UNKNOWN:
        claimed = mimetypes.guess_type(filename)[0] or UNKNOWN
    return UNKNOWN if is_inline_media_type(claimed) else claimed


def stored_file_extension(mime_type: str) -> str:
    """Return the ending of a stored file: known for images, `bin` for everything else."""
    return _EXTENSIONS.get(mime_type, "bin")


def sanitize_file_name(filename: str) -> str:
    """Return a client's file name as it may be kept and shown: its last part, one line, nothing that misleads.

    Direction marks are taken out: with them `exe.gpj` reads as `jpg.exe` backwards.
    """
    last = re.split(r"[/\\]", filename)[-1]
    printable = "".join(character for character in last if character.isprintable())
    short_name = printable.strip(" .")[:200]
    return short_name or "file"


def thumbnail_directory() -> Path:
    """Return where this server keeps the small pictures that it made."""
    return Path(settings.DATA_DIR) / "thumbnails"


def thumbnail_path(attachment_id: str) -> Path:
    """Return where an attachment's small picture is kept, whether or not it is there."""
    name = hashlib.sha256(attachment_id.encode("utf-8", "surrogatepass")).hexdigest()
    return thumbnail_directory() / f"{name}.webp"


def delete_thumbnail(attachment_id: str) -> None:
    """Remove an attachment's small picture, and the note that none can be made."""
    for name in (path := thumbnail_path(attachment_id), path.with_suffix(".none")):
        name.unlink(missing_ok=True)


def attachment_stored_file_or_none(row: ChatAttachment) -> StoredFile | None:
    """Return what is known of an attachment's file: None for one in its row, or one nobody has looked through yet."""
    stored_file: StoredFile | None = getattr(row, "stored", None)
    return stored_file


def store_name_of_attachment(row: ChatAttachment) -> str:
    """Return the name of the store that has an attachment's file."""
    stored_file = attachment_stored_file_or_none(row)
    return stored_file.place if stored_file else FilePlace.FOLDER


def open_attachment(row: ChatAttachment) -> BinaryIO:
    """Return an attachment's bytes as a file to read.

    Raises NotFound where they are gone, ServiceBusy where they may not be.

    Reading may raise the same, and StoredDataCorrupt where what is stored is not what came.
    """
    if row.storage_type == ChatAttachment.StorageType.INLINE:
        return io.BytesIO(bytes(row.inline_data or b""))
    stored_file = attachment_stored_file_or_none(row)
    with translate_read_errors_during_block(row):
        store = stores.require_attachment_store(store_name_of_attachment(row))
        if stored_file:
            return checked.open_file_verified_while_reading(
                store,
                row.disk_path or "",
                stored_file,
                elsewhere=lambda: find_new_store_of_moved_file(row.pk, stored_file.place),
            )
        return cast("BinaryIO", store.open_byte_range(row.disk_path or "", 0, row.size_bytes))


def find_new_store_of_moved_file(pk: str, before: str) -> stores.AttachmentStore | None:
    """Return the current store of a file that was stored at `before`, or None if it was not moved."""
    store_name = StoredFile.objects.filter(pk=pk).values_list("place", flat=True).first()
    return stores.require_attachment_store(store_name) if store_name and store_name != before else None


@contextmanager
def translate_read_errors_during_block(row: ChatAttachment) -> Iterator[None]:
    """Say in our own words why a file cannot be read."""
    try:
        yield
    except FileNotFoundError:
        raise NotFound(f"The file of the attachment {row.pk} no longer exists.") from None
    except checked.DamagedFile as problem:
        log.error("The attachment %s is damaged: %s", row.pk, problem)
        raise StoredDataCorrupt(
            f"The file of the attachment {row.pk} is damaged: it is not what was sent."
        ) from None
    except OSError as problem:
        log.warning("The attachment %s cannot be read: %s", row.pk, problem)
        raise ServiceBusy(
            f"The file cannot be read now: {problem.strerror}. Try again later.", retry_after=30
        ) from None


@dataclass(frozen=True, slots=True)
class AttachmentFileFacts:
    """A file's size, and the type that its first bytes prove, if any."""

    size: int
    proven: str | None


def load_attachment_size_and_type(row: ChatAttachment) -> AttachmentFileFacts:
    """Return what answers say of a file; only one that nobody has looked through is opened for it."""
    stored_file = attachment_stored_file_or_none(row)
    if stored_file and row.storage_type != ChatAttachment.StorageType.INLINE:
        return AttachmentFileFacts(stored_file.size_bytes, stored_file.proven or None)
    with open_attachment(row) as file, translate_read_errors_during_block(row):
        proven = sniff_mime_type(file.read(HEAD))
        return AttachmentFileFacts(file.seek(0, io.SEEK_END), proven)


def open_attachment_at_offset(row: ChatAttachment, start: int) -> BinaryIO:
    """Return the file with the first bytes from `start` on at hand: what cannot be read fails now, as
    `open_attachment` says.
    """
    file = open_attachment(row)
    try:
        with translate_read_errors_during_block(row):
            file.seek(start)
            if isinstance(file, io.BufferedReader):
                file.peek(1)
    except BaseException:
        file.close()
        raise
    return file


def iterate_attachment_chunks(
    row: ChatAttachment, file: BinaryIO, start: int, length: int
) -> Iterator[bytes]:
    """Yield `length` bytes of an attachment's file from `start` on, and close it.

    Raises as reading does (`open_attachment`).
    """
    with file, translate_read_errors_during_block(row):
        if file.tell() != start:
            file.seek(start)
        while length > 0 and (chunk := file.read(min(CHUNK, length))):
            length -= len(chunk)
            yield chunk


def compute_attachment_sha256(row: ChatAttachment) -> str:
    """Return the SHA-256 of an attachment's bytes, in hex."""
    with open_attachment(row) as file, translate_read_errors_during_block(row):
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK):
            digest.update(chunk)
        return digest.hexdigest()


def read_image_dimensions(file: BinaryIO) -> tuple[int, int] | None:
    """Return an image's width and height as its first bytes say them, or None for what is no image after all."""
    mime_type = sniff_mime_type(file.read(HEAD))
    file.seek(0)
    return read_image_size(file, mime_type) if mime_type else None
