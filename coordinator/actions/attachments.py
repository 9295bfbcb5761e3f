"""Attached files: written before the row that names them, and removed once that row is gone.

Names and paths are made here; nothing of a client's name or id reaches the file system.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings
from django.db import transaction

from coordinator.chat import attachments
from coordinator.errors import Busy, TooLarge
from coordinator.models import ChatAttachment, ChatMessage

log = logging.getLogger(__name__)

DISK, INLINE = ChatAttachment.StorageType.DISK, ChatAttachment.StorageType.INLINE
# A file younger than this may belong to a message that is being written just now.
ORPHAN_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file whose bytes are kept, on disk if there are many; its row waits for its message."""

    row: ChatAttachment
    facts: dict[str, Any]  # what its content block says of it

    def discard(self) -> None:
        """Remove the bytes again: the message was not written."""
        if self.row.disk_path:
            remove(self.row.disk_path)


def prepare(file: BinaryIO, *, filename: str, declared: str, now: datetime) -> PreparedFile:
    """Keep a file's bytes and return its row, unsaved. Raises TooLarge, or Busy where the disk is full."""
    name = attachments.safe_name(filename)
    head = file.read(attachments.INLINE_UP_TO + 1)
    mime_type = attachments.mime_type_of(head[: attachments.HEAD], declared, name)
    row = ChatAttachment(
        id=f"att_{uuid.uuid4().hex}", filename=name, mime_type=mime_type, created_at=now, disk_path=None
    )
    if len(head) <= attachments.INLINE_UP_TO:
        row.storage_type, row.inline_data, row.size_bytes = INLINE, head, len(head)
        digest = hashlib.sha256(head).hexdigest()
    else:
        row.storage_type = DISK
        row.disk_path, row.size_bytes, digest = _written(
            head, file, mime_type, most=settings.ATTACHMENT_MAX_BYTES
        )
    return PreparedFile(row, _facts(row, digest))


def _written(head: bytes, file: BinaryIO, mime_type: str, *, most: int | None) -> tuple[str, int, str]:
    """Write a file; return its path below the data folder, its size and its checksum."""
    name = uuid.uuid4().hex
    place = Path(attachments.FOLDER) / name[:2] / f"{name}.{attachments.extension_of(mime_type)}"
    path = Path(settings.DATA_DIR) / place
    digest, size = hashlib.sha256(), 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as out:
            for chunk in _pieces(head, file):
                size += len(chunk)
                if most is not None and size > most:
                    raise TooLarge(f"A file may have at most {most // settings.MIB} MiB.")
                digest.update(chunk)
                out.write(chunk)
            out.flush()
            os.fsync(out.fileno())  # the row must never outlive the bytes
    except OSError as problem:
        path.unlink(missing_ok=True)
        raise Busy(
            f"The file could not be stored: {problem.strerror}. Nothing was sent.", retry_after=30
        ) from None
    except TooLarge:
        path.unlink(missing_ok=True)
        raise
    return place.as_posix(), size, digest.hexdigest()


def _pieces(head: bytes, file: BinaryIO) -> Iterator[bytes]:
    yield head
    while chunk := file.read(attachments.CHUNK):
        yield chunk


def _facts(row: ChatAttachment, digest: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "attachment_id": row.pk,
        "url": f"/api/chat/attachments/{row.pk}",
        "filename": row.filename,
        "mime_type": row.mime_type,
        "size_bytes": row.size_bytes,
        "sha256": digest,
    }
    if row.mime_type.startswith("image/") and attachments.is_shown(row.mime_type):
        with attachments.opened(row) as file:
            size = attachments.dimensions(file)
        if size:  # known beforehand, so that a page does not jump when the image arrives
            facts |= {"width": size[0], "height": size[1]}
    return facts


def keep_copy(file: BinaryIO, mime_type: str) -> str:
    """Keep the bytes of a file that another program stored, whatever their size; return their `disk_path`."""
    return _written(b"", file, mime_type, most=None)[0]


def prepare_bytes(data: bytes, *, filename: str, declared: str, now: datetime) -> PreparedFile:
    """Keep bytes that came in a data URL."""
    kind = declared.partition("/")[0] or "file"
    named = filename or f"{kind}.{attachments.extension_of(declared)}"
    return prepare(io.BytesIO(data), filename=named, declared=declared, now=now)


def save(prepared: Iterable[PreparedFile], message: ChatMessage) -> None:
    """Write the rows of a message's files, in the transaction of the message."""
    for one in prepared:
        one.row.message = message
        one.row.save(force_insert=True)


def forget(rows: Any) -> int:
    """Delete these attachments (a queryset); their files go once the transaction is committed. Returns how many."""
    found = list(rows.values_list("pk", "disk_path"))
    rows.delete()

    def remove_files() -> None:
        for pk, disk_path in found:
            attachments.forget_thumbnail(pk)
            if disk_path:
                remove(disk_path)

    transaction.on_commit(remove_files)
    return len(found)


def remove(disk_path: str) -> None:
    """Remove one stored file. What is outside the folder is left alone: a row may name anything."""
    path = (Path(settings.DATA_DIR) / disk_path).resolve()
    if not path.is_relative_to(attachments.folder().resolve()):
        log.warning("The attachment at %s is outside the attachments folder and was not removed", disk_path)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as problem:  # the row is gone; the command that looks for orphans finds it
        log.warning("The file %s could not be removed: %s", path, problem.strerror)


@dataclass(frozen=True, slots=True)
class Findings:
    """Files that no row names, and rows whose file is gone or is not what was sent."""

    orphans: list[Path]
    missing: list[str]
    damaged: list[str]


def examine(now: datetime, *, checksums: bool = False) -> Findings:
    """Compare the folder with the rows; with `checksums`, read every file whose message tells its checksum."""
    known = set(ChatAttachment.objects.filter(storage_type=DISK).values_list("disk_path", flat=True))
    base = Path(settings.DATA_DIR)
    orphans = [
        path
        for path in sorted(attachments.folder().rglob("*"))
        if path.is_file() and path.relative_to(base).as_posix() not in known and _is_old(path, now)
    ]
    missing, damaged = [], []
    for row in ChatAttachment.objects.select_related("message").order_by("pk").iterator():
        try:
            with attachments.opened(row):
                pass
            if checksums and _expected_checksum(row) not in (None, attachments.checksum(row)):
                damaged.append(row.pk)
        except Exception:  # gone, unreadable, outside the folder: all the same here
            missing.append(row.pk)
    return Findings(orphans, missing, damaged)


def _is_old(path: Path, now: datetime) -> bool:
    return now.timestamp() - path.stat().st_mtime > ORPHAN_AFTER.total_seconds()


def _expected_checksum(row: ChatAttachment) -> str | None:
    content = row.message.content
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("attachment_id") == row.pk:
            expected = block.get("sha256")
            return expected if isinstance(expected, str) else None
    return None


def remove_orphans(findings: Findings) -> int:
    """Remove the files that no row names; return how many."""
    for path in findings.orphans:
        path.unlink(missing_ok=True)
    return len(findings.orphans)
