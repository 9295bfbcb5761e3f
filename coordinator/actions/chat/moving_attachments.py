"""Moves of attached files from one store to another, while they are read and written.

Each file is copied, read back and compared; then its row is changed to the new store; only then the old copy is
deleted. So a move that is interrupted at any step loses nothing, and the next one resumes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

from django.core.files import File
from django.db import transaction

from coordinator.actions.audit import audit
from coordinator.actions.chat import attachments as actions
from coordinator.chat import attachments, stores
from coordinator.chat import verified_reading as checked
from coordinator.errors import NotFound, StoredDataCorrupt
from coordinator.identity.actors import system_actor
from coordinator.models import ChatAttachment, StoredFile
from coordinator.models.chat import FilePlace

PAGE = 500
MOVER = system_actor("move_attachments")
# What our own names, and those of other programs that are much like them, look like.
_NAME = re.compile(rf"{stores.FOLDER}(/[A-Za-z0-9_-][A-Za-z0-9._-]*){{1,8}}")

Say = Callable[[str], object]


@dataclass(slots=True)
class MoveReport:
    """What a move did: how many files and bytes, and by attachment why one stayed where it is."""

    files: int = 0
    bytes: int = 0
    stayed: dict[str, str] = field(default_factory=dict)


def iterate_misplaced_attachments(to: FilePlace) -> Iterator[ChatAttachment]:
    """Yield the attachments whose files lie elsewhere; what changes meanwhile does no harm."""
    rows = ChatAttachment.objects.filter(storage_type=actions.DISK).exclude(pk=None)
    rows = rows.select_related("message", "stored").defer("inline_data").order_by("pk")
    after = ""
    while page := list(rows.filter(pk__gt=after)[:PAGE]):
        yield from (row for row in page if attachments.store_name_of_attachment(row) != to)
        after = page[-1].pk


def move_attachments(to: FilePlace, now: datetime, *, keep: bool, say: Say) -> MoveReport:
    """Move every file to the store of new files; with `keep`, keep the old copies.

    Raises Busy where a store is unavailable. Audited once, with the count, also when it is interrupted.
    """
    moved = MoveReport()
    try:
        for row in iterate_misplaced_attachments(to):
            try:
                moved.bytes += move_attachment_and_return_size(row, to, keep=keep)
                moved.files += 1
            except (NotFound, StoredDataCorrupt) as problem:
                moved.stayed[row.pk] = str(problem.detail)
            if moved.files and not moved.files % PAGE:
                say(f"{moved.files} files are moved …")
    finally:
        if moved.files:
            facts = {"files": moved.files, "bytes": moved.bytes, "stayed": len(moved.stayed)}
            audit.record_audit_entry(
                "ATTACHMENTS_MOVED", actor=MOVER, target=to, result="success", metadata=facts, now=now
            )
    return moved


def move_attachment_and_return_size(row: ChatAttachment, to: FilePlace, *, keep: bool) -> int:
    """Move one file and return its size.

    Raises NotFound and StoredDataCorrupt for one that cannot be moved, and Busy.
    """
    name, stored_file = row.disk_path or "", attachments.attachment_stored_file_or_none(row)
    if not _NAME.fullmatch(name):
        raise NotFound(f"The path of the attachment {row.pk} is not of our form: {name[:100]!r}.")
    stored_file = stored_file or actions.record_file_fingerprint(row)
    target = stores.require_attachment_store(to)
    with attachments.open_attachment(row) as file, attachments.translate_read_errors_during_block(row):
        target.save(name, File(file))
        verify_copied_file(target, name, stored_file)
    record_move_and_remove_copy(row, stored_file, to, keep=keep)
    return stored_file.size_bytes


def verify_copied_file(target: stores.AttachmentStore, name: str, stored_file: StoredFile) -> None:
    """Read the copy back; its reader compares it."""
    with checked.open_file_verified_while_reading(target, name, stored_file) as copy:
        while copy.read(attachments.CHUNK):
            pass


def record_move_and_remove_copy(
    row: ChatAttachment, stored_file: StoredFile, to: FilePlace, *, keep: bool
) -> None:
    """Record the file's new store in the database; then remove the copy that is not needed."""
    name, source = row.disk_path or "", stored_file.place
    with transaction.atomic():
        if ChatAttachment.objects.select_for_update().filter(pk=row.pk).values("pk").first() is None:
            transaction.on_commit(lambda: remove_unused_attachment_copy(name, to))  # deleted meanwhile
            return
        # The removal of unused files locks the row, too: until now the copy was one (attachments.remove_orphans).
        with attachments.translate_read_errors_during_block(row):
            stores.require_attachment_store(to).file_modified_at(name)
        StoredFile.objects.filter(pk=row.pk).update(place=to)
        if not keep:
            transaction.on_commit(lambda: remove_unused_attachment_copy(name, source))


def remove_unused_attachment_copy(name: str, store_name: str) -> None:
    """Remove a copy, unless another attachment's file is the very same one."""
    other_attachments = (
        ChatAttachment.objects.filter(disk_path=name).select_related("stored").defer("inline_data")
    )
    if not any(attachments.store_name_of_attachment(row) == store_name for row in other_attachments):
        actions.remove_attachment_file(name, store_name)
