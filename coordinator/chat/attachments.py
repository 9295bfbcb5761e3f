"""What is known of an attached file without trusting whoever sent it: its type by its bytes, where it lies.

Only types that are told by their first bytes are ever shown in a page. Everything else, SVG and HTML above all,
is a file to download, whatever its sender called it.
"""

from __future__ import annotations

import hashlib
import io
import mimetypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from django.conf import settings

from coordinator.chat.picture_sizes import size_of
from coordinator.errors import NotFound
from coordinator.models import ChatAttachment

INLINE_UP_TO = 64 * 1024
CHUNK = 256 * 1024
HEAD = 64  # bytes that tell a type
UNKNOWN = "application/octet-stream"
FOLDER = "attachments"

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


def sniffed(head: bytes) -> str | None:
    """Return the type that a file's first bytes prove, of those that pages show, or None."""
    for sign, mime_type in _SIGNS:
        if head.startswith(sign):
            return mime_type
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12])
    return _FTYP.get(head[8:12]) if head[4:8] == b"ftyp" else None


def is_shown(mime_type: str) -> bool:
    """Say whether pages show files of this type themselves: raster images and sound."""
    kind = mime_type.partition("/")[0]
    return kind in {"image", "audio"} and mime_type != "image/svg+xml"


def mime_type_of(head: bytes, declared: str, filename: str) -> str:
    """Return a file's type: what its bytes prove, else what was declared unless that must have been proven."""
    proven = sniffed(head)
    if proven:
        return proven
    claimed = declared.partition(";")[0].strip().lower()
    if not _WELL_FORMED.fullmatch(claimed) or claimed == UNKNOWN:
        claimed = mimetypes.guess_type(filename)[0] or UNKNOWN
    return UNKNOWN if is_shown(claimed) else claimed


def extension_of(mime_type: str) -> str:
    """Return the ending of a stored file: known for images, `bin` for everything else."""
    return _EXTENSIONS.get(mime_type, "bin")


def safe_name(filename: str) -> str:
    """Return a client's file name as it may be kept and shown: its last part, one line, nothing that misleads.

    Direction marks are taken out: with them `exe.gpj` reads as `jpg.exe` backwards.
    """
    last = re.split(r"[/\\]", filename)[-1]
    printable = "".join(character for character in last if character.isprintable())
    kept = printable.strip(" .")[:200]
    return kept or "file"


def folder() -> Path:
    """Return where files of more than INLINE_UP_TO bytes lie."""
    return Path(settings.DATA_DIR) / FOLDER


def thumbnail_path(attachment_id: str) -> Path:
    """Return where an attachment's small picture is kept, whether or not it is there."""
    name = hashlib.sha256(attachment_id.encode("utf-8", "surrogatepass")).hexdigest()
    return Path(settings.DATA_DIR) / "thumbnails" / f"{name}.webp"


def forget_thumbnail(attachment_id: str) -> None:
    """Remove an attachment's small picture, and the note that none can be made."""
    for name in (path := thumbnail_path(attachment_id), path.with_suffix(".none")):
        name.unlink(missing_ok=True)


def path_of(row: ChatAttachment) -> Path:
    """Return the file of a row on disk. Raises NotFound where there is none, or none below our folder.

    A row of another program may name any path; what is outside the folder is never read.
    """
    named = row.disk_path or ""
    # A NUL is in no path, and to resolve one with it is an error.
    path = (Path(settings.DATA_DIR) / named.replace("\x00", "")).resolve()
    if not named or "\x00" in named or not path.is_relative_to(folder().resolve()) or not path.is_file():
        raise NotFound(f"The file of the attachment {row.pk} no longer exists.")
    return path


def opened(row: ChatAttachment) -> BinaryIO:
    """Return an attachment's bytes as a file to read. Raises NotFound where they are gone."""
    if row.storage_type == ChatAttachment.StorageType.INLINE:
        return io.BytesIO(bytes(row.inline_data or b""))
    try:
        return path_of(row).open("rb")
    except OSError:
        raise NotFound(f"The file of the attachment {row.pk} cannot be read.") from None


def chunks(file: BinaryIO, start: int, length: int) -> Iterator[bytes]:
    """Yield `length` bytes of a file from `start` on, and close it."""
    with file:
        file.seek(start)
        while length > 0 and (chunk := file.read(min(CHUNK, length))):
            length -= len(chunk)
            yield chunk


def checksum(row: ChatAttachment) -> str:
    """Return the SHA-256 of an attachment's bytes, in hex."""
    with opened(row) as file:
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK):
            digest.update(chunk)
        return digest.hexdigest()


def dimensions(file: BinaryIO) -> tuple[int, int] | None:
    """Return an image's width and height as its first bytes say them, or None for what is no image after all."""
    mime_type = sniffed(file.read(HEAD))
    file.seek(0)
    return size_of(file, mime_type) if mime_type else None
