"""Writing and removal of attached files: written before the row that names them, removed after that row is gone.

Names and paths are made here; no name or id of a client reaches the file system.
"""

from __future__ import annotations

import hashlib
import io
import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

from django.conf import settings
from django.core.files import File
from django.db import IntegrityError, transaction

from coordinator.chat import attachments, stores
from coordinator.chat import verified_reading as checked
from coordinator.chat.stores import ListedStoredFile
from coordinator.chat.verified_reading import FileFingerprint
from coordinator.errors import NotFound, ServiceBusy, StoredDataCorrupt
from coordinator.models import ChatAttachment, ChatMessage, StoredFile
from coordinator.models.chat import FilePlace

log = logging.getLogger(__name__)

DISK, INLINE = ChatAttachment.StorageType.DISK, ChatAttachment.StorageType.INLINE
# A file younger than this may belong to a message that is being written just now.
ORPHAN_AFTER = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is stored; the row that refers to it is not written yet."""

    name: str  # what the row calls its disk_path
    store_name: FilePlace
    fingerprint: FileFingerprint
    proven: str | None

    def delete_written_file(self) -> None:
        """Remove it again: no row will name it."""
        remove_attachment_file(self.name, self.store_name)

    def build_stored_file(self, attachment_id: str) -> StoredFile:
        """Return the unsaved row that records where the attachment's file is stored."""
        return StoredFile(
            attachment_id=attachment_id,
            place=self.store_name,
            size_bytes=self.fingerprint.size,
            sha256=self.fingerprint.sha256,
            pieces=self.fingerprint.pieces,
            proven=self.proven or "",
        )


@dataclass(frozen=True, slots=True)
class PreparedFile:
    """A file whose bytes are kept, outside of the row if there are many; its row waits for its message."""

    row: ChatAttachment
    facts: dict[str, Any]  # what its content block says of it
    written_file: WrittenFile | None = None

    def discard_prepared_file(self) -> None:
        """Remove the bytes again: the message was not written."""
        if self.written_file:
            self.written_file.delete_written_file()


def store_file_as_prepared_attachment(
    file: BinaryIO, *, filename: str, declared: str, now: datetime
) -> PreparedFile:
    """Keep a file's bytes and return its row, unsaved.

    Raises TooLarge, or ServiceBusy where they cannot be stored now.
    """
    name = attachments.sanitize_file_name(filename)
    head = file.read(attachments.INLINE_UP_TO + 1)
    mime_type = attachments.determine_mime_type(head[: attachments.HEAD], declared, name)
    row = ChatAttachment(
        id=f"att_{uuid.uuid4().hex}", filename=name, mime_type=mime_type, created_at=now, disk_path=None
    )
    written_file = None
    file.seek(0)
    size = attachments.read_image_dimensions(file)
    if len(head) <= attachments.INLINE_UP_TO:
        row.storage_type, row.inline_data, row.size_bytes = INLINE, head, len(head)
        digest = hashlib.sha256(head).hexdigest()
    else:
        written_file = store_and_fingerprint_attachment_file(
            file, mime_type, most=settings.ATTACHMENT_MAX_BYTES
        )
        row.storage_type, row.disk_path, row.size_bytes = (
            DISK,
            written_file.name,
            written_file.fingerprint.size,
        )
        digest = written_file.fingerprint.sha256
    return PreparedFile(row, build_attachment_metadata(row, digest, size), written_file)


def store_and_fingerprint_attachment_file(
    file: BinaryIO, mime_type: str, *, most: int | None = None
) -> WrittenFile:
    """Keep a file from its beginning on, of `most` bytes.

    Raises TooLarge, and ServiceBusy where it cannot be stored now.
    """
    unique, store_name = uuid.uuid4().hex, stores.store_name_for_new_files()
    name = f"{stores.FOLDER}/{unique[:2]}/{unique}.{attachments.stored_file_extension(mime_type)}"
    file.seek(0)
    proven = attachments.sniff_mime_type(file.read(attachments.HEAD))
    file.seek(0)
    fingerprint = checked.fingerprint_file_content(file, most=most)
    file.seek(0)
    try:
        stores.require_attachment_store(store_name).save(name, File(file))
    except OSError as problem:
        raise ServiceBusy(
            f"The file could not be stored: {problem.strerror}. Nothing was sent.", retry_after=30
        ) from None
    return WrittenFile(name, store_name, fingerprint, proven)


def build_attachment_metadata(
    row: ChatAttachment, digest: str, size: tuple[int, int] | None
) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "attachment_id": row.pk,
        "url": f"/api/chat/attachments/{row.pk}",
        "filename": row.filename,
        "mime_type": row.mime_type,
        "size_bytes": row.size_bytes,
        "sha256": digest,
    }
    if size and row.mime_type.startswith("image/") and attachments.is_inline_media_type(row.mime_type):
        # Known beforehand, so that a page does not jump when the image arrives.
        facts |= {"width": size[0], "height": size[1]}
    return facts


def store_bytes_as_prepared_attachment(
    data: bytes, *, filename: str, declared: str, now: datetime
) -> PreparedFile:
    """Keep bytes that came in a data URL."""
    kind = declared.partition("/")[0] or "file"
    stored_name = filename or f"{kind}.{attachments.stored_file_extension(declared)}"
    return store_file_as_prepared_attachment(
        io.BytesIO(data), filename=stored_name, declared=declared, now=now
    )


def save_attachment_rows(prepared: Iterable[PreparedFile], message: ChatMessage) -> None:
    """Write the rows of a message's files, in the transaction of the message."""
    for attachment in prepared:
        attachment.row.message = message
        attachment.row.save(force_insert=True)
        if attachment.written_file:
            attachment.written_file.build_stored_file(attachment.row.pk).save(force_insert=True)


def create_stored_file_rows(written_files: Mapping[str, WrittenFile]) -> None:
    """Write, by attachment, where files lie whose attachments were written otherwise."""
    StoredFile.objects.bulk_create([written.build_stored_file(pk) for pk, written in written_files.items()])


def delete_attachments(rows: Any) -> int:
    """Delete these attachments (a queryset); their files go once the transaction is committed. Returns how many."""
    # Held, so that none is moved to another place meanwhile.
    attachment_rows = list(rows.select_for_update().values_list("pk", "disk_path"))
    store_names = dict(StoredFile.objects.filter(attachment__in=rows).values_list("pk", "place"))
    rows.delete()

    def remove_deleted_attachment_files() -> None:
        for pk, disk_path in attachment_rows:
            attachments.delete_thumbnail(pk)
            if disk_path:
                remove_attachment_file(disk_path, store_names.get(pk, FilePlace.FOLDER))

    transaction.on_commit(remove_deleted_attachment_files)
    return len(attachment_rows)


def remove_attachment_file(name: str, store_name: str) -> None:
    """Remove one stored file. What is outside the folder is left alone: a row may name anything."""
    try:
        stores.require_attachment_store(store_name).delete(name)
    except FileNotFoundError:
        log.warning("The attachment at %s is outside the attachments folder and was not removed", name)
    except OSError as problem:  # the row is gone; the command that looks for orphans finds it
        log.warning("The file %s could not be removed: %s", name, problem.strerror)


@dataclass(frozen=True, slots=True)
class OrphanFile:
    """A file that no row names."""

    store_name: FilePlace
    name: str


@dataclass(slots=True)
class FileCheckReport:
    """Files that no row names, and rows whose file is gone, is not what was sent, or has not been looked through."""

    orphans: list[OrphanFile] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    thumbnails: list[Path] = field(default_factory=list)  # of images that are gone; each server makes its own
    elsewhere: int = 0  # how many do not lie where new ones go
    silent: list[str] = field(default_factory=list)  # why a place's files are not among these


def compare_stored_files_with_rows(now: datetime, *, checksums: bool = False) -> FileCheckReport:
    """Compare what the places list with the rows; with `checksums`, read every file, and know it again from now on."""
    report = FileCheckReport()
    store_names, of_new = stores.list_configured_file_stores(), stores.store_name_for_new_files()
    lists = {
        store_name: listed
        for store_name in store_names
        if (listed := files_by_name_or_report(store_name, report)) is not None
    }
    known_names: dict[str, set[str]] = {store_name: set() for store_name in FilePlace}
    for row in (
        ChatAttachment.objects.exclude(storage_type=INLINE).select_related("message", "stored").iterator()
    ):
        stored_file = attachments.attachment_stored_file_or_none(row)
        store_name = attachments.store_name_of_attachment(row)
        known_names.setdefault(store_name, set()).add(row.disk_path or "")
        report.elsewhere += store_name != of_new
        if store_name not in lists and store_name in store_names:
            continue  # reported already
        add_file_problems_to_report(
            row,
            stored_file,
            lists.get(FilePlace(store_name), {}) if store_name in FilePlace else {},
            report,
            checksums=checksums,
        )
    for store_name, files in lists.items():
        report.orphans += [
            OrphanFile(store_name, name)
            for name, file in sorted(files.items())
            if name not in known_names[store_name] and now - file.changed_at > ORPHAN_AFTER
        ]
    report.thumbnails = find_stale_thumbnail_paths(now)
    return report


def find_stale_thumbnail_paths(now: datetime) -> list[Path]:
    """Return the small pictures of images that were deleted on another server, where this one's were not seen."""
    youngest = (now - ORPHAN_AFTER).timestamp()
    old = [path for path in attachments.thumbnail_directory().glob("*") if is_file_older(path, youngest)]
    if not old:
        return []
    ids = ChatAttachment.objects.exclude(pk=None).values_list("pk", flat=True)
    known_stems = {attachments.thumbnail_path(pk).stem for pk in ids.iterator() if isinstance(pk, str)}
    return sorted(path for path in old if path.stem not in known_stems)


def is_file_older(path: Path, than: float) -> bool:
    try:
        return path.stat().st_mtime < than
    except FileNotFoundError:  # removed just now
        return False


def files_by_name_or_report(
    file_place: FilePlace, report: FileCheckReport
) -> dict[str, ListedStoredFile] | None:
    try:
        return {
            file.name: file for file in stores.require_attachment_store(file_place).iterate_stored_files()
        }
    except OSError as problem:
        report.silent.append(f"Its files cannot be listed: {problem.strerror}.")
        return None


def add_file_problems_to_report(
    row: ChatAttachment,
    stored_file: StoredFile | None,
    files: Mapping[str, ListedStoredFile],
    report: FileCheckReport,
    *,
    checksums: bool,
) -> None:
    file = files.get(row.disk_path or "")
    try:
        if stored_file is None:
            attachments.open_attachment(row).close()  # its path may be of another form
            report.unknown.append(row.pk)
        elif file is None:
            report.missing.append(row.pk)
            return
        elif file.size != stored_file.size_bytes:
            report.damaged.append(row.pk)
            return
        if checksums and not match_or_record_attachment_checksum(row, stored_file):
            report.damaged.append(row.pk)
    except StoredDataCorrupt:
        report.damaged.append(row.pk)
    except Exception:  # gone, unreadable, outside the folder: all the same here
        report.missing.append(row.pk)


def match_or_record_attachment_checksum(row: ChatAttachment, stored_file: StoredFile | None) -> bool:
    """Read a file; one that nobody has looked through yet is known again from now on."""
    if stored_file is not None:
        return attachments.compute_attachment_sha256(
            row
        ) == stored_file.sha256 and find_checksum_in_message_content(row) in (
            None,
            stored_file.sha256,
        )
    try:
        record_file_fingerprint(row)
    except StoredDataCorrupt:
        return False
    return True


def record_file_fingerprint(row: ChatAttachment) -> StoredFile:
    """Read a file that an older version or another program stored; it is known again from now on.

    Raises StoredDataCorrupt, and NotFound where the attachment is deleted meanwhile.
    """
    with attachments.open_attachment(row) as file, attachments.translate_read_errors_during_block(row):
        proven = attachments.sniff_mime_type(file.read(attachments.HEAD))
        file.seek(0)
        fingerprint = checked.fingerprint_file_content(file)
    if find_checksum_in_message_content(row) not in (None, fingerprint.sha256):
        raise StoredDataCorrupt(f"The file of the attachment {row.pk} is damaged: it is not what was sent.")
    stored_file = WrittenFile(row.disk_path or "", FilePlace.FOLDER, fingerprint, proven).build_stored_file(
        row.pk
    )
    try:
        with transaction.atomic():
            StoredFile.objects.bulk_create([stored_file], ignore_conflicts=True)
    except IntegrityError:
        raise NotFound(f"The attachment {row.pk} no longer exists.") from None
    return stored_file


def find_checksum_in_message_content(row: ChatAttachment) -> str | None:
    content = row.message.content
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("attachment_id") == row.pk:
            expected = block.get("sha256")
            return expected if isinstance(expected, str) else None
    return None


def remove_orphan_files(findings: FileCheckReport, now: datetime) -> int:
    """Remove the files that no row names, those of which that still holds; return how many."""
    removed = sum(remove_orphan_file(orphan, now) for orphan in findings.orphans)
    for path in findings.thumbnails:
        path.unlink(missing_ok=True)
    return removed + len(findings.thumbnails)


def remove_orphan_file(orphan: OrphanFile, now: datetime) -> bool:
    """Remove a file, unless it came into use since it was listed: a move that is begun again uses its copies."""
    rows = (
        ChatAttachment.objects.select_for_update(of=("self",)).select_related("stored").defer("inline_data")
    )
    with transaction.atomic():
        # Held, so that no move comes to count on this copy before it is gone (moving_attachments).
        if any(
            attachments.store_name_of_attachment(row) == orphan.store_name
            for row in rows.filter(disk_path=orphan.name)
        ):
            return False
        try:
            store = stores.require_attachment_store(orphan.store_name)
            if now - store.file_modified_at(orphan.name) <= ORPHAN_AFTER:
                return False
            store.delete(orphan.name)
        except OSError as problem:
            log.warning("The file %s could not be removed: %s", orphan.name, problem.strerror or problem)
            return False
    return True
